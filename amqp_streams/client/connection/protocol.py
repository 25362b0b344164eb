"""One AMQP connection of a client without I/O.

Bytes in, bytes and protocol events out (AMQP 1.0 core part 2).

Law: `receive`, `tick` and `end` never raise because of what the peer does. They report it as `Closed` or
`Detached`. After `Closed` no more events follow. Links share sessions (`sessions.py`), so the number of links
is limited: see `room`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.formats import LinkFormats
from amqp_streams.client.connection.links import Link, ReceiverLink, SenderLink, Session
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.protocol_events import (
    Attached,
    Changed,
    Closed,
    Detached,
    Opened,
    Outcomes,
    ProtocolEvent,
)
from amqp_streams.client.connection.sasl import SaslClient
from amqp_streams.client.connection.sessions import SESSION_LINKS_MAX, HandleMax, Sessions
from amqp_streams.client.errors import (
    ConnectError,
    ConnectionLostError,
    LinkError,
    LinkRefusedError,
    NoRoomError,
    SessionError,
)
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton import events, links, sessions, termini
from amqp_streams.proton.conditions import read_condition
from amqp_streams.proton.engine import Engine, require_engine
from amqp_streams.proton.faults import watch_faults
from amqp_streams.proton.incoming import plainness
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import read_symbols, text
from amqp_streams.wire.formats import FormatFinder

FRAME_BYTES_MAX: Final = 64 << 10
MESSAGE_BYTES_MAX: Final = 128 << 20
_NO_OUTCOMES: Final[Any] = None

_L = TypeVar("_L", bound=Link)


class ConnectionProtocol:
    """The client's end of one connection."""

    def __init__(
        self, *, container_id: str, hostname: str | None, credentials: Credentials, idle_timeout_ms: int
    ) -> None:
        self._sasl: SaslClient | None = SaslClient(credentials, hostname)
        require_engine()
        self._engine: Final = Engine(
            serving=False, frame_bytes_max=FRAME_BYTES_MAX, idle_timeout_ms=idle_timeout_ms
        )
        self._faults: Final = watch_faults(self._engine)
        self._engine.open(
            container_id=container_id, hostname=hostname, desired=[names.CAPABILITY_EVENT_STREAMS]
        )
        self._sessions: Final = Sessions(self._engine)
        self._sessions.begin()  # the peer's answer contains the handle-max: links are attached after it
        self._handle_max: Final = HandleMax()
        self._links: dict[Pointer, Link] = {}
        self._detaching: dict[Pointer, Link] = {}
        self._spent: list[Link] = []
        self._closed = False
        self._opened = False
        self._announced: Opened | None = None
        self._formats: Final = FormatFinder(plainness)
        self._dispatch: Final = {
            events.CONNECTION_OPEN: self._remote_open,
            events.CONNECTION_CLOSE: self._remote_close,
            events.SESSION_BEGIN: self._session_open,
            events.SESSION_END: self._session_close,
            events.LINK_ATTACH: self._link_open,
            events.LINK_CLOSE: self._link_close,
            events.LINK_DETACH: self._link_close,
            events.TRANSPORT_ERROR: self._transport_end,
            events.TRANSPORT_CLOSED: self._transport_end,
        }

    @property
    def closed(self) -> bool:
        """Whether `Closed` was reported or `end` was called."""
        return self._closed

    @property
    def links(self) -> int:
        """How many links the connection has."""
        return self._sessions.links

    @property
    def room(self) -> int:
        """How many links can be added."""
        return self._sessions.room

    @property
    def spare(self) -> int:
        """How many of them are reserved for short requests."""
        return self._sessions.spare

    # -- bytes and time

    def receive(self, data: bytes | bytearray | memoryview) -> list[ProtocolEvent]:
        """Process bytes from the peer. Returns the protocol events, in order."""
        if self._closed:
            return []
        if self._sasl is not None:
            try:
                self._sasl.receive(data)
            except AmqpStreamsError as error:
                return self._end([], error)
            if not self._sasl.done:
                return []
        return self._push(data) if self._sasl is None else self._push(self._sasl.rest)

    def _push(self, data: bytes | bytearray | memoryview) -> list[ProtocolEvent]:
        protocol_events: list[ProtocolEvent] = []
        self._sasl = None
        self._free_spent()
        if not self._handle_max.done:
            self._handle_max.receive(data, FRAME_BYTES_MAX)
        taken = self._engine.push(data)
        self._formats.feed(memoryview(data), self._engine.incomplete)
        self._collect(protocol_events)
        # The messages of these bytes were taken or will be asked for: older positions are not needed.
        self._formats.release()
        return protocol_events if taken else self._end(protocol_events, self._transport_error())

    @property
    def fault(self) -> AmqpStreamsError | None:
        """The error after which Proton sends nothing but heartbeats; None: no error.

        Read it after `take_output`.
        """
        return (
            ConnectionLostError(names.INTERNAL_ERROR, f"Proton: {self._faults[0]}") if self._faults else None
        )

    def take_output(self) -> bytes:
        """Return the bytes to send now. Call it after each change until it returns nothing."""
        if self._sasl is not None:
            return self._sasl.take_output()
        return b"" if self._engine.freed else b"".join(iter(self._engine.pull, b""))

    def write_formats(self) -> None:
        """Prepare for messages that have a message-format other than 0."""
        self._engine.write_formats()

    def tick(self, now_ms: int) -> tuple[list[ProtocolEvent], int | None]:
        """Pass the time (monotonic, > 0): sends heartbeats that are due, and detects a silent peer.

        Returns the protocol events, and when to call it next, or None.
        """
        if self._closed or self._sasl is not None:
            return [], None
        deadline = self._engine.tick(now_ms)
        protocol_events: list[ProtocolEvent] = []
        self._collect(protocol_events)
        return protocol_events, deadline if deadline > 0 and not self._closed else None

    def close(self) -> None:
        """Begin to close the connection: `take_output` then contains the close frame."""
        if not self._engine.freed and self._sasl is None:
            self._engine.close()

    def end(self) -> None:
        """Free everything: the byte stream has ended. May be called twice."""
        self._closed = True
        for link in self._links.values():
            link.forget()
        self._links.clear()
        self._detaching.clear()
        self._spent.clear()
        self._engine.free()

    # -- links

    def open_sender(
        self,
        address: str,
        *,
        properties: Mapping[str, object] | None = None,
        capabilities: Sequence[str] = (),
    ) -> SenderLink:
        """Attach a link that sends to `address`.

        `capabilities`: the capabilities to request of the target (AMQP 1.0 core 3.5.4).

        Raises:
            NoRoomError; WireError if a property has no AMQP type.
        """
        session = self._session()
        link = SenderLink(f"producer-{uuid4().hex}", session)
        target = termini.target(link.pointer)
        target.set_address(address)
        termini.source(link.pointer).be_source()
        if capabilities:
            target.set_capabilities(capabilities)
        return self._open(link, properties)

    def open_receiver(
        self,
        address: str,
        *,
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
        presettled: bool = False,
        target: str | None = None,
        name: str | None = None,
        durable: bool = False,
        capabilities: Sequence[str] = (),
    ) -> ReceiverLink:
        """Attach a link that receives from `address`. It has no credit yet.

        `filters`: by name, each a Described. `name`: the link's name, or None for a random one. `durable`:
        request that the source keeps its cursor after the link ends (AMQP 1.0 core 3.5.5, 3.5.6).
        `capabilities`: the capabilities to request of the source (3.5.3).

        Raises:
            NoRoomError; WireError if a filter or property has no AMQP type.
        """
        session = self._session()
        link = ReceiverLink(name or f"consumer-{uuid4().hex}", session, MESSAGE_BYTES_MAX)
        source = termini.source(link.pointer)
        source.set_address(address)
        if durable:
            source.keep_deliveries()
        if capabilities:
            source.set_capabilities(capabilities)
        if filters:
            source.set_filters(filters)
        here = termini.target(link.pointer)
        here.be_target()
        if target is not None:
            here.set_address(target)
        links.set_presettled(link.pointer, settled=presettled)
        links.set_size_max(link.pointer, MESSAGE_BYTES_MAX)
        return self._open(link, properties)

    def close_link(self, link: Link) -> None:
        """Detach for good. Deliveries in flight are forgotten."""
        if link.alive and not link.detached:
            self._drop(link)

    def _session(self) -> Session:
        assert self._opened
        assert not self._closed
        session = self._sessions.pick()
        if session is None:
            raise NoRoomError(
                names.RESOURCE_LIMIT_EXCEEDED,
                f"the connection has {self.links} links, the most that the peer allows",
            )
        return session

    def _open(self, link: _L, properties: Mapping[str, object] | None) -> _L:
        if properties:
            links.set_properties(link.pointer, properties)
        self._links[link.pointer] = link
        link.session.links.add(link)
        if isinstance(link, ReceiverLink):
            link.session.unread.links += 1
        links.open_link(link.pointer)
        return link

    def _drop(self, link: Link) -> None:
        """Close a link. Its pointer stays valid until the peer has answered."""
        link.detached = True
        self._links.pop(link.pointer, None)
        links.close(link.pointer)
        link.forget()
        link.session.links.discard(link)
        if isinstance(link, ReceiverLink):
            link.session.unread.links -= 1
        self._detaching[link.pointer] = link

    def _free_spent(self) -> None:
        """Free links that both sides have detached.

        Not earlier, because their last frames must be sent first.
        """
        spent = [
            link
            for link in self._spent
            if self._detaching.get(link.pointer) is link and self._detaching.pop(link.pointer)
        ]
        self._spent.clear()
        self._sessions.free(spent)

    # -- what the peer did

    def _collect(self, protocol_events: list[ProtocolEvent]) -> None:
        # Hot path: this loop runs once for each delivery, so that attributes are read only once.
        collector, delivery_kind, flow_kind = self._engine.collector, events.DELIVERY, events.LINK_FLOW
        peek, pop, kind_of, link_of, delivery_of = (
            events.peek,
            events.pop,
            events.kind,
            events.link,
            events.delivery,
        )
        changed: set[Link] = set()
        outcomes: dict[SenderLink, Outcomes] = {}
        known, latest, batch = self._links, None, _NO_OUTCOMES
        while event := peek(collector):
            kind = kind_of(event)
            if kind == delivery_kind:
                link = known.get(link_of(event))
                if isinstance(link, SenderLink):
                    if link is not latest:
                        latest, batch = link, outcomes.setdefault(link, Outcomes(link))
                    link.outcome_of(delivery_of(event), batch.accepted, batch.refused)
                elif link is not None:
                    changed.add(link)
            elif kind == flow_kind:
                link = known.get(link_of(event))
                if link is not None:
                    changed.add(link)
            elif (handler := self._dispatch.get(kind)) is not None:
                # Outcomes that arrived before a detach still count, so they are reported before it.
                protocol_events.extend(outcomes.values())
                outcomes.clear()
                latest = None
                handler(event, protocol_events)
                if self._closed:
                    return
            pop(collector)
        protocol_events.extend(outcomes.values())
        if changed:
            self._sessions.relieve(changed)
            protocol_events.append(Changed(frozenset(changed)))

    def _remote_open(self, _event: Any, _protocol_events: list[ProtocolEvent]) -> None:
        engine = self._engine
        offered = read_symbols(engine.peer_capabilities)
        self._sessions.limit(channel_max=engine.peer_channel_max)
        store = engine.peer_properties.get(names.STORE)
        self._announced = Opened(
            text(engine.peer_container) or "",
            names.CAPABILITY_EVENT_STREAMS in offered,
            str(store) if isinstance(store, str) else None,
        )

    def _remote_close(self, _event: Any, protocol_events: list[ProtocolEvent]) -> None:
        self._engine.close()
        self._end(
            protocol_events,
            ConnectionLostError(*read_condition(self._engine.peer_condition, "closed by the peer")),
        )

    def _session_open(self, event: Any, protocol_events: list[ProtocolEvent]) -> None:
        session = events.session(event)
        if sessions.begun_by_peer(session):
            sessions.close(session)  # a client offers nothing that a peer could attach to
        elif not self._opened and self._announced is not None:
            self._opened = True
            self._sessions.links_max = min(SESSION_LINKS_MAX, self._handle_max.value + 1)
            protocol_events.append(self._announced)

    def _session_close(self, event: Any, protocol_events: list[ProtocolEvent]) -> None:
        pointer = events.session(event)
        error = SessionError(*read_condition(sessions.peer_condition(pointer), "ended by the peer"))
        session = self._sessions.ended(pointer, error.condition)
        if session is None:
            return
        for link in tuple(session.links):
            self._drop(link)
            protocol_events.append(Detached(link, error))
        sessions.close(pointer)
        for link in [link for link in self._detaching.values() if link.session is session]:
            del self._detaching[link.pointer]
            links.free(link.pointer)
        sessions.free(pointer)

    def _link_open(self, event: Any, protocol_events: list[ProtocolEvent]) -> None:
        pointer = events.link(event)
        link = self._links.get(pointer)
        if link is None:
            return
        theirs = (
            termini.peer_target(pointer) if isinstance(link, SenderLink) else termini.peer_source(pointer)
        )
        if theirs.absent:
            return  # refused: a detach with the reason follows (AMQP 1.0 core 2.6.3)
        link.attached = True
        if isinstance(link, ReceiverLink):
            link.formats = LinkFormats(self._formats, link.name)
        protocol_events.append(Attached(link))

    def _link_close(self, event: Any, protocol_events: list[ProtocolEvent]) -> None:
        pointer = events.link(event)
        link = self._links.get(pointer)
        if link is None:
            if (detaching := self._detaching.get(pointer)) is not None:
                self._spent.append(detaching)
            return
        condition = read_condition(links.peer_condition(pointer), "detached by the peer")
        error = LinkError(*condition) if link.attached else LinkRefusedError(*condition)
        if isinstance(link, ReceiverLink):
            link.save_unread()
        self._drop(link)
        self._spent.append(link)
        protocol_events.append(Detached(link, error))

    def _transport_end(self, _event: Any, protocol_events: list[ProtocolEvent]) -> None:
        self._end(protocol_events, self._transport_error())

    def _transport_error(self) -> AmqpStreamsError:
        condition = read_condition(self._engine.failure, names.FRAMING_ERROR)
        if not self._opened:
            return ConnectError(": ".join(part for part in condition[:2] if part))
        return ConnectionLostError(*condition)

    def _end(self, protocol_events: list[ProtocolEvent], error: AmqpStreamsError) -> list[ProtocolEvent]:
        if not self._closed:
            self._closed = True
            protocol_events.append(Closed(error))
        return protocol_events
