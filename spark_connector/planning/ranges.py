"""What to read: offset ranges [start, end), as far as they are there, cut and put together for tasks. Pure.

Laws: the ranges of a plan are those between its start and its end, each offset once, less what is told as lost; the tasks have exactly
these offsets, however they are cut; the same start and end give the same tasks while nothing is lost (a sink may number rows by them).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from spark_connector.errors import DataLossError, OffsetError
from spark_connector.planning.holdings import Available, Held
from spark_connector.planning.offsets import Edge, Numbers, Offsets, Positions, StreamOffsets

TOGETHER: Final = 10_000
"""Ranges smaller than this share a task: a task costs 7 to 40 ms, and these are decoded in as much."""
_SHOWN_MAX: Final = 5
_PLANNED_ONCE: Final = (
    "A frame or view is planned once, at its first action: call load() again, or create the view again, to read the events that the log "
    "has now. "
)
_REMEDIES: Final = (
    "Either set failOnDataLoss to false: reading continues with the events that exist, and the missing ones are counted in the log; "
    "or start again: a batch with startingOffsets that exist, a streaming query with a new checkpoint and longer retention of the log"
)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition; `start` inclusive, `end` exclusive. `incarnation`: the log that is meant, among those of its name."""

    stream: str
    partition: int
    start: int
    end: int
    incarnation: str | None

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"stream {self.stream!r}, partition {self.partition}, offsets {self.start} to {self.end} (exclusive)"


Task = tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that were wanted and are not there; `count` None: nobody knows how many. `reason` is a sentence without an end."""

    stream: str
    partition: int
    wanted: tuple[int, int]
    held: Held | None
    count: int | None
    reason: str

    def __str__(self) -> str:
        has = (
            "nothing" if self.held is None or self.held.earliest == self.held.next else f"offsets {self.held.earliest} to {self.held.next}"
        )
        lost = "an unknown number of events" if self.count is None else f"{self.count} events" if self.count != 1 else "1 event"
        return (
            f"stream {self.stream!r}, partition {self.partition}: {self.reason}; wanted offsets {self.wanted[0]} to {self.wanted[1]}, "
            f"available {has} (ends exclusive), {lost} lost"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to read, and what is not."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...] = ()


def loss_error(losses: Sequence[Loss], *, planned_once: bool = False) -> DataLossError:
    """The error for `failOnDataLoss` true: the first losses and the remedies.

    `planned_once`: a batch, which Spark may have planned long before it reads.
    """
    shown = "; ".join(str(loss) for loss in losses[:_SHOWN_MAX])
    more = f"; and {len(losses) - _SHOWN_MAX} more partitions" if len(losses) > _SHOWN_MAX else ""
    return DataLossError(
        f"events in the requested range do not exist any more: {shown}{more}", "", (_PLANNED_ONCE if planned_once else "") + _REMEDIES
    )


def located(positions: Positions, available: Available, end: Edge) -> Numbers:
    """Each position as a number. `end`: which end of the logs is meant, for errors' words.

    Raises:
        OffsetError: a partition is named that the log has not.
    """
    found: dict[str, dict[int, int]] = {}
    for stream, state in available.items():
        named = positions.named.get(stream, {})
        strange = sorted(set(named) - set(state.partitions))
        if strange:
            option = "startingOffsets" if end is Edge.EARLIEST else "endingOffsets"
            partitions = f"0 to {len(state.partitions) - 1}" if len(state.partitions) > 1 else "0"
            raise OffsetError(f"there is no partition {strange[0]}", f"stream {stream!r}, {option}", f"The log has partitions {partitions}")
        found[stream] = {index: _number(named.get(index, positions.others), held) for index, held in sorted(state.partitions.items())}
    return found


def _number(position: int | Edge, held: Held) -> int:
    if isinstance(position, int):
        return position
    return held.earliest if position is Edge.EARLIEST else held.next


def beginning(numbers: Numbers, available: Available) -> Offsets:
    """The offsets of a query that has read nothing."""
    return Offsets({name: StreamOffsets(state.incarnation, numbers[name]) for name, state in available.items()}, initial=True)


def check_order(start: Offsets, end: Offsets, available: Available) -> None:
    """See that no range ends before it begins, where the log has the events that the start names.

    Raises:
        OffsetError: the end is before the start.
    """
    for stream, state in available.items():
        for index, held in state.partitions.items():
            first, last = start.streams[stream].next[index], end.streams[stream].next[index]
            if last < first and held.earliest < first <= held.next:
                raise OffsetError(
                    f"the end, offset {last}, is before the start, offset {first}",
                    f"stream {stream!r}, partition {index}",
                    "Swap them, or leave the partition's end out to read to the end of the log",
                )


def plan(start: Offsets, end: Offsets, available: Available) -> Plan:
    """The ranges from `start` to `end`, clamped to what is there."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for stream, ending in end.streams.items():
        before = None if start.initial else start.streams.get(stream)
        same = before is not None and before.incarnation == ending.incarnation
        state = available.get(stream)
        if before is not None and not same:
            losses += _replaced(stream, before, ending)
        for index, last in ending.next.items():
            first = end.begun.get(stream, {}).get(index)
            if first is None:
                first = before.next.get(index, 0) if before is not None and same else 0
            wanted = OffsetRange(stream, index, first, last, ending.incarnation)
            if state is None or state.incarnation != ending.incarnation:
                losses += _gone(wanted, "there is no such log any more" if state is None else _ANEW)
                continue
            there, lost = clamp(wanted, state.partitions.get(index))
            ranges += [there] if len(there) > 0 else []
            losses += lost
    return Plan(tuple(ranges), tuple(losses))


