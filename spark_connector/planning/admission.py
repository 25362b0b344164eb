"""How far a micro-batch reads: from the positions of the query towards the ends of the logs, within limits.

Pure.

A batch stays within its limits, unless a single event is larger than `maxBytesPerTrigger`. If events exist
and no minimum delays them, the batch is not empty. Every partition is read after a limited number of batches.
No event is skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spark_connector.planning.holdings import Available, LogState
from spark_connector.planning.offsets import Numbers, Offsets, StreamOffsets


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one micro-batch; None: unlimited."""

    offsets: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """The events of a partition that a query has not read.

    Offsets `start` to `end` (exclusive), with about `cost` bytes each.
    """

    stream: str
    partition: int
    start: int
    end: int
    cost: int = 1

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.end - self.start


def lags(start: Offsets, available: Available) -> list[Lag]:
    """Return the lag of each partition, in the order of log and partition.

    Events that were removed do not count.
    """
    found: list[Lag] = []
    for stream in sorted(available):
        state = available[stream]
        for index in sorted(state.partitions):
            held = state.partitions[index]
            # A start before the earliest event counts from there: removed events do not count as lag.
            first = min(max(position_of(start, stream, state, index), held.earliest), held.next)
            found.append(Lag(stream, index, first, held.next, held.average_bytes))
    return found


def position_of(start: Offsets, stream: str, state: LogState, index: int) -> int:
    """Return the position of the query in a partition.

    In a log that is new to the query, it is the earliest offset. In a new partition or incarnation, it is 0.
    """
    before = start.streams.get(stream)
    if before is None:
        return state.partitions[index].earliest
    return before.next.get(index, 0) if before.incarnation == state.incarnation else 0


def advance(start: Offsets, available: Available, limits: Limits, *, hold: bool = False) -> Offsets:
    """Return the end of the next batch, or `start` itself if a next batch is not needed.

    `hold`: read nothing yet.

    The first batch exists even if it reads nothing: its end contains the start of the query, which is missing
    in Spark's checkpoint otherwise.
    """
    if hold and not start.initial:
        return start
    waiting = lags(start, available)
    given = [0] * len(waiting) if hold else admit(waiting, limits)
    streams: dict[str, dict[int, int]] = {stream: {} for stream in available}
    for lag, count in zip(waiting, given, strict=True):
        streams[lag.stream][lag.partition] = lag.start + count
    # A log that is missing, or is not read any more, keeps its position, because it may be read again later.
    ended = dict(start.streams) | {
        stream: StreamOffsets(available[stream].incarnation, numbers) for stream, numbers in streams.items()
    }
    begun = _begun(start, available)
    if not begun and _same(start, ended):
        return start
    return Offsets(ended, begun=begun)


def _begun(start: Offsets, available: Available) -> Numbers:
    """Return where the batch begins in logs whose start is not in the end of an earlier batch."""
    unrecorded = start.streams.items() if start.initial else ()
    begun = {stream: dict(offsets.next) for stream, offsets in unrecorded if stream in available}
    for stream, state in available.items():
        if stream not in start.streams:
            begun[stream] = {index: held.earliest for index, held in state.partitions.items()}
    return begun


def _same(start: Offsets, ended: dict[str, StreamOffsets]) -> bool:
    return {name: (one.incarnation, dict(one.next)) for name, one in start.streams.items()} == {
        name: (one.incarnation, dict(one.next)) for name, one in ended.items()
    }


def admit(waiting: Sequence[Lag], limits: Limits) -> list[int]:
    """Return how many offsets of each lag a batch reads."""
    counts = [lag.count for lag in waiting]
    first = sum(lag.start for lag in waiting)
    if limits.offsets is not None:
        counts = share(counts, [1] * len(counts), limits.offsets, first)
    if limits.bytes is not None:
        counts = share(counts, [lag.cost for lag in waiting], limits.bytes, first)
    return counts


def share(counts: Sequence[int], costs: Sequence[int], limit: int, first: int) -> list[int]:
    """Divide `limit` among `counts` in proportion. `costs`: the cost of one unit of each entry.

    Each entry gets one unit before any entry gets a second one, beginning with the entry that `first`
    selects. `first` should increase by the number of units that are given: an entry without a unit is then
    among the first ones of the next call.
    """
    assert limit > 0, limit
    if sum(count * cost for count, cost in zip(counts, costs, strict=True)) <= limit:
        return list(counts)
    given = [0] * len(counts)
    waiting = [index for index, count in enumerate(counts) if count]
    # The order rotates with `first`, so that no entry is always the last.
    turns = [waiting[(first + turn) % len(waiting)] for turn in range(len(waiting))]
    left = limit
    for index in turns:
        # One unit is given even if it is larger than the limit: otherwise a large event would stop the query.
        if costs[index] <= left or left == limit:
            given[index] = 1
            left -= costs[index]
    rest = {index: (counts[index] - 1) * costs[index] for index in turns if given[index]}
    total = sum(rest.values())
    if left > 0 and total:
        spare = min(left, total)
        for index, weight in rest.items():
            more = weight * spare // total // costs[index]
            given[index] += more
            left -= more * costs[index]
        # What rounding left over.
        for index in turns:
            if 0 < given[index] < counts[index] and costs[index] <= left:
                given[index] += 1
                left -= costs[index]
    return given


def held_back(total: int, at_least: int | None, waited_ms: int, at_most_ms: int) -> bool:
    """Return whether a batch waits.

    Fewer than `at_least` offsets exist, and the maximum wait has not passed.
    """
    return at_least is not None and total < at_least and waited_ms < at_most_ms
