"""What to read: offset ranges [start, end) that exist, divided into tasks. Pure.

A plan contains each offset between its start and its end exactly once, in a range or in a loss. The tasks
contain exactly the offsets of the ranges. If nothing is lost, the same start and end give the same tasks, so
a sink may number its rows by them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from spark_connector.errors import DataLossError, OffsetError
from spark_connector.planning.holdings import Available, Held
from spark_connector.planning.offsets import Edge, Numbers, Offsets, Positions, StreamOffsets

TOGETHER: Final = 10_000
"""Ranges with fewer offsets share a task. Starting a task takes 7 to 40 ms, in which a task decodes about
this many events.
"""
_SHOWN_MAX: Final = 5
_PLANNED_ONCE: Final = (
    "A frame or view is planned once, at its first action: call load() again, or create the view again, to"
    " read the events that the log has now. "
)
_REMEDIES: Final = (
    "Either set failOnDataLoss to false: reading continues with the events that exist, and the missing ones"
    " are counted in the log; or start again: a batch with startingOffsets that exist, a streaming query with"
    " a new checkpoint and longer retention of the log"
)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition; `start` inclusive, `end` exclusive. `incarnation` identifies the log."""

    stream: str
    partition: int
    start: int
    end: int
    incarnation: str | None

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return (
            f"log {self.stream!r}, partition {self.partition}, offsets {self.start} to {self.end} (exclusive)"
        )


Task = tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Requested offsets that do not exist.

    `count`: None if it is unknown. `reason`: a sentence without a full stop.
    """

    stream: str
    partition: int
    wanted: tuple[int, int]
    held: Held | None
    count: int | None
    reason: str

    def __str__(self) -> str:
        has = (
            "nothing"
            if self.held is None or self.held.earliest == self.held.next
            else f"offsets {self.held.earliest} to {self.held.next}"
        )
        lost = (
            "an unknown number of events"
            if self.count is None
            else f"{self.count} events"
            if self.count != 1
            else "1 event"
        )
        return (
            f"log {self.stream!r}, partition {self.partition}: {self.reason}; requested offsets"
            f" {self.wanted[0]} to {self.wanted[1]}, available {has} (ends exclusive), {lost} lost"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges to read, and the losses."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...] = ()


def loss_error(losses: Sequence[Loss], *, planned_once: bool = False) -> DataLossError:
    """Return the error for `failOnDataLoss` true: the first losses and the remedies.

    `planned_once`: the query is a batch, which Spark may have planned long before it reads.
    """
    shown = "; ".join(str(loss) for loss in losses[:_SHOWN_MAX])
    more = f"; and {len(losses) - _SHOWN_MAX} more partitions" if len(losses) > _SHOWN_MAX else ""
    return DataLossError(
        f"requested events no longer exist: {shown}{more}",
        "",
        (_PLANNED_ONCE if planned_once else "") + _REMEDIES,
    )


def located(positions: Positions, available: Available, end: Edge) -> Numbers:
    """Return each position as a number. `end` selects the name of the option in error messages.

    Raises:
        OffsetError: a named partition does not exist.
    """
    found: dict[str, dict[int, int]] = {}
    for stream, state in available.items():
        named = positions.named.get(stream, {})
        unknown = sorted(set(named) - set(state.partitions))
        if unknown:
            option = "startingOffsets" if end is Edge.EARLIEST else "endingOffsets"
            partitions = f"0 to {len(state.partitions) - 1}" if len(state.partitions) > 1 else "0"
            raise OffsetError(
                f"partition {unknown[0]} does not exist",
                f"log {stream!r}, {option}",
                f"The log has partitions {partitions}",
            )
        found[stream] = {
            index: _number(named.get(index, positions.others), held)
            for index, held in sorted(state.partitions.items())
        }
    return found


def _number(position: int | Edge, held: Held) -> int:
    if isinstance(position, int):
        return position
    return held.earliest if position is Edge.EARLIEST else held.next


def beginning(numbers: Numbers, available: Available) -> Offsets:
    """Return the offsets of a query that has not read anything."""
    return Offsets(
        {name: StreamOffsets(state.incarnation, numbers[name]) for name, state in available.items()},
        initial=True,
    )


def check_order(start: Offsets, end: Offsets, available: Available) -> None:
    """Check that no range ends before its start, as far as the log still has the event at the start.

    Raises:
        OffsetError: the end is before the start.
    """
    for stream, state in available.items():
        for index, held in state.partitions.items():
            first, last = start.streams[stream].next[index], end.streams[stream].next[index]
            # If the start was removed or never existed, `plan` reports a loss, which says more.
            if last < first and held.earliest < first <= held.next:
                raise OffsetError(
                    f"the end, offset {last}, is before the start, offset {first}",
                    f"log {stream!r}, partition {index}",
                    "Swap them, or remove the end of the partition to read to the end of the log",
                )


def plan(start: Offsets, end: Offsets, available: Available) -> Plan:
    """Return the ranges from `start` to `end`, limited to the events that exist."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for stream, ending in end.streams.items():
        before = None if start.initial else start.streams.get(stream)
        # Numbers of another incarnation mean other events.
        same = before is not None and before.incarnation == ending.incarnation
        state = available.get(stream)
        if before is not None and not same:
            losses += _replaced(stream, before, ending)
        for index, last in ending.next.items():
            # The end of a batch contains its beginning where Spark may not know it: see `offsets.py`.
            first = end.begun.get(stream, {}).get(index)
            # A partition that is new since the last batch is read from its beginning.
            if first is None:
                first = before.next.get(index, 0) if before is not None and same else 0
            wanted = OffsetRange(stream, index, first, last, ending.incarnation)
            # The offsets are those of a log that does not exist any more.
            if state is None or state.incarnation != ending.incarnation:
                losses += _gone(wanted, "the log no longer exists" if state is None else _RECREATED)
                continue
            there, lost = clamp(wanted, state.partitions.get(index))
            ranges += [there] if len(there) > 0 else []
            losses += lost
    return Plan(tuple(ranges), tuple(losses))


