"""Keeps one connection open.

Reconnects after a loss with growing waits, and tries the next address if one does not answer.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from amqp_streams.client.connection.address import Address
from amqp_streams.client.connection.transport import Wire
from amqp_streams.client.errors import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    EndpointError,
)
from amqp_streams.client.options import RetryPolicy, SaslOptions, TlsOptions
from amqp_streams.errors import AmqpStreamsError

_logger: Final = logging.getLogger("amqp_streams.client")
CONNECT_S_MAX: Final = 10.0
"""Time limit of one attempt to connect, authenticate and open."""
_WARN_AGAIN_S: Final = 30.0
_STABLE_S: Final = 5.0
"""After a connection that lasted this long, the waits begin with the shortest one again."""


class Rotation:
    """The addresses of a node, and which of them to try next. All connections of a client share it."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.addresses: Final = tuple(addresses)
        self._next = 0

    @property
    def current(self) -> Address:
        """The address that answered last, or the next one to try."""
        return self.addresses[self._next]

    def failed(self, address: Address) -> None:
        """Record that `address` did not answer.

        Try the next one, unless another connection has already switched.
        """
        # Several connections may fail with the same address at once: change the address only once.
        if self.current is address:
            self._next = (self._next + 1) % len(self.addresses)


class Connector:
    """One connection to a node. It is replaced when it is lost."""

    def __init__(
        self,
        rotation: Rotation,
        *,
        tls: TlsOptions | None,
        sasl: SaslOptions,
        retry: RetryPolicy,
        container_id: str,
        idle_timeout_ms: int,
        connect_s: float = CONNECT_S_MAX,
    ) -> None:
        """`connect_s`: the time limit of one attempt to connect, authenticate and open."""
        self._rotation: Final = rotation
        self._tls: Final = tls
        self._sasl: Final = sasl
        self._container_id: Final = container_id
        self._idle_timeout_ms: Final = idle_timeout_ms
        self._connect_s: Final = connect_s
        self._wire: Wire | None = None
        self._task: asyncio.Task[Wire] | None = None
        self._attempt = 0
        self._give_up_at = 0.0
        self._lost_by: AmqpStreamsError | None = None
        self._warned_at: float | None = None
        self.trouble: AmqpStreamsError | None = None
        """The last error of a reconnection attempt; None while the connection is open."""
        self._closed = False
        self._retry: Final = retry

    @property
    def room(self) -> int:
        """How many links can be added.

        At least one while the connection is being opened, because the limit is unknown.
        """
        return 1 if self._wire is None else self._wire.room

    @property
    def idle(self) -> bool:
        """Whether the connection is open and has no links."""
        return self._wire is not None and self._wire.links == 0

    @property
    def connected(self) -> bool:
        """Whether the connection is open now."""
        return self._wire is not None

    async def connect(self) -> None:
        """Open the first connection.

        Raises:
            ConnectError: no address answers; with `retry.first_connect`, also after the retries of the
            policy.
        """
        if self._retry.first_connect:
            try:
                await self.wire()
            except ConnectionLostError as error:
                raise ConnectError(error.description) from error
            return
        failures: list[ConnectError] = []
        for _ in self._rotation.addresses:
            try:
                wire = await self._open()
            # Other addresses belong to the same node or its replacements: they would refuse the same login.
            except AuthenticationError:
                raise
            except ConnectError as error:
                failures.append(error)
                continue
            if wire.lost_by is None:
                self._wire = wire
                return
            failures.append(ConnectError(f"{wire.address}: {wire.lost_by}"))
        raise failures[0] if len(failures) == 1 else ConnectError("; ".join(map(str, failures)))

    async def wire(self) -> Wire:
        """Return the open connection. Waits while it is being reopened.

        Raises:
            ConnectionLostError: the client could not reconnect within the retry policy.
            AuthenticationError: the node now refuses the login.
            ClosedError: the client is closed.
        """
        if self._closed:
            message = "the client is closed"
            raise ClosedError(message)
        if self._wire is not None:
            return self._wire
        task = self._task
        if task is None or task.done():
            task = self._start()
        try:
            # Several tasks may wait for one attempt: if one is cancelled, the others continue.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                message = "the client is closed"
                raise ClosedError(message) from None
            raise

    async def close(self) -> None:
        """Close the connection and open no other."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            try:
                await wire.close()
            except TimeoutError:
                pass  # the peer does not answer the close: the connection is abandoned below
            finally:
                wire.abandon(ClosedError("the client is closed"))

    def _lost(self, wire: Wire, error: AmqpStreamsError) -> None:
        if self._wire is not wire:
            return
        self._wire, self._lost_by = None, error
        if not self._closed:
            _logger.warning("connection_lost address=%s reason=%s", wire.address, error)
        # A node that accepts connections and loses them at once must not cause attempts without a pause.
        if asyncio.get_running_loop().time() - wire.opened_at >= _STABLE_S:
            self._attempt = 0
        if not self._closed and self._retry.attempts_max > 0:
            self._start()

    def _start(self) -> asyncio.Task[Wire]:
        self._task = asyncio.create_task(self._reconnect())
        self._task.add_done_callback(_look_at)
        return self._task

    async def _reconnect(self) -> Wire:
        loop = asyncio.get_running_loop()
        if self._attempt == 0:
            self._give_up_at = loop.time() + self._retry.elapsed_max_ms / 1000
        last: ConnectError | None = None
        while self._attempt < self._retry.attempts_max:
            wait_s = self._retry.wait_s(self._attempt)
            if self._attempt > 0 and loop.time() + wait_s > self._give_up_at:
                break
            self._attempt += 1
            await asyncio.sleep(wait_s)
            try:
                wire = await self._open()
            except AuthenticationError:
                raise
            except ConnectError as error:
                last = error
                self._warn(error)
                continue
            if wire.lost_by is None:
                if self._lost_by is not None or self._warned_at is not None:
                    _logger.info("reconnected address=%s attempt=%d", wire.address, self._attempt)
                self._wire, self._warned_at, self.trouble = wire, None, None
                return wire
            self._rotation.failed(wire.address)
            last, self._lost_by = None, wire.lost_by
            self._warn(ConnectError(f"{wire.address}: {wire.lost_by}"))
        self._attempt = 0
        if last is None and isinstance(self._lost_by, EndpointError):
            raise ConnectionLostError(self._lost_by.condition, self._lost_by.description)
        raise ConnectionLostError(
            "connection lost",
            f"gave up: {last}" if last is not None else "every new connection was lost at once",
        )

    async def _open(self) -> Wire:
        address = self._rotation.current
        try:
            async with asyncio.timeout(self._connect_s):
                return await Wire.open(
                    address,
                    self._tls,
                    self._sasl,
                    container_id=self._container_id,
                    idle_timeout_ms=self._idle_timeout_ms,
                    on_lost=self._lost,
                )
        except AuthenticationError:
            raise
        except ConnectError:
            self._rotation.failed(address)
            raise
        except TimeoutError:
            self._rotation.failed(address)
            message = f"{address}: no answer within {self._connect_s:g} s"
            raise ConnectError(message) from None
        except Exception as error:
            _logger.exception("connecting_fault address=%s", address)
            self._rotation.failed(address)
            message = f"{address}: internal error of the client: {error!r}"
            raise ConnectError(message) from error

    def _warn(self, error: ConnectError) -> None:
        """Log the first failure at once, and later ones at most every `_WARN_AGAIN_S`."""
        self.trouble = error
        now_s = asyncio.get_running_loop().time()
        if self._warned_at is None or now_s - self._warned_at >= _WARN_AGAIN_S:
            self._warned_at = now_s
            _logger.warning("connecting_failed reason=%s", error)


def _look_at(task: asyncio.Task[Wire]) -> None:
    if not task.cancelled():
        task.exception()  # read it, or asyncio logs it: callers of `wire`, if any, get it
