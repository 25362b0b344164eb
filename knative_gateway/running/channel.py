"""[io] Messages between a gateway's parent process and its workers, over a pair of sockets.

A frame: the length of header and payload in 4 bytes, the length of the header in 2 bytes, the header (JSON:
the kind of the message, and its fields), the payload. Both ends are processes of one gateway, of one version.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

_LENGTHS: Final = struct.Struct("!IH")
FRAME_MAX: Final = 256 << 20
"""The largest frame: the metrics of tens of thousands of objects."""
UNSENT_MAX: Final = 64 << 10
"""`offer` drops a message if this many bytes wait for the other process."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `fields` are JSON values."""

    kind: str
    fields: Mapping[str, Any]
    payload: bytes = b""


class Channel:
    """One end of the pair, on a running event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: Final = reader
        self._writer: Final = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Use a connected socket."""
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a message. Does nothing after the other end was closed."""
        if not self._writer.is_closing():
            self._writer.write(framed(Message(kind, fields, payload)))

    def offer(self, kind: str, **fields: Any) -> None:
        """Send a message that may be lost: it is dropped while the other process does not read."""
        if self._writer.transport.get_write_buffer_size() < UNSENT_MAX:
            self.send(kind, **fields)

    async def receive(self) -> Message | None:
        """Return the next message; None after the other end was closed."""
        try:
            length, header = _LENGTHS.unpack(await self._reader.readexactly(_LENGTHS.size))
            assert header <= length <= FRAME_MAX
            return _message(await self._reader.readexactly(length), header)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def framed(message: Message) -> bytes:
    """Return the frame of a message."""
    header = json.dumps([message.kind, message.fields], separators=(",", ":")).encode()
    return _LENGTHS.pack(len(header) + len(message.payload), len(header)) + header + message.payload


def received(end: socket.socket) -> Message:
    """Return the first message, before an event loop runs.

    Raises:
        EOFError: the other end was closed.
    """
    length, header = _LENGTHS.unpack(_exactly(end, _LENGTHS.size))
    return _message(_exactly(end, length), header)


def _message(body: bytes, header: int) -> Message:
    kind, fields = json.loads(body[:header])
    return Message(kind, fields, body[header:])


def _exactly(end: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = end.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found
