"""The runtime information of a log: what `<address>/$info` answers. Spec: Event Streams 6.

Law: the entry of a partition is encoded in the step that reads the partition, so no step takes long, and the
encoding of the whole answer at the end only copies bytes.
"""

from typing import Final, NamedTuple

from amqp_streams import names
from amqp_streams.log_settings import LOG_SETTINGS
from amqp_streams.storage.ports import Partition, PartitionFacts, StoredLog
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirected
from amqp_streams.streams.steps import PARTITIONS_A_STEP, Steps
from amqp_streams.wire.codec import Encoded, encode
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Described, Int, Symbol, Timestamp, ULong, Value

_AMQP_VALUE = ULong(0x77)
_SHOWN: Final = tuple(setting for setting in LOG_SETTINGS if setting.in_info)


def log_info(log: StoredLog, sync: str, elsewhere: Redirected = NOWHERE) -> Steps[dict[Value, Value]]:
    """The map of the answer.

    The specification defines `partitions` and allows our other entries (section 6).
    """
    partitions: list[Value] = []
    for partition in log.partitions:
        partitions.append(encoded(_partition_info(partition) | _owner(elsewhere.get(partition.index))))
        if len(partitions) % PARTITIONS_A_STEP == 0:
            yield
    return {
        names.INFO_PARTITIONS: partitions,
        names.INFO_LOG: log.name,
        names.INFO_INCARNATION: log.incarnation,
        **{setting.name: getattr(log.settings, setting.field) for setting in _SHOWN},
        names.INFO_SYNC: log.promise or sync,
    }


class LogUse(NamedTuple):
    """How a log is read from this node. None: the answer does not have it.

    `events_out`: sent to consumers since the node started. `consumers`: links that read it.
    """

    events_out: int
    consumers: int | None = None
    groups: int | None = None


def log_extent(log: StoredLog, partitions: list[Value], use: LogUse) -> dict[Value, Value]:
    """The entry of a log, with the entries of its partitions (`partition_extent`)."""
    entry: dict[Value, Value] = {
        names.NAME: log.name,
        names.INFO_INCARNATION: log.incarnation,
        names.INFO_PARTITIONS: partitions,
        names.EXTENT_EVENTS_OUT: ULong(use.events_out),
    }
    if use.consumers is not None:
        entry[names.EXTENT_CONSUMERS] = ULong(use.consumers)
    if use.groups is not None:
        entry[names.EXTENT_GROUPS] = ULong(use.groups)
    return entry


def partition_extent(
    partition: Partition, after_ms: int | None, elsewhere: Redirected = NOWHERE, found: int | None = None
) -> dict[Value, Value]:
    """Start and end of a partition as numbers; with `after_ms` also the first event after that time.

    `found`: its position, if it is known.

    Raises:
        StorageError: the disk failed.
    """
    facts = partition.facts()
    sought: dict[Value, Value] = (
        {}
        if after_ms is None
        else {names.EXTENT_FOUND: ULong(partition.seek_timestamp(after_ms) if found is None else found)}
    )
    return sought | {
        names.INFO_PARTITION: Symbol(str(partition.index)),
        names.EXTENT_EARLIEST: ULong(facts.start),
        names.EXTENT_NEXT: ULong(facts.end),
        **_contents(partition, facts),
        **_owner(elsewhere.get(partition.index)),
    }


def encoded(value: Value) -> Encoded:
    """Encode a part of an answer, so that a later step need not encode it."""
    return Encoded(encode(value))


def value_message(value: Value) -> bytes:
    """A message whose body is one amqp-value section."""
    return encode(Described(_AMQP_VALUE, value))


def _owner(elsewhere: Elsewhere | None) -> dict[Value, Value]:
    """The entry of a partition that another container serves."""
    if elsewhere is None:
        return {}
    owner: dict[Value, Value] = {
        names.REDIRECT_NETWORK_HOST: elsewhere.host,
        names.REDIRECT_PORT: Int(elsewhere.port),
    }
    if elsewhere.container is not None:
        owner[names.REDIRECT_CONTAINER] = elsewhere.container
    return {names.INFO_OWNER: owner}


def _contents(partition: Partition, facts: PartitionFacts) -> dict[Value, Value]:
    """The entries about a partition that `$info` and EXTENTS have."""
    contents: dict[Value, Value] = {
        names.INFO_BYTES: facts.bytes,
        names.INFO_FIRST_TIMESTAMP: _timestamp(facts.first_timestamp_ms),
        names.INFO_LAST_TIMESTAMP: _timestamp(facts.last_timestamp_ms),
        names.INFO_STATE: "running" if facts.failure is None else f"stopped: {facts.failure}",
    }
    if partition.gaps:  # some offsets belong to no event
        contents[names.INFO_GAPS] = True
    return contents


def _timestamp(ms: int | None) -> Timestamp | None:
    return None if ms is None else Timestamp(ms)


def _partition_info(partition: Partition) -> dict[Value, Value]:
    facts = partition.facts()
    empty = facts.start == facts.end
    return {
        names.INFO_PARTITION: Symbol(str(partition.index)),
        names.INFO_EARLIEST_OFFSET: None if empty else Symbol(offset_text(facts.start)),
        names.INFO_LATEST_OFFSET: None if empty else Symbol(offset_text(facts.end - 1)),
        names.INFO_EVENTS: facts.end - facts.start,
        **_contents(partition, facts),
    }
