"""The listeners of a node and of a gateway under garbage, half requests, floods, unread replies, slow bodies.

One function for each abuse; what is sent differs from listener to listener.
"""

import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from amqp_streams.server.listening.admin import WEBSOCKET_PATHS
from attack.inventory import Abuse, Listener
from attack.report import Attack, BrokenError, Place, Table, expect
from attack.room import Room
from attack.settings import MALLORY, http_token
from attack.tables.timers import ends_within

CLIENTS: Final = 100
SMALL_CLIENTS: Final = 20
SMALL_PATIENT_CLIENTS: Final = 5
SEED: Final = 7
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
_UPGRADE: Final = (
    b"GET %b HTTP/1.1\r\nhost: node\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: "
    b"13\r\nsec-websocket-protocol: amqp\r\n\r\n"
)
_SASL: Final = b"AMQP\x03\x01\x00\x00"
_HALF_HTTP: Final = b"POST /healthz HTTP/1.1\r\nhost: x\r\nx-half: "
_SLOW_HTTP: Final = b"POST /broker/m/default HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Door:
    """What a client sends to a listener.

    `prelude`: first, and its answer is read. `half`: the beginning of a request. `small`: the smallest whole
    request, of which a flood is made. `large`: a request with a long answer. `patience_s`: how long the
    listener may wait for a request.
    """

    place: Place
    address: Callable[[Room], str]
    half: bytes
    small: Callable[[Room], bytes]
    large: Callable[[Room], bytes]
    slow: bytes
    patience_s: float
    is_encrypted: bool = False
    prelude: bytes = b""


def _get(path: str) -> Callable[[Room], bytes]:
    def made(room: Room) -> bytes:
        token = http_token(room.secret, MALLORY)
        return f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()

    return made


def websocket_frame(opcode: int, payload: bytes) -> bytes:
    """A frame of a client, with a mask of zeros."""
    size = len(payload)
    head = bytes([0x80 | opcode]) + (bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2))
    return head + b"\x00\x00\x00\x00" + payload


DOORS: Final = {
    Listener.AMQP: Door(
        Place.NODE,
        lambda room: room.amqp,
        _SASL + b"\x00\x00\x01",
        lambda _: EMPTY_FRAME,
        lambda _: _SASL,
        _SASL,
        2.0,
    ),
    Listener.AMQP_TLS: Door(
        Place.NODE,
        lambda room: room.amqp_tls,
        _SASL + b"\x00\x00\x01",
        lambda _: EMPTY_FRAME,
        lambda _: _SASL,
        _SASL,
        2.0,
        is_encrypted=True,
    ),
    Listener.WEBSOCKET: Door(
        Place.NODE,
        lambda room: room.admin,
        b"\x82\xfe\x01",
        lambda _: websocket_frame(9, b""),
        lambda _: websocket_frame(9, b"p" * 125),
        b"\x02\x80\x00\x00\x00\x00",
        10.0,
        prelude=_UPGRADE,
    ),
    Listener.ADMIN: Door(
        Place.NODE, lambda room: room.admin, _HALF_HTTP, _get("/healthz"), _get("/metrics"), _SLOW_HTTP, 30.0
    ),
    Listener.HTTP: Door(
        Place.GATEWAY,
        lambda room: room.http,
        _HALF_HTTP,
        _get("/healthz"),
        _get("/openapi/v2"),
        _SLOW_HTTP,
        8.0,
    ),
    Listener.HTTPS: Door(
        Place.GATEWAY_TLS,
        lambda room: room.http,
        _HALF_HTTP,
        _get("/healthz"),
        _get("/openapi/v2"),
        _SLOW_HTTP,
        8.0,
        is_encrypted=True,
    ),
}


