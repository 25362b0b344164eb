"""A POST that arrived as one block of bytes, read without the parser, which calls Python for each header.
Pure.

Law: the result is what the parser (`reading.py`) makes of the same bytes. For bytes that are not exactly one
plain request the result is None, and the parser reads them.

Most headers repeat from request to request, so valid header lines are remembered.
"""

import re
from typing import Final

from event_formats.memory import Memory
from knative_gateway.http.responses import Header

HEAD_BYTES_MAX: Final = 4 << 10
"""Bytes of the request line and the headers. The parser reads longer ones."""

_TARGET: Final = re.compile(rb"POST (/[A-Za-z0-9/._~-]*) HTTP/1\.1")
# A subset of the names and values of RFC 9110, 5: without empty values and spaces around values.
_LINE: Final = re.compile(rb"([A-Za-z0-9-]+): ([!-~](?:[ -~]*[!-~])?)")
_KEEP_ALIVE: Final = (b"connection", b"keep-alive")
_LENGTH: Final = b"content-length"
_LENGTH_DIGITS: Final = 15
_FRAMING: Final = frozenset(
    {b"connection", b"expect", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Headers that change how a request or its connection is read. The parser decides about them."""
_CHANGING: Final = frozenset({b"ce-id", b"ce-time", b"ce-subject", b"traceparent"})
"""Headers that nearly every request has with another value. To remember their lines would evict the others.
"""

_targets: Final[Memory[bytes, bytes]] = Memory(4096, 256)
_headers: Final[Memory[bytes, Header]] = Memory(4096, 256)


def whole_request(data: bytes) -> tuple[bytes, list[Header], bytes] | None:
    """Return target, headers (names in lower case) and body of a POST; None: the parser must read it."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        return None
    lines = data[:end].split(b"\r\n")
    target = _targets.get(lines[0]) or _target_of(lines[0])
    if target is None:
        return None
    del lines[0]
    headers: list[Header] = []
    length = -1
    remembered = _headers.get
    for line in lines:
        header = remembered(line) or _header_of(line)
        if header is None:
            return None
        if header[0] == _LENGTH:
            if length >= 0:
                return None
            length = int(header[1])
        headers.append(header)
    body = data[end + 4 :]
    return (target, headers, body) if len(body) == length else None


def _target_of(line: bytes) -> bytes | None:
    found = _TARGET.fullmatch(line)
    return None if found is None else _targets.keep(line, found[1])


def _header_of(line: bytes) -> Header | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    header = (found[1].lower(), found[2])
    name, value = header
    if name in _CHANGING:
        return header
    if name in _FRAMING and header != _KEEP_ALIVE:
        return None
    # `int` of a long text is slow, and the text comes from a peer.
    if name == _LENGTH and not (value.isdigit() and len(value) <= _LENGTH_DIGITS):
        return None
    return _headers.keep(line, header)
