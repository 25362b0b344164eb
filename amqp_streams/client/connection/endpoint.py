"""What producers and consumers have in common.

They attach, attach again after a loss, follow redirects, and fail for good.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from amqp_streams import names
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.redirect import address_there, target
from amqp_streams.client.connection.transport import ATTACH_S_MAX, Attachment, Wire
from amqp_streams.client.errors import (
    PASSING,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    EndpointError,
    LinkError,
    LinkRefusedError,
    NoRoomError,
    OwnershipLostError,
    RedirectError,
    SessionError,
    TimedOutError,
)
from amqp_streams.errors import AmqpStreamsError

_logger: Final = logging.getLogger("amqp_streams.client")


def refused_for_a_limit(error: AmqpStreamsError) -> bool:
    """Whether an attach or a session was refused because a limit was reached.

    Otherwise, it was refused because of what was requested.
    """
    if not isinstance(error, LinkRefusedError | SessionError):
        return False
    return error.condition == names.RESOURCE_LIMIT_EXCEEDED and not error.info


def log_text(log: str, partition: str | None) -> str:
    """A log, or one partition of it, for messages."""
    return repr(log) if partition is None else f"{log!r} partition {partition}"


class Signal:
    """Wakes all waiting tasks. A `fire` without waiting tasks has no effect."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def fire(self) -> None:
        """Wake all waiting tasks."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def has_waiters(self) -> bool:
        """Whether tasks are waiting."""
        return bool(self._waiting)

    async def wait(self) -> None:
        """Wait for the next `fire`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            # A cancelled waiter must not stay in the list: signals may fire rarely.
            if future.cancelled():
                self._waiting = [other for other in self._waiting if other is not future]

    async def wait_until(self, condition: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait until `condition` is true. It is evaluated after each `fire`.

        Raises:
            TimedOutError, which names `what`, after `timeout` seconds.
        """
        if condition():
            return
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    await self.wait()
        except TimeoutError:
            message = f"{what} took longer than {timeout} s"
            raise TimedOutError(message) from None


class Endpoint(ABC):
    """A producer or a consumer. It has one link at a time, and attaches again when the link is lost."""

    attach_s_max: float | None = ATTACH_S_MAX
    """How long to wait for the answer to an attach, in seconds; None: without limit."""

    def __init__(self, pool: Pool, log: str) -> None:
        self.log: Final = log
        self._pool: Final = pool
        self._elsewhere: Pool | None = None
        self._address = log
        self._redirects = 0
        self._attachment: Attachment | None = None
        self._failure: AmqpStreamsError | None = None
        self._signal: Final = Signal()
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._progress = False
        self._ended_by: AmqpStreamsError | None = None

    @property
    def attached(self) -> bool:
        """Whether it has a link now. Without one it is waiting for the node, or has failed."""
        return self._attachment is not None

    async def open(self, *, timeout: float | None = 30.0) -> None:
        """Attach for the first time.

        Raises:
            LinkRefusedError, SessionError, ConnectionLostError, TimedOutError.
        """
        if self._task is not None:
            message = "this producer or consumer was opened before: create a new one"
            raise ClosedError(message)
        self._task = asyncio.create_task(self._run())
        try:
            await self._until(lambda: self._started or self._failure is not None, timeout, "attaching")
        # Also after a timeout: the task would attach later without an owner.
        except BaseException:
            self._stop(ClosedError("closed"))
            raise
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    @abstractmethod
    async def close(self, *, timeout: float | None = 30.0) -> None:
        """Detach after the remaining work is done."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self._stop(ClosedError("closed"))

    # -- for the two kinds

    @abstractmethod
    async def _attach(self, wire: Wire) -> Attachment:
        """Start a link on this connection."""

    @abstractmethod
    def _inspect(self, attachment: Attachment) -> None:
        """Check the peer's attach.

        Raises:
            LinkRefusedError: the peer ignored something that was requested.
        """

    @abstractmethod
    def _resume(self, attachment: Attachment) -> None:
        """Begin to use a link that is attached."""

    @abstractmethod
    def _suspend(self) -> None:
        """Stop using the link: it is lost. Another may follow."""

    @abstractmethod
    def _fail(self, error: AmqpStreamsError) -> None:
        """End all waiting work with `error`: no link will follow."""

    def _explained(self, error: EndpointError) -> EndpointError:
        """Return the error to raise for an error of the link; consumers replace some."""
        return error

    async def _until(self, condition: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait for `condition`.

        Raises TimedOutError, which names `what` and, if known, why the link is missing.
        """
        try:
            await self._signal.wait_until(condition, timeout, what)
        except TimedOutError as error:
            raise self._late(error) from None

    def _late(self, error: TimedOutError) -> TimedOutError:
        obstacle = self._obstacle()
        return error if obstacle is None else TimedOutError(f"{error}: {obstacle}")

    def _obstacle(self) -> AmqpStreamsError | None:
        """Why the endpoint has no link: the node's last error, or the error of the connection."""
        return None if self.attached else self._ended_by or self._pool.trouble

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._started:
            message = "the producer or consumer is not open: use it with `async with`"
            raise ClosedError(message)

    def _stop(self, error: AmqpStreamsError) -> None:
        """Detach for good with `error`, and wake all waiting calls."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            attachment.close()
        if self._failure is None:
            self._failure = error
            self._fail(error)
        self._signal.fire()

    async def _run(self) -> None:
        attempt = 0
        try:
            while True:
                error = await self._life()
                self._ended_by = error
                if error is None:
                    continue
                # A link that worked for a while shows that the problem has passed: the waits begin again.
                attempt = 0 if self._progress else attempt
                if not self._worth_another(error) or attempt >= self._pool.retry.attempts_max:
                    raise error
                self._progress = False
                await asyncio.sleep(self._pool.retry.wait_s(attempt))
                attempt += 1
        except AmqpStreamsError as error:
            self._stop(error)
        except Exception as error:
            _logger.exception("link_fault log=%s", self.log)
            self._stop(LinkError(names.INTERNAL_ERROR, f"internal error of the client: {error!r}"))

    def _worth_another(self, error: AmqpStreamsError) -> bool:
        if isinstance(error, TimedOutError | RedirectError):
            return self._started
        if isinstance(error, OwnershipLostError):
            return False
        return self._started and isinstance(error, EndpointError) and error.condition in PASSING

    async def _life(self) -> EndpointError | TimedOutError | None:
        """Attach once and use the link until it ends. Returns the error that ended it.

        None: attach again at once. That needs no wait here, because the connector waits between connections
        and limits the attempts.
        """
        try:
            wire = await self._wire()
        except RedirectError as error:
            return error
        try:
            await self._live(wire)
        except NoRoomError:
            return None
        # The redirect may be out of date: ask the client's own node again.
        except ConnectionLostError:
            self._forget_redirects()
        except EndpointError as error:
            if error.condition == names.LINK_REDIRECT:
                return self._send_on(error, wire)
            return None if self._moves(error, wire) else self._explained(error)
        except TimedOutError as error:
            return error
        return None

    def _moves(self, error: EndpointError, wire: Wire) -> bool:
        """Whether to attach on another connection, because this one may have reached its limit of links."""
        if not refused_for_a_limit(error) or not wire.limit():
            return False
        _logger.warning("link_refused log=%s reason=%s: trying another connection", self.log, error)
        return True

    async def _live(self, wire: Wire) -> None:
        """Use one link. Always raises the error that ended it."""
        attachment = await self._attach(wire)
        await attachment.wait(self.attach_s_max)
        try:
            self._inspect(attachment)
        except LinkRefusedError:
            attachment.close()
            raise
        self._attachment = attachment
        self._started = True
        self._redirects = 0
        self._resume(attachment)
        self._signal.fire()
        # The future belongs to the connection: cancelling this task must not cancel it.
        ended_by = await asyncio.shield(attachment.ended)
        self._attachment = None
        self._suspend()
        self._signal.fire()
        raise ended_by

    # -- redirects

    async def _wire(self) -> Wire:
        """Return the connection to the container of the last redirect, or the client's own connection."""
        if self._elsewhere is None:
            return await self._pool.wire()
        try:
            return await self._elsewhere.wire()
        except (ConnectError, ConnectionLostError) as error:
            self._forget_redirects()
            description = f"the container that serves {self.log} does not answer: {error}"
            raise RedirectError(names.LINK_REDIRECT, description) from error

    def _send_on(self, error: EndpointError, wire: Wire) -> RedirectError | None:
        """Follow a redirect with the next attach. Returns the error if that is not possible."""
        why = (
            "redirects are not followed"
            if self._redirects == 0
            else f"redirected {self._redirects} times in a row"
        )
        if self._redirects < self._pool.redirects_max:
            try:
                self._elsewhere = self._pool.elsewhere(target(error.info, wire.address))
            except (ValueError, ConnectError) as unusable:
                why = str(unusable)
            else:
                self._address = address_there(error.info, self.log)
                self._redirects += 1
                return None
        self._forget_redirects()
        return RedirectError(error.condition, f"{error.description} ({why})", error.info)

    def _forget_redirects(self) -> None:
        """Attach at the client's own node next time.

        That node knows which container serves the partition now.
        """
        self._elsewhere, self._address, self._redirects = None, self.log, 0