_ANEW: Final = "the log was deleted and made anew"
_RETENTION: Final = "retention has removed them"


def _replaced(stream: str, before: StreamOffsets, ending: StreamOffsets) -> list[Loss]:
    """What was not read of a log that another has replaced: nobody knows."""
    return [Loss(stream, index, (first, ending.next.get(index, 0)), None, None, _ANEW) for index, first in sorted(before.next.items())]


def renewed(positions: Positions, available: Available) -> Positions:
    """Without the numbers that are of other logs than those that have their names now: they mean nothing there."""
    kept = {
        stream: named
        for stream, named in positions.named.items()
        if stream not in available or positions.incarnations.get(stream) in {None, available[stream].incarnation}
    }
    return Positions(positions.others, kept)


def replaced(positions: Positions, available: Available) -> list[Loss]:
    """Positions that are of other logs than those that have their names now."""
    return [
        Loss(stream, index, (position, position), None, None, _ANEW)
        for stream, incarnation in sorted(positions.incarnations.items())
        if stream in available and available[stream].incarnation != incarnation
        for index, position in sorted(positions.named.get(stream, {}).items())
        if isinstance(position, int)
    ]


def _gone(wanted: OffsetRange, reason: str) -> list[Loss]:
    if len(wanted) <= 0:
        return []
    return [Loss(wanted.stream, wanted.partition, (wanted.start, wanted.end), None, len(wanted), reason)]


def clamp(wanted: OffsetRange, held: Held | None) -> tuple[OffsetRange, list[Loss]]:
    """What of `wanted` is there, and what is not. A range whose end is before its start has nothing, and is a loss."""
    if held is None:
        return replace(wanted, end=wanted.start), _gone(wanted, "there is no such partition any more")
    asked = (wanted.start, wanted.end)

    def loss(count: int | None, reason: str) -> Loss:
        return Loss(wanted.stream, wanted.partition, asked, held, count, reason)

    if wanted.end < wanted.start:
        overtaken = wanted.end <= held.earliest
        reason = "the log ends before the start" if held.next < wanted.start else _RETENTION if overtaken else "the end is before the start"
        return replace(wanted, end=wanted.start), [loss(None, reason)]
    if wanted.start > held.next:
        return replace(wanted, end=wanted.start), [loss(len(wanted), "the log ends before the start")]
    lost: list[Loss] = []
    start, end = wanted.start, wanted.end
    if end > held.next:
        lost.append(loss(end - held.next, "the log ends before the end"))
        end = held.next
    if start < held.earliest:
        missing = min(end, held.earliest) - start
        if missing > 0:
            lost.append(loss(missing, _RETENTION))
        start = min(end, held.earliest)
    return replace(wanted, start=start, end=end), lost


def tasks(ranges: Iterable[OffsetRange], *, at_least: int | None, at_most: int | None, offsets_max: int) -> list[Task]:
    """Cut and put ranges together. With `at_least` small ones stay apart; `at_most` wins over it."""
    ordered = sorted((one for one in ranges if len(one) > 0), key=_place)
    total = sum(len(one) for one in ordered)
    pieces: list[OffsetRange] = []
    for one in ordered:
        count = -(-len(one) // offsets_max)
        if at_least is not None:
            count = max(count, -(-len(one) * at_least // total))
        pieces += cut(one, min(count, len(one)))
    if at_most is not None and len(pieces) > at_most:
        return _spread(pieces, at_most)
    return [(piece,) for piece in pieces] if at_least is not None else _packed(pieces, min(TOGETHER, offsets_max))


def cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` ranges of nearly one size that follow each other."""
    size = len(one)
    bounds = [one.start + size * index // count for index in range(count + 1)]
    return [replace(one, start=low, end=high) for low, high in pairwise(bounds)]


def _packed(pieces: Sequence[OffsetRange], size: int) -> list[Task]:
    """Small neighbours in one task of at most `size` offsets."""
    packed: list[list[OffsetRange]] = []
    room = 0
    for piece in pieces:
        if packed and len(piece) <= room:
            packed[-1].append(piece)
        else:
            packed.append([piece])
            room = size
        room -= len(piece)
    return [tuple(task) for task in packed]


def _spread(pieces: Sequence[OffsetRange], count: int) -> list[Task]:
    """The largest first, each to the task that has least."""
    bins: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda one: (-len(one), _place(one))):
        least = sizes.index(min(sizes))
        bins[least].append(piece)
        sizes[least] += len(piece)
    return [tuple(joined(sorted(one, key=_place))) for one in bins if one]


def joined(ordered: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Ranges that follow each other made one."""
    found: list[OffsetRange] = []
    for one in ordered:
        last = found[-1] if found else None
        if last is not None and (last.stream, last.partition, last.end) == (one.stream, one.partition, one.start):
            found[-1] = replace(last, end=one.end)
        else:
            found.append(one)
    return found


def _place(one: OffsetRange) -> tuple[str, int, int]:
    return (one.stream, one.partition, one.start)
