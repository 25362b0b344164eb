"""The connections of a client.

As many as its links need, and those to containers that links were redirected to.

Laws: a link uses the first connection that has space. Unused connections are closed, except the first.
Several endpoints are nodes of one cluster, or addresses of one node: each connection begins at another one.
"""

import asyncio
import random
from dataclasses import replace
from typing import Final

from amqp_streams.client.connection.connector import CONNECT_S_MAX, Connector
from amqp_streams.client.connection.transport import Wire
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.rotation import Health, Rotation
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import RetryPolicy, SaslOptions, TlsOptions
from amqp_streams.errors import AmqpStreamsError

ELSEWHERE_MAX: Final = 64
"""The most other containers that a client is connected to at the same time."""
_SHARE: Final = 0.9
"""The part of the program's time limit for the attempt, so that its error comes before the limit."""


class Pool:
    """The connections to one cluster of nodes. Each attach and each request asks the pool for one."""

    def __init__(
        self,
        rotation: Rotation,
        *,
        tls: TlsOptions | None,
        sasl: SaslOptions | None = None,
        retry: RetryPolicy,
        container_id: str,
        idle_timeout_ms: int,
        redirects_max: int = 0,
        connect_s: float | None = None,
    ) -> None:
        """`redirects_max`: how many redirects in a row a link may follow.

        `connect_s`: how long the program waits for the first connection. Several endpoints share it, so that
        each one is tried and the error names each. None: without limit.
        """
        self._rotation: Final = rotation
        self._tls: Final = tls
        self._sasl: Final = sasl or SaslOptions()
        self._container_id: Final = container_id
        self._idle_timeout_ms: Final = idle_timeout_ms
        several = len(rotation.addresses) > 1
        self._connect_s: Final = (
            CONNECT_S_MAX if connect_s is None or not several else min(CONNECT_S_MAX, _SHARE * connect_s)
        )
        self._closed = False
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._elsewhere: dict[Address, Pool] = {}
        self.retry: Final = retry
        self.redirects_max: Final = redirects_max
        self._first: Final = self._connector()
        self._more: list[Connector] = []

    @property
    def connected(self) -> bool:
        """Whether the first connection is open now."""
        return self._first.connected

    @property
    def connections(self) -> int:
        """How many connections are open or being opened, without those to other containers."""
        return 1 + len(self._more)

    @property
    def trouble(self) -> AmqpStreamsError | None:
        """Why the connection that was needed last is missing; None: it is open, or no attempt has failed."""
        return self._more[-1].trouble if self._more else self._first.trouble

    @property
    def address(self) -> Address:
        """The address of the current connection, or the next one to try."""
        return self._rotation.current

    async def connect(self) -> None:
        """Open the first connection.

        Raises:
            ConnectError: no endpoint answers; with `retry.first_connect`, also after the retries of the
            policy.
        """
        await self._first.connect()

    async def wire(self) -> Wire:
        """Return an open connection with space for a link. Waits while it is being opened.

        Raises:
            ConnectionLostError: the client could not connect within the retry policy.
            AuthenticationError: the node now refuses the login.
            ClosedError: the client is closed.
        """
        if self._first.room > 0 or self._closed:
            self._prune(1)
            return await self._first.wire()
        found = next((connector for connector in self._more if connector.room > 0), None)
        if found is None:
            found = self._connector()
            self._more.append(found)
        else:
            self._prune(2)
        return await found.wire()

    async def question_wire(self) -> Wire:
        """Return the connection for short requests: the first one, even if it has no space for more links.

        Raises:
            the same as `wire`.
        """
        return await self._first.wire()

    def elsewhere(self, address: Address) -> "Pool":
        """Return the connections to another container. They are opened when needed.

        Raises:
            ConnectError: the client is connected to too many containers.
        """
        found = self._elsewhere.get(address)
        if found is None:
            if len(self._elsewhere) >= ELSEWHERE_MAX:
                message = f"{address}: the client is already connected to {ELSEWHERE_MAX} other containers"
                raise ConnectError(message)
            found = self._elsewhere[address] = Pool(
                Rotation([address], Health(random.random)),
                tls=self._tls,
                sasl=self._sasl,
                # One attempt: if the container does not answer, the client's own node is asked again for the
                # right one.
                retry=replace(self.retry, attempts_max=1, first_ms=0),
                container_id=self._container_id,
                idle_timeout_ms=self._idle_timeout_ms,
            )
        return found

    async def close(self) -> None:
        """Close all connections and open no other."""
        self._closed = True
        for other in self._elsewhere.values():
            await other.close()
        await asyncio.gather(*(connector.close() for connector in [self._first, *self._more]), *self._closing)

    def _prune(self, idle_max: int) -> None:
        """Close connections without links. Keep `idle_max` - 1 of them, because links may need them soon."""
        idle = [connector for connector in self._more if connector.idle]
        for connector in idle[idle_max - 1 :]:
            self._more.remove(connector)
            # In the background: the caller wants a link and must not wait for a close.
            closing = asyncio.create_task(connector.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _connector(self) -> Connector:
        return Connector(
            self._rotation,
            tls=self._tls,
            sasl=self._sasl,
            retry=self.retry,
            container_id=self._container_id,
            idle_timeout_ms=self._idle_timeout_ms,
            connect_s=self._connect_s,
        )
