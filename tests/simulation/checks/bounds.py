"""Memory, credit and steps: everything that clients caused to grow is released, and no turn takes too
long.
"""

from typing import Any, Final, cast

from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.listening.listener import Channel
from amqp_streams.server.service import EventService
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.formats.record import BATCH_BYTES_MAX
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.ports import Store
from amqp_streams.streams.steps import finish
from tests.simulation.machine.process import Node

STEPS_MAX: Final = 120_000
"""Of one call of the loop, where calls are counted.

A turn of a link may take 5 ms, one of all links 20 ms.
"""


def require_within(service: EventService) -> None:
    """At any time: nothing is above its bound, and the figures are true."""
    status = finish(service.status())
    for name, use in status.uses.items():
        slack = _SLACK.get(name, 0)
        assert use.used <= use.limit + slack, f"{name}: {use.used} of {use.limit}"
    assert service.unfinished.bytes <= max(service.limits.pending_bytes, service.limits.message_bytes)
    assert status.connections == len(service.connections)
    _require_recent(service.store)
    _require_cached(service.store)
    assert service.not_ready() == (status.hindered if status.ready else service.not_ready())
    for consumer in status.consumers:
        partition = service.store.logs[consumer.log].partitions[consumer.partition]
        assert consumer.lag == max(0, partition.end - consumer.position)
        assert consumer.position <= partition.end, "a link is behind the end of its partition"


def require_paused(node: Node) -> None:
    """At any time: what the node does not want to read it does not read."""
    wires = {wire.channel: wire for wire in node.wires}
    for link in node.service.commits.withheld:
        owner = cast("AmqpConnection", link.owner)
        if owner in node.service.connections:
            assert owner.paused, "too much waits for the disk, and the node reads on"
    for connection in node.service.connections:
        assert isinstance(connection, AmqpConnection)
        channel = cast("Channel", connection._channel)
        wire = wires.get(channel)
        if connection.paused and wire is not None and not channel._closing:
            assert wire.paused, "a paused connection is read"


def _require_recent(store: Store) -> None:
    """The runs that count as held in memory are those that are."""
    if not isinstance(store, DirectoryStore):
        return
    partitions = [partition for log in store.logs.values() for partition in log.partitions]
    if any(partition.facts().failure for partition in partitions):
        return
    held = sum(len(cast("PartitionLog", partition).tail) for partition in partitions)
    listed = len(store._flusher.recent)
    assert listed == held, f"{listed} runs of records count as held in memory, and {held} are"


def _require_cached(store: Store) -> None:
    """Check that the cache exceeds its bound only by its last entry, and counts what it holds."""
    if not isinstance(store, DirectoryStore):
        return
    reading = store._reading
    assert reading._cached == sum([size for size, _ in reading._cache.values()])
    assert reading._cached <= reading._cache_bytes or len(reading._cache) == 1


def require_empty(service: EventService) -> None:
    """Check that no client is left: the remaining memory does not depend on how many clients there were."""
    status = finish(service.status())
    left: dict[str, Any] = {
        "connections": len(service.connections),
        "links": len(service.effects._links),
        "links by log": len(service.node._links._by_log),
        "links by name": len(service.node._links._by_name),
        "commits awaited": len(service.commits.awaited),
        "links withheld": len(service.commits.withheld),
        "links to pump": len([link for link in service._pumps if link.alive]),
        "unfinished bytes": service.unfinished.bytes,
        "unfinished users": len(service.unfinished._users),
        "held for confirmation": len(service.confirming._held),
        "requests held": service.turns._held_bytes,
        "turns": len(service.turns._members),
        "backlog": len(service.backlog._members),
        "pending bytes": service.store.pending_bytes,
        "link partitions": service.node.uses()["link_partitions"].used,
        "followed logs": len(service.node._consumers.reading._followed),
        "woken": len(service.node._consumers.reading._woken),
        "waiting": len(service.node._consumers.reading._waiting),
        "moved cursors": int(service.node.cursors_waiting),
    }
    recent = status.uses.get("storage_recent_bytes")
    assert recent is None or recent.used <= recent.limit + _RUN_BYTES, f"recent records: {recent}"
    found = {name: value for name, value in left.items() if value}
    assert not found, f"left behind by clients that are gone: {found}"


_RUN_BYTES: Final = 8 << 10
"""The largest run of records that a producer sends at once."""
_SLACK: Final = {
    # What arrived in one turn is taken whole; then no more is read.
    "pending_bytes": 2 << 20,
    # The last runs stay until they are in a segment.
    "storage_recent_bytes": 1 << 20,
    # One batch of a segment may be larger than the cache, and then it is alone there: see `_require_cached`.
    "storage_cache_bytes": BATCH_BYTES_MAX,
}
