"""The connections of a client: as many as its links need, and those to other containers that links were sent
on to.

Laws: a link goes to the first connection with room; a connection too many is closed; the first one stays.
Several addresses are one node's, or those of nodes that stand in for each other: all connections begin with
the address that answered last.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from amqp_streams.client.connection.address import Address
from amqp_streams.client.connection.connector import CONNECT_S_MAX, Connector, Rotation
from amqp_streams.client.connection.transport import Wire
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import RetryPolicy, SaslOptions, TlsOptions
from amqp_streams.errors import AmqpStreamsError

ELSEWHERE_MAX: Final = 64
"""Other containers that a client is connected to at a time."""


class Pool:
    """The connections to one node. Links and questions ask it for one each time they are made."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        tls: TlsOptions | None,
        sasl: SaslOptions | None = None,
        retry: RetryPolicy,
        container_id: str,
        idle_timeout_ms: int,
        redirects_max: int = 0,
        connect_s: float | None = None,
    ) -> None:
        """`redirects_max`: how often in a row a link may be sent on to another container.

        `connect_s`: time for the first connection, which the addresses share, so that each is tried; None:
        CONNECT_S_MAX for each.
        """
        assert addresses
        self._rotation: Final = Rotation(addresses)
        self._tls: Final = tls
        self._sasl: Final = sasl or SaslOptions()
        self._container_id: Final = container_id
        self._idle_timeout_ms: Final = idle_timeout_ms
        share_s = CONNECT_S_MAX if connect_s is None or len(addresses) == 1 else connect_s / len(addresses)
        self._connect_s: Final = min(CONNECT_S_MAX, share_s)
        self._closed = False
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._elsewhere: dict[Address, Pool] = {}
        self.retry: Final = retry
        self.redirects_max: Final = redirects_max
        self._first: Final = self._connector()
        self._more: list[Connector] = []

    @property
    def connected(self) -> bool:
        """There is a connection just now."""
        return self._first.connected

    @property
    def connections(self) -> int:
        """How many there are or are being made, besides those to other containers."""
        return 1 + len(self._more)

    @property
    def trouble(self) -> AmqpStreamsError | None:
        """Why there is no connection, or not the one that was needed last; None: not known."""
        return self._more[-1].trouble if self._more else self._first.trouble

    @property
    def address(self) -> Address:
        """The address that is connected to, or is tried next."""
        return self._rotation.current

    async def connect(self) -> None:
        """Make the first connection.

        Raises:
            ConnectError: no address answers; with `retry.first_connect`: as often as the policy says.
        """
        await self._first.connect()

    async def wire(self) -> Wire:
        """An open connection with room for a link; waits while it is being made.

        Raises:
            ConnectionLostError: it could not be, within the retry policy.
            AuthenticationError: the node does not know us any more.
            ClosedError: the client was closed.
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
        """The connection for questions: the first, whether there is room for more links or not.

        Raises: as `wire`.
        """
        return await self._first.wire()

    def elsewhere(self, address: Address) -> "Pool":
        """The connections to another container, made when they are asked for.

        Raises:
            ConnectError: there are too many.
        """
        found = self._elsewhere.get(address)
        if found is None:
            if len(self._elsewhere) >= ELSEWHERE_MAX:
                message = f"{address}: connected to {ELSEWHERE_MAX} other containers already"
                raise ConnectError(message)
            found = self._elsewhere[address] = Pool(
                [address],
                tls=self._tls,
                sasl=self._sasl,
                retry=replace(self.retry, attempts_max=1, first_ms=0),
                container_id=self._container_id,
                idle_timeout_ms=self._idle_timeout_ms,
            )
        return found

    async def close(self) -> None:
        """End all connections and make no other."""
        self._closed = True
        for other in self._elsewhere.values():
            await other.close()
        await asyncio.gather(*(connector.close() for connector in [self._first, *self._more]), *self._closing)

    def _prune(self, idle_max: int) -> None:
        """Close connections without links, but for the first of all and as many as may be needed soon."""
        idle = [connector for connector in self._more if connector.idle]
        for connector in idle[idle_max - 1 :]:
            self._more.remove(connector)
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
