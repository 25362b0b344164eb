"""A node with as much of a thing as its limits allow: half requests, pongs, names of users, logs."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.node.requests import EXTENTS_MAX
from amqp_streams.server.limits.logins import TABLE_MAX
from amqp_streams.server.listening.admin import HTTP_CONNECTIONS_MAX
from amqp_streams.server.listening.websocket_frames import PONG_BYTES_MAX
from amqp_streams.wire import frames
from amqp_streams.wire.codec import encode
from amqp_streams.wire.types import Described, Symbol, ULong
from attack.inventory import Listener
from attack.peer import received
from attack.report import Attack, Place, Table, expect
from attack.room import Room
from attack.tables.doors import DOORS, connected, send_what_fits, websocket_frame
from attack.tables.kept import wide_partitions
from attack.tables.timers import HEADER

SLACK_BYTES: Final = 32 << 20
"""What a process may grow by for other reasons: caches, arenas of the allocator."""
PINGS_A_SECOND: Final = 80
"""Below EMPTY_FRAMES_MAX, so that the clients stay."""
NAME_CHARACTERS: Final = 200
OTHER_HOST: Final = "127.0.0.2"


def _half_requests(room: Room) -> Iterator[str]:
    """More half requests of one address than connections; probes of another address are answered."""
    host, _, port = room.admin.rpartition(":")
    count = HTTP_CONNECTIONS_MAX + 20
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(
                socket.create_connection((host, int(port)), timeout=30, source_address=(OTHER_HOST, 0))
            )
            client.sendall(DOORS[Listener.ADMIN].half)
        for path in ("/healthz", "/readyz", "/metrics"):
            status, _ = room.get(path)
            expect(status == 200, f"{path} is {status} while another address holds all connections")
        yield f"{count} half requests; probes of another address are answered"


def _pongs(room: Room) -> Iterator[str]:
    """Pings in the allowed number, with the longest payload, of clients that read nothing."""
    door = DOORS[Listener.WEBSOCKET]
    clients, seconds = (10, 1) if room.is_small else (100, 5)
    before = room.memory()
    ping = websocket_frame(9, b"p" * 125)
    with ExitStack() as stack:
        held = [stack.enter_context(connected(room, door, reads=False)) for _ in range(clients)]
        sent = 0
        for _ in range(seconds * 10):
            for client in held:
                sent += send_what_fits(client, ping * (PINGS_A_SECOND // 10))
            time.sleep(0.1)
        bound = clients * PONG_BYTES_MAX + SLACK_BYTES
        grown = room.growth(before, bound)
        expect(grown <= bound, f"the node has grown by {grown >> 20} MiB, more than {bound >> 20}")
        yield (
            f"{clients} clients send {sent // len(ping)} pings; the node has grown by "
            f"{max(0, grown) >> 20} MiB"
        )


def _scram_names(room: Room) -> Iterator[str]:
    """Logins with SCRAM of as many long names from as many addresses as the node remembers, and more."""
    host, _, port = room.amqp.rpartition(":")
    count = 100 if room.is_small else TABLE_MAX + 100
    before = room.memory()
    for number in range(count):
        source = f"127.1.{number >> 8 & 255}.{number & 255}"
        with socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0)) as client:
            client.sendall(HEADER + _first(f"{number:0>{NAME_CHARACTERS}}"))
            _until(client, b"r=nonce")
            client.sendall(_response(b"c=biws,r=nonce,p=AAAA"))
    bound = count * 2 * NAME_CHARACTERS * 4 + SLACK_BYTES
    grown = room.growth(before, bound)
    expect(grown <= bound, f"the node has grown by {grown >> 20} MiB, more than {bound >> 20}")
    with room.peer() as known:
        expect(not known.is_gone, "a token is refused")
        yield f"{count} names; the node has grown by {max(0, grown) >> 20} MiB, and a token is accepted"


def _first(user: str) -> bytes:
    body = encode(Described(ULong(0x41), [Symbol("SCRAM-SHA-256"), f"n,,n={user},r=nonce".encode()]))
    return frames.frame(0, body, type=frames.SASL)


def _response(data: bytes) -> bytes:
    return frames.frame(0, encode(Described(ULong(0x43), [data])), type=frames.SASL)


def _until(client: socket.socket, wanted: bytes) -> None:
    """Read until these bytes have come: the node has challenged the user. Raises BrokenError."""
    data = b""
    while wanted not in data:
        block = client.recv(1 << 16)
        expect(block, f"the node does not challenge an unknown user: {data!r}")
        data += block


def _extents(room: Room) -> Iterator[str]:
    """EXTENTS of as many partitions as one answer may have, all of logs that exist, many at once."""
    size = wide_partitions(room)
    logs = [f"m-x{number}" for number in range(min(room.limits.partitions - size, EXTENTS_MAX) // size)]
    with room.peer() as peer:
        links = peer.management()
        try:
            for log in logs:
                status, words = peer.request(links, "CREATE", names.LOG_TYPE, log, partitions=size)
                expect(status == 201, f"CREATE {log}: {status} {words}")
            answers, requests = links
            message = proton.Message(
                body={"logs": logs},
                id=1,
                reply_to="answers",
                properties={"operation": names.EXTENTS, "type": names.LOG_TYPE, "name": ""},
            ).encode()
            peer.until(lambda: requests.credit >= 10, "no credit for ten requests")
            for number in range(10):
                requests.delivery(f"x{number}")
                requests.stream(message)
                requests.advance()
            answers.flow(20)
            yield f"10 requests for {len(logs) * size} partitions of {len(logs)} logs at once"
            peer.until(lambda: answers.current is not None and not answers.current.partial, "no answer")
            properties: Any = received(answers).properties
            status = int(properties["status-code"])
            expect(status == 200, f"EXTENTS of {len(logs)} logs: {status}")
        finally:
            with room.peer() as other:
                again = other.management()
                for log in logs:
                    other.request(again, "DELETE", names.LOG_TYPE, log)


def _attack(
    name: str, limit: str, run: Callable[[Room], Iterator[str]], *covers: str, table: Table = Table.PRODUCTS
) -> Attack:
    return Attack(name, table, Place.NODE, frozenset(covers), limit, run)


ATTACKS: Final = (
    _attack(
        "half requests take all connections of the admin listener",
        "HTTP_CONNECTIONS_MAX",
        _half_requests,
        "admin HTTP: half requests",
        "amqp_streams.server.listening.admin:HTTP_CONNECTIONS_MAX",
        table=Table.LISTENERS,
    ),
    _attack(
        "clients that send pings and read no pongs",
        "PONG_BYTES_MAX",
        _pongs,
        "AMQP over WebSocket: unread replies",
        "amqp_streams.server.listening.websocket_frames:PONG_BYTES_MAX",
        table=Table.LISTENERS,
    ),
    _attack(
        "SCRAM logins of many users from many addresses",
        "TABLE_MAX",
        _scram_names,
        "amqp_streams.server.limits.logins:TABLE_MAX",
        table=Table.ACCESS,
    ),
    _attack(
        "EXTENTS of as many existing partitions as an answer may have",
        "EXTENTS_MAX",
        _extents,
        "$management event-log EXTENTS",
    ),
)
