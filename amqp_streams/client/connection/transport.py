"""One connection to a node.

Joins a byte stream to the protocol without I/O, and passes protocol events to the links.

Law: after `on_lost` was called, no link of this connection is used again.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, assert_never

from amqp_streams import names
from amqp_streams.client.connection.links import Link
from amqp_streams.client.connection.login import credentials_for
from amqp_streams.client.connection.protocol import ConnectionProtocol
from amqp_streams.client.connection.protocol_events import (
    Attached,
    Changed,
    Closed,
    Detached,
    Opened,
    Outcomes,
    ProtocolEvent,
)
from amqp_streams.client.connection.silence import leave
from amqp_streams.client.connection.stream import Stream, open_stream
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import (
    ConnectError,
    ConnectionLostError,
    EndpointError,
    LinkError,
    LinkRefusedError,
    NoRoomError,
    TimedOutError,
)
from amqp_streams.client.options import SaslOptions, TlsOptions
from amqp_streams.client.reasons import located, unopened
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.sending import Sendable

_logger: Final = logging.getLogger("amqp_streams.client")
ATTACH_S_MAX: Final = 30.0
_QUESTION_LINKS: Final = 2
_TURNS_MAX: Final = 16
"""The most rounds of output in one loop iteration, so that one busy producer does not delay other tasks."""


def _nothing(*_: Any) -> None:
    pass


class Attachment:
    """A link on a connection.

    `attached` is done when the peer has accepted the attach. `ended` is done when the link has ended, with
    the error.
    """

    def __init__(
        self,
        wire: "Wire",
        link: Link,
        on_changed: Callable[[], None],
        on_outcomes: Callable[[list[Sendable], list[tuple[Sendable, EndpointError]]], None] = _nothing,
        *,
        brief: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.wire: Final = wire
        self.link: Final[Any] = link
        self.brief: Final = brief
        self.attached: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[AmqpStreamsError] = loop.create_future()
        self.on_changed: Final = on_changed
        self.on_outcomes: Final = on_outcomes

    async def wait(self, limit_s: float | None = ATTACH_S_MAX) -> None:
        """Wait until the peer accepts the attach.

        `limit_s` None: the peer may delay it, as it does in consumer groups.

        Raises:
            LinkRefusedError, SessionError, ConnectionLostError, TimedOutError.
        """
        silent_s = self.wire.silent_s
        if limit_s is not None and silent_s is not None:
            limit_s = min(limit_s, silent_s)
        try:
            async with asyncio.timeout(limit_s):
                # The future belongs to the link: a timeout here must not cancel it.
                await asyncio.shield(self.attached)
        except TimeoutError:
            if silent_s is not None:
                raise leave(self.wire, "an attach") from None
            self.close()
            message = f"the peer did not answer an attach within {limit_s:.0f} s"
            raise TimedOutError(message) from None
        except asyncio.CancelledError:
            self.close()
            raise
        if self.ended.done():
            # Some peers refuse with a normal attach that is followed by a detach at once.
            error = self.ended.result()
            raise (
                LinkRefusedError(error.condition, error.description, error.info)
                if type(error) is LinkError
                else error
            )

    def end(self, error: AmqpStreamsError) -> None:
        """Record that the peer or the connection ended the link."""
        if not self.attached.done():
            self.attached.set_exception(error)
            self.attached.exception()  # read it, or asyncio logs it if no task waits for the attach
        if not self.ended.done():
            self.ended.set_result(error)

    def close(self) -> None:
        """Detach. May be called at any time."""
        self.wire.detach(self)


class Wire:
    """A connection that is being opened, is open, or is lost."""

    def __init__(
        self,
        protocol: ConnectionProtocol,
        address: Address,
        on_lost: Callable[["Wire", AmqpStreamsError], None],
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._protocol: Final = protocol
        self._attachments: dict[Link, Attachment] = {}
        self._eager: dict[Attachment, None] = {}
        self._stream: Stream | None = None
        self._on_lost: Final = on_lost
        self._opened: asyncio.Future[Opened] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._flush_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.address: Final = address
        self.event_streams = False
        self.container = ""
        self.store: str | None = None
        self.opened_at = 0.0
        self.silent_s: float | None = None
        """See `silence.Connection`."""
        self._links_max = sys.maxsize
        self.lost_by: AmqpStreamsError | None = None
        self.questions: asyncio.Semaphore = asyncio.Semaphore(1)
        self.looks: Final[dict[str, Any]] = {}
        """`$info` requests in flight, by log. Used by `management/requests.py` only."""

    @classmethod
    async def open(
        cls,
        address: Address,
        tls: TlsOptions | None,
        sasl: SaslOptions,
        *,
        container_id: str,
        idle_timeout_ms: int,
        on_lost: Callable[["Wire", AmqpStreamsError], None],
    ) -> "Wire":
        """Connect, authenticate, and open.

        Raises:
            ConnectError: the connection failed; AuthenticationError: the login failed.
        """
        credentials = await credentials_for(address, tls, sasl)
        hostname = address.hostname or (tls.server_hostname if tls is not None else None) or address.host
        protocol = ConnectionProtocol(
            container_id=container_id,
            hostname=hostname,
            credentials=credentials,
            idle_timeout_ms=idle_timeout_ms,
        )
        wire = cls(protocol, address, on_lost)
        try:
            wire._stream = await open_stream(address, tls, wire)
            wire.flush()
            opened = await wire._opened
        # Also if the task is cancelled: a half-open connection must not stay.
        except BaseException as error:
            wire._end(error if isinstance(error, AmqpStreamsError) else ConnectError("gave up"))
            raise
        wire.event_streams = opened.event_streams
        wire.container = opened.container
        wire.store = opened.store
        # Each request uses two links. One pair of the reserved links belongs to the `Asker`.
        wire.questions = asyncio.Semaphore(max(1, protocol.spare // _QUESTION_LINKS - 1))
        wire.opened_at = wire._loop.time()
        wire._tick()
        return wire

    # -- links

    def attach_sender(
        self,
        address: str,
        on_changed: Callable[[], None],
        on_outcomes: Callable[[list[Sendable], list[tuple[Sendable, EndpointError]]], None],
        properties: Mapping[str, object] | None = None,
        capabilities: Sequence[str] = (),
        *,
        brief: bool = False,
    ) -> Attachment:
        """Start a link that sends. `brief`: the link lasts for one answer, and may use the reserved links.

        Raises:
            ConnectionLostError if this connection is lost; NoRoomError if it has no space for a link.
        """
        self._check(brief=brief)
        link = self._protocol.open_sender(address, properties=properties, capabilities=capabilities)
        return self._add(Attachment(self, link, on_changed, on_outcomes, brief=brief))

    def attach_receiver(
        self,
        address: str,
        on_changed: Callable[[], None],
        *,
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
        presettled: bool = False,
        target: str | None = None,
        name: str | None = None,
        durable: bool = False,
        capabilities: Sequence[str] = (),
        brief: bool = False,
    ) -> Attachment:
        """Start a link that receives. Grant credit when it is attached.

        `brief` and the exceptions: see `attach_sender`.
        """
        self._check(brief=brief)
        link = self._protocol.open_receiver(
            address,
            properties=properties,
            filters=filters,
            presettled=presettled,
            target=target,
            name=name,
            durable=durable,
            capabilities=capabilities,
        )
        return self._add(Attachment(self, link, on_changed, brief=brief))

    def detach(self, attachment: Attachment) -> None:
        """Close a link."""
        if self._attachments.pop(attachment.link, None) is not None and self.lost_by is None:
            self._protocol.close_link(attachment.link)
            self.flush_soon()

    @property
    def links(self) -> int:
        """How many links the connection has."""
        return self._protocol.links

    @property
    def room(self) -> int:
        """How many links can be added, without the reserved ones."""
        return max(0, min(self._protocol.room - self._protocol.spare, self._links_max - self.links))

    def limit(self) -> bool:
        """Record that the peer refused a link because of a limit.

        Returns True if this connection has other links, so that the limit may be that of the connection, and
        another connection may help.
        """
        taken = sum(
            1
            for attachment in self._attachments.values()
            # Links for short requests end soon and say nothing about the limit.
            if attachment.attached.done() and not attachment.brief
        )
        # At least one: a limit of 0 would never allow another attempt.
        self._links_max = min(self._links_max, max(1, taken))
        return taken > 0

    def _check(self, *, brief: bool) -> None:
        if self.lost_by is not None or self._protocol.closed:
            message = "the connection was lost"
            raise ConnectionLostError("connection lost", str(self.lost_by or message))
        if not brief and self.room <= 0:
            raise NoRoomError(
                names.RESOURCE_LIMIT_EXCEEDED,
                f"{self.address}: the connection is full with {self.links} links",
            )

    def _add(self, attachment: Attachment) -> Attachment:
        self._attachments[attachment.link] = attachment
        self.flush_soon()
        return attachment

    # -- bytes

    def flush_soon(self) -> None:
        """Call `flush` at the end of this loop iteration, so that many small writes become one."""
        if self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self.flush)

    def send_soon(self, attachment: Attachment) -> None:
        """Call `on_changed` of `attachment` at the end of this loop iteration, so that it can send."""
        self._eager[attachment] = None
        self.flush_soon()

    def send_later(self, attachment: Attachment) -> None:
        """Like `send_soon`, but only when the current output is written.

        That may take until the peer opens its window.
        """
        self._eager[attachment] = None

    def write_formats(self) -> None:
        """Prepare for messages that have a message-format other than 0."""
        if self.lost_by is None:
            self._protocol.write_formats()

    def flush(self) -> None:
        """Write the pending output, and let producers add more while the stream is not full."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        stream = self._stream
        if stream is None:
            return
        for _ in range(_TURNS_MAX):
            if stream.full:
                return  # `writable` follows
            if self._eager:
                eager, self._eager = self._eager, {}
                for attachment in eager:
                    self._run_callback(attachment, attachment.on_changed)
            data = self._protocol.take_output()
            if (fault := self._protocol.fault) is not None:
                self._end(fault)
                return
            if not data:
                return
            stream.write(data)
        self.flush_soon()

    def received(self, data: memoryview) -> None:
        """Process received bytes."""
        self._handle(self._protocol.receive(data))
        self.flush_soon()

    def writable(self) -> None:
        """Continue writing: the stream is not full any more."""
        self.flush()

    def lost(self, error: Exception | None) -> None:
        """End the connection: the stream has ended."""
        self._stream = None
        ended = unopened(self.address, error)
        self._end(ConnectionLostError("connection lost", str(ended)) if self._opened.done() else ended)
        if not self._gone.done():
            self._gone.set_result(None)

    def _tick(self) -> None:
        """Send heartbeats that are due, and detect a silent peer."""
        # Proton takes 0 as "no time", so the time must be greater.
        protocol_events, next_ms = self._protocol.tick(int(self._loop.time() * 1000) + 1)
        self._handle(protocol_events)
        self.flush_soon()
        if next_ms is not None and self.lost_by is None:
            self._timer = self._loop.call_at(next_ms / 1000, self._tick)

    async def close(self) -> None:
        """Close the connection in order, and wait at most a second for the end of the stream."""
        if self._stream is not None and self.lost_by is None:
            self._protocol.close()
            self.flush()
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._gone)

    def abandon(self, error: AmqpStreamsError) -> None:
        """End the connection at once."""
        self._end(error)

    # -- protocol_events

    def _handle(self, protocol_events: list[ProtocolEvent]) -> None:
        attachments = self._attachments
        for protocol_event in protocol_events:
            match protocol_event:
                case Changed(links):
                    for attachment in [attachments[link] for link in links if link in attachments]:
                        self._run_callback(attachment, attachment.on_changed)
                case Opened():
                    if not self._opened.done():
                        self._opened.set_result(protocol_event)
                case Closed(error):
                    self._end(error)
                case Attached() | Detached() | Outcomes():
                    self._handle_link(protocol_event)
                case _:
                    assert_never(protocol_event)

    def _run_callback(
        self, attachment: Attachment, callback: Callable[..., None], *arguments: object
    ) -> None:
        """Run a callback of a link. An exception in it ends that link only."""
        try:
            callback(*arguments)
        except Exception as error:
            _logger.exception("link_fault link=%s", attachment.link.name if attachment.link.alive else "")
            attachment.close()
            attachment.end(LinkError(names.INTERNAL_ERROR, f"internal error of the client: {error!r}"))

    def _handle_link(self, protocol_event: Attached | Detached | Outcomes) -> None:
        attachment = self._attachments.get(protocol_event.link)
        if attachment is None:
            return
        match protocol_event:
            case Outcomes(_, accepted, refused):
                self._run_callback(attachment, attachment.on_outcomes, accepted, refused)
            case Attached():
                if not attachment.attached.done():
                    attachment.attached.set_result(None)
            case Detached(link, error):
                del self._attachments[link]
                attachment.end(error)
            case _:
                assert_never(protocol_event)

    def _end(self, error: AmqpStreamsError) -> None:
        if self.lost_by is not None:
            return
        self.lost_by = error
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            # The close frame, if Proton can still write it.
            if data := self._protocol.take_output():
                self._stream.write(data)
            self._stream.close()
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        self._protocol.end()
        if not self._opened.done():
            self._opened.set_exception(located(self.address, error))
            # Read it, or asyncio logs it if no task waits.
            self._opened.exception()
            return
        # First everything is removed: the callbacks may start new links on this connection.
        attachments = list(self._attachments.values())
        self._attachments.clear()
        for attachment in attachments:
            attachment.end(error)
        self._on_lost(self, error)
