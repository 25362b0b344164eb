"""Bytes become requests. httptools parses them; this module enforces limits and refuses ambiguous requests.

Pure.

Laws: within the limits, bytes one by one mean the same as all at once. Memory for a request without an end is
bounded. An upgrade is ignored, and a body that comes with it is a body. Spec: RFC 9112; RFC 9110, 7.8
(upgrades) and 10.1.1 (100-continue).
"""

from typing import Any, Final, Protocol

import httptools
import structlog

from knative_gateway.http.exchange import Exchange, Owner
from knative_gateway.http.responses import Header, is_chunked

HEAD_BYTES_MAX: Final = 64 << 10
"""Of a request line and its headers; also of what may come between two parts of a body."""
TARGET_BYTES_MAX: Final = 16 << 10
HEADERS_MAX: Final = 2000
PIECE_BYTES: Final = 16 << 10
"""Parsed at once: all requests in it are read, and the smallest have 18 bytes.

At most a quarter of HEAD_BYTES_MAX.
"""

_NOTED: Final = frozenset({b"expect", b"transfer-encoding"})

log = structlog.get_logger("knative_gateway")


class RefusedError(Exception):
    """The request in hand gets this answer, and the connection ends."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status: Final = status


class Taker(Owner, Protocol):
    """The receiver of the requests."""

    def head_came(self, exchange: Exchange) -> None:
        """The head has arrived. Parts of the body go to the exchange and its handler."""

    def request_ended(self, exchange: Exchange) -> None:
        """The request has arrived completely."""


class RequestReader:
    """Reads one connection. `current`: the request whose body is coming; `is_in_head`: a head is coming;
    `begun`: how many requests began.

    After the request that is the last, and when `is_ended` is set, nothing more is read.
    """

    def __init__(self, taker: Taker) -> None:
        self.current: Exchange | None = None
        self.begun = 0
        self.is_in_head = False
        self.is_ended = False
        self._taker: Final = taker
        self._parser: Any = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[Header] = []
        self._noted: dict[bytes, bytes] = {}
        self._is_small = True
        """The head began in the piece that is being parsed, so it is within HEAD_BYTES_MAX."""
        self._has_upgrade = False
        self._is_framing = False
        """The parser is being told of a body, not of a request: see `_ignore_upgrade`."""
        self._has_advanced = False
        self._quiet_bytes = 0
        """Since a head, a body or a part of one began or was complete."""

    def parse(self, piece: bytes | memoryview) -> None:
        """Read a piece of at most PIECE_BYTES.

        Raises:
            RefusedError: what was being read is not a valid request, or too much.
        """
        self._has_advanced = self._is_small = False
        try:
            self._feed(piece)
        except httptools.HttpParserError as error:
            if self.is_ended:
                return  # nothing may follow the last request, and nothing does
            raise _refusal(error) from None
        if self._has_advanced:
            self._quiet_bytes = 0
            return
        self._quiet_bytes += len(piece)
        if self._quiet_bytes > HEAD_BYTES_MAX and not self.is_ended:
            raise RefusedError(431, f"the headers are larger than {HEAD_BYTES_MAX} bytes")

    def close(self) -> None:
        """Free the parser, which refers to this object."""
        self.is_ended = True
        self._parser = None

    def _feed(self, piece: bytes | memoryview) -> None:
        while (read := self._read_to_upgrade(piece)) is not None:
            piece = piece[read:]
            self._ignore_upgrade()

    def _read_to_upgrade(self, piece: bytes | memoryview) -> int | None:
        """How many bytes were read when a head asked for another protocol; None: all bytes were read.

        The caller reads on outside the `except`: inside it, Python would replace the context of the next
        error, in which the parser keeps what a callback raised.
        """
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return int(upgrade.args[0])
        return None

    def _ignore_upgrade(self) -> None:
        """Read on as if the head had not asked for another protocol: a new parser is told of the body only.

        httptools cannot be told to ignore an upgrade; it takes the body for bytes of the other protocol, or
        for the next request.
        """
        length = next((value for name, value in self._headers if name == b"content-length"), b"0")
        framing = (
            b"transfer-encoding: chunked"
            if b"transfer-encoding" in self._noted
            else b"content-length: " + length
        )
        self._has_upgrade, self._is_framing = False, True
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # The parser calls these.

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._is_framing:
            return
        if self.is_ended:
            raise RefusedError(400, "nothing may follow the last request")
        self._target = b""
        self._headers = []
        self._noted = {}
        self.is_in_head = self._is_small = self._has_advanced = True
        self.begun += 1

    def on_url(self, target: bytes) -> None:
        """The request's target, or a part of it."""
        if not self._is_framing:
            self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after a chunked body a trailer, which is dropped."""
        if not self.is_in_head:
            return
        name = name.lower()
        if name in _NOTED:
            self._noted[name] = value if name not in self._noted else self._noted[name] + b", " + value
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is here."""
        if self._is_framing:
            self._is_framing = False
            return
        self.is_in_head, self._has_advanced = False, True
        parser, noted, headers = self._parser, self._noted, self._headers
        version = parser.get_http_version()
        self._has_upgrade = parser.should_upgrade()
        if not self._is_small or len(self._target) > TARGET_BYTES_MAX or len(headers) > HEADERS_MAX:
            self._check_size()
        if version != "1.1" or b"transfer-encoding" in noted or self._has_upgrade:
            _check_framing(parser.get_method(), version, noted.get(b"transfer-encoding"))
        self.current = Exchange(
            self._taker,
            parser.get_method(),
            self._target,
            headers,
            version=version,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            expects_continue=bool(noted)
            and version == "1.1"
            and noted.get(b"expect", b"").lower() == b"100-continue",
        )
        self._taker.head_came(self.current)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._has_advanced = True
        exchange = self.current
        if exchange is None or exchange.is_answered:
            return
        exchange.body += body
        if exchange.handler is not None and not exchange.collects:
            exchange.handler.received()

    def on_chunk_header(self) -> None:
        """A part of a chunked body, or its end, begins."""
        self._has_advanced = True

    def on_message_complete(self) -> None:
        """All of the request is here."""
        if self._has_upgrade:
            return  # the parser takes it for complete at its head
        self._has_advanced = True
        exchange, self.current = self.current, None
        assert exchange is not None, "the head came before"
        if not exchange.keep_alive:
            self.is_ended = True
        exchange.is_whole = True
        self._taker.request_ended(exchange)

    def _check_size(self) -> None:
        """Raises RefusedError for a head that is too large."""
        if len(self._target) > TARGET_BYTES_MAX:
            raise RefusedError(414, f"the request target is longer than {TARGET_BYTES_MAX} bytes")
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > HEAD_BYTES_MAX:
            raise RefusedError(431, f"the headers are larger than {HEAD_BYTES_MAX} bytes")
        if len(self._headers) > HEADERS_MAX:
            raise RefusedError(431, f"there are more than {HEADERS_MAX} headers")


def _check_framing(method: bytes, version: str, coding: bytes | None) -> None:
    """Raises RefusedError for requests that others could read otherwise. Spec: RFC 9112, 2.3 and 6.1."""
    if version not in {"1.0", "1.1"}:
        raise RefusedError(505, "the version must be HTTP/1.1 or HTTP/1.0")
    if method == b"CONNECT":
        raise RefusedError(501, "CONNECT is not supported")
    if coding is not None and version == "1.0":
        raise RefusedError(400, "HTTP/1.0 has no Transfer-Encoding")
    if coding is not None and not is_chunked(coding):
        raise RefusedError(501, "the only Transfer-Encoding supported is chunked")


def _refusal(error: httptools.HttpParserError) -> RefusedError:
    """The answer to what stopped the parser; it keeps what a callback raised as the context of its own error."""
    cause = error.__context__
    if isinstance(cause, RefusedError):
        return cause
    if isinstance(error, httptools.HttpParserCallbackError):
        log.error("request_broke", exc_info=cause or error)
        return RefusedError(500, "internal error of the gateway: see its log")
    return RefusedError(400, f"not a valid HTTP/1.1 request: {error}")
