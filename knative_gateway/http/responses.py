"""The bytes of responses. Pure. Spec: RFC 9112, 4 to 6."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

Header = tuple[bytes, bytes]

CLOSE: Final[Header] = (b"connection", b"close")
RETRY_LATER: Final[Header] = (b"retry-after", b"1")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_NOT_IN_NAMES: Final = re.compile(rb'[\x00-\x20\x7f-\xff()<>@,;:\[\]={}\\"]')
_NOT_IN_VALUES: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode() for status in range(100, 600)
}


def head(status: int, headers: Iterable[Header]) -> bytes:
    """Return the status line and the headers, up to the body."""
    pieces = [_STATUS_LINES[status]]
    for name, value in headers:
        pieces += (name, b": ", value, b"\r\n")
    pieces.append(b"\r\n")
    return b"".join(pieces)


def text(status: int, words: str, headers: Iterable[Header]) -> bytes:
    """Return a whole response with one line of text and `connection: close`."""
    body = f"{words}\n".encode()
    own = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        CLOSE,
    )
    return head(status, (*headers, *own)) + body


def check_header(name: bytes, value: bytes) -> None:
    """Raise ValueError if the header could end early, or add another header."""
    if not name or _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
        message = f"not a valid response header: {name[:80]!r}"
        raise ValueError(message)


def is_chunked(value: bytes) -> bool:
    """Return whether a Transfer-Encoding is exactly `chunked`, the only one that every recipient must
    support.
    """
    return value.strip().lower() == b"chunked"
