"""[io] One subscriber's place in one partition: what it holds of it, how far it is, and its own reader when it is behind the shared one.

Laws: events come in the log's order, each once while the process lives; the checkpoint never passes an event that is not completed; what is
held is bounded by count and by bytes.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, cast

import structlog

from knative_gateway.delivery.window import Entry, Window
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.places import lost
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Order, Range, Stored

if TYPE_CHECKING:
    from knative_gateway.dispatcher.reader import PartitionReader
    from knative_gateway.dispatcher.subscribers.courier import Courier

log = structlog.get_logger(__name__)

STEPS_AT_ONCE: Final = 1 << 18
"""Steps of filters after which others get their turn: about a millisecond."""
_AGAIN_S: Final = 1.0
TURN_BATCHES: Final = 20
"""Batches that a reader of one subscriber takes before others that wait to read get their turn."""
QUIET_S: Final = 5.0
"""How long it waits for the next batch: at the end of the log it would keep others from reading."""
RANGES_MAX: Final = 1_000
"""Ranges that are kept of one subscriber and partition: the lowest. What is beyond them may be delivered again after a restart."""


class Track:
    """Made at `position`; then either a member of the shared reader or reading by itself.

    `done`: ranges behind the position that were completed before this process began; they are passed over.
    """

    def __init__(self, courier: "Courier", reader: "PartitionReader", position: str, done: Sequence[Range] = ()) -> None:
        self.courier: Final = courier
        self.reader: Final = reader
        self.window: Final = Window(courier.spec.order, courier.outside.settings.look_ahead, position)
        self.passed = position
        self.passed_ms: int | None = None
        self.saved = position
        self.saved_done: Sequence[Range] = done
        self.key: Final = (courier.spec.uid, reader.partition)
        self.held_bytes = 0
        self._last = position
        self._done: Final = deque(done)
        self._arrivals: Final[dict[str, Arrival]] = {}
        self._times: Final[dict[str, int]] = {}
        self._catching_up: asyncio.Task[None] | None = None
        self.closed = False

    # -- what is held

    def offer(self, arrival: Arrival) -> bool:
        """Take an event that is for this subscriber; False: there is no room. One that it has had is taken and forgotten."""
        if arrival.offset <= self._last:
            return True
        if self._done and self._was_completed(arrival.offset):
            self._advance(arrival.offset)
            return True
        courier = self.courier
        held = courier.held_bytes
        if self.window.full or (held and held + arrival.size > courier.outside.settings.held_bytes_max):
            return False
        self._advance(arrival.before)
        self.window.add(arrival.offset, arrival.key if self.window.order is Order.BY_KEY else None)
        self._last = arrival.offset
        self._arrivals[arrival.offset] = arrival
        self._times[arrival.offset] = arrival.timestamp_ms
        courier.held_bytes += arrival.size
        self.held_bytes += arrival.size
        courier.figures.matched += 1
        courier.turns.stir(self)
        courier.pump()
        return True

    def take(self) -> tuple[Entry, Arrival]:
        """The next event to begin with; there is one."""
        entry = self.window.take()
        assert entry is not None
        return entry, self._arrivals.pop(entry.offset)

    def complete(self, entry: Entry, arrival: Arrival) -> None:
        """It is done."""
        self.courier.held_bytes -= arrival.size
        self.held_bytes -= arrival.size
        del self._times[entry.offset]
        if self.window.complete(entry):
            self.courier.outside.touched.add(self)
        if not self.closed:
            self.courier.turns.stir(self)
        own = self._catching_up
        # Whoever waits for the next event of a log that has none would go on to do so for itself.
        if own is not None and not own.done() and self.has_room and self.reader.admit(self):
            own.cancel()

    def position(self) -> str:
        """Up to where everything is completed, as far as is known now."""
        self._advance(self.reader.passed if self.is_member else self.passed)
        return self.window.checkpoint or positions.BEGINNING

    @property
    def reached(self) -> str:
        """What `position` would return. It changes nothing: `/metrics` is made in another thread, while the event loop works on the window.

        What was read is looked at first: if nothing is open after that, all of it is completed.
        """
        read = self.reader.passed if self.is_member else self.passed
        is_open = self.window.open > 0
        completed = self.window.checkpoint or positions.BEGINNING
        return completed if is_open else max(completed, read)

    def overtaken(self, after: str, last: str) -> None:
        """The log has nothing more between these offsets: what it was to have of them is lost."""
        found = lost(max(after, self._last), last)
        if found is not None:
            self.courier.overtaken(self.reader.partition, found)

    @property
    def is_member(self) -> bool:
        """The shared reader brings its events."""
        return self.reader.members.get(self.courier.spec.uid) is self

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest event that it holds was stored."""
        return next(iter(self._times.values()), None)

    @property
    def has_room(self) -> bool:
        """At most half of what it may hold is held."""
        settings = self.courier.outside.settings
        return self.window.open * 2 <= settings.look_ahead and self.courier.held_bytes * 2 <= settings.held_bytes_max

    def _was_completed(self, offset: str) -> bool:
        while self._done and self._done[0][1] < offset:
            self._done.popleft()
        return bool(self._done) and self._done[0][0] < offset

    @property
    def done(self) -> Sequence[Range]:
        """What is completed above `position`: as far as this process knows, including what was stored when it began."""
        known = self.window.ranges
        last = known[-1][1] if known else self.window.checkpoint or positions.BEGINNING
        return [*known, *((max(after, last), upto) for after, upto in self._done if upto > last)][:RANGES_MAX]

    def _advance(self, position: str) -> None:
        if position > self._last:
            self.window.pass_over(position)
            self._last = position

    # -- reading by itself

    def catch_up(self) -> None:
        """Begin to read by itself from where it is."""
        assert self._catching_up is None or self._catching_up.done()
        self._catching_up = asyncio.create_task(self._read())

    def joins(self) -> None:
        """From now on the shared reader brings its events."""
        self._advance(self.passed)
        self.passed_ms = None

    async def close(self) -> None:
        """Read no more, and begin no more."""
        self.closed = True
        self.courier.turns.leave(self)
        self.reader.leave(self)
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)

    async def _read(self) -> None:
        """Until the shared reader takes over. A reader without room for long is closed: what waits in it is memory."""
        while True:
            await self.courier.running.wait()
            while not self.has_room:
                await self._more_room()
            if self.reader.admit(self):
                return
            try:
                async with self.courier.outside.reading:
                    if await self._read_on():
                        return
            except GatewayError as error:
                log.warning("reading_failed", log=self.reader.log, subscriber=self.courier.spec.uid, reason=str(error))
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                # A fault of ours: this subscriber waits for this task, so it goes on.
                log.exception("reading_fault", log=self.reader.log, subscriber=self.courier.spec.uid)
                await asyncio.sleep(_AGAIN_S)

    async def _read_on(self) -> bool:
        """Read until the shared reader takes over: True; or there is no room, nothing more comes, or others wait for their turn: False."""
        outside = self.courier.outside
        stream = outside.log.read(self.reader.log, {self.reader.partition: positions.read_from(self.passed)})
        turn = 0
        async with aclosing(cast("AsyncGenerator[Sequence[Stored], None]", stream)) as batches:
            while turn < TURN_BATCHES or not outside.reading.locked():
                turn += 1
                try:
                    async with asyncio.timeout(QUIET_S):
                        batch = await anext(batches)
                except TimeoutError:
                    return False
                if not await self._take(batch):
                    return False
                if self.has_room and self.reader.admit(self):
                    return True
        return False

    async def _take(self, batch: Sequence[Stored]) -> bool:
        """Take what is for it; False if there was no room for too long, and the rest is to be read again later."""
        courier, steps = self.courier, 0
        for after, last in positions.gaps(self.passed, [stored.offset for stored in batch]):
            self.overtaken(after, last)
        for count, stored in enumerate(batch, 1):
            if stored.offset <= self.passed:
                continue
            arrival = Arrival(stored, self.passed)
            if arrival.attributes is None:
                courier.skip(arrival)
            elif courier.wants_it(arrival):
                while not self.offer(arrival):
                    if not await self._more_room(courier.outside.settings.patience_s):
                        return False
            self.passed = stored.offset
            self.passed_ms = stored.timestamp_ms
            steps += courier.filters.work.spent
            if count % 64 == 0 or steps > STEPS_AT_ONCE:
                steps = 0
                await asyncio.sleep(0)
        return True

    async def _more_room(self, patience_s: float | None = None) -> bool:
        """Wait until something was completed; False: not within that time."""
        room = self.courier.room
        room.clear()
        try:
            async with asyncio.timeout(patience_s):
                await room.wait()
        except TimeoutError:
            return False
        return True
