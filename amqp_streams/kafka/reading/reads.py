"""The reads of old records, by a bounded number of consumers: what is in memory, what is next. Pure.

Laws:
1. A read whose records are in memory is answered at once: it never waits for a consumer.
2. What was read for a request is kept until the request takes it, whatever the cache does with it. Otherwise,
   with many readers, records are removed from the cache before their reader has its turn, and read again.
3. When `held_bytes` are kept in this way, reads begin one at a time: consumers do not read faster than the
   readers take. What was kept the longest time makes room then, since its reader may not want it any more.
4. A reader that reads on finds its next records read already, if no read waits: a consumer that is free reads
   ahead by one load. Otherwise the reader and its consumer would work in turns, and never at the same time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.kafka.reading.spans import Missing, Span, Spans
from amqp_streams.kafka.reading.turns import SKIP_BYTES, Position, Turns, Wanted
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest, Use
from amqp_streams.wire.batched.packed import total_bytes

READ_BYTES: Final = 960 << 10
"""How much one read brings, if there is as much: what one reader asks for serves its neighbours. A little
less than four batched deliveries of the usual size, so that none of them needs the records of two reads.
"""
WHOLE_BYTES: Final = 1 << 20
WHOLE_FROM: Final = 128 << 10
"""A reader that asks for at least `WHOLE_FROM` bytes gets up to `WHOLE_BYTES` if no read waits: all that one
read brought. A part of it would be copied, so that it does not keep all of it in memory.
"""
READ_BYTES_MIN: Final = 64 << 10
"""How much it brings if so many reads wait that the cache would have less for each of them."""
CACHE_BYTES: Final = 64 << 20
"""How much of what was read is in memory."""
HELD_PART: Final = 4
"""The part of the cache that is kept for requests that have not taken their records."""
_ANSWERED_AT_ONCE: Final = 200
"""How many other reads the records of one read answer: less than a millisecond."""


@dataclass(slots=True, eq=False)
class Load:
    """A read that a consumer makes, from the number `start` on: `size` bytes from the number `at` on.

    `pending`: None while no request waits for what is read ahead. `span` or `error`: how it ended.
    """

    consumer: int
    place: Hashable
    start: int
    at: int
    size: int
    owner: Hashable
    pending: "_Pending | None"
    forgotten: int
    span: Span | None = None
    error: StorageError | None = None


class _Pending(Wanted):
    """A read that waits for a consumer, or has one, or has ended."""

    __slots__ = ("_reads", "cancelled", "ended", "error", "span")

    def __init__(self, reads: "Reads", request: ReadRequest, place: Hashable, at: int) -> None:
        super().__init__(request, place, at)
        self._reads = reads
        self.cancelled = self.ended = False
        self.span: Span | None = None
        self.error: StorageError | None = None

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self.cancelled = True
        self._reads.given_up(self)

    def answer(self) -> None:
        self.ended = True
        if not self.cancelled:
            self.request.ready()


class Reads:
    """`begin` starts a load in a thread; `ended` must be called with it, on the event loop's thread."""

    def __init__(self, begin: Callable[[Load], None], consumers: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._begin: Final = begin
        self._count: Final = consumers
        self._cache_bytes: Final = cache_bytes
        self._held_bytes: Final = cache_bytes // HELD_PART
        self._spans: Final = Spans(cache_bytes - self._held_bytes)
        self._turns: Final = Turns()
        self._free: Final[dict[int, Position | None]] = dict.fromkeys(range(consumers))
        """The consumers without a load, and where they are. The first has been free the longest."""
        self._running = 0
        """The bytes of the loads that have begun."""
        self._held: Final[OrderedDict[_Pending, int]] = OrderedDict()
        """The reads that have ended and whose records were not taken, and how many bytes they have."""
        self._held_now = 0
        self._ahead: Final[dict[tuple[Hashable, int], Load]] = {}
        """The loads that read ahead, by partition and number."""
        self._forgotten = 0
        """How many partitions were forgotten as a whole."""
        self._stopped = False

    def find(self, place: Hashable, at: int, end: int, bytes_max: int) -> Chunk | Missing | None:
        """See `Spans.find`, and `WHOLE_FROM`."""
        if bytes_max >= WHOLE_FROM and not len(self._turns):
            bytes_max = max(bytes_max, WHOLE_BYTES)
        return self._spans.find(place, at, end, bytes_max)

    def uncovered(self, place: Hashable, at: int) -> int:
        """See `Spans.uncovered`."""
        return self._spans.uncovered(place, at)

    def taken(self, request: ReadRequest, place: Hashable, found: Chunk | None, end: int) -> None:
        """A request got its answer. `end`: the number after the last record of the partition."""
        request.cancel()
        if found is not None:
            self._turns.took(request.owner, total_bytes(found.messages))
            self._read_ahead(request.owner, place, found, end)

    def ask(self, request: ReadRequest, place: Hashable, at: int) -> Later | None:
        """Let a request wait for the record `at`. None: it is there now.

        Raises:
            StorageError: why the read that has ended brought nothing.
        """
        pending = request.pending
        if isinstance(pending, _Pending) and (pending.place, pending.at) == (place, at):
            if not pending.ended:
                return LATER
            request.pending = None
            self._let_go(pending)
            if pending.error is not None:
                raise pending.error
            if pending.span is not None:
                # It had to make room for others since.
                self._spans.add(place, pending.span)
                return None
        request.cancel()
        pending = _Pending(self, request, place, at)
        request.pending = pending
        ahead = self._ahead.get((place, at))
        if ahead is not None and ahead.pending is None:
            ahead.pending = pending
            return LATER
        self._turns.add(pending)
        self._start()
        return LATER

    def add(self, place: Hashable, span: Span) -> None:
        """Keep what was read elsewhere, for example from the end of a partition."""
        self._spans.add(place, span)

    def forget(self, place: Hashable, below: int | None = None) -> None:
        """Drop what was read of a partition, or only what lies below a number."""
        self._spans.forget(place, below)
        if below is None:
            # What is being read, or held, belongs to a topic that does not exist any more.
            self._forgotten += 1
            for pending in [pending for pending in self._held if pending.place == place]:
                self._let_go(pending)
                pending.span = None

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return {
            "kafka_readers": Use(self._count - len(self._free), self._count),
            "kafka_cache_bytes": Use(self._spans.bytes + self._held_now, self._cache_bytes),
        }

    def stop(self) -> None:
        """Begin no load any more."""
        self._stopped = True

    def ended(self, load: Load) -> None:
        """A load has ended."""
        pending, span = load.pending, load.span
        self._running -= load.size
        self._free[load.consumer] = None if span is None else _position(load.place, span)
        if self._ahead.get((load.place, load.at)) is load:
            del self._ahead[load.place, load.at]
        brought = 0
        if span is not None and load.forgotten == self._forgotten:
            brought = span.size
            self._spans.add(load.place, span)
            if pending is not None and not pending.cancelled:
                self._hold(pending, span)
            for other in self._turns.covered(load.place, load.start, span.end, _ANSWERED_AT_ONCE):
                assert isinstance(other, _Pending), "no other kind waits"
                other.answer()
        self._turns.brought(load.owner, min(brought, load.size) - load.size)
        if pending is not None:
            pending.error = load.error
            pending.answer()
        self._start()

    def given_up(self, pending: _Pending) -> None:
        """A request does not want its read any more."""
        self._turns.drop(pending)
        self._let_go(pending)

    def _start(self) -> None:
        answered = 0
        while self._free and not self._stopped:
            size = max(READ_BYTES_MIN, min(READ_BYTES, self._cache_bytes // max(1, len(self._turns))))
            if self._running and self._held_now + self._running + size > self._held_bytes:
                return
            free = tuple(self._free)
            choice = self._turns.choose([self._free[each] for each in free])
            if choice is None:
                return
            index, pending, start = choice
            assert isinstance(pending, _Pending), "no other kind waits"
            # Others may have brought it in the meantime.
            if answered < _ANSWERED_AT_ONCE and self._spans.uncovered(pending.place, pending.at) > pending.at:
                answered += 1
                pending.answer()
                continue
            load = Load(
                free[index], pending.place, start, pending.at, size, pending.owner, pending, self._forgotten
            )
            self._run(load)

    def _read_ahead(self, owner: Hashable, place: Hashable, found: Chunk, end: int) -> None:
        """Read what follows, for a reader that reads on and has got the last records in memory."""
        if not self._free or len(self._turns) or self._stopped:
            return
        if self._held_now + self._running + READ_BYTES > self._held_bytes:
            return
        span = self._spans.last(place, found.end - 1)
        if span is None or span.end >= end or (place, span.end) in self._ahead:
            return
        assert span.chunk is not None, "it has the records that were found"
        # The first of several records may be all that was wanted, for example one record again.
        if found.base == span.chunk.base and found.end < span.chunk.end:
            return
        # Only where a consumer is there already: a jump would delay others.
        for consumer, position in self._free.items():
            if position is not None and (position.place, position.next) == (place, span.end):
                load = Load(consumer, place, span.end, span.end, READ_BYTES, owner, None, self._forgotten)
                self._ahead[place, span.end] = load
                self._run(load)
                return

    def _run(self, load: Load) -> None:
        del self._free[load.consumer]
        self._running += load.size
        self._turns.brought(load.owner, load.size)
        self._begin(load)

    def _hold(self, pending: _Pending, span: Span) -> None:
        pending.span = span
        self._held[pending] = span.size
        self._held_now += span.size
        while self._held_now > self._held_bytes and len(self._held) > 1:
            oldest = next(iter(self._held))
            self._let_go(oldest)
            oldest.span = None

    def _let_go(self, pending: _Pending) -> None:
        self._held_now -= self._held.pop(pending, 0)


def _position(place: Hashable, span: Span) -> Position:
    skip = SKIP_BYTES * (span.end - span.start) // span.size
    return Position(place, span.end, skip)
