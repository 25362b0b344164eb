"""Keeps one connection open.

Reconnects after a loss with growing waits. An attempt tries each endpoint, until one answers.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from amqp_streams.client.connection import silence
from amqp_streams.client.connection.transport import Wire
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.racing import Race, race, stagger_s
from amqp_streams.client.endpoints.resolving import choices_of
from amqp_streams.client.endpoints.rotation import STABLE_S, Rotation
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
"""Time limit of one attempt to connect, authenticate and open, over all endpoints."""
_WARN_AGAIN_S: Final = 30.0


class _LostAtOnceError(ConnectError):
    def __init__(self, address: Address, lost_by: AmqpStreamsError) -> None:
        super().__init__(f"{address}: {lost_by}")
        self.lost_by: Final = lost_by


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
        """`connect_s`: the time limit of one attempt, over all endpoints of the rotation."""
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
            ConnectError: no endpoint answers; with `retry.first_connect`, also after the retries of the
            policy.
        """
        if self._retry.first_connect:
            try:
                await self.wire()
            except ConnectionLostError as error:
                raise ConnectError(error.description) from error
            return
        self._wire = await self._open()

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
            self._rotation.closed(wire.address)
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
        now_s = asyncio.get_running_loop().time()
        lasted_s = now_s - wire.opened_at
        self._rotation.lost(wire.address, lasted_s, now_s)
        # A node that accepts connections and loses them at once must not cause attempts without a pause.
        if lasted_s >= STABLE_S:
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
            except _LostAtOnceError as error:
                last, self._lost_by = None, error.lost_by
                self._warn(error)
                continue
            except ConnectError as error:
                last = error
                self._warn(error)
                continue
            if self._lost_by is not None or self._warned_at is not None:
                _logger.info("reconnected address=%s attempt=%d", wire.address, self._attempt)
            self._wire, self._warned_at, self.trouble = wire, None, None
            return wire
        self._attempt = 0
        if last is None and isinstance(self._lost_by, EndpointError):
            raise ConnectionLostError(self._lost_by.condition, self._lost_by.description)
        raise ConnectionLostError(
            "connection lost",
            f"gave up: {last}" if last is not None else "every new connection was lost at once",
        )

    async def _open(self) -> Wire:
        """Open a connection to the first endpoint that answers. Tries each of them.

        Raises:
            AuthenticationError: one refused the login, and no other one answered.
            ConnectError: no endpoint answered. The message names each of them with the reason.
        """
        rotation, loop = self._rotation, asyncio.get_running_loop()
        began_s = loop.time()
        choices = await choices_of(rotation.addresses, stagger_s(len(rotation.addresses), self._connect_s))
        order = rotation.order(choices, loop.time())
        raced = await race(
            order,
            self._open_at,
            limit_s=began_s + self._connect_s - loop.time(),
            discard=lambda wire: wire.abandon(ClosedError("another endpoint answered first")),
        )
        # In the order of the list, so that equal failures have equal messages.
        errors = {address: error for address, _ in choices if (error := _error(raced, address)) is not None}
        if (wire := raced.winner) is not None and wire.lost_by is not None:
            errors[wire.address] = _LostAtOnceError(wire.address, wire.lost_by)
        for address in errors:
            rotation.failed(address, loop.time())
        if wire is None or wire.lost_by is not None:
            raise _joined(errors)
        for error in errors.values():
            _logger.warning("endpoint_failed reason=%s", error)
        rotation.opened(wire.address)
        return wire

    async def _open_at(self, address: Address) -> Wire:
        try:
            wire = await Wire.open(
                address,
                self._tls,
                self._sasl,
                container_id=self._container_id,
                idle_timeout_ms=self._idle_timeout_ms,
                on_lost=self._lost,
            )
        except ConnectError:
            raise
        except Exception as fault:
            _logger.exception("connecting_fault address=%s", address)
            message = f"{address}: internal error of the client: {fault!r}"
            raise ConnectError(message) from fault
        if wire.lost_by is not None:
            raise _LostAtOnceError(address, wire.lost_by)
        if (why := self._rotation.claim(address, wire.store)) is not None:
            error = ConnectError(f"{address}: {why}")
            wire.abandon(error)
            raise error
        wire.silent_s = silence.SILENT_S_MAX if len(self._rotation.addresses) > 1 else None
        return wire

    def _warn(self, error: ConnectError) -> None:
        """Log the first failure at once, and later ones at most every `_WARN_AGAIN_S`."""
        self.trouble = error
        now_s = asyncio.get_running_loop().time()
        if self._warned_at is None or now_s - self._warned_at >= _WARN_AGAIN_S:
            self._warned_at = now_s
            _logger.warning("connecting_failed reason=%s", error)


def _error(raced: Race[Address, Wire], address: Address) -> ConnectError | None:
    """Return why an endpoint cannot be used; None: it was not tried for long enough to know."""
    error = raced.failures.get(address)
    if error is not None:
        assert isinstance(error, ConnectError), "`_open_at` raises no other exception"
        return error
    if (silent_s := raced.silent.get(address)) is not None:
        return ConnectError(f"{address}: no answer within {silent_s:.3g} s")
    if raced.winner is None:
        return ConnectError(f"{address}: not tried, because the others took all the time")
    return None


def _joined(errors: Mapping[Address, ConnectError]) -> ConnectError:
    """Return one error for all endpoints."""
    failures = tuple(errors.values())
    if len(failures) == 1:
        return failures[0]
    message = "; ".join(
        str(error) if address.url in str(error) else f"{address}: {error}"
        for address, error in errors.items()
    )
    kind = (
        AuthenticationError if any(isinstance(one, AuthenticationError) for one in failures) else ConnectError
    )
    joined = kind(message)
    joined.failures = failures
    return joined


def _look_at(task: asyncio.Task[Wire]) -> None:
    if not task.cancelled():
        task.exception()  # read it, or asyncio logs it: callers of `wire`, if any, get it
