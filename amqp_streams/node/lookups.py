"""Lookups of a time that wait for the store, so that nothing else waits for them.

A lookup makes the store read what the same lookup needs; then the caller looks the time up at once. Laws: a
lookup advances with each answer of the store, however little the store keeps in memory; a cancelled lookup
calls nothing.
"""

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial

from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import LATER, Partition, ReadRequest


def prepared(
    partitions: Iterable[Partition], after_ms: int | None, connection: Hashable
) -> Generator[Wait, None, None]:
    """Prepare a lookup within a request. None as `connection`: the caller cannot wait.

    Raises:
        StorageError: the disk failed.
    """
    if after_ms is None or connection is None:
        return
    request = ReadRequest(connection, lambda: None)
    try:
        for partition in partitions:
            while True:
                wait = Wait()
                request.ready = partial(wait.ended, None, 0)
                if partition.seek_timestamp(after_ms, request) is not LATER:
                    break
                yield wait
    finally:
        request.cancel()


@dataclass(slots=True, eq=False)
class Lookup:
    """A lookup for an attach. `sought`: the partitions that are prepared, by number."""

    after_ms: int
    request: ReadRequest
    sought: set[int] = field(default_factory=set)

    def waits(self, partitions: Iterable[Partition]) -> bool:
        """Whether the store will answer later. If it has no more to read, the attach can continue.

        Raises:
            StorageError: the disk failed.
        """
        for partition in partitions:
            if partition.index not in self.sought:
                if partition.seek_timestamp(self.after_ms, self.request) is LATER:
                    return True
                self.sought.add(partition.index)
        return False


class Lookups:
    """The lookups of attaches.

    `on_answer`: set by the shell, called when the store has answered; then the shell calls `proceed`. None:
    the shell cannot wait.
    """

    def __init__(self) -> None:
        self.on_answer: Callable[[], None] | None = None
        self._answered: dict[Lookup, Callable[[int], None]] = {}

    def begin(self, after_ms: int | None, connection: Hashable, then: Callable[[int], None]) -> Lookup | None:
        """A lookup that calls `then` with the time of the node after each answer. None: nothing can wait."""
        if after_ms is None or self.on_answer is None:
            return None
        request = ReadRequest(connection, lambda: None)
        lookup = Lookup(after_ms, request)
        request.ready = partial(self._ready, lookup, then)
        return lookup

    def cancel(self, lookup: Lookup | None) -> None:
        """Forget a lookup."""
        if lookup is not None:
            lookup.request.cancel()
            self._answered.pop(lookup, None)

    def proceed(self, now_ms: int) -> None:
        """Continue the attaches whose lookups were answered."""
        while self._answered:
            lookup = next(iter(self._answered))
            self._answered.pop(lookup)(now_ms)

    def _ready(self, lookup: Lookup, then: Callable[[int], None]) -> None:
        self._answered[lookup] = then
        if self.on_answer is not None:
            self.on_answer()
