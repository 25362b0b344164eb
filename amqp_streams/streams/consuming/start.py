"""The start of a consumer, from its source's filters. Spec: Event Streams 3.2, 5.1.1, 5.2; AMQP 3.5.3, 3.5.8.

Laws: without a filter in force, only events accepted after the attach are delivered, like `@latest`. With a
filter, the retained log is read from its earliest event, or from the bound of a filter. A consumer with a
cursor continues there: `@latest` was decided when the cursor was created; other bounds remain conditions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from amqp_streams.filters import Bounds, Compiled, compile_filters
from amqp_streams.storage.ports import Partition
from amqp_streams.wire.offsets import Latest
from amqp_streams.wire.types import Value

Sought = Mapping[int, int]
_NOTHING: Final[Sought] = {}
NEW_EVENTS: Final = Bounds(after=(Latest(),))


def source_filters(filters: Mapping[str, Value]) -> Compiled:
    """Compile a source's filter set. Filters of unknown kinds are not in force.

    Raises:
        PeerError: amqp:invalid-field, with the filter, the error and its location.
    """
    compiled = compile_filters(filters)
    return compiled if compiled.in_force else replace(compiled, bounds=NEW_EVENTS)


def start_position(filters: Compiled, partition: Partition, sought: Sought = _NOTHING) -> int:
    """The number of the first record to look at.

    Greater than `end` if the start offset does not exist yet. `sought`: the answers of `seek_timestamp` by
    partition, as far as they are known.
    """
    bounds = filters.bounds
    position = max(partition.start, bounds.first(partition.end))
    if bounds.after_ms is not None:
        position = max(position, _first_after(partition, bounds.after_ms, sought))
    return position


def resumed_filters(filters: Compiled) -> Compiled:
    """The filters for a link that continues at a cursor."""
    bounds = filters.bounds
    return replace(
        filters,
        bounds=replace(bounds, after=tuple(each for each in bounds.after if not isinstance(each, Latest))),
    )


def resumed_position(
    filters: Compiled, partition: Partition, position: int, sought: Sought = _NOTHING
) -> int:
    """The number of the first record to look at, from a cursor.

    If it is below `start`, retention removed records. `sought`: as in `start_position`.
    """
    bounds = filters.bounds
    position = max(position, bounds.first(partition.end))
    if bounds.after_ms is not None:
        position = max(position, _first_after(partition, bounds.after_ms, sought))
    return position


def _first_after(partition: Partition, after_ms: int, sought: Sought) -> int:
    found = sought.get(partition.index)
    return partition.seek_timestamp(after_ms) if found is None else found
