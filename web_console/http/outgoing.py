"""[io] A request over HTTP/1.1 to one server: each has a connection, and an answer of bounded size.

Laws: redirects are not followed. The caller bounds the time. Nothing is sent to a proxy.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import h11

_HEAD_BYTES_MAX: Final = 64 << 10
_READ_BYTES: Final = 64 << 10

FAILURES: Final = (TimeoutError, OSError, h11.RemoteProtocolError)
"""What `exchange` raises if the server does not answer, or not in HTTP."""


class TooLargeError(Exception):
    """The answer has more bytes than it may have."""


async def exchange(
    where: tuple[str, int, ssl.SSLContext | None], request: h11.Request, body: bytes, *, bytes_max: int
) -> tuple[int, bytes]:
    """Send a request to host and port, with TLS or without, and return the status and the body of the answer.

    Raises:
        TooLargeError: the body has more than `bytes_max` bytes.
        Exception: one of `FAILURES`.
    """
    host, port, tls = where
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        sent = [protocol.send(request), protocol.send(h11.Data(data=body)) if body else b""]
        writer.write(b"".join(part or b"" for part in [*sent, protocol.send(h11.EndOfMessage())]))
        await writer.drain()
        return await _answer(protocol, reader, bytes_max)
    finally:
        # Not awaited: a peer that does not read must not hold the page.
        writer.close()


async def _answer(
    protocol: h11.Connection, reader: asyncio.StreamReader, bytes_max: int
) -> tuple[int, bytes]:
    code, raw = 0, bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            code = event.status_code
        elif isinstance(event, h11.Data):
            raw += event.data
            if len(raw) > bytes_max:
                raise TooLargeError
        elif isinstance(event, h11.EndOfMessage):
            return code, bytes(raw)
        elif isinstance(event, h11.ConnectionClosed):
            message = "the connection ended"
            raise ConnectionResetError(message)


def tls_of(ca_file: Path | None) -> ssl.SSLContext:
    """Return how certificates of a server are checked. None: by the authorities of the system.

    Raises:
        ValueError: the file is not valid.
    """
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except OSError as error:
        message = f"{ca_file} cannot be read: {error.strerror or error}"
        raise ValueError(message) from error