_RECREATED: Final = "the log was deleted and recreated"
_RETENTION: Final = "retention has removed them"


def _replaced(stream: str, before: StreamOffsets, ending: StreamOffsets) -> list[Loss]:
    """Return the losses of a log that was replaced by another one. Their number is unknown."""
    return [
        Loss(stream, index, (first, ending.next.get(index, 0)), None, None, _RECREATED)
        for index, first in sorted(before.next.items())
    ]


def renewed(positions: Positions, available: Available) -> Positions:
    """Return the positions without the offsets of deleted logs, which have no meaning in a new log."""
    kept = {
        stream: named
        for stream, named in positions.named.items()
        if stream not in available
        or positions.incarnations.get(stream) in {None, available[stream].incarnation}
    }
    return Positions(positions.others, kept)


def replaced(positions: Positions, available: Available) -> list[Loss]:
    """Return the losses for positions in deleted logs whose names belong to new logs."""
    return [
        Loss(stream, index, (position, position), None, None, _RECREATED)
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
    """Return the part of `wanted` that exists, and the losses.

    A range whose end is before its start is a loss.
    """
    if held is None:
        return replace(wanted, end=wanted.start), _gone(wanted, "the partition no longer exists")
    asked = (wanted.start, wanted.end)

    def loss(count: int | None, reason: str) -> Loss:
        return Loss(wanted.stream, wanted.partition, asked, held, count, reason)

    # Offsets of a query that is older than the log, for example after a restore of the data.
    if wanted.end < wanted.start:
        overtaken = wanted.end <= held.earliest
        ended = held.next < wanted.start
        reason = (
            "the log ends before the start"
            if ended
            else _RETENTION
            if overtaken
            else "the end is before the start"
        )
        return replace(wanted, end=wanted.start), [loss(None, reason)]
    # Nothing of the range exists: the number of lost events is known.
    if wanted.start > held.next:
        return replace(wanted, end=wanted.start), [loss(len(wanted), "the log ends before the start")]
    lost: list[Loss] = []
    start, end = wanted.start, wanted.end
    if end > held.next:
        lost.append(loss(end - held.next, "the log ends before the end"))
        # What exists is still read: the loss is only reported.
        end = held.next
    if start < held.earliest:
        missing = min(end, held.earliest) - start
        if missing > 0:
            lost.append(loss(missing, _RETENTION))
        start = min(end, held.earliest)
    return replace(wanted, start=start, end=end), lost


def tasks(
    ranges: Iterable[OffsetRange], *, at_least: int | None, at_most: int | None, offsets_max: int
) -> list[Task]:
    """Split and combine ranges into tasks.

    With `at_least`, small ranges are not combined. `at_most` overrides `at_least`.
    """
    ordered = sorted((one for one in ranges if len(one) > 0), key=_position_of)
    total = sum(len(one) for one in ordered)
    pieces: list[OffsetRange] = []
    for one in ordered:
        # Rounded up.
        count = -(-len(one) // offsets_max)
        if at_least is not None:
            count = max(count, -(-len(one) * at_least // total))
        # Never more pieces than offsets: an empty task costs as much as another one.
        pieces += cut(one, min(count, len(one)))
    # Only then do ranges of different partitions share a task.
    if at_most is not None and len(pieces) > at_most:
        return _spread(pieces, at_most)
    return (
        [(piece,) for piece in pieces]
        if at_least is not None
        else _packed(pieces, min(TOGETHER, offsets_max))
    )


def cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into `count` consecutive ranges of nearly equal size."""
    size = len(one)
    # Bounds from the whole size: rounding errors do not add up.
    bounds = [one.start + size * index // count for index in range(count + 1)]
    return [replace(one, start=low, end=high) for low, high in pairwise(bounds)]


def _packed(pieces: Sequence[OffsetRange], size: int) -> list[Task]:
    """Combine consecutive small ranges into tasks of at most `size` offsets."""
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
    """Distribute ranges over `count` tasks: the largest first, each to the task with the fewest offsets."""
    bins: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    # The largest first: the usual way to keep the tasks nearly equal.
    for piece in sorted(pieces, key=lambda one: (-len(one), _position_of(one))):
        # The first of equal bins, so that the same input gives the same tasks.
        least = sizes.index(min(sizes))
        bins[least].append(piece)
        sizes[least] += len(piece)
    return [tuple(joined(sorted(one, key=_position_of))) for one in bins if one]


def joined(ordered: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Combine ranges that follow each other without a gap."""
    found: list[OffsetRange] = []
    for one in ordered:
        last = found[-1] if found else None
        if last is not None and (last.stream, last.partition, last.end) == (
            one.stream,
            one.partition,
            one.start,
        ):
            found[-1] = replace(last, end=one.end)
        else:
            found.append(one)
    return found


def _position_of(one: OffsetRange) -> tuple[str, int, int]:
    return (one.stream, one.partition, one.start)
