"""The bytes of one connection, into Proton and out of it, with the message-formats that Proton drops and does not write (AMQP 2.7.5)."""

from collections.abc import Sequence
from typing import Any, Final

from cproton_ffi import ffi, lib

from amqp_streams.proton.incoming import Incoming
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.outgoing_formats import FORMAT_BYTES, TAG_BYTES, FormatWriter

_PEEK_BYTES: Final = 64 << 10


class Octets:
    """Bytes of the connection of a transport, without the security layer. `finder`: the message-formats that came."""

    __slots__ = ("_buffer", "_held", "_incoming", "_transport", "_view", "_writer", "finder")

    def __init__(self, transport: Any) -> None:
        self._transport: Final = transport
        self._incoming: Final = Incoming(transport)
        self._buffer: Final[Any] = ffi.new("char[]", _PEEK_BYTES)
        self._view: Final[Any] = ffi.buffer(self._buffer)
        self._writer: FormatWriter | None = None
        self._held = b""
        self.finder: Final = FormatFinder()

    def push(self, block: memoryview) -> int:
        """Give Proton the first of these bytes; how many that were. 0: it takes no more."""
        pushed = self._incoming.push(ffi.from_buffer("char[]", block), len(block))
        self.finder.feed(block[:pushed], self._incoming.incomplete)
        return pushed

    def take(self) -> bytes:
        """The bytes to send now."""
        transport, pieces = self._transport, [self._held]
        self._held = b""
        while (pending := lib.pn_transport_pending(transport)) > 0:
            size = lib.pn_transport_peek(transport, self._buffer, min(pending, _PEEK_BYTES))
            if size <= 0:
                break
            piece = self._view[:size]
            pieces.append(piece if self._writer is None else self._writer.feed(piece))
            lib.pn_transport_pop(transport, size)
        return b"".join(pieces)

    def write_formats(self) -> None:
        """From here on deliveries may have a message-format that is not 0: see `SenderLink.send`."""
        if self._writer is None:
            self._held = self.take()  # up to the end of a frame
            self._writer = FormatWriter()


class LongTag:
    """Delivery tags that hold a message-format for `FormatWriter`, one at a time."""

    __slots__ = ("_bytes", "_pointer", "_start")

    def __init__(self) -> None:
        self._bytes: Final = bytearray(TAG_BYTES + FORMAT_BYTES)
        self._start: Final[Any] = ffi.from_buffer("char[]", self._bytes)
        self._pointer: Final[Any] = ffi.new("pn_bytes_t *", {"size": len(self._bytes), "start": self._start})

    def of(self, number: int, message_format: int) -> Any:
        """The tag of delivery `number`."""
        self._bytes[:] = number.to_bytes(TAG_BYTES) + message_format.to_bytes(FORMAT_BYTES)
        return self._pointer[0]


class LinkFormats:
    """The message-formats of what a link brings. Made while its peer's attach is in the block that `finder` looks at."""

    __slots__ = ("_endpoint", "_finder")

    def __init__(self, finder: FormatFinder, name: str) -> None:
        self._finder: Final = finder
        self._endpoint: Final = finder.find_link(name)

    def pop(self, deliveries: Sequence[Any]) -> Sequence[int]:
        """Those of deliveries that are not settled, asked once for each; empty: they are all 0."""
        if not self._finder.waiting:
            return ()
        tags = [lib.pn_delivery_tag(delivery) for delivery in deliveries]
        return self._finder.pop(self._endpoint, [bytes(ffi.buffer(tag.start, tag.size)) for tag in tags])

    def forget(self) -> None:
        """The link is gone."""
        self._finder.forget(self._endpoint)
