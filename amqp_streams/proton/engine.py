"""Qpid Proton's engine, seen through one module: the control plane of a connection.

Everything here and in `transfers.py` calls `cproton_ffi.lib`, the functions under Proton's public binding, and so depends on one exact
release (`require_engine`). Pointers (`Pointer`) are borrowed: a link's dies when the link is freed, everything dies with `Engine.free`.
Why not the public wrappers: docs/decisions/0002-engine-pointers.md.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.errors import AmqpStreamsError, PeerError, WireError
from amqp_streams.proton.incoming import Incoming
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.frames import attach_handle, read_frames
from amqp_streams.wire.outgoing_formats import FormatWriter
from amqp_streams.wire.types import Array, Symbol

Pointer = Any
NULL: Final = ffi.NULL
ENGINE_VERSION: Final = "0.40.0"
_OUTPUT_BYTES_MAX: Final = 256 << 10
_OUTPUT: Final = ffi.new("char[]", _OUTPUT_BYTES_MAX)
_OUTPUT_VIEW: Final = ffi.buffer(_OUTPUT)
_DATA_BYTES_MAX: Final = 1 << 20
_ACTIVE: Final = lib.PN_LOCAL_ACTIVE | lib.PN_REMOTE_ACTIVE


def require_engine() -> None:
    """Refuse to run on a release of Proton whose inner functions were never tried.

    Raises:
        AmqpStreamsError: another release is installed.
    """
    found = version("python-qpid-proton")
    if found != ENGINE_VERSION:
        message = f"needs python-qpid-proton {ENGINE_VERSION}, found {found}: pip install python-qpid-proton=={ENGINE_VERSION}"
        raise AmqpStreamsError(message)


def text(pointer: Pointer) -> str | None:
    """A C string of the peer's. Bytes that are not UTF-8 are replaced: they only go to people and look-ups."""
    return None if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def data_size(data: Pointer) -> int:
    """Encoded size of a `pn_data_t` in bytes; 0 when it is absent or empty."""
    return 0 if data == NULL else lib.pn_data_encoded_size(data)


def read_data(data: Pointer) -> object:
    """The value in a `pn_data_t`, decoded by our own codec; None when it is empty.

    Raises:
        PeerError: it is larger than anything sensible, or nested too deeply.
    """
    size = data_size(data)
    if size <= 0:
        return None
    if size > _DATA_BYTES_MAX:
        raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"a map of {size} bytes in a performative; at most {_DATA_BYTES_MAX}")
    buffer = ffi.new("char[]", size)
    lib.pn_data_encode(data, buffer, size)
    try:
        return decode(bytes(ffi.buffer(buffer)))[0]
    except WireError as error:
        raise PeerError(names.DECODE_ERROR, str(error)) from error


def write_data(data: Pointer, value: object) -> None:
    """Put one value into a `pn_data_t`, replacing what is there."""
    encoded = encode(value)
    lib.pn_data_clear(data)
    taken = lib.pn_data_decode(data, encoded, len(encoded))
    assert taken == len(encoded), f"the engine did not take {value!r}"


def set_condition(condition: Pointer, error: PeerError) -> None:
    """Fill in why an endpoint closes."""
    lib.pn_condition_set_name(condition, error.condition.encode())
    lib.pn_condition_set_description(condition, error.description.encode())
    if error.info:
        write_data(lib.pn_condition_info(condition), {Symbol(key): value for key, value in error.info.items()})


def condition_text(condition: Pointer) -> str:
    """A peer's error condition for a log line; empty when it set none."""
    if not lib.pn_condition_is_set(condition):
        return ""
    return f"{text(lib.pn_condition_get_name(condition))}: {text(lib.pn_condition_get_description(condition)) or ''}"


