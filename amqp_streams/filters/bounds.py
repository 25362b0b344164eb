"""The range of a partition in which records can match a filter.

Spec: Event Streams 5.1.1, 5.2; FILTEX 6.4.2.3. Laws: only conditions that the whole filter requires become
bounds, so a reader that seeks to `after` and stops at `done` misses nothing. Offsets compare as texts;
`@earliest` is smaller and `@latest` greater than each offset at the attach.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.filters.evaluation.sql import FLIPPED, is_annotation
from amqp_streams.filters.language.syntax import Compare, Comparison, Constant, Holds, Predicate
from amqp_streams.filters.record import Record
from amqp_streams.filters.times import moment
from amqp_streams.wire.offsets import OFFSET_MAX, Earliest, Latest, Position, offset_text

_OFFSETS: Final = range(OFFSET_MAX + 1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Conditions on offset and timestamp that a filter requires.

    `after`, `after_ms`: greater than. `before`, `before_ms`: less than.
    """

    after: tuple[Position, ...] = ()
    before: tuple[int | Latest, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None

    def narrowed(self, other: "Bounds") -> "Bounds":
        """Return the conditions of both: records must match the two."""
        # None does not bound anything, so it must not take part in the comparison.
        lows = [low for low in (self.after_ms, other.after_ms) if low is not None]
        highs = [high for high in (self.before_ms, other.before_ms) if high is not None]
        return Bounds(
            tuple(dict.fromkeys(self.after + other.after)),
            tuple(dict.fromkeys(self.before + other.before)),
            max(lows, default=None),
            min(highs, default=None),
        )

    def first(self, latest: int) -> int:
        """Return the first record number that can match.

        `latest`: the partition's end at the time of the attach.
        """
        # `latest` is known only at the attach, so the positions are resolved here and not when the filter is
        # compiled.
        # The usual cases first: an attach asks for each partition.
        if len(self.after) <= 1:
            return _after(self.after[0], latest) if self.after else 0
        return max(_after(position, latest) for position in self.after)

    def end(self, latest: int) -> int | None:
        """Return the record number from which on no record matches; None if no condition limits it."""
        return min(
            (latest if isinstance(position, Latest) else position for position in self.before), default=None
        )

    @property
    def timed(self) -> bool:
        """Whether a condition is about the timestamp."""
        return self.after_ms is not None or self.before_ms is not None

    def done(self, number: int, timestamp_ms: int | None, latest: int) -> bool:
        """Whether neither this nor any later record matches.

        `timestamp_ms`: None if later records may have earlier timestamps.
        """
        end = self.end(latest)
        return (end is not None and number >= end) or (
            self.before_ms is not None and timestamp_ms is not None and timestamp_ms >= self.before_ms
        )

    def in_time(self, timestamp_ms: int) -> bool:
        """Whether the conditions about the timestamp allow it."""
        return (self.after_ms is None or timestamp_ms > self.after_ms) and (
            self.before_ms is None or timestamp_ms < self.before_ms
        )

    def within(self, record: Record) -> bool:
        """Whether the record matches."""
        number, timestamp_ms, latest = record.number, record.timestamp_ms, record.latest
        return (
            self.in_time(timestamp_ms)
            and number >= self.first(latest)
            and not self.done(number, None, latest)
        )

    def indices(
        self,
        base: int,
        timestamps: Sequence[int],
        start: int,
        end: int,
        latest: int,
        *,
        offsets: Sequence[int] | None = None,
        ordered: bool = True,
    ) -> tuple[int, int]:
        """Return the range of indices in start..end whose records match.

        The first record has the number `base`. `offsets`: see `Chunk`. `ordered`: the timestamps never
        decrease. Otherwise the caller compares the timestamp of each record (`in_time`).
        """
        first, last = self.first(latest), self.end(latest)
        if offsets is None:
            low, high = max(start, first - base), end if last is None else min(end, last - base)
        else:
            low = bisect_left(offsets, first, start, end)
            high = end if last is None else bisect_left(offsets, last, start, end)
        # By bisection, without a look at the messages.
        if ordered and low < high and self.after_ms is not None:
            low = bisect_right(timestamps, self.after_ms, low, high)
        if ordered and low < high and self.before_ms is not None:
            high = bisect_left(timestamps, self.before_ms, low, high)
        return low, max(low, high)


EVERYTHING: Final = Bounds()
"""Every record matches."""
NOTHING: Final = Bounds(before=(0,))
"""No record matches."""


def bounds_of(node: Predicate) -> Bounds | None:
    """Return the bounds of `node` if it compares offset or timestamp with a constant, or is TRUE or FALSE.

    Otherwise None.
    """
    if isinstance(node, Holds) and isinstance(node.of, Constant):
        return EVERYTHING if node.of.value is True else NOTHING
    if not isinstance(node, Compare):
        return None
    field, constant, sign = node.left, node.right, node.operator
    # `5 < field` means `field > 5`.
    if isinstance(field, Constant):
        field, constant, sign = constant, field, FLIPPED[sign]
    if not isinstance(constant, Constant) or sign == "<>":
        return None
    value = constant.value
    if is_annotation(field, names.OFFSET) and isinstance(value, str):
        return _of_offset(sign, value)
    if is_annotation(field, names.TIMESTAMP):
        milliseconds = moment(value) if isinstance(value, str) else value
        if isinstance(milliseconds, int) and not isinstance(milliseconds, bool):
            return _of_timestamp(sign, milliseconds)
    return None


def _of_offset(sign: Comparison, text: str) -> Bounds:
    if text == names.OFFSET_EARLIEST:
        return Bounds(after=(Earliest(),)) if sign in (">", ">=") else NOTHING
    if text == names.OFFSET_LATEST:
        return (
            NOTHING
            if sign == "="
            else Bounds(after=(Latest(),))
            if sign in (">", ">=")
            else Bounds(before=(Latest(),))
        )
    first_equal, first_greater = (
        # A text need not be a valid offset: bisection finds its position among the texts of all offsets, in
        # about 53 steps.
        find(_OFFSETS, text, key=offset_text)
        for find in (bisect_left, bisect_right)
    )
    after = {">": first_greater, ">=": first_equal, "=": first_equal}.get(sign)
    before = {"<": first_equal, "<=": first_greater, "=": first_greater}.get(sign)
    return Bounds(() if after is None else (_position_before(after),), () if before is None else (before,))


def _position_before(number: int) -> Position:
    # A bound is exclusive, and no record comes before number 0.
    return number - 1 if number else Earliest()


def _of_timestamp(sign: Comparison, milliseconds: int) -> Bounds:
    match sign:
        case ">":
            return Bounds(after_ms=milliseconds)
        case ">=":
            return Bounds(after_ms=milliseconds - 1)
        case "<":
            return Bounds(before_ms=milliseconds)
        case "<=":
            return Bounds(before_ms=milliseconds + 1)
        case _:
            return Bounds(after_ms=milliseconds - 1, before_ms=milliseconds + 1)


def _after(position: Position, latest: int) -> int:
    match position:
        case Earliest():
            return 0
        case Latest():
            return latest
        case int(number):
            return number + 1
