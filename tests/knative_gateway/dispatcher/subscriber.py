"""A subscriber: a real server that gives the configured answers and records what it received."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from event_formats.event import CloudEvent
from event_formats.http_binding import from_http


@dataclass
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    event: CloudEvent
    at_s: float

    @property
    def id(self) -> str:
        return str(self.event.attributes["id"])


Behaviour = Callable[[Got], Awaitable[web.StreamResponse]]


async def accept(_: Got) -> web.StreamResponse:
    return web.Response(status=202)


@dataclass
class SubscriberServer:
    """Use with `async with`. `behaviour` answers; `answers` are given first, one each."""

    behaviour: Behaviour = accept
    answers: list[web.Response | int] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    in_flight: int = 0
    in_flight_max: int = 0
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._grown = asyncio.Condition()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._server = TestServer(app)

    def url(self, path: str = "/") -> str:
        return str(self._server.make_url(path))

    @property
    def ids(self) -> list[str]:
        """The ids of all events, in the order of arrival."""
        return [got.id for got in self.got]

    async def wait(self, count: int, timeout_s: float = 60.0) -> list[Got]:
        """Wait until this many requests have arrived."""
        async with asyncio.timeout(timeout_s), self._grown:
            await self._grown.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        got = Got(
            request.path_qs,
            {name.lower(): value for name, value in request.headers.items()},
            body,
            from_http(request.raw_headers, body),
            asyncio.get_running_loop().time(),
        )
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        async with self._grown:
            self.got.append(got)
            self._grown.notify_all()
        try:
            if self.answers:
                answer = self.answers.pop(0)
                return web.Response(status=answer) if isinstance(answer, int) else answer
            return await self.behaviour(got)
        finally:
            self.in_flight -= 1

    async def __aenter__(self) -> Self:
        await self._server.start_server(ssl=self.tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()
