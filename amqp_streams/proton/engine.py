"""One AMQP connection, as the node or as a client: bytes in, events and bytes out. No I/O.

It requires one exact release of Proton (`require_engine`), because it calls functions below Proton's public
binding, which may change in any release.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cproton_ffi import ffi, lib

from amqp_streams.errors import AmqpStreamsError, PeerError
from amqp_streams.proton import compiled
from amqp_streams.proton.conditions import write_condition
from amqp_streams.proton.incoming import Incoming
from amqp_streams.proton.pointers import NULL, Pointer, scratch
from amqp_streams.proton.values import read_map, write_map, write_symbols
from amqp_streams.wire.frames import attach_handle, read_frames
from amqp_streams.wire.outgoing_formats import FormatWriter

ENGINE_VERSION: Final = "0.40.0"
INSTALLED_VERSION: Final = f"{lib.PN_VERSION_MAJOR}.{lib.PN_VERSION_MINOR}.{lib.PN_VERSION_POINT}"
_OUTPUT_BYTES_MAX: Final = 256 << 10
_ACTIVE: Final = lib.PN_LOCAL_ACTIVE | lib.PN_REMOTE_ACTIVE


def require_engine(found: str = INSTALLED_VERSION) -> None:
    """Check that the tested release of Proton is installed.

    Raises:
        AmqpStreamsError: another release is installed.
    """
    if found != ENGINE_VERSION:
        remedy = f"run pip install python-qpid-proton=={ENGINE_VERSION}"
        message = f"python-qpid-proton {ENGINE_VERSION} is required, but {found} is installed: {remedy}"
        raise AmqpStreamsError(message)


def take_output_in_python(transport: Pointer, size: int) -> bytes:
    """Remove the first `size` bytes of Proton's output, and return them."""
    memory = scratch
    lib.pn_transport_peek(transport, memory.buffer, size)
    output: bytes = memory.view[0:size]
    lib.pn_transport_pop(transport, size)
    return output


def take_output_compiled(transport: Pointer, size: int) -> bytes:
    """`take_output_in_python` with one copy less."""
    output: bytes = compiled.loops.take_output(compiled.address(transport), size)
    return output


take_output = take_output_in_python if compiled.loops is None else take_output_compiled


