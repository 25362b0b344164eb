"""Resources of a node that logs, groups, cursors and producers use up."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import proton

from amqp_streams import names
from attack.peer import Peer, from_earliest, refusal
from attack.report import Table, expect, node_attack
from attack.room import Room
from attack.tables.links import LIMITED, attached, refused

WIDE: Final = "m-wide"


def wide_partitions(room: Room) -> int:
    """How many partitions the wide log has: as many as a log may, or a third of what the short form
    allows.
    """
    return room.limits.partitions // 3 if room.is_small else 1024


@contextmanager
def wide_log(room: Room) -> Iterator[int]:
    """A log of the attacker with many partitions, while inside."""
    count = wide_partitions(room)
    with room.peer() as peer:
        status, words = peer.request(peer.management(), "CREATE", names.LOG_TYPE, WIDE, partitions=count)
        expect(status in {201, 409}, f"CREATE {WIDE}: {status} {words}")
    try:
        yield count
    finally:
        with room.peer() as peer:
            status, words = peer.request(peer.management(), "DELETE", names.LOG_TYPE, WIDE)
            expect(status == 204, f"DELETE {WIDE}: {status} {words}")


def _partitions(room: Room) -> Iterator[str]:
    """Logs until no partition is left; the neighbour's log serves on."""
    made: list[str] = []
    with room.peer() as peer:
        links = peer.management()
        size = wide_partitions(room)
        status, words = 201, ""
        while status == 201 and len(made) <= room.limits.partitions // size + 1:
            made.append(f"m-{len(made)}")
            status, words = peer.request(links, "CREATE", names.LOG_TYPE, made[-1], partitions=size)
        expect(status == 403, f"log {len(made)} of {size} partitions: {status} {words}")
        yield f"{len(made) - 1} logs of {size} partitions, then {status}"
        for name in made[:-1]:
            status, words = peer.request(links, "DELETE", names.LOG_TYPE, name)
            expect(status == 204, f"DELETE {name}: {status} {words}")


def _sizes_of_logs(room: Room) -> Iterator[str]:
    """Settings of logs beyond their bounds: refused, and nothing is created."""
    settings: tuple[dict[str, Any], ...] = (
        {"partitions": 0},
        {"partitions": 1025},
        {"partitions": proton.ulong(2**64 - 1)},
        {"partitions": 1, "retention_bytes": proton.ulong(2**63)},
        {"partitions": 1, "segment_bytes": 1},
        {"partitions": 1, "retention_ms": proton.ulong(2**64 - 1)},
        {"partitions": 1, "segment_ms": 0},
        {"partitions": 1, "compression": "gzip"},
    )
    with room.peer() as peer:
        links = peer.management()
        for each in settings:
            status, words = peer.request(links, "CREATE", names.LOG_TYPE, "m-odd", **each)
            expect(status == 400, f"CREATE with {each}: {status} {words}")
        status, _ = peer.request(links, "READ", names.LOG_TYPE, "m-odd")
        expect(status == 404, f"a refused CREATE has created a log: {status}")
        yield f"{len(settings)} requests, each 400"


def _groups(room: Room) -> Iterator[str]:
    with room.peer() as peer:
        count = room.limits.groups
        links = [
            peer.receiver("m-log", group=f"g{number}", partition=0)
            for number in range(min(count, room.limits.links - 1))
        ]
        with room.peer(container="more") as other:
            links += [
                other.receiver("m-log", group=f"g{number}", partition=0)
                for number in range(len(links), count)
            ]
            last = other.receiver("m-log", group="one-more", partition=0)
            yield f"{count} groups, then {refused(other, last, LIMITED)}"


def _cursors(room: Room) -> Iterator[str]:
    """Subscriptions that nobody uses any more; then they are removed."""
    with ExitStack() as stack:
        kept, last = _keep(room, stack, "m-log", room.limits.cursors)
        yield f"{kept} cursors, then {refused(*last, LIMITED)}"
    _remove_cursors(room)


