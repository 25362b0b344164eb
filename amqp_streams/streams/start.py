"""Where a consumer begins to read, told by its source's filters. Spec: Event Streams 3.2, 5.1.1, 5.2, 5.2.1; AMQP 3.5.8.

Laws: all filters of a source hold together. Offsets and timestamps match when the event's is *greater* than the filter's. Without any
filter only events accepted after the attach are delivered, the same as `@latest`. A filter of a kind that is not known here is left
out of the answered source (AMQP 3.5.3); one that is known but cannot be read refuses the attach, never silently ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition
from amqp_streams.wire.offsets import Earliest, Latest, Position, parse_offset
from amqp_streams.wire.types import Described, Value

_DELIVERY_ANNOTATIONS: Final = (names.FILTER_DELIVERY_ANNOTATIONS, names.FILTER_DELIVERY_ANNOTATIONS_CODE)


@dataclass(frozen=True, slots=True)
class Start:
    """The conditions that must all hold; none at all means everything retained."""

    after: tuple[Position, ...] = ()
    after_ms: int | None = None

    def position(self, partition: Partition) -> int:
        """Number of the first record to look at. One past `end` and beyond is possible: the offset is still to come."""
        position = partition.start
        for after in self.after:
            match after:
                case Earliest():
                    pass
                case Latest():
                    position = max(position, partition.end)
                case int(number):
                    position = max(position, number + 1)
        if self.after_ms is not None:
            position = max(position, partition.seek_timestamp(self.after_ms))
        return position


NEW_EVENTS: Final = Start(after=(Latest(),))


@dataclass(frozen=True, slots=True)
class SourceFilters:
    """What the filters mean here, and those of them that are in force, for the answer."""

    start: Start
    in_force: Mapping[str, Value]


def source_filters(filters: Mapping[str, Value]) -> SourceFilters:
    """Read a source's filter set.

    Raises:
        PeerError: amqp:invalid-field, naming the filter and what is wrong with it.
    """
    after: list[Position] = []
    times: list[int] = []
    in_force: dict[str, Value] = {}
    for name, given in filters.items():
        descriptor, value = (given.descriptor, given.value) if isinstance(given, Described) else (name, given)
        if descriptor not in _DELIVERY_ANNOTATIONS:
            continue
        _read_delivery_annotations(name, value, after, times)
        in_force[name] = given
    if not in_force:
        return SourceFilters(NEW_EVENTS, {})
    return SourceFilters(Start(_strongest(after), max(times, default=None)), in_force)


def _strongest(after: list[Position]) -> tuple[Position, ...]:
    """The conditions that decide: however many a peer sends, each partition of a log is asked about two at most."""
    numbers = [each for each in after if isinstance(each, int)]
    latest = [each for each in after if isinstance(each, Latest)]
    return (*latest[:1], *([max(numbers)] if numbers else []))


def _read_delivery_annotations(name: str, value: Value, after: list[Position], times: list[int]) -> None:
    if not isinstance(value, dict):
        raise _invalid(name, f"holds {type(value).__name__}, not a map")
    for key, wanted in value.items():
        if key == names.OFFSET and isinstance(wanted, str):  # a symbol, or the string that many clients send
            try:
                after.append(parse_offset(wanted))
            except ValueError as error:
                raise _invalid(name, str(error)) from error
        elif key == names.TIMESTAMP and isinstance(wanted, int) and not isinstance(wanted, bool):
            times.append(int(wanted))
        elif key in (names.OFFSET, names.TIMESTAMP):
            raise _invalid(name, f"{key} is of the wrong type: an offset is a symbol, a timestamp a timestamp")
        else:
            raise _invalid(name, f"{key!r} cannot be filtered on here: only {names.OFFSET} and {names.TIMESTAMP} (5.2.1)")


def _invalid(name: str, reason: str) -> PeerError:
    return PeerError(names.INVALID_FIELD, f"filter {name}: {reason}", {"field": "filter", "filter": name})
