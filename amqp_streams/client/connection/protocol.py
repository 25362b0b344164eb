"""One AMQP connection of a client without any I/O: bytes in, bytes out, happenings out (AMQP 1.0 core part 2).

One law: `receive`, `tick` and `end` never raise for what a peer does; they tell it as a `Closed` or `Detached`. After `Closed` nothing more
happens. Links share sessions (`sessions.py`): there may be as many links as the peer has sessions and handles for, and `room` says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import uuid4

import proton
from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.client.connection.happenings import Attached, Changed, Closed, Detached, Happening, Opened, Outcomes
from amqp_streams.client.connection.links import Link, ReceiverLink, SenderLink, Session
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.octets import LinkFormats, Octets
from amqp_streams.client.connection.sasl import SaslClient
from amqp_streams.client.connection.sessions import SESSION_LINKS_MAX, HandleMax, Sessions
from amqp_streams.client.errors import ConnectError, ConnectionLostError, LinkError, LinkRefusedError, NoRoomError, SessionError
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.terms import put_map, put_symbols, read_condition, read_symbols, read_text

PROTON_VERSION: Final = (0, 40, 0)
FRAME_BYTES_MAX: Final = 64 << 10
MESSAGE_BYTES_MAX: Final = 128 << 20

if proton.VERSION != PROTON_VERSION:
    message = f"python-qpid-proton is {proton.VERSION}; this client calls its inner functions and is made for {PROTON_VERSION}"
    raise ImportError(message)

_NO_OUTCOMES: Final[Any] = None
_FAULT: Final = "process error"
"""Proton only logs this."""

_L = TypeVar("_L", bound=Link)


class ConnectionProtocol:
    """The client's end of one connection."""

    def __init__(self, *, container_id: str, hostname: str | None, credentials: Credentials, idle_timeout_ms: int) -> None:
        self._sasl: SaslClient | None = SaslClient(credentials, hostname)
        self._connection: Any = proton.Connection()
        self._transport: Any = proton.Transport()
        self._collector: Any = proton.Collector()
        self._connection.collect(self._collector)
        self._connection.container = container_id
        if hostname is not None:
            self._connection.hostname = hostname
        lib.pn_transport_set_max_frame(self._transport._impl, FRAME_BYTES_MAX)
        lib.pn_transport_set_idle_timeout(self._transport._impl, idle_timeout_ms)
        self._connection.desired_capabilities = [proton.symbol(names.CAPABILITY_EVENT_STREAMS)]
        self._faults: Final[list[str]] = []
        self._transport.tracer = _noting(self._faults)
        self._transport.bind(self._connection)
        self._connection.open()
        self._sessions: Final = Sessions(self._connection)
        self._sessions.begin()  # its answer is awaited, because it says how many links a session may have
        self._handle_max: Final = HandleMax()
        self._links: dict[Any, Link] = {}
        self._detaching: dict[Any, Link] = {}
        self._spent: list[Link] = []
        self._closed = False
        self._opened = False
        self._announced: Opened | None = None
        self._octets: Final = Octets(self._transport._impl)
        self._dispatch: Final = {
            lib.PN_CONNECTION_REMOTE_OPEN: self._remote_open,
            lib.PN_CONNECTION_REMOTE_CLOSE: self._remote_close,
            lib.PN_SESSION_REMOTE_OPEN: self._session_open,
            lib.PN_SESSION_REMOTE_CLOSE: self._session_close,
            lib.PN_LINK_REMOTE_OPEN: self._link_open,
            lib.PN_LINK_REMOTE_CLOSE: self._link_close,
            lib.PN_LINK_REMOTE_DETACH: self._link_close,
            lib.PN_TRANSPORT_ERROR: self._transport_end,
            lib.PN_TRANSPORT_CLOSED: self._transport_end,
        }

    @property
    def closed(self) -> bool:
        """`Closed` was told, or `end` called."""
        return self._closed

    @property
    def links(self) -> int:
        """How many there are."""
        return self._sessions.links

    @property
    def room(self) -> int:
        """Links that can be added."""
        return self._sessions.room

    @property
    def spare(self) -> int:
        """How many of them are for questions, which last for one answer."""
        return self._sessions.spare

    # -- bytes and time

    def receive(self, data: bytes | bytearray | memoryview) -> list[Happening]:
        """Take bytes from the peer; what happened by them, in order."""
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

    def _push(self, data: bytes | bytearray | memoryview) -> list[Happening]:
        happenings: list[Happening] = []
        self._sasl = None
        self._free_spent()
        if not self._handle_max.done:
            self._handle_max.receive(data, FRAME_BYTES_MAX)
        left = memoryview(data)
        while left and not self._closed:
            pushed = self._octets.push(left)
            self._collect(happenings)
            self._octets.finder.release()
            if not pushed:
                return self._end(happenings, self._transport_error())
            left = left[pushed:]
        return happenings

    @property
    def fault(self) -> AmqpStreamsError | None:
        """Proton has stopped processing: only heartbeats go out from now on. To be looked at after `take_output`."""
        return ConnectionLostError(names.INTERNAL_ERROR, f"Proton: {self._faults[0]}") if self._faults else None

    def take_output(self) -> bytes:
        """Bytes to send now; call it after everything that may have made some, until it is empty."""
        if self._sasl is not None:
            return self._sasl.take_output()
        return b"" if self._transport is None else self._octets.take()

    def write_formats(self) -> None:
        """From here on what is sent may have a message-format that is not 0."""
        self._octets.write_formats()

    def tick(self, now_ms: int) -> tuple[list[Happening], int | None]:
        """Tell the time (monotonic, > 0): heartbeats fall due, silence of the peer is found. Also when to be called next, or None."""
        if self._closed or self._sasl is not None:
            return [], None
        deadline = lib.pn_transport_tick(self._transport._impl, now_ms)
        happenings: list[Happening] = []
        self._collect(happenings)
        return happenings, int(deadline) if deadline > 0 and not self._closed else None

    def close(self) -> None:
        """Say goodbye: `take_output` then has the close frame."""
        if self._transport is not None and self._sasl is None:
            self._connection.close()

    def end(self) -> None:
        """The byte stream is gone: every pointer with it. May be called twice."""
        self._closed = True
        for link in self._links.values():
            link.forget()
        self._links.clear()
        self._detaching.clear()
        self._spent.clear()
        if self._transport is not None:
            self._transport.unbind()
            self._connection.free()
            self._transport = self._connection = self._collector = None

    # -- links

    def open_sender(self, address: str, *, properties: Mapping[str, object] | None = None, capabilities: Sequence[str] = ()) -> SenderLink:
        """Attach a link that sends to `address`. `capabilities`: what the target is wanted to be capable of (AMQP 3.5.4).

        Raises: NoRoomError, WireError for a property that has no AMQP type.
        """
        session = self._session()
        link = SenderLink(session.proton.sender(f"producer-{uuid4().hex}"), session)
        lib.pn_terminus_set_address(lib.pn_link_target(link.pointer), address.encode())
        lib.pn_terminus_set_type(lib.pn_link_source(link.pointer), lib.PN_SOURCE)
        if capabilities:
            put_symbols(lib.pn_terminus_capabilities(lib.pn_link_target(link.pointer)), capabilities)
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
        """Attach a link that receives from `address`; `filters` are name -> Described. It has no credit yet.

        `name`: of the link, else one is made up. `durable`: the source is to keep its place when the link is gone (AMQP 3.5.5, 3.5.6).
        `capabilities`: what the source is wanted to be capable of (AMQP 3.5.3).

        Raises: NoRoomError, WireError for a filter or property that has no AMQP type.
        """
        session = self._session()
        link = ReceiverLink(session.proton.receiver(name or f"consumer-{uuid4().hex}"), session, MESSAGE_BYTES_MAX)
        source = lib.pn_link_source(link.pointer)
        lib.pn_terminus_set_address(source, address.encode())
        if durable:
            lib.pn_terminus_set_durability(source, lib.PN_DELIVERIES)
            lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER)
        if capabilities:
            put_symbols(lib.pn_terminus_capabilities(source), capabilities)
        if filters:
            put_map(lib.pn_terminus_filter(source), filters)
        lib.pn_terminus_set_type(lib.pn_link_target(link.pointer), lib.PN_TARGET)
        if target is not None:
            lib.pn_terminus_set_address(lib.pn_link_target(link.pointer), target.encode())
        lib.pn_link_set_snd_settle_mode(link.pointer, lib.PN_SND_SETTLED if presettled else lib.PN_SND_UNSETTLED)
        lib.pn_link_set_max_message_size(link.pointer, MESSAGE_BYTES_MAX)
        return self._open(link, properties)

    def close_link(self, link: Link) -> None:
        """Detach for good. What it has in flight is forgotten."""
        if link.alive and not link.detached:
            self._drop(link)

    def _session(self) -> Session:
        assert self._opened
        assert not self._closed
        session = self._sessions.pick()
        if session is None:
            raise NoRoomError(names.RESOURCE_LIMIT_EXCEEDED, f"the connection has {self.links} links, which is all that the peer allows")
        return session

    def _open(self, link: _L, properties: Mapping[str, object] | None) -> _L:
        if properties:
            put_map(lib.pn_link_properties(link.pointer), properties)
        self._links[link.pointer] = link
        link.session.links.add(link)
        if isinstance(link, ReceiverLink):
            link.session.unread.links += 1
        lib.pn_link_open(link.pointer)
        return link

    def _drop(self, link: Link) -> None:
        """Close a link. Pointers stay good until the peer has answered."""
        link.detached = True
        self._links.pop(link.pointer, None)
        lib.pn_link_close(link.pointer)
        link.forget()
        link.session.links.discard(link)
        if isinstance(link, ReceiverLink):
            link.session.unread.links -= 1
        self._detaching[link.pointer] = link

    def _free_spent(self) -> None:
        """Links that both sides have detached; not earlier, because what was said on them goes out first."""
        spent = [link for link in self._spent if self._detaching.get(link.pointer) is link and self._detaching.pop(link.pointer)]
        self._spent.clear()
        self._sessions.free(spent, self._transport._impl)

    # -- what the peer did

    def _collect(self, happenings: list[Happening]) -> None:
        collector, delivery_type, flow_type = self._collector._impl, lib.PN_DELIVERY, lib.PN_LINK_FLOW
        peek, pop, kind_of, link_of, delivery_of = (
            lib.pn_collector_peek,
            lib.pn_collector_pop,
            lib.pn_event_type,
            lib.pn_event_link,
            lib.pn_event_delivery,
        )
        changed: set[Link] = set()
        outcomes: dict[SenderLink, Outcomes] = {}
        links, latest, batch = self._links, None, _NO_OUTCOMES
        while (event := peek(collector)) != ffi.NULL:
            kind = kind_of(event)
            if kind == delivery_type:
                link = links.get(link_of(event))
                if isinstance(link, SenderLink):
                    if link is not latest:
                        latest, batch = link, outcomes.setdefault(link, Outcomes(link))
                    link.outcome_of(delivery_of(event), batch.accepted, batch.refused)
                elif link is not None:
                    changed.add(link)
            elif kind == flow_type:
                link = links.get(link_of(event))
                if link is not None:
                    changed.add(link)
            elif (handler := self._dispatch.get(kind)) is not None:
                # Outcomes told before a detach count: keep the order.
                happenings.extend(outcomes.values())
                outcomes.clear()
                latest = None
                handler(event, happenings)
                if self._closed:
                    return
            pop(collector)
        happenings.extend(outcomes.values())
        if changed:
            self._sessions.relieve(changed)
            happenings.append(Changed(frozenset(changed)))

    def _remote_open(self, _event: Any, _happenings: list[Happening]) -> None:
        connection = self._connection._impl
        offered = read_symbols(lib.pn_connection_remote_offered_capabilities(connection))
        self._sessions.limit(channel_max=lib.pn_transport_remote_channel_max(self._transport._impl))
        self._announced = Opened(read_text(lib.pn_connection_remote_container(connection)), names.CAPABILITY_EVENT_STREAMS in offered)

    def _remote_close(self, _event: Any, happenings: list[Happening]) -> None:
        condition = lib.pn_connection_remote_condition(self._connection._impl)
        self._connection.close()
        self._end(happenings, ConnectionLostError(*read_condition(condition, "closed by the peer")))

    def _session_open(self, event: Any, happenings: list[Happening]) -> None:
        session = lib.pn_event_session(event)
        if lib.pn_session_state(session) & lib.PN_LOCAL_UNINIT:
            lib.pn_session_close(session)  # a client serves nobody
        elif not self._opened and self._announced is not None:
            self._opened = True
            self._sessions.links_max = min(SESSION_LINKS_MAX, self._handle_max.value + 1)
            happenings.append(self._announced)

    def _session_close(self, event: Any, happenings: list[Happening]) -> None:
        pointer = lib.pn_event_session(event)
        error = SessionError(*read_condition(lib.pn_session_remote_condition(pointer), "ended by the peer"))
        session = self._sessions.ended(pointer, error.condition)
        if session is None:
            return
        for link in tuple(session.links):
            self._drop(link)
            happenings.append(Detached(link, error))
        lib.pn_session_close(pointer)
        for link in [link for link in self._detaching.values() if link.session is session]:
            del self._detaching[link.pointer]
            link.proton_link.free()
        session.proton.free()

    def _link_open(self, event: Any, happenings: list[Happening]) -> None:
        pointer = lib.pn_event_link(event)
        link = self._links.get(pointer)
        if link is None:
            return
        sends = isinstance(link, SenderLink)
        theirs = lib.pn_link_remote_target(pointer) if sends else lib.pn_link_remote_source(pointer)
        if lib.pn_terminus_get_type(theirs) == lib.PN_UNSPECIFIED:
            return  # refused: the detach that says why is on its way (2.6.3)
        link.attached = True
        if isinstance(link, ReceiverLink):
            link.formats = LinkFormats(self._octets.finder, link.name)
        happenings.append(Attached(link))

    def _link_close(self, event: Any, happenings: list[Happening]) -> None:
        pointer = lib.pn_event_link(event)
        link = self._links.get(pointer)
        if link is None:
            if (detaching := self._detaching.get(pointer)) is not None:
                self._spent.append(detaching)
            return
        condition = read_condition(lib.pn_link_remote_condition(pointer), "detached by the peer")
        error = LinkError(*condition) if link.attached else LinkRefusedError(*condition)
        if isinstance(link, ReceiverLink):
            link.save_unread()
        self._drop(link)
        self._spent.append(link)
        happenings.append(Detached(link, error))

    def _transport_end(self, _event: Any, happenings: list[Happening]) -> None:
        self._end(happenings, self._transport_error())

    def _transport_error(self) -> AmqpStreamsError:
        condition = read_condition(lib.pn_transport_condition(self._transport._impl), names.FRAMING_ERROR)
        if not self._opened:
            return ConnectError(": ".join(part for part in condition[:2] if part))
        return ConnectionLostError(*condition)

    def _end(self, happenings: list[Happening], error: AmqpStreamsError) -> list[Happening]:
        if not self._closed:
            self._closed = True
            happenings.append(Closed(error))
        return happenings


def _noting(faults: list[str]) -> Callable[[Any, str], None]:
    """Keep the first of Proton's errors in `faults`. A function without a reference to the transport, which Proton keeps in it."""

    def note(_transport: Any, text: str) -> None:
        if _FAULT in text and not faults:
            faults.append(text)

    return note
