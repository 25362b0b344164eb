"""Where a consumer begins to read, told by its source's filters. Spec: Event Streams 3.2, 5.1.1, 5.2; AMQP 3.5.3, 3.5.8.

Laws: without any filter in force only events accepted after the attach are delivered, the same as `@latest`; with one, the retained log
is looked at from its earliest event, or from where the filters' bounds let a reader seek. Whoever has a kept place goes on there: what
"new events" are was decided when the place was made; other bounds stay conditions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from amqp_streams.filters import Bounds, Compiled, compile_filters
from amqp_streams.storage.ports import Partition
from amqp_streams.wire.offsets import Latest
from amqp_streams.wire.types import Value

NEW_EVENTS: Final = Bounds(after=(Latest(),))


def source_filters(filters: Mapping[str, Value]) -> Compiled:
    """Read a source's filter set; those of unknown kinds are left out of what is in force.

    Raises:
        PeerError: amqp:invalid-field, naming the filter, what is wrong with it, and where.
    """
    compiled = compile_filters(filters)
    return compiled if compiled.in_force else replace(compiled, bounds=NEW_EVENTS)


def start_position(filters: Compiled, partition: Partition) -> int:
    """Number of the first record to look at. One past `end` and beyond is possible: the offset is still to come."""
    bounds = filters.bounds
    position = max(partition.start, bounds.first(partition.end))
    if bounds.after_ms is not None:
        position = max(position, partition.seek_timestamp(bounds.after_ms))
    return position


def resumed_filters(filters: Compiled) -> Compiled:
    """The same filters for a link that goes on at a kept place."""
    bounds = filters.bounds
    return replace(filters, bounds=replace(bounds, after=tuple(each for each in bounds.after if not isinstance(each, Latest))))


def resumed_position(filters: Compiled, partition: Partition, position: int) -> int:
    """Number of the first record to look at from a kept place on. Below `partition.start` it tells what retention removed meanwhile."""
    bounds = filters.bounds
    position = max(position, bounds.first(partition.end))
    if bounds.after_ms is not None:
        position = max(position, partition.seek_timestamp(bounds.after_ms))
    return position
