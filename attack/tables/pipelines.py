"""Clients of the gateway that send many requests at once and do not read the answers."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from attack.report import Attack, Place, Table
from attack.room import Room, wait_for
from attack.settings import MALLORY, http_token

CLIENTS: Final = 100
REQUESTS: Final = 200
SMALL_CLIENTS: Final = 30


def request(
    room: Room, path: str, *, user: str = MALLORY, method: str = "GET", body: bytes = b"", more: str = ""
) -> bytes:
    """An HTTP/1.1 request with the user's token."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer "
        f"{http_token(room.secret, user)}\r\n"
        f"content-length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


def flooding(room: Room, sent: bytes, clients: int) -> Iterator[str]:
    """That many clients send this and read nothing, until the attack ends."""
    host, _, port = room.http.rpartition(":")
    first = _status(room, sent)
    with ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            client.setblocking(False)
            _send_what_fits(client, sent)
        yield (
            f"{clients} clients sent {sent.count(b' HTTP/1.1')} requests each; the first is answered "
            f"with {first}"
        )
    wait_for(lambda: room.get("/readyz")[0] == 200, "the gateway is ready again")


def _status(room: Room, sent: bytes) -> str:
    """The status of the first of these requests, so that the table shows what is flooded with."""
    host, _, port = room.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        _send_what_fits(client, sent[: 8 << 20])
        client.settimeout(60.0)
        return client.recv(64).split(b" ")[1].decode()


def _send_what_fits(client: socket.socket, sent: bytes) -> None:
    waiting = memoryview(sent)
    while waiting:
        try:
            waiting = waiting[client.send(waiting) :]
        except BlockingIOError:
            return


def _unread_documents(room: Room) -> Iterator[str]:
    clients = SMALL_CLIENTS if room.is_small else CLIENTS
    yield from flooding(room, request(room, "/openapi/v2") * REQUESTS, clients)


def _refused_events(room: Room) -> Iterator[str]:
    clients = SMALL_CLIENTS if room.is_small else CLIENTS
    sent = request(room, "/broker/m/nothing", method="POST", more="ce-specversion: 1.0\r\n") * 2000
    yield from flooding(room, sent, clients)


ATTACKS: Final = (
    Attack(
        "clients pipeline GET /openapi/v2 and read nothing",
        Table.LISTENERS,
        Place.GATEWAY,
        frozenset({"gateway HTTP: unread replies"}),
        "turns of requests",
        _unread_documents,
    ),
    Attack(
        "clients pipeline events that are refused and read nothing",
        Table.LISTENERS,
        Place.GATEWAY,
        frozenset({"gateway HTTP: a flood of small requests"}),
        "requests that wait, WAITING_MAX",
        _refused_events,
    ),
)
