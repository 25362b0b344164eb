"""Asking an ASGI application without a server."""

import asyncio
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from knative_gateway.ports import Route, Routes

BINARY = (
    ("ce-specversion", "1.0"),
    ("ce-id", "1"),
    ("ce-source", "/s"),
    ("ce-type", "t"),
    ("content-type", "application/json"),
)
STRUCTURED = (("content-type", "application/cloudevents+json"),)
BATCH = (("content-type", "application/cloudevents-batch+json"),)
EVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a": 1}}'
BROKER = Route("uid-1", "Broker", "default", "b", "/broker/default/b", "broker.default.b")
CHANNEL = Route("uid-2", "Channel", "default", "c", "/channel/default/c", "channel.default.c")


@dataclass(frozen=True)
class Answered:
    """A response, header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def routes(*all_routes: Route, version: int = 1) -> Routes:
    return Routes(version, {route.path: route for route in all_routes})


async def ask(
    app: Any,
    path: str = BROKER.path,
    headers: Iterable[tuple[str, str]] = BINARY,
    body: bytes | Sequence[bytes] = b'{"a": 1}',
    *,
    method: str = "POST",
    http_version: str = "1.1",
    leave: bool = False,
) -> Answered | None:
    """Send one request, with its body in one piece or in several. `leave`: the client disconnects before the
    last piece. Returns None if no answer arrives.
    """
    pieces = [body] if isinstance(body, bytes) else list(body)
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or leave}
        if leave:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": http_version,
        "method": method,
        "path": path,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    await app(scope, receive, send)
    if not sent:
        return None
    start, end = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    assert int(told["content-length"]) == len(end["body"])
    return Answered(start["status"], told, end["body"])
