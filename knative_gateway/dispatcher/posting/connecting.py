"""[io] Connections to subscribers, pooled by destination, and the requests that go over them.

Laws: a request ends with an answer or an error, in time; a fault in one request touches no other.
"""

import asyncio
import math
import ssl
from collections import deque
from functools import partial
from typing import Final

import structlog

from knative_gateway.dispatcher.posting.connection import Connection, ConnectionClosedError, LimitOf, Response, Told
from knative_gateway.dispatcher.posting.opening import Opener
from knative_gateway.dispatcher.posting.replies import BYTES_MAX, Replies
from knative_gateway.dispatcher.posting.resolving import Names, Resolve
from knative_gateway.dispatcher.posting.slots import CONNECTIONS_MAX, Slots
from knative_gateway.dispatcher.posting.target import Place, Target
from knative_gateway.security.destinations import Destinations

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 4.0
"""Common servers close idle connections after five seconds: below that, requests seldom meet one that is closing."""
TICK_S: Final = 0.005
"""By how much a request may be given up too late: one timer looks after all of them."""


class Connections:
    """All connections. `connections_max`: open at once, at most; `Slots` decides who may open one.
    `replies_bytes_max`: of answers that are received at once; `Replies` decides whose is next.

    `resent`: requests that met the end of a connection that was kept alive for them, and are sent once more. An `owner` is a subscriber.
    """

    def __init__(
        self,
        rules: Destinations,
        tls: ssl.SSLContext,
        connect_timeout_s: float,
        resolve: Resolve | None = None,
        *,
        connections_max: int = CONNECTIONS_MAX,
        replies_bytes_max: int = BYTES_MAX,
    ) -> None:
        self.slots: Final = Slots(connections_max)
        self.replies: Final = Replies(replies_bytes_max)
        self.names: Final = Names(resolve)
        self.opener: Final = Opener(rules, tls, connect_timeout_s, self.names)
        self.resent = 0
        self.idle = 0
        self._loop: Final = asyncio.get_running_loop()
        self._idle: Final[dict[Place, deque[Connection]]] = {}
        self._in_use: Final[dict[Connection, tuple[Place, str, Told]]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = math.inf
        self._sweeper = self._loop.call_later(KEEP_ALIVE_S / 4, self._sweep)

    def close(self) -> None:
        """Close them all."""
        self._sweeper.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for connection in [*self._in_use, *(each for idle in self._idle.values() for each in idle)]:
            connection.abort()
        self._idle.clear()
        self.names.close()

    def use(self, tls: ssl.SSLContext) -> None:
        """Of new connections. Those that are idle are closed: they were made with other certificates."""
        self.opener.tls = tls
        while self._idle:
            self._close_idle()

    def begin(
        self, target: Target, fields: bytes, body: bytes, *, timeout_s: float, limit_of: LimitOf, told: Told, owner: str = ""
    ) -> Connection | None:
        """Send one POST over a connection that is there already, if there is one; `told` is called once, later, as `Connection.begin` says.

        To give up waiting: `abort` the connection.
        """
        connection = self._take(target.place)
        if connection is not None:
            connection.deadline_s = self._loop.time() + timeout_s
            self._begin(connection, target, fields, body, limit_of=limit_of, told=told, owner=owner)
        return connection

    async def post(
        self,
        target: Target,
        fields: bytes,
        body: bytes,
        *,
        timeout_s: float,
        limit_of: LimitOf,
        owner: str = "",
        namespace: str = "",
    ) -> Response:
        """Send one POST with these header lines and wait for its answer.

        The time for which a request waits for this machine (a free connection, a lookup, a descriptor) does not count.

        Raises:
            DeniedError: the rules deny all addresses of the host.
            TimeoutError: no connection or no answer in time.
            OSError: no connection, or no answer.
        """
        deadline_s = self._loop.time() + timeout_s
        while True:
            connection = self._take(target.place)
            if connection is None:
                waited_s = await self._slot(owner)
                try:
                    connection, deadline_s = await self.opener.open(target, deadline_s + waited_s, namespace=namespace)
                finally:
                    self.slots.release(owner)
            if deadline_s <= self._loop.time():
                self._keep(connection, target.place)
                raise TimeoutError
            waiting: asyncio.Future[Response] = self._loop.create_future()
            connection.deadline_s = deadline_s
            self._begin(connection, target, fields, body, limit_of=limit_of, told=partial(_settle, waiting), owner=owner)
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
        idle = self._idle.pop(target.place, deque())
        self.idle -= len(idle)
        for connection in idle:
            connection.abort()

    async def _slot(self, owner: str) -> float:
        """Wait until a connection may be opened; for how long."""
        began_s = self._loop.time()
        await self.slots.acquire(owner)
        if self.slots.used + self.idle > self.slots.max:
            self._close_idle()
        return self._loop.time() - began_s

    def _close_idle(self) -> None:
        """Close the connection of some place that was idle for longest there."""
        place, idle = next(iter(self._idle.items()))
        idle.popleft().abort()
        self.idle -= 1
        if not idle:
            del self._idle[place]

    def _begin(
        self, connection: Connection, target: Target, fields: bytes, body: bytes, *, limit_of: LimitOf, told: Told, owner: str
    ) -> None:
        """`deadline_s` of the connection is set. A connection is in use only after its request was sent: `expire` then ends it."""
        head = b"%b%bContent-Length: %d\r\n\r\n" % (target.head, fields, len(body))
        try:
            connection.begin(head, body, limit_of, self._ended, replies=self.replies, owner=owner)
        except BaseException:
            connection.abort()
            raise
        self._in_use[connection] = target.place, owner, told
        self.slots.take(owner)
        if connection.deadline_s < self._alarm_at_s - TICK_S:
            self._ring_at(connection.deadline_s)

    def _ended(self, connection: Connection, outcome: Response | OSError) -> None:
        place, owner, told = self._in_use.pop(connection)
        self._keep(connection, place)
        self.slots.release(owner)
        told(connection, outcome)

    def _keep(self, connection: Connection, place: Place) -> None:
        """Keep a connection for the next request to that place, if it is usable."""
        if connection.usable:
            connection.idle_since = self._loop.time()
            idle = self._idle.get(place)
            if idle is None:
                idle = self._idle[place] = deque()
            idle.append(connection)
            self.idle += 1

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
                    log.exception("delivery_fault", destination=self._in_use.get(connection, ((), "", None))[0])
        finally:
            if self._in_use:
                self._ring_at(max(self._loop.time() + TICK_S, min(each.deadline_s for each in self._in_use)))

    def _take(self, place: Place) -> Connection | None:
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            self.idle -= 1
            if connection.usable:
                return connection
        return None

    def _sweep(self) -> None:
        """Close what was idle for long, and forget addresses that are old."""
        now_s = self._loop.time()
        for key, idle in list(self._idle.items()):
            while idle and (not idle[0].usable or idle[0].idle_since < now_s - KEEP_ALIVE_S):
                idle.popleft().abort()
                self.idle -= 1
            if not idle:
                del self._idle[key]
        self.names.forget()
        self._sweeper = self._loop.call_later(KEEP_ALIVE_S / 4, self._sweep)


def _settle(waiting: "asyncio.Future[Response]", _: Connection, outcome: Response | OSError) -> None:
    if waiting.done():
        return
    if isinstance(outcome, OSError):
        waiting.set_exception(outcome)
    else:
        waiting.set_result(outcome)
