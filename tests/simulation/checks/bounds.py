"""Memory, credit and steps: everything that clients caused to grow is released, and no turn takes too
long.
"""

from typing import Any, Final

from amqp_streams.server.service import EventService

STEPS_MAX: Final = 120_000
"""Of one call of the loop, where calls are counted.

A turn of a link may take 5 ms, one of all links 20 ms.
"""


def require_within(service: EventService) -> None:
    """At any time: nothing is above its bound, and the figures are true."""
    status = service.status()
    for name, use in status.uses.items():
        slack = _SLACK.get(name, 0)
        assert use.used <= use.limit + slack, f"{name}: {use.used} of {use.limit}"
    assert service.unfinished.bytes <= max(service.limits.pending_bytes, service.limits.message_bytes)
    assert status.connections == len(service.connections)
    assert service.not_ready() == (status.hindered if status.ready else service.not_ready())
    for consumer in status.consumers:
        partition = service.store.logs[consumer.log].partitions[consumer.partition]
        assert consumer.lag == max(0, partition.end - consumer.position)
        assert consumer.position <= partition.end, "a link is behind the end of its partition"


def require_empty(service: EventService) -> None:
    """Check that no client is left: the remaining memory does not depend on how many clients there were."""
    status = service.status()
    left: dict[str, Any] = {
        "connections": len(service.connections),
        "links": len(service.effects._links),
        "links by log": len(service.node._links._by_log),
        "links by name": len(service.node._links._by_name),
        "commits awaited": len(service._waiting),
        "links withheld": len(service._withheld),
        "links to pump": len([link for link in service._pumps if link.alive]),
        "unfinished bytes": service.unfinished.bytes,
        "unfinished users": len(service.unfinished._users),
        "held for confirmation": len(service.confirming._held),
        "requests held": service.turns._held_bytes,
        "turns": len(service.turns._members),
        "backlog": len(service.backlog._members),
        "pending bytes": service.store.pending_bytes,
        "link partitions": service.node.uses()["link_partitions"].used,
        "followers": len(service.node._consumers.reading._followers),
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
    # One stretch of a segment may be larger than the cache.
    "storage_cache_bytes": 64 << 10,
}
