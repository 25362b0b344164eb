"""How far a micro-batch goes: from where the query stands towards what the logs have, within limits. Pure.

Laws: no batch has more than its limits let it, but for one event that is larger than `maxBytesPerTrigger`; while there is something to read
and no minimum holds it back a batch has something; no partition waits forever for its turn; nothing is passed over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spark_connector.planning.holdings import Available, LogState
from spark_connector.planning.offsets import Numbers, Offsets, StreamOffsets


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one micro-batch; None: without bound."""

    offsets: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """What a partition has beyond where the query stands: offsets from `start` to `end` (exclusive), of about `cost` bytes each."""

    stream: str
    partition: int
    start: int
    end: int
    cost: int = 1

    @property
    def count(self) -> int:
        """Offsets."""
        return self.end - self.start


def lags(start: Offsets, available: Available) -> list[Lag]:
    """What there is to read, by stream and partition; empty where there is nothing. What is gone does not count."""
    found: list[Lag] = []
    for stream in sorted(available):
        state = available[stream]
        for index in sorted(state.partitions):
            held = state.partitions[index]
            first = min(max(standing(start, stream, state, index), held.earliest), held.next)
            found.append(Lag(stream, index, first, held.next, held.average_bytes))
    return found


def standing(start: Offsets, stream: str, state: LogState, index: int) -> int:
    """Where the query stands in a partition: at the earliest of logs that are new to it, at 0 of partitions and incarnations that are."""
    before = start.streams.get(stream)
    if before is None:
        return state.partitions[index].earliest
    return before.next.get(index, 0) if before.incarnation == state.incarnation else 0


def advance(start: Offsets, available: Available, limits: Limits, *, hold: bool = False) -> Offsets:
    """The end of the next batch; `start` itself where there is none. `hold`: read nothing yet.

    The first batch is made even if there is nothing to read: its end keeps where the query began, which Spark's checkpoint does not.
    """
    if hold and not start.initial:
        return start
    waiting = lags(start, available)
    given = [0] * len(waiting) if hold else admit(waiting, limits)
    streams: dict[str, dict[int, int]] = {stream: {} for stream in available}
    for lag, count in zip(waiting, given, strict=True):
        streams[lag.stream][lag.partition] = lag.start + count
    # A log that is not there for a while, or not read any more, keeps its place: it may come back as it was.
    ended = dict(start.streams) | {stream: StreamOffsets(available[stream].incarnation, numbers) for stream, numbers in streams.items()}
    begun = _begun(start, available)
    if not begun and _same(start, ended):
        return start
    return Offsets(ended, begun=begun)


def _begun(start: Offsets, available: Available) -> Numbers:
    """Where the batch begins in logs whose beginning no earlier batch has told."""
    told = start.streams.items() if start.initial else ()
    begun = {stream: dict(offsets.next) for stream, offsets in told if stream in available}
    for stream, state in available.items():
        if stream not in start.streams:
            begun[stream] = {index: held.earliest for index, held in state.partitions.items()}
    return begun


def _same(start: Offsets, ended: dict[str, StreamOffsets]) -> bool:
    return {name: (one.incarnation, dict(one.next)) for name, one in start.streams.items()} == {
        name: (one.incarnation, dict(one.next)) for name, one in ended.items()
    }


def admit(waiting: Sequence[Lag], limits: Limits) -> list[int]:
    """How many offsets of each a batch takes."""
    counts = [lag.count for lag in waiting]
    first = sum(lag.start for lag in waiting)
    if limits.offsets is not None:
        counts = share(counts, [1] * len(counts), limits.offsets, first)
    if limits.bytes is not None:
        counts = share(counts, [lag.cost for lag in waiting], limits.bytes, first)
    return counts


def share(counts: Sequence[int], costs: Sequence[int], limit: int, first: int) -> list[int]:
    """Of each as much as the limit lets, in proportion, but one of each before a second of any, beginning with one that `first` chooses.

    `first` should grow by what is given: then what got nothing has its turn next time.
    """
    assert limit > 0, limit
    if sum(count * cost for count, cost in zip(counts, costs, strict=True)) <= limit:
        return list(counts)
    given = [0] * len(counts)
    waiting = [index for index, count in enumerate(counts) if count]
    turns = [waiting[(first + turn) % len(waiting)] for turn in range(len(waiting))]
    left = limit
    for index in turns:
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
        for index in turns:
            if 0 < given[index] < counts[index] and costs[index] <= left:
                given[index] += 1
                left -= costs[index]
    return given


def held_back(total: int, at_least: int | None, waited_ms: int, at_most_ms: int) -> bool:
    """There is too little yet, and it has not waited for too long."""
    return at_least is not None and total < at_least and waited_ms < at_most_ms
