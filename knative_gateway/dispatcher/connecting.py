"""[io] Connections to subscribers: pooled by destination, and to allowed addresses only.

Law: the address that is connected to is one that the rules were asked about: names are resolved here, and nobody resolves them again.
"""

import asyncio
import math
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import structlog

from knative_gateway.destinations import Destinations
from knative_gateway.dispatcher.connection import Connection, ConnectionClosedError, LimitOf, Response, Told, connect

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 4.0
"""Common servers close idle connections after five seconds: below that, requests seldom meet one that is closing."""
RESOLVED_S: Final = 10.0
"""How long a name's addresses are remembered."""
TICK_S: Final = 0.005
"""By how much a request may be given up too late: one timer looks after all of them."""
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:?#[]@!$&'()*+,;=~-._"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host. Raises OSError."""


class DeniedError(OSError):
    """The rules deny this destination."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart. `head`: request line and headers that every POST there begins with; `place`: host, port, and whether it is TLS."""

    host: str
    port: int
    is_tls: bool
    head: bytes
    place: tuple[str, int, bool]

    @classmethod
    def of(cls, url: str) -> "Target":
        """Of an absolute http or https URL.

        Raises:
            ValueError: it is none, or its host no name.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna" if not (parts.hostname or "").isascii() else "ascii").decode("ascii")
        if parts.scheme not in _PORTS or not host:
            message = f"{url!r} is no http or https URL"
            raise ValueError(message)
        port = parts.port or _PORTS[parts.scheme]
        path = quote(parts.path or "/", _SAFE) + (f"?{quote(parts.query, _SAFE)}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        authority = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
        head = f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: knative-gateway\r\nAccept-Encoding: identity\r\n"
        if parts.username is not None:
            secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode("ascii")
            head += f"Authorization: Basic {secret}\r\n"
        is_tls = parts.scheme == "https"
        return cls(host, port, is_tls, head.encode("ascii"), (host, port, is_tls))


class Connections:
    """All connections. `resent`: requests that met the end of a connection that was kept alive for them, and are sent once more.

    Not bounded here: each subscriber's window bounds its own, and a common bound would let the slow hold up others.
    """

    def __init__(self, rules: Destinations, tls: ssl.SSLContext, connect_timeout_s: float, resolve: Resolve | None = None) -> None:
        self._rules: Final = rules
        self._tls: Final = tls
        self._connect_timeout_s: Final = connect_timeout_s
        self._resolve: Final = resolve or _resolve
        self._loop: Final = asyncio.get_running_loop()
        self._idle: Final[dict[tuple[str, int, bool], deque[Connection]]] = {}
        self._addresses: Final[dict[tuple[str, int], tuple[float, Sequence[str]]]] = {}
        self.resent = 0
        self._in_use: Final[dict[Connection, tuple[tuple[str, int, bool], Told]]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = math.inf
        self._sweeper = self._loop.call_later(KEEP_ALIVE_S, self._sweep)

    def close(self) -> None:
        """Close them all."""
        self._sweeper.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for connection in [*self._in_use, *(each for idle in self._idle.values() for each in idle)]:
            connection.abort()
        self._idle.clear()

    def begin(self, target: Target, fields: bytes, body: bytes, *, timeout_s: float, limit_of: LimitOf, told: Told) -> Connection | None:
        """Send one POST over a connection that is there already, if there is one; `told` is called once, later, as `Connection.begin` says.

        To give up waiting: `abort` the connection.
        """
        connection = self._take(target.place)
        if connection is not None:
            connection.deadline_s = self._loop.time() + timeout_s
            self._begin(connection, target, fields, body, limit_of=limit_of, told=told)
        return connection

    async def post(self, target: Target, fields: bytes, body: bytes, *, timeout_s: float, limit_of: LimitOf) -> Response:
        """Send one POST with these header lines and wait for its answer.

        Raises:
            DeniedError: the rules deny all addresses of the host.
            TimeoutError: no connection or no answer in time.
            OSError: no connection, or no answer.
        """
        deadline_s = self._loop.time() + timeout_s
        while True:
            connection = self._take(target.place) or await self._connect(target, deadline_s)
            if deadline_s <= self._loop.time():
                self._keep(connection, target.place)
                raise TimeoutError
            waiting: asyncio.Future[Response] = self._loop.create_future()
            connection.deadline_s = deadline_s
            self._begin(connection, target, fields, body, limit_of=limit_of, told=partial(_settle, waiting))
            try:
                return await waiting
            except ConnectionClosedError:
                # The other side may close a connection just when it is used again: that says nothing of the event.
                if not connection.is_stale:
                    raise
                self.resend(target)
            except asyncio.CancelledError:
                connection.abort()
                raise

    def resend(self, target: Target) -> None:
        """A kept connection was closed: others to that place would be, too, and the next request is over one that is new."""
        self.resent += 1
        for connection in self._idle.pop(target.place, ()):
            connection.abort()

    def _begin(self, connection: Connection, target: Target, fields: bytes, body: bytes, *, limit_of: LimitOf, told: Told) -> None:
        """`deadline_s` of the connection is set. A connection is in use only after its request was sent: `expire` then ends it."""
        head = b"%b%bContent-Length: %d\r\n\r\n" % (target.head, fields, len(body))
        try:
            connection.begin(head, body, limit_of, self._ended)
        except BaseException:
            connection.abort()
            raise
        self._in_use[connection] = target.place, told
        if connection.deadline_s < self._alarm_at_s - TICK_S:
            self._ring_at(connection.deadline_s)

    def _ended(self, connection: Connection, outcome: Response | OSError) -> None:
        place, told = self._in_use.pop(connection)
        self._keep(connection, place)
        told(connection, outcome)

    def _keep(self, connection: Connection, place: tuple[str, int, bool]) -> None:
        """Keep a connection for the next request to that place, if it is usable."""
        if connection.usable:
            connection.idle_since = self._loop.time()
            idle = self._idle.get(place)
            if idle is None:
                idle = self._idle[place] = deque()
            idle.append(connection)

    def _ring_at(self, at_s: float) -> None:
        # The time is kept here: a timer of uvloop that is due at once has no `when`.
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at_s = at_s
        self._alarm = self._loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        """End the requests whose time is up, and set the alarm for the next one. One timer serves all requests."""
        self._alarm, self._alarm_at_s = None, math.inf
        now_s = self._loop.time()
        try:
            for connection in [each for each in self._in_use if each.deadline_s <= now_s]:
                try:
                    connection.expire()
                except Exception:
                    log.exception("delivery_fault", destination=self._in_use.get(connection, ((), None))[0])
        finally:
            if self._in_use:
                self._ring_at(max(self._loop.time() + TICK_S, min(each.deadline_s for each in self._in_use)))

    def _take(self, place: tuple[str, int, bool]) -> Connection | None:
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self, target: Target, deadline_s: float) -> Connection:
        wait_s = min(deadline_s - self._loop.time(), self._connect_timeout_s)
        try:
            async with asyncio.timeout(wait_s):
                return await self._connect_to_any(target, self._loop.time() + wait_s)
        except TimeoutError:
            message = f"no connection within {wait_s * 1000:.0f} ms"
            raise TimeoutError(message) from None

    async def _connect_to_any(self, target: Target, deadline_s: float) -> Connection:
        """To the first address that is there. Of several, one that does not answer at all must not take the others' time."""
        failure = OSError(f"{target.host} has no address")
        addresses = await self._allowed(target)
        for count, address in enumerate(addresses):
            share_s = (deadline_s - self._loop.time()) / (len(addresses) - count)
            try:
                async with asyncio.timeout(share_s):
                    return await connect(address, target.port, self._tls if target.is_tls else None, target.host)
            except OSError as error:
                failure = error
        raise failure

    async def _allowed(self, target: Target) -> Sequence[str]:
        """The addresses of a host that may be connected to."""
        known = self._addresses.get((target.host, target.port))
        if known is None or known[0] < self._loop.time():
            known = (self._loop.time() + RESOLVED_S, await self._resolve(target.host, target.port))
            self._addresses[target.host, target.port] = known
        refusals = [self._rules.refusal(target.host, address) for address in known[1]]
        allowed = [address for address, refusal in zip(known[1], refusals, strict=True) if refusal is None]
        if refusals and not allowed:
            raise DeniedError(f"destination denied: {refusals[0]}")
        return allowed

    def _sweep(self) -> None:
        """Close what was idle for long, and forget addresses that are old."""
        now_s = self._loop.time()
        for key, idle in list(self._idle.items()):
            while idle and (not idle[0].usable or idle[0].idle_since < now_s - KEEP_ALIVE_S):
                idle.popleft().abort()
            if not idle:
                del self._idle[key]
        for place, (until_s, _) in list(self._addresses.items()):
            if until_s < now_s:
                del self._addresses[place]
        self._sweeper = self._loop.call_later(KEEP_ALIVE_S / 4, self._sweep)


def _settle(waiting: "asyncio.Future[Response]", _: Connection, outcome: Response | OSError) -> None:
    if waiting.done():
        return
    if isinstance(outcome, OSError):
        waiting.set_exception(outcome)
    else:
        waiting.set_result(outcome)


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))