def connected(room: Room, door: Door, number: int = 0, *, reads: bool = True) -> socket.socket:
    """A connection to a listener, past its prelude; `number` chooses one of several paths.

    With `reads` not: with the smallest receive buffer.
    """
    host, _, port = door.address(room).rpartition(":")
    plain = socket.socket()
    if not reads:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(30.0)
    plain.connect((host, int(port)))
    found: socket.socket = (
        room.tls.wrap_socket(plain, server_hostname="localhost") if door.is_encrypted else plain
    )
    if door.prelude:
        found.sendall(door.prelude % WEBSOCKET_PATHS[number % len(WEBSOCKET_PATHS)].encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            block = found.recv(4096)
            if not block:
                message = f"no answer to the prelude: {answer[:200]!r}"
                raise BrokenError(message)
            answer += block
    return found


def send_what_fits(client: socket.socket, data: bytes) -> int:
    """Send until nothing more fits, or the other side has closed; the bytes that were sent."""
    client.setblocking(False)
    at = 0
    while at < len(data):
        try:
            at += client.send(data[at : at + (64 << 10)])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            break
        except OSError:
            break
    return at


def _clients(room: Room, abuse: Abuse) -> int:
    """In the short form the abuses that wait run at once, and do not fill limits.connections together."""
    if not room.is_small:
        return CLIENTS
    return SMALL_PATIENT_CLIENTS if abuse in _PATIENT else SMALL_CLIENTS


def _garbage(listener: Listener) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        door, chance = DOORS[listener], random.Random(SEED)
        with ExitStack() as stack:
            held = []
            for number in range(_clients(room, Abuse.GARBAGE)):
                client = stack.enter_context(connected(room, door, number))
                send_what_fits(client, chance.randbytes(chance.randint(1, 4096)))
                held.append(client)
            yield f"{len(held)} clients send random bytes"
            for client in held:
                ends_within(client, door.patience_s)

    return run


def _half(listener: Listener) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        door = DOORS[listener]
        with ExitStack() as stack:
            held = [
                stack.enter_context(connected(room, door)) for _ in range(_clients(room, Abuse.HALF_REQUESTS))
            ]
            for client in held:
                client.sendall(door.half)
            if door.is_encrypted:
                host, _, port = door.address(room).rpartition(":")
                for data in (b"", b"\x16\x03\x01"):
                    shaking = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
                    shaking.sendall(data)
                    held.append(shaking)
            yield f"{len(held)} clients stop in the middle of a request"
            for client in held:
                ends_within(client, door.patience_s)

    return run


def _flood(listener: Listener) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        door = DOORS[listener]
        block = door.small(room) * (2000 if room.is_small else 20_000)
        with ExitStack() as stack:
            held = [stack.enter_context(connected(room, door)) for _ in range(_clients(room, Abuse.FLOOD))]
            sent = sum(send_what_fits(client, block) for client in held)
            yield f"{len(held)} clients send {sent // len(door.small(room))} small requests, and read nothing"

    return run


def _unread(listener: Listener) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        door = DOORS[listener]
        block = door.large(room) * 200
        with ExitStack() as stack:
            held = [
                stack.enter_context(connected(room, door, reads=False))
                for _ in range(_clients(room, Abuse.UNREAD))
            ]
            for _ in range(3):
                for client in held:
                    send_what_fits(client, block)
                time.sleep(0.1)
            yield f"{len(held)} clients ask for 600 long answers each, and read nothing"

    return run


def _slow(listener: Listener) -> Callable[[Room], Iterator[str]]:
    def run(room: Room) -> Iterator[str]:
        door = DOORS[listener]
        with ExitStack() as stack:
            held = [
                stack.enter_context(connected(room, door)) for _ in range(_clients(room, Abuse.SLOW_BODY))
            ]
            for client in held:
                send_what_fits(client, door.slow)
            yield f"{len(held)} clients send one byte after the other"
            deadline = time.monotonic() + door.patience_s + 20.0
            open_ = list(held)
            while open_ and time.monotonic() < deadline:
                open_ = [client for client in open_ if not _is_over(client)]
                for client in open_:
                    send_what_fits(client, b"\x00")
                time.sleep(0.1)
            expect(not open_, f"{len(open_)} connections are still open after {door.patience_s + 20:g} s")

    return run


def _is_over(client: socket.socket) -> bool:
    """Whether the other side has closed, after its last words were read."""
    try:
        while client.recv(1 << 16):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


_PATIENT: Final = frozenset({Abuse.HALF_REQUESTS, Abuse.SLOW_BODY})
_ALSO: Final = {
    (Listener.HTTP, Abuse.HALF_REQUESTS): ("gateway limits: request",),
    (Listener.WEBSOCKET, Abuse.GARBAGE): tuple(f"node GET {path}" for path in WEBSOCKET_PATHS),
    (Listener.HTTPS, Abuse.HALF_REQUESTS): ("knative_gateway.http.listening:HANDSHAKE_S",),
}
_RUNS: Final = {
    Abuse.GARBAGE: _garbage,
    Abuse.HALF_REQUESTS: _half,
    Abuse.FLOOD: _flood,
    Abuse.UNREAD: _unread,
    Abuse.SLOW_BODY: _slow,
}
_LIMITS: Final = {
    Abuse.GARBAGE: "the protocol",
    Abuse.HALF_REQUESTS: "the time of a request",
    Abuse.FLOOD: "a turn of a connection",
    Abuse.UNREAD: "bytes that wait for a peer",
    Abuse.SLOW_BODY: "the time of a request",
}


ATTACKS: Final = tuple(
    Attack(
        f"{listener}: {abuse}",
        Table.LISTENERS,
        DOORS[listener].place,
        frozenset({f"{listener}: {abuse}", *_ALSO.get((listener, abuse), ())}),
        _LIMITS[abuse],
        _RUNS[abuse](listener),
        is_long=DOORS[listener].place is Place.GATEWAY_TLS,
        # Random bytes are mostly the beginning of a request for an HTTP listener.
        is_patient=abuse in _PATIENT or (listener is Listener.ADMIN and abuse is Abuse.GARBAGE),
    )
    for listener in DOORS
    for abuse in Abuse
)
