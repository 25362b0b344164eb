"""A POST that arrived as one block of bytes, read without the parser, which calls Python for each header.
Pure.

Law: the result is what the parser (`reading.py`) makes of the same bytes. For bytes that are not exactly one
plain request the result is None, and the parser reads them.

Most headers repeat from request to request, so valid header lines are remembered. If all of them repeat
except the id of the event, the others are remembered together, as a frame.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from event_formats.memory import Memory
from knative_gateway.http.responses import Header

HEAD_BYTES_MAX: Final = 4 << 10
"""Bytes of the request line and the headers. The parser reads longer ones."""

_TARGET: Final = re.compile(rb"POST (/[A-Za-z0-9/._~-]*) HTTP/1\.1")
# A subset of the names and values of RFC 9110, 5: without empty values and spaces around values.
_LINE: Final = re.compile(rb"([A-Za-z0-9-]+): ([!-~](?:[ -~]*[!-~])?)")
_VALUE: Final = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
_ID: Final = b"ce-id"
_ID_FRONTS: Final = (b"\r\nce-id: ", b"\r\nCe-Id: ")
_ID_FRONT_BYTES: Final = len(_ID_FRONTS[0])
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


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Requests whose heads differ only in the value of `ce-id`. `place`: of this header among the headers."""

    target: bytes
    headers: list[Header]
    place: int
    length: int


class Whole(NamedTuple):
    """A request. Names of headers are in lower case."""

    target: bytes
    headers: list[Header]
    body: bytes
    frame: Frame | None


_targets: Final[Memory[bytes, bytes]] = Memory(4096, 256)
_headers: Final[Memory[bytes, Header]] = Memory(4096, 256)
_frames: Final[Memory[tuple[bytes, bytes], Frame]] = Memory(1024, 1024, lambda key: len(key[0]) + len(key[1]))


def whole_request(data: bytes) -> Whole | None:
    """Return a POST; None: the parser must read it."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        return None
    at = data.find(_ID_FRONTS[0], 0, end)
    if at < 0:
        at = data.find(_ID_FRONTS[1], 0, end)
    if at < 0:
        return _read(data, end, None)
    at += _ID_FRONT_BYTES
    after = data.find(b"\r\n", at, end)
    if after < 0:
        after = end
    key = data[:at], data[after:end]
    frame = _frames.get(key)
    if frame is None:
        return _read(data, end, key)
    value, body = data[at:after], data[end + 4 :]
    if len(body) != frame.length or not _VALUE.fullmatch(value):
        return None
    headers = frame.headers.copy()
    headers[frame.place] = (_ID, value)
    return Whole(frame.target, headers, body, frame)


def _read(data: bytes, end: int, key: tuple[bytes, bytes] | None) -> Whole | None:
    """Read a request line by line. `end`: of its headers. `key`: the bytes around the value of `ce-id`."""
    lines = data[:end].split(b"\r\n")
    target = _targets.get(lines[0]) or _target_of(lines[0])
    if target is None:
        return None
    del lines[0]
    headers: list[Header] = []
    length = -1
    remembered = _headers.get
    changing = []
    for line in lines:
        header = remembered(line)
        if header is None:
            header = _header_of(line)
            if header is None:
                return None
            changing.append(len(headers))
        if header[0] == _LENGTH:
            if length >= 0:
                return None
            length = int(header[1])
        headers.append(header)
    body = data[end + 4 :]
    if len(body) != length:
        return None
    # Only now all other lines are remembered, so they were valid before.
    if key is not None and len(changing) == 1 and headers[changing[0]][0] == _ID:
        _frames.keep(key, Frame(target, headers.copy(), changing[0], length))
    return Whole(target, headers, body, None)


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