class Engine:
    """Proton's objects for one connection.

    `serving`: True for the node, which answers the client's open; False for a client.
    """

    __slots__ = ("_formats", "_held", "_incoming", "collector", "connection", "freed", "transport")

    def __init__(
        self, *, serving: bool, frame_bytes_max: int, idle_timeout_ms: int, channels_max: int | None = None
    ) -> None:
        self.connection: Pointer = lib.pn_connection()
        self.transport: Pointer = lib.pn_transport()
        self.collector: Pointer = lib.pn_collector()
        self.freed = False
        self._held: list[bytes] = []
        """Output that was already taken out of Proton. `pull` returns it first."""
        self._formats: FormatWriter | None = None
        if serving:
            lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, frame_bytes_max)
        if channels_max is not None:
            lib.pn_transport_set_channel_max(self.transport, channels_max - 1)
        lib.pn_transport_set_idle_timeout(self.transport, idle_timeout_ms)
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)
        self._incoming = Incoming(self.transport)

    # -- bytes and time

    def push(self, data: memoryview | bytearray | bytes) -> bool:
        """Pass bytes from the peer to Proton.

        Returns False if Proton accepts no more, because the connection has ended.
        """
        start, size, push = ffi.from_buffer("char[]", data), len(data), self._incoming.push
        at = 0
        while at < size:  # Proton accepts what fits into its buffer of a few KiB, and processes it
            taken = push(start + at, size - at)
            if not taken:
                return False
            at += taken
        return True

    @property
    def incomplete(self) -> int:
        """See `Incoming.incomplete`."""
        return self._incoming.incomplete

    def pull(self) -> bytes:
        """Return the next bytes to send. Empty: nothing to send now (see `finished`)."""
        if self._held:
            held, self._held = self._held, []
            return b"".join(held)
        return self._output()

    @property
    def held(self) -> int:
        """How many bytes `pull` will return that Proton no longer counts in its sessions."""
        return sum(map(len, self._held))

    def write_formats(self) -> None:
        """Enable message-formats other than 0 for the following deliveries. See `sending.send_record`."""
        if self._formats is None:
            self._held += iter(self._output, b"")  # up to the end of a frame
            self._formats = FormatWriter()

    def _output(self) -> bytes:
        """Return Proton's output with the message-formats in place, about 256 KiB at most.

        It may end within a frame if more output follows.
        """
        block = self._written()
        if self._formats is None:
            return block
        while block and not (ready := self._formats.feed(block)):
            block = self._written()
        return ready if block else b""

    def _written(self) -> bytes:
        """Return Proton's output as Proton wrote it."""
        transport = self.transport
        pending = lib.pn_transport_pending(transport)
        if pending <= 0:
            return b""
        # each call fills Proton's output buffer, which grows when it is full
        while pending < _OUTPUT_BYTES_MAX:
            more = lib.pn_transport_pending(transport)
            if more == pending:
                break
            pending = more
        return take_output(transport, min(pending, _OUTPUT_BYTES_MAX))

    def write(self) -> None:
        """Make Proton write pending frames now, before a later change replaces them."""
        lib.pn_transport_pending(self.transport)

    @property
    def frames(self) -> int:
        """How many frames have arrived so far."""
        return lib.pn_transport_get_frames_input(self.transport)  # type: ignore[no-any-return]  # cffi

    @property
    def finished(self) -> bool:
        """Whether nothing more will be sent, so that the socket may be closed."""
        return lib.pn_transport_pending(self.transport) < 0  # type: ignore[no-any-return]  # cffi

    def end_of_input(self) -> None:
        """Notify Proton that the peer closed its side of the socket."""
        lib.pn_transport_close_tail(self.transport)

    def tick(self, now_ms: int) -> int:
        """Send heartbeats and detect a silent peer.

        Returns when to call again; 0: not needed. Times are milliseconds of a monotonic clock.
        """
        return lib.pn_transport_tick(self.transport, now_ms)  # type: ignore[no-any-return]  # cffi

    # -- the connection

    def open(
        self,
        *,
        container_id: str,
        hostname: str | None = None,
        offered: Sequence[str] = (),
        desired: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Send the open frame. The node answers the client's open with it."""
        connection = self.connection
        lib.pn_connection_set_container(connection, container_id.encode())
        if hostname is not None:
            lib.pn_connection_set_hostname(connection, hostname.encode())
        if offered:
            write_symbols(lib.pn_connection_offered_capabilities(connection), offered)
        if desired:
            write_symbols(lib.pn_connection_desired_capabilities(connection), desired)
        if properties:
            write_map(lib.pn_connection_properties(connection), properties)
        lib.pn_connection_open(connection)

    def leave_silence_to_caller(self) -> None:
        """Write the open frame with the idle timeout, then disable Proton's own check for a silent peer.

        The caller checks instead.
        """
        lib.pn_transport_pending(self.transport)
        lib.pn_transport_set_idle_timeout(self.transport, 0)

    @property
    def peer_container(self) -> Pointer:
        """The container-id in the peer's open, for `values.text`."""
        return lib.pn_connection_remote_container(self.connection)

    @property
    def peer_capabilities(self) -> Pointer:
        """The capabilities that the peer's open offers, for `values.read_symbols`."""
        return lib.pn_connection_remote_offered_capabilities(self.connection)

    @property
    def peer_properties(self) -> dict[str, object]:
        """The properties in the peer's open."""
        return read_map(lib.pn_connection_remote_properties(self.connection))

    @property
    def peer_channel_max(self) -> int:
        """The highest channel number that the peer accepts."""
        return lib.pn_transport_remote_channel_max(self.transport)  # type: ignore[no-any-return]  # cffi

    @property
    def peer_condition(self) -> Pointer:
        """Why the peer closed the connection, for `conditions`."""
        return lib.pn_connection_remote_condition(self.connection)

    @property
    def failure(self) -> Pointer:
        """Why the transport ended, for `conditions`."""
        return lib.pn_transport_condition(self.transport)

    def close(self, error: PeerError | None = None) -> None:
        """Close the connection, with the error if one is given."""
        if error is not None:
            write_condition(lib.pn_connection_condition(self.connection), error)
        lib.pn_connection_close(self.connection)

    def free(self) -> None:
        """Free all memory. Every pointer of this connection becomes invalid."""
        if self.freed:
            return
        self.freed = True
        # In this order: the transport must not refer to a connection that is gone.
        lib.pn_transport_unbind(self.transport)
        lib.pn_decref(self.transport)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_collector_release(self.collector)
        lib.pn_collector_free(self.collector)

    # -- its sessions and links

    def begin(self, incoming_bytes_max: int) -> Pointer:
        """Begin a session with a window of `incoming_bytes_max` bytes."""
        session = lib.pn_session(self.connection)
        lib.pn_session_set_incoming_capacity(session, incoming_bytes_max)
        lib.pn_session_open(session)
        return session

    def sessions(self) -> Iterator[Pointer]:
        """Yield the sessions that are open on both sides."""
        session = lib.pn_session_head(self.connection, _ACTIVE)
        while session != NULL:
            yield session
            session = lib.pn_session_next(session, _ACTIVE)

    def ask_session_flow(self, session: Pointer) -> None:
        """Make Proton write a flow frame for this session.

        Setting the capacity to its current value is the only call that does so without a change.
        """
        lib.pn_session_set_incoming_capacity(session, lib.pn_session_get_incoming_capacity(session))

    def answer_attach(self, link: Pointer) -> int | None:
        """Answer a client's attach.

        Returns the handle that Proton chose for the link; None if it wrote no attach frame.

        Earlier output is taken out first: it may end within a frame, and the search for the attach frame
        needs whole frames.
        """
        self._held += iter(self._output, b"")
        lib.pn_link_open(link)
        answer = b"".join(iter(self._output, b""))
        self._held += [answer] if answer else []
        handles = map(attach_handle, (written.body for written in read_frames(answer)))
        return next((handle for handle in handles if handle is not None), None)

    def free_links(self, links: Sequence[Pointer], incoming_bytes_max: int) -> None:
        """Free links that both sides have detached. `incoming_bytes_max` is the window of their sessions.

        While Proton settles unread deliveries of a freed link, it may open the session's window again and
        name the freed link in that flow frame. The window is therefore closed before and opened after.
        """
        sessions = {lib.pn_link_session(link) for link in links if lib.pn_link_unsettled(link)}
        for session in sessions:
            lib.pn_session_set_incoming_capacity(session, 0)
        self.write()
        for link in links:
            lib.pn_link_free(link)
        self.write()
        for session in sessions:
            lib.pn_session_set_incoming_capacity(session, incoming_bytes_max)
        self.write()
