"""[io] A pool of connections to subscribers, by endpoint, and the requests on them.

A request ends in time, with an answer or an error. A fault in one request does not affect other requests.
"""

import asyncio
import math
import ssl
from collections import deque
from functools import partial
from typing import Final

import structlog

from knative_gateway.dispatcher.posting.connection import (
    Connection,
    ConnectionClosedError,
    Ended,
    LimitOf,
    Response,
)
from knative_gateway.dispatcher.posting.opening import Opener
from knative_gateway.dispatcher.posting.replies import BYTES_MAX, Replies
from knative_gateway.dispatcher.posting.resolving import Names, Resolve
from knative_gateway.dispatcher.posting.slots import CONNECTIONS_MAX, Slots
from knative_gateway.dispatcher.posting.target import Endpoint, Target
from knative_gateway.security.destinations import Destinations

log = structlog.get_logger(__name__)

KEEP_ALIVE_S: Final = 4.0
"""How long an idle connection is kept. Common servers close idle connections after 5 seconds: with a shorter
time, few requests meet a connection that is being closed.
"""
TICK_S: Final = 0.005
"""How late a request may time out. One timer serves all requests, because a timer for each request is slow.
"""


class Connections:
    """All connections to subscribers. An `owner` is the uid of a subscriber.

    `slots`: decides which owner may open a connection. `replies`: decides which answer is received next.
    `resent`: how many requests were sent again because the subscriber had closed the idle connection. `idle`:
    the number of open connections without a request.
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
        """`connections_max`: open connections. `replies_bytes_max`: bytes of answers in memory."""
        self.slots: Final = Slots(connections_max)
        self.replies: Final = Replies(replies_bytes_max)
        self.names: Final = Names(resolve)
        self.opener: Final = Opener(rules, tls, connect_timeout_s, self.names)
        self.resent = 0
        self.idle = 0
        self._loop: Final = asyncio.get_running_loop()
        self._idle: Final[dict[Endpoint, deque[Connection]]] = {}
        self._in_use: Final[dict[Connection, tuple[Endpoint, str, Ended]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        self._sweeper = self._loop.call_later(KEEP_ALIVE_S / 4, self._sweep)

    def close(self) -> None:
        """Close all connections and cancel all lookups."""
        self._sweeper.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._in_use, *(each for idle in self._idle.values() for each in idle)]:
            connection.abort()
        self._idle.clear()
        self.names.close()

    def use(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections, and close idle connections, which used other
        certificates.
        """
        self.opener.tls = tls
        while self._idle:
            self._close_idle()

    def begin(
        self,
        target: Target,
        fields: bytes,
        body: bytes,
        *,
        timeout_s: float,
        limit_of: LimitOf,
        ended: Ended,
        owner: str = "",
    ) -> Connection | None:
        """Send one POST over an idle connection; None if no connection is idle.

        `ended` is called once, later; see `Connection.begin`. To stop waiting, call `abort` of the
        connection.
        """
        connection = self._take(target.endpoint)
        if connection is not None:
            connection.deadline_s = self._loop.time() + timeout_s
            self._begin(connection, target, fields, body, limit_of=limit_of, ended=ended, owner=owner)
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
        """Send one POST with these header lines, and wait for the answer.

        Time that the request waits for a local resource (a connection, a lookup, a file descriptor) does not
        count against `timeout_s`.

        Raises:
            DeniedError: the rules deny all addresses of the host.
            TimeoutError: no connection was opened, or no answer came, in time.
            OSError: no connection could be opened, or no answer came.
        """
        deadline_s = self._loop.time() + timeout_s
        while True:
            connection = self._take(target.endpoint)
            if connection is None:
                waited_s = await self._slot(owner)
                try:
                    connection, deadline_s = await self.opener.open(
                        target,
                        deadline_s + waited_s,
                        namespace=namespace,
                    )
                finally:
                    self.slots.release(owner)
            if deadline_s <= self._loop.time():
                self._keep(connection, target.endpoint)
                raise TimeoutError
            waiting: asyncio.Future[Response] = self._loop.create_future()
            connection.deadline_s = deadline_s
            self._begin(
                connection,
                target,
                fields,
                body,
                limit_of=limit_of,
                ended=partial(_settle, waiting),
                owner=owner,
            )
            try:
                return await waiting
            except ConnectionClosedError:
                # A subscriber may close an idle connection at the moment when the gateway uses it again. The
                # event is not the cause, so this does not count as an attempt.
                if not connection.is_stale:
                    raise
                self.resend(target)
            except asyncio.CancelledError:
                connection.abort()
                raise

    def resend(self, target: Target) -> None:
        """Close all idle connections to an endpoint after one of them was found closed.

        The server has probably closed the others, too. The next request opens a new connection.
        """
        self.resent += 1
        idle = self._idle.pop(target.endpoint, deque())
        self.idle -= len(idle)
        for connection in idle:
            connection.abort()

    async def _slot(self, owner: str) -> float:
        """Wait until the owner may open a connection, and return how many seconds that took."""
        began_s = self._loop.time()
        await self.slots.acquire(owner)
        # Idle connections count, too: they use descriptors. They give way to a connection that is needed now.
        if self.slots.used + self.idle > self.slots.max:
            self._close_idle()
        return self._loop.time() - began_s

    def _close_idle(self) -> None:
        """Close the longest idle connection of one endpoint, if any connection is idle."""
        while self._idle:
            endpoint, idle = next(iter(self._idle.items()))
            connection = idle.popleft() if idle else None  # `_take` leaves empty queues
            if not idle:
                del self._idle[endpoint]
            if connection is not None:
                self.idle -= 1
                connection.abort()
                return

    def _begin(
        self,
        connection: Connection,
        target: Target,
        fields: bytes,
        body: bytes,
        *,
        limit_of: LimitOf,
        ended: Ended,
        owner: str,
    ) -> None:
        """Send a request on a connection whose `deadline_s` is set.

        The connection counts as in use only after its request was sent: from then on, `expire` ends the
        request.
        """
        head = b"%b%bContent-Length: %d\r\n\r\n" % (target.head, fields, len(body))
        try:
            connection.begin(head, body, limit_of, self._ended, replies=self.replies, owner=owner)
        except BaseException:
            connection.abort()
            raise
        self._in_use[connection] = target.endpoint, owner, ended
        self.slots.take(owner)
        # The timer is set again only for a deadline that is clearly earlier. Nearly all requests have the
        # same timeout, so this is rare.
        if connection.deadline_s < self._timer_at_s - TICK_S:
            self._wake_at(connection.deadline_s)

    def _ended(self, connection: Connection, outcome: Response | OSError) -> None:
        # In this order: the connection returns to the pool and the slot is free before `ended` begins the
        # next delivery.
        endpoint, owner, ended = self._in_use.pop(connection)
        self._keep(connection, endpoint)
        self.slots.release(owner)
        ended(connection, outcome)

    def _keep(self, connection: Connection, endpoint: Endpoint) -> None:
        """Return a connection to the pool, if it is usable."""
        if connection.usable:
            connection.idle_since = self._loop.time()
            idle = self._idle.get(endpoint)
            if idle is None:
                idle = self._idle[endpoint] = deque()
            idle.append(connection)
            self.idle += 1

    def _wake_at(self, at_s: float) -> None:
        # The time is stored separately, because a timer of uvloop that is due has no `when`.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._expire_requests)

    def _expire_requests(self) -> None:
        """End the requests whose deadline has passed, and set the timer for the next one."""
        self._timer, self._timer_at_s = None, math.inf
        now_s = self._loop.time()
        try:
            for connection in [each for each in self._in_use if each.deadline_s <= now_s]:
                try:
                    connection.expire()
                except Exception:
                    log.exception(
                        "delivery_fault",
                        destination=self._in_use.get(connection, ((), "", None))[0],
                    )
        finally:
            if self._in_use:
                self._wake_at(max(self._loop.time() + TICK_S, min(each.deadline_s for each in self._in_use)))

    def _take(self, endpoint: Endpoint) -> Connection | None:
        idle = self._idle.get(endpoint)
        while idle:
            # The latest one first: the others become older and are closed when the load decreases.
            connection = idle.pop()
            self.idle -= 1
            if connection.usable:
                return connection
        return None

    def _sweep(self) -> None:
        """Close connections that were idle for too long, and forget expired addresses."""
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