def _cursor_positions(room: Room) -> Iterator[str]:
    """The same on a wide log: positions run out before cursors."""
    with wide_log(room) as width:
        with ExitStack() as stack:
            kept, last = _keep(room, stack, WIDE, room.limits.cursor_positions // width)
            condition = refused(*last, LIMITED)
            with room.peer() as peer:
                links = peer.management()
                for _ in range(5):
                    status, _ = peer.request(links, "QUERY", names.CURSOR_TYPE, log=WIDE)
                    expect(status == 200, f"QUERY of cursors: {status}")
            yield f"{kept} cursors of {width} positions, then {condition}"
        _remove_cursors(room)


def _keep(room: Room, stack: ExitStack, log: str, count: int) -> tuple[int, tuple[Peer, Any]]:
    """That many cursors, and one that should be refused: its connection and link."""
    peers: list[Peer] = []
    for number in range(count):
        if number % (room.limits.links - 1) == 0:
            peers.append(stack.enter_context(room.peer(container=f"keeper-{len(peers)}")))
        link = peers[-1].receiver(log, name=f"kept-{number}", durable=True)
        if number % 20 == 19:
            expect(attached(peers[-1], link), f"cursor {number} is refused: {refusal(link)}")
    peer = stack.enter_context(room.peer(container="one-more"))
    return count, (peer, peer.receiver(log, name="one-more", durable=True))


def _remove_cursors(room: Room) -> None:
    """All cursors of the attacker: their place is free again."""
    with room.peer(container="remover") as peer:
        links = peer.management()
        for _ in range(100_000):
            status, body = peer.request(links, "QUERY", names.CURSOR_TYPE)
            expect(status == 200, f"QUERY: {status} {body}")
            found = [each for each in body[names.CURSORS] if not each[names.CURSOR_ACTIVE]]
            for each in found:
                peer.request(links, "DELETE", names.CURSOR_TYPE, each[names.CURSOR_ID], log=each["log"])
            if not body[names.CURSORS]:
                break
        link = peer.receiver("m-log", name="again", durable=True)
        expect(attached(peer, link), f"no cursor is free again: {refusal(link)}")
        link.close()
        peer.pump(0.1)
        status, body = peer.request(links, "QUERY", names.CURSOR_TYPE)
        for each in body[names.CURSORS]:
            peer.request(links, "DELETE", names.CURSOR_TYPE, each[names.CURSOR_ID], log=each["log"])


def _link_partitions(room: Room) -> Iterator[str]:
    """Links that read a wide log: what they cost is bounded for the node."""
    with wide_log(room) as width, ExitStack() as stack:
        count = room.limits.link_partitions // width
        peers: list[Peer] = []
        for number in range(count + 1):
            if number % (room.limits.links - 1) == 0:
                peers.append(stack.enter_context(room.peer(container=f"reader-{len(peers)}")))
            link = peers[-1].receiver(WIDE, credit=1)
        condition = refused(peers[-1], link, LIMITED)
        yield f"{count} links on {width} partitions each, then {condition}"


def _producers(room: Room) -> Iterator[str]:
    """Names of idempotent producers, all in use."""

    def numbered(link: Any) -> None:
        link.target.capabilities.put_object(proton.symbol(names.CAPABILITY_IDEMPOTENT_PRODUCER))

    count = min(room.limits.producers, 3 * room.limits.links // 4) + 1
    with room.peer() as peer:
        links = [
            peer.sender("m-log", partition=0, properties={names.PRODUCER_ID: f"p{number}"}, prepare=numbered)
            for number in range(count)
        ]
        for link in links:
            peer.credited(link)
        taken = sum(_number(peer, link) for link in links)
        yield f"{count} producers in use at once: {taken} of their first events are accepted"


def _number(peer: Peer, link: Any) -> bool:
    """Send the first event of an idempotent producer: whether it is accepted."""
    if refusal(link) is not None:
        return False
    message = proton.Message(body=b"x")
    message.instructions = {proton.symbol(names.SEQUENCE): 1}
    delivery = link.delivery("1")
    link.stream(message.encode())
    link.advance()
    peer.until(lambda: int(delivery.remote_state) != 0 or refusal(link) is not None, "no outcome")
    return bool(delivery.remote_state == proton.Delivery.ACCEPTED)


def _group_waiting(room: Room) -> Iterator[str]:
    """Attaches that wait for a partition of a group."""
    with room.peer(container="owner") as owner, ExitStack() as stack:
        for partition in range(4):
            expect(
                attached(owner, owner.receiver("m-log", group="busy", partition=partition)), "no partition"
            )
        waiting: list[Any] = []
        peers: list[Peer] = []
        for number in range(room.limits.group_waiting + 1):
            if number % (room.limits.links - 1) == 0:
                peers.append(stack.enter_context(room.peer(container=f"waiter-{len(peers)}")))
            waiting.append(peers[-1].receiver("m-log", group="busy", name=f"w{number}"))
        peers[-1].until(lambda: refusal(waiting[-1]) is not None, "no refusal")
        yield f"{room.limits.group_waiting} attaches wait, then {refusal(waiting[-1])}"
        for peer in peers:
            peer.pump(0.0)


def _info(room: Room) -> Iterator[str]:
    """`$info` of a wide log, on many links that have credit for many answers."""
    with wide_log(room) as width, ExitStack() as stack:
        peers = [stack.enter_context(room.peer(container=f"asker-{number}")) for number in range(3)]
        count = min(100, room.limits.links)
        for peer in peers:
            for _ in range(count):
                peer.receiver(WIDE + names.INFO_SUFFIX, credit=100)
            peer.flush()
        yield f"{3 * count} links with credit for 100 answers about {width} partitions each"


def _wide_reading(room: Room) -> Iterator[str]:
    """Links that start at the earliest event of each partition of a wide log."""
    with wide_log(room) as width, room.peer() as peer:
        links = [
            peer.receiver(WIDE, credit=100, filters=from_earliest())
            for _ in range(min(100, room.limits.links))
        ]
        for link in links:
            attached(peer, link)
        for _ in range(3):
            status, _ = room.get("/metrics")
            expect(status == 200, "/metrics does not answer")
        yield f"{len(links)} links on {width} partitions; /metrics and /readyz answer"


ATTACKS: Final = (
    node_attack(
        "a tenant creates logs until no partition is left",
        "limits.partitions",
        _partitions,
        "node limits: partitions",
        "$management event-log CREATE",
    ),
    node_attack(
        "a tenant creates logs beyond the bounds of settings",
        "bounds of logs",
        _sizes_of_logs,
        "node logs: partitions",
        "node logs: retention_bytes",
        "node logs: segment_bytes",
    ),
    node_attack("a tenant joins as many groups as may be", "limits.groups", _groups),
    node_attack("a tenant keeps as many cursors as may be", "limits.cursors", _cursors),
    node_attack(
        "a tenant keeps cursors of a wide log",
        "limits.cursor_positions",
        _cursor_positions,
        "node limits: cursor_positions",
        "$management event-cursor QUERY",
    ),
    node_attack("a tenant reads a wide log with many links", "limits.link_partitions", _link_partitions),
    node_attack("a tenant uses many names of producers", "limits.producers", _producers),
    node_attack(
        "a tenant waits for a partition with many links",
        "limits.group_waiting",
        _group_waiting,
        "node limits: group_waiting",
        "attach Pending",
    ),
    node_attack(
        "a tenant asks for $info of a wide log on many links",
        "a millisecond of each turn",
        _info,
        "attach Informing",
        table=Table.PRODUCTS,
    ),
    node_attack(
        "metrics while many links read a wide log",
        "limits.link_partitions",
        _wide_reading,
        "node GET /metrics",
        "node GET /readyz",
        "node GET /healthz",
        table=Table.PRODUCTS,
    ),
)
