"""Keeps a client connected: one connection at a time, made again with growing waits when it is lost, on the next of the addresses.

Beside it are the connections to other containers that links were sent on to: each tried once at a time, because at home they know better.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from amqp_streams.client.address import Address
from amqp_streams.client.errors import AuthenticationError, ClosedError, ConnectError, ConnectionLostError, EndpointError
from amqp_streams.client.options import RetryPolicy, SaslOptions, TlsOptions
from amqp_streams.client.wire import Wire
from amqp_streams.errors import AmqpStreamsError

_logger: Final = logging.getLogger("amqp_streams.client")
CONNECT_S_MAX: Final = 10.0
"""For one try to connect, authenticate and open."""
ELSEWHERE_MAX: Final = 64
"""Other containers that a client is connected to at a time."""
_STABLE_S: Final = 5.0
"""A connection that lived this long was a success: the next loss starts with short waits again."""


class Connector:
    """The connection of a client, whichever it is just now."""

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
    ) -> None:
        """`redirects_max`: how often in a row a link may be sent on to another container."""
        assert addresses
        self._addresses: Final = tuple(addresses)
        self._tls: Final = tls
        self._sasl: Final = sasl or SaslOptions()
        self._container_id: Final = container_id
        self._idle_timeout_ms: Final = idle_timeout_ms
        self._next = 0
        self._wire: Wire | None = None
        self._task: asyncio.Task[Wire] | None = None
        self._attempt = 0
        self._give_up_at = 0.0
        self._lost_by: AmqpStreamsError | None = None
        self._closed = False
        self._elsewhere: dict[Address, Connector] = {}
        self.retry: Final = retry
        self.redirects_max: Final = redirects_max

    def elsewhere(self, address: Address) -> "Connector":
        """The connection to another container, made when it is asked for.

        Raises:
            ConnectError: there are too many.
        """
        found = self._elsewhere.get(address)
        if found is None:
            if len(self._elsewhere) >= ELSEWHERE_MAX:
                message = f"{address}: connected to {ELSEWHERE_MAX} other containers already"
                raise ConnectError(message)
            once = replace(self.retry, attempts_max=1, first_ms=0)
            found = Connector(
                [address],
                tls=self._tls,
                sasl=self._sasl,
                retry=once,
                container_id=self._container_id,
                idle_timeout_ms=self._idle_timeout_ms,
            )
            self._elsewhere[address] = found
        return found

    @property
    def connected(self) -> bool:
        """There is a connection just now."""
        return self._wire is not None

    async def connect(self) -> None:
        """Make the first connection.

        Raises:
            ConnectError: no address answers; with `retry.first_connect`: as often as the policy says.
        """
        if self.retry.first_connect:
            try:
                await self.wire()
            except ConnectionLostError as error:
                raise ConnectError(error.description) from error
            return
        failures: list[ConnectError] = []
        for _ in self._addresses:
            try:
                wire = await self._open()
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
        """The open connection; waits while it is being made again.

        Raises:
            ConnectionLostError: it could not be, within the retry policy.
            AuthenticationError: the node does not know us any more.
            ClosedError: the client was closed.
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
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                message = "the client is closed"
                raise ClosedError(message) from None
            raise

    async def close(self) -> None:
        """End the connection and make no other."""
        self._closed = True
        for other in self._elsewhere.values():
            await other.close()
        if self._task is not None:
            self._task.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            try:
                await wire.close()
            except TimeoutError:
                pass
            finally:
                wire.abandon(ClosedError("the client is closed"))

    def _lost(self, wire: Wire, error: AmqpStreamsError) -> None:
        if self._wire is not wire:
            return
        self._wire, self._lost_by = None, error
        if not self._closed:
            _logger.warning("connection_lost address=%s reason=%s", wire.address, error)
        if asyncio.get_running_loop().time() - wire.opened_at >= _STABLE_S:
            self._attempt = 0
        if not self._closed and self.retry.attempts_max > 0:
            self._start()

    def _start(self) -> asyncio.Task[Wire]:
        self._task = asyncio.create_task(self._reconnect())
        self._task.add_done_callback(_look_at)
        return self._task

    async def _reconnect(self) -> Wire:
        loop = asyncio.get_running_loop()
        if self._attempt == 0:
            self._give_up_at = loop.time() + self.retry.elapsed_max_ms / 1000
        last: ConnectError | None = None
        while self._attempt < self.retry.attempts_max:
            wait_s = self.retry.wait_s(self._attempt)
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
                continue
            if wire.lost_by is None:
                self._wire = wire
                _logger.info("connection_made_again address=%s attempt=%d", wire.address, self._attempt)
                return wire
        self._attempt = 0
        if last is None and isinstance(self._lost_by, EndpointError):
            raise ConnectionLostError(self._lost_by.condition, self._lost_by.description)
        raise ConnectionLostError("connection lost", f"gave up: {last}" if last is not None else "it is lost again and again")

    async def _open(self) -> Wire:
        address = self._addresses[self._next % len(self._addresses)]
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                return await Wire.open(
                    address,
                    self._tls,
                    self._sasl,
                    container_id=self._container_id,
                    idle_timeout_ms=self._idle_timeout_ms,
                    on_lost=self._lost,
                )
        except ConnectError:
            self._next += 1
            raise
        except TimeoutError:
            self._next += 1
            message = f"{address}: no answer within {CONNECT_S_MAX:.0f} s"
            raise ConnectError(message) from None


def _look_at(task: asyncio.Task[Wire]) -> None:
    if not task.cancelled():
        task.exception()  # told to whoever asks for the connection; nobody has to
