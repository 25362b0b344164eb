"""Resources of a node that connections, sessions, links and messages use up."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.wire import frames
from amqp_streams.wire.types import UInt
from attack.peer import Peer, from_earliest, refusal, send, sql
from attack.report import Table, expect, node_attack
from attack.room import Room, wait_for
from attack.settings import NINA, QUENTIN, QUOTA

LIMITED: Final = names.RESOURCE_LIMIT_EXCEEDED
LOG: Final = "m-log"


def refused(peer: Peer, endpoint: Any, *conditions: str) -> str:
    """Wait for a refusal with one of these conditions. Raises BrokenError, TimeoutError."""
    peer.until(lambda: refusal(endpoint) is not None or refusal(peer.connection) is not None, "no refusal")
    condition = refusal(endpoint) or refusal(peer.connection) or ""
    expect(condition in conditions, f"refused with {condition!r}, not {' or '.join(conditions)}")
    return condition


def attached(peer: Peer, link: Any) -> bool:
    """Wait for the answer to an attach: whether it is granted."""
    peer.until(lambda: not link.state & proton.Endpoint.REMOTE_UNINIT, "no answer to an attach")
    peer.pump(0.02)
    return refusal(link) is None


def _strangers_take_all_connections(room: Room) -> Iterator[str]:
    """Silent connections up to the limit, and as many again: those that log in get in all the same."""
    host, _, port = room.amqp.rpartition(":")
    count = 2 * min(room.limits.connections, 2000)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        with room.peer(NINA) as late:
            expect(not late.is_gone, "a tenant cannot connect while strangers hold connections")
        yield f"{count} connections; a login still gets in"
    wait_for(lambda: room.metric("amqp_streams_connections") <= 4, "the connections of strangers end")


def _quota_of_connections(room: Room) -> Iterator[str]:
    with ExitStack() as stack:
        for _ in range(QUOTA["connections"]):
            stack.enter_context(room.peer(QUENTIN))
        more = stack.enter_context(room.peer(QUENTIN))
        yield f"{QUOTA['connections']} connections, then {refused(more, more.connection, LIMITED)}"
    wait_for(lambda: _is_admitted(room), "a connection is free again")


def _is_admitted(room: Room) -> bool:
    with room.peer(QUENTIN) as again:
        again.pump(0.05)
        return refusal(again.connection) is None and not again.is_gone


def _quota_of_links(room: Room) -> Iterator[str]:
    with room.peer(QUENTIN) as peer:
        links = [peer.sender("q-log") for _ in range(QUOTA["links"] + 1)]
        condition = refused(peer, links[-1], LIMITED)
        expect(refusal(links[0]) is None, "links within the quota are refused")
        yield f"{QUOTA['links']} links, then {condition}"


def _quota_of_bytes_in(room: Room) -> Iterator[str]:
    """All that a producer has, on ten links: it gets credit for its rate."""
    with room.peer(QUENTIN) as peer:
        links = [peer.sender("q-log") for _ in range(10)]
        sent = _pour(peer, links, b"x" * 10_000, 1.0)
        most = QUOTA["bytes_in"] * 2 + 10 * 10_000 * 4
        expect(sent <= most, f"{sent} bytes in a second, more than {most}")
        yield f"{sent} bytes in the first second, at a rate of {QUOTA['bytes_in']}"


def _pour(peer: Peer, links: list[Any], body: bytes, seconds: float) -> int:
    """Send as much as the credit allows; the bytes."""
    message, sent, number = proton.Message(body=body).encode(), 0, 0
    for _ in range(round(seconds / 0.02)):
        for link in links:
            while link.credit > 0 and link.queued < 2:
                number += 1
                send(link, message, str(number))
                sent += len(message)
        peer.pump(0.02)
    return sent


def _quota_of_bytes_out(room: Room) -> Iterator[str]:
    with room.peer(QUENTIN) as peer:
        _pour(peer, [peer.sender("q-log")], b"y" * 10_000, 0.5)
        links = [peer.receiver("q-log", credit=1000, filters=from_earliest()) for _ in range(10)]
        for _ in range(50):
            peer.pump(0.02)
        got = sum(delivery.pending for link in links for delivery in [link.current] if delivery)
        yield f"events come at the rate of the quota; {got} bytes wait on {len(links)} links"


def _sessions(room: Room) -> Iterator[str]:
    """A channel that the node did not offer."""
    with room.peer() as peer:
        body = frames.performative(
            "begin", {"next-outgoing-id": UInt(0), "incoming-window": UInt(10), "outgoing-window": UInt(10)}
        )
        for channel in range(room.limits.sessions + 1):
            peer.raw(frames.frame(channel, body))
        peer.until(lambda: peer.is_gone or refusal(peer.connection) is not None, "no refusal")
        yield (
            f"{room.limits.sessions} sessions, then the connection ends: "
            f"{refusal(peer.connection) or 'closed'}"
        )


def _links(room: Room) -> Iterator[str]:
    with room.peer() as peer:
        links = [peer.sender(LOG) for _ in range(room.limits.links + 1)]
        condition = refused(peer, links[-1], LIMITED)
        yield f"{room.limits.links} links, then {condition}"


def _frame_bytes(room: Room) -> Iterator[str]:
    with room.peer() as peer:
        size = room.limits.frame_bytes + 1
        peer.raw(size.to_bytes(4) + b"\x02\x00\x00\x00" + b"x" * 1000)
        peer.until(lambda: peer.is_gone or refusal(peer.connection) is not None, "no refusal")
        yield f"a frame of {size} bytes is announced: {refusal(peer.connection) or 'closed'}"


def _message_bytes(room: Room) -> Iterator[str]:
    with room.peer() as peer:
        link = peer.sender(LOG)
        peer.until(lambda: link.credit > 0, "no credit")
        link.delivery("large")
        piece = b"x" * (256 << 10)
        for _ in range(room.limits.message_bytes // len(piece) + 2):
            link.stream(piece)
            peer.pump(0.0)
        yield refused(peer, link, names.LINK_MESSAGE_SIZE_EXCEEDED)


def _filter_bytes(room: Room) -> Iterator[str]:
    with room.peer() as peer:
        many = {
            f"f{number}": proton.Described(proton.symbol(names.FILTEX_SQL), "n = " + "1" * 4000)
            for number in range(30)
        }
        link = peer.receiver(LOG, credit=1, filters=from_earliest() | many)
        yield refused(peer, link, LIMITED, names.INVALID_FIELD)


def _credit(room: Room) -> Iterator[str]:
    """Transfers without credit, as fast as they go."""
    with room.peer() as peer:
        link = peer.sender(LOG)
        peer.until(lambda: link.credit > 0, "no credit")
        message = proton.Message(body=b"x").encode()
        count = room.limits.credit + 10
        for number in range(count):
            fields = {
                "handle": UInt(0),
                "delivery-id": UInt(number),
                "delivery-tag": b"t%d" % number,
                "settled": True,
            }
            peer.raw(frames.frame(0, frames.performative("transfer", fields) + message))
        peer.pump(0.5)
        got = (
            refusal(link)
            or refusal(peer.connection)
            or "taken within the credit that grows as events are durable"
        )
        yield f"{count} transfers at once: {got}"


def _unsettled(room: Room) -> Iterator[str]:
    """All events of a log and more, and none settled: the node stops at the limit."""
    count = min(room.limits.unsettled, 3000) + 50
    with room.peer() as peer, room.peer() as reader:
        producer = peer.sender(LOG)
        sent = 0
        while sent < count:
            peer.until(lambda: producer.credit > 0, "no credit")
            for _ in range(min(producer.credit, count - sent)):
                sent += 1
                send(producer, b"\x00Sw\xa1\x01x", f"u{sent}")
        link = reader.receiver(LOG, credit=count + 1000, filters=from_earliest())
        got = 0
        for _ in range(40):
            reader.pump(0.05)
            while link.current is not None and not link.current.partial:
                link.recv(link.current.pending)
                link.advance()
                got += 1
        most = room.limits.unsettled
        expect(0 < got <= most, f"{got} unsettled deliveries, the limit is {most}")
        link.drain(0)
        reader.pump(0.2)
        yield f"{got} deliveries unsettled, then none"


def _pending_bytes(room: Room) -> Iterator[str]:
    """Unfinished messages up to the limit of the node: a message of the neighbour in many frames
    still gets in.
    """
    with ExitStack() as stack:
        peers = [stack.enter_context(room.peer()) for _ in range(3)]
        links = [peer.sender(LOG) for peer in peers for _ in range(3)]
        for number, link in enumerate(links):
            peers[number // 3].credited(link)
        piece = (
            b"\x00Sw\xb0"
            + (room.limits.message_bytes).to_bytes(4)
            + b"x" * (room.limits.message_bytes - 4096)
        )
        for link in links:
            link.delivery("half")
            link.stream(piece)
        for peer in peers:
            peer.until(partial(_is_sent, peer), "the unfinished messages do not arrive")
        # Small ones fill what is left of the bound: the next message of anybody is beyond it.
        rest = [peers[0].sender(LOG) for _ in range(20)]
        for link in rest:
            peers[0].credited(link)
            link.delivery("half")
            link.stream(piece[:100_000])
        peers[0].until(partial(_is_sent, peers[0]), "the small messages do not arrive")
        _send_large(room, min(room.limits.message_bytes, 1 << 20) // 2)
        ended = sum(refusal(link) is not None for link in links)
        yield (
            f"{len(links)} unfinished messages: {ended} links ended; a message of the neighbour in "
            f"many frames is accepted"
        )


def _is_sent(peer: Peer) -> bool:
    return peer.is_gone or peer.shared_session.outgoing_bytes == 0


def _send_large(room: Room, size: int) -> None:
    """The neighbour sends one message in many frames."""
    with room.peer(NINA, frame_bytes=4096) as nina:
        link = nina.sender("n-log")
        nina.until(lambda: link.credit > 0, "no credit for the neighbour")
        delivery = send(link, proton.Message(body=b"x" * size).encode(), "large", settled=False)
        nina.until(lambda: int(delivery.remote_state) != 0 or refusal(link) is not None, "no outcome")
        expect(
            delivery.remote_state == proton.Delivery.ACCEPTED, f"a neighbour's large message: {refusal(link)}"
        )


def _connection_pending_bytes(room: Room) -> Iterator[str]:
    """A reader that asks for everything and reads nothing: what waits for it is bounded."""
    with room.peer() as peer:
        _pour(peer, [peer.sender(LOG)], b"z" * 20_000, 1.0)
    before = room.memory()
    with ExitStack() as stack:
        readers = [stack.enter_context(room.peer()) for _ in range(5)]
        for reader in readers:
            for _ in range(5):
                reader.receiver(LOG, credit=10_000, filters=from_earliest())
            reader.flush()
        yield "5 clients with 5 links each read nothing"
        most = len(readers) * (room.limits.connection_pending_bytes + (2 << 20)) + (32 << 20)
        grown = room.growth(before, most)
        expect(grown <= most, f"the node grew by {grown} bytes, more than {most}")


def _costly_filters(room: Room) -> Iterator[str]:
    """The dearest filters that the limits allow, on the largest texts."""
    with room.peer() as peer, ExitStack() as stack:
        producer = peer.sender(LOG)
        peer.until(lambda: producer.credit > 0, "no credit")
        message = proton.Message(body=b"ab", properties={"p": "a" * 60_000}).encode()
        for number in range(40):
            peer.until(lambda: producer.credit > 0, "no credit")
            send(producer, message, f"f{number}")
        peer.pump(0.2)
        text = " OR ".join(f"p LIKE '%_{'a' * 200}b{number}%'" for number in range(15))
        readers = [stack.enter_context(room.peer()) for _ in range(5)]
        links = [reader.receiver(LOG, credit=1000, filters=sql(text)) for reader in readers]
        for reader, link in zip(readers, links, strict=True):
            attached(reader, link)
        yield f"{len(links)} links with {len(text)} characters of LIKE each, 40 events of 60 kB"


ATTACKS: Final = (
    node_attack(
        "strangers hold twice as many connections as may be",
        "limits.connections",
        _strangers_take_all_connections,
    ),
    node_attack(
        "a tenant opens more connections than its quota",
        "quotas.connections",
        _quota_of_connections,
        "node quotas: connections",
    ),
    node_attack(
        "a tenant attaches more links than its quota", "quotas.links", _quota_of_links, "node quotas: links"
    ),
    node_attack(
        "a tenant sends as fast as it can", "quotas.bytes_in", _quota_of_bytes_in, "node quotas: bytes_in"
    ),
    node_attack(
        "a tenant reads as fast as it can", "quotas.bytes_out", _quota_of_bytes_out, "node quotas: bytes_out"
    ),
    node_attack("a peer begins a session too many", "limits.sessions", _sessions),
    node_attack("a peer attaches a link too many", "limits.links", _links),
    node_attack("a peer announces a frame that is too large", "limits.frame_bytes", _frame_bytes),
    node_attack("a peer sends a message that is too large", "limits.message_bytes", _message_bytes),
    node_attack("a peer attaches with filters that are too large", "limits.filter_bytes", _filter_bytes),
    node_attack("a peer sends more than its credit", "limits.credit", _credit),
    node_attack("a peer takes everything and settles nothing", "limits.unsettled", _unsettled),
    node_attack("a tenant leaves large messages unfinished", "limits.pending_bytes", _pending_bytes),
    node_attack(
        "a tenant asks for everything and reads nothing",
        "limits.connection_pending_bytes",
        _connection_pending_bytes,
        "node limits: connection_pending_bytes",
        "AMQP: unread replies",
    ),
    node_attack(
        "a tenant reads with the dearest filters",
        "limits.filter_bytes",
        _costly_filters,
        "attach Consuming",
        table=Table.PRODUCTS,
    ),
)
