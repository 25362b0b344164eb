"""[io] Events that are held for one subscriber: they were read and are not completed. Counts their bytes."""

import asyncio
from collections.abc import Hashable
from typing import Final

from knative_gateway.delivery import Entry, Window
from knative_gateway.dispatcher.arrival import Arrival


class HeldBytes:
    """The bytes of held events. One event may always be held, however large it is."""

    __slots__ = ("_released", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.used = 0
        self._released: Final = asyncio.Event()

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes may be held."""
        # An event that is larger than the limit would otherwise wait without end, and all events behind it.
        return not self.used or self.used + size <= self.limit

    def add(self, size: int) -> None:
        """Count the bytes of an event."""
        self.used += size

    def release(self, size: int) -> None:
        """Subtract the bytes of an event, and wake all tasks that wait for room."""
        self.used -= size
        self._released.set()

    def wake(self) -> None:
        """Wake all tasks that wait for room, although no bytes were released."""
        self._released.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the next `release` or `wake`. False: the time is up."""
        self._released.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._released.wait()
        except TimeoutError:
            return False
        return True


class Source:
    """A source of deliveries to a subscriber: one partition, or a redrive.

    `closed`: no more of its events are begun.
    """

    def __init__(self, window: Window, held: HeldBytes) -> None:
        self.window: Final = window
        self.held: Final = held
        self.closed = False
        self._open: Final[dict[str, Arrival]] = {}

    def hold(self, number: str, arrival: Arrival, key: Hashable | None = None) -> None:
        """Hold an event. `number`: its offset, or another number that orders the events in the window."""
        self.window.add(number, key)
        self._open[number] = arrival
        self.held.add(arrival.size)

    def holds(self, number: str) -> bool:
        """Return whether an event is held: it was read, and is not completed."""
        return number in self._open

    def take(self) -> tuple[Entry, Arrival]:
        """Return the next event to begin. The window must have one."""
        entry = self.window.take()
        assert entry is not None
        return entry, self._open[entry.offset]

    def complete(self, entry: Entry) -> bool:
        """Complete an event. Returns whether the position of the window moved."""
        # Release first: `complete` of the window may merge the entry with others, which changes its offset.
        self.held.release(self._open.pop(entry.offset).size)
        return self.window.complete(entry)

    def drop(self) -> None:
        """Forget all held events. Events that are not completed are read again later, in this gateway or
        another one.
        """
        self.held.release(sum(arrival.size for arrival in self._open.values()))
        self._open.clear()

    @property
    def oldest_ms(self) -> int | None:
        """The timestamp of the oldest held event; None if no event is held."""
        oldest = next(iter(self._open.values()), None)
        return None if oldest is None else oldest.timestamp_ms