class Engine:
    """One AMQP connection, server side: bytes in, events, bytes out. No I/O."""

    __slots__ = ("_formats", "_held", "_incoming", "collector", "connection", "freed", "transport")

    def __init__(self, *, frame_bytes_max: int, channels_max: int, idle_timeout_ms: int) -> None:
        self.connection: Pointer = lib.pn_connection()
        self.transport: Pointer = lib.pn_transport()
        self.collector: Pointer = lib.pn_collector()
        self.freed = False
        self._held: list[bytes] = []
        """Output that was taken out of the engine to look at it, and that `pull` returns first."""
        self._formats: FormatWriter | None = None
        lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, frame_bytes_max)
        lib.pn_transport_set_channel_max(self.transport, channels_max - 1)
        lib.pn_transport_set_idle_timeout(self.transport, idle_timeout_ms)
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)
        self._incoming = Incoming(self.transport)

    def push(self, data: memoryview | bytes) -> bool:
        """Give the engine what the peer sent. False when it takes no more: the connection is over."""
        start, size, push = ffi.from_buffer("char[]", data), len(data), self._incoming.push
        at = 0
        while at < size:  # the engine takes what its buffer of a few KiB holds, and digests it
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
        """The next bytes to send. Empty when there is nothing (see `finished`)."""
        if self._held:
            held, self._held = self._held, []
            return b"".join(held)
        return self._output()

    @property
    def held(self) -> int:
        """Bytes that `pull` returns and that the engine no longer counts in its sessions."""
        return sum(map(len, self._held))

    def write_formats(self) -> None:
        """From here on deliveries may have a message-format that is not 0: see `transfers.send_one`."""
        if self._formats is None:
            self._held += iter(self._output, b"")  # up to the end of a frame
            self._formats = FormatWriter()

    def _output(self) -> bytes:
        """What the engine has to send now, about 256 KiB at most. It may end within a frame while there is more."""
        block = self._written()
        if self._formats is None:
            return block
        while block and not (ready := self._formats.feed(block)):
            block = self._written()
        return ready if block else b""

    def _written(self) -> bytes:
        """The same as Proton wrote it."""
        transport = self.transport
        pending = lib.pn_transport_pending(transport)
        if pending <= 0:
            return b""
        while pending < _OUTPUT_BYTES_MAX:  # each call fills the engine's buffer, and one that is full grows
            more = lib.pn_transport_pending(transport)
            if more == pending:
                break
            pending = more
        size = min(pending, _OUTPUT_BYTES_MAX)
        lib.pn_transport_peek(transport, _OUTPUT, size)
        lib.pn_transport_pop(transport, size)
        return _OUTPUT_VIEW[0:size]  # type: ignore[no-any-return]  # cffi

    @property
    def frames(self) -> int:
        """Frames that came in so far."""
        return lib.pn_transport_get_frames_input(self.transport)  # type: ignore[no-any-return]  # cffi

    @property
    def finished(self) -> bool:
        """Nothing more will be sent: the socket may be closed."""
        return lib.pn_transport_pending(self.transport) < 0  # type: ignore[no-any-return]  # cffi

    def end_of_input(self) -> None:
        """The peer closed its side."""
        lib.pn_transport_close_tail(self.transport)

    def tick(self, now_ms: int) -> int:
        """Let the engine send heartbeats and notice a silent peer; when to call again (0: no need). On a monotonic clock, ms."""
        return lib.pn_transport_tick(self.transport, now_ms)  # type: ignore[no-any-return]  # cffi

    def open(self, *, container_id: str, offered: list[str], properties: Mapping[str, object]) -> None:
        """Answer the peer's open."""
        connection = self.connection
        lib.pn_connection_set_container(connection, container_id.encode())
        write_data(lib.pn_connection_offered_capabilities(connection), Array(Symbol, tuple(map(Symbol, offered))))
        write_data(lib.pn_connection_properties(connection), {Symbol(key): value for key, value in properties.items()})
        lib.pn_connection_open(connection)
        lib.pn_transport_pending(self.transport)  # the open is written, with the silence that is tolerated
        lib.pn_transport_set_idle_timeout(self.transport, 0)  # and who minds it from here on knows when nothing was read

    def open_link(self, link: Pointer) -> int | None:
        """Answer a peer's attach; the handle that the engine gave the link. None: it wrote no attach.

        All earlier output is taken out before, because the engine's buffer may end within a frame.
        """
        self._held += iter(self._output, b"")
        lib.pn_link_open(link)
        answer = b"".join(iter(self._output, b""))
        self._held += [answer] if answer else []
        handles = map(attach_handle, (written.body for written in read_frames(answer)))
        return next((handle for handle in handles if handle is not None), None)

    def ask_session_flow(self, session: Pointer) -> None:
        """Have the engine write a flow of this session: the one call that does it without changing anything."""
        lib.pn_session_set_incoming_capacity(session, lib.pn_session_get_incoming_capacity(session))

    def sessions(self) -> Iterator[Pointer]:
        """Those that are open on both sides."""
        session = lib.pn_session_head(self.connection, _ACTIVE)
        while session != NULL:
            yield session
            session = lib.pn_session_next(session, _ACTIVE)

    def close(self, error: PeerError | None = None) -> None:
        """Close the connection, saying why."""
        if error is not None:
            set_condition(lib.pn_connection_condition(self.connection), error)
        lib.pn_connection_close(self.connection)

    def free(self) -> None:
        """Give all memory back. Every pointer of this connection is dead from here on."""
        if self.freed:
            return
        self.freed = True
        lib.pn_transport_unbind(self.transport)
        lib.pn_decref(self.transport)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_collector_release(self.collector)
        lib.pn_collector_free(self.collector)


def refuse_link(link: Pointer, error: PeerError | None) -> None:
    """Answer an attach with a null terminus and then a closing detach that says why (AMQP 2.6.3); None: its peer left first."""
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close_link(link, error)


def close_link(link: Pointer, error: PeerError | None = None) -> None:
    """Detach for good; the pointer stays valid until the peer's detach is answered."""
    if error is not None:
        set_condition(lib.pn_link_condition(link), error)
    lib.pn_link_close(link)
