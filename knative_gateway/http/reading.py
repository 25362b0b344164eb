"""The parser of requests: httptools, with limits, and a refusal of ambiguous requests. Pure.

Within the limits, the result does not depend on how the bytes are cut into pieces. Memory for a request
without an end is bounded. An upgrade is ignored; a body of such a request is read as a body.

Spec: RFC 9112; RFC 9110, 7.8 (upgrades) and 10.1.1 (100-continue).
"""

from typing import Any, Final, Protocol

import httptools
import structlog

from knative_gateway.http.exchange import Exchange, Owner
from knative_gateway.http.responses import Header, is_chunked
from knative_gateway.http.whole import Whole, whole_request

HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of a request line and its headers, and of everything between two parts of a body."""
TARGET_BYTES_MAX: Final = 16 << 10
HEADERS_MAX: Final = 2000
PIECE_BYTES: Final = 16 << 10
"""Bytes that are parsed at once, at most a quarter of HEAD_BYTES_MAX. All requests in a piece are read, and
the smallest request has 18 bytes, so this bounds the requests of one piece.
"""
DROPPED_BYTES_MAX: Final = 512 << 10
"""Bytes of a body that arrive after its request was answered, and are dropped. If there are more, the
connection ends.
"""

_NOTED: Final = frozenset({b"expect", b"transfer-encoding"})

log = structlog.get_logger("knative_gateway")


class RefusedError(Exception):
    """The current request gets this answer, and the connection ends."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status: Final = status


class Taker(Owner, Protocol):
    """The receiver of requests."""

    def head_came(self, exchange: Exchange) -> None:
        """The headers have arrived. Parts of the body go to the exchange and its handler."""

    def request_ended(self, exchange: Exchange) -> None:
        """The request has arrived completely."""


class RequestReader:
    """Reads the requests of one connection.

    `current`: the request whose body is being read. `is_in_head`: headers are being read. `begun`: how many
    requests began. `parts`: how many parts of bodies arrived. `is_ended`: nothing more is read; set after the
    last request of the connection.
    """

    def __init__(self, taker: Taker) -> None:
        self.current: Exchange | None = None
        self.begun = 0
        self.parts = 0
        self.is_in_head = False
        self.is_ended = False
        self._taker: Final = taker
        self._parser: Any = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[Header] = []
        self._noted: dict[bytes, bytes] = {}
        self._is_small = True
        """The headers began in the current piece, so they are within HEAD_BYTES_MAX."""
        self._has_upgrade = False
        self._is_framing = False
        """The parser reads the headers that `_ignore_upgrade` made, not those of a request."""
        self._has_advanced = False
        self._dropped_bytes = 0
        self._quiet_bytes = 0
        """Bytes since the last begin or end of headers, of a body, or of a part of a body."""

    def parse(self, piece: bytes | memoryview) -> None:
        """Read a piece of at most PIECE_BYTES.

        Raises:
            RefusedError: the request is not valid, or exceeds a limit.
        """
        # The usual case, at half the cost: a whole request, between two requests of the parser.
        if type(piece) is bytes and not self.is_in_head and self.current is None and not self._quiet_bytes:
            whole = whole_request(piece)
            if whole is not None:
                self._take_whole(whole)
                return
        self._has_advanced = self._is_small = False
        try:
            self._feed(piece)
        except httptools.HttpParserError as error:
            if self.is_ended:
                return  # bytes after the last request are ignored
            raise _refusal(error) from None
        if self._has_advanced:
            self._quiet_bytes = 0
            return
        self._quiet_bytes += len(piece)
        # httptools has no limit of its own on a head, on the extensions of a chunk or on trailers. Bytes
        # without progress bound all of them with one count.
        if self._quiet_bytes > HEAD_BYTES_MAX and not self.is_ended:
            raise RefusedError(431, f"the headers are larger than {HEAD_BYTES_MAX} bytes")

    def _take_whole(self, whole: Whole) -> None:
        self.begun += 1
        exchange = Exchange(
            self._taker,
            b"POST",
            whole.target,
            whole.headers,
            version="1.1",
            keep_alive=True,
            expects_continue=False,
        )
        exchange.body += whole.body
        exchange.frame = whole.frame
        exchange.is_whole = True
        try:
            self._taker.head_came(exchange)
        except Exception as error:  # noqa: BLE001  the connection answers and logs it
            self.current = exchange  # the refusal belongs to this request
            raise _broken(error) from None

    def close(self) -> None:
        """Free the parser. It refers to this object, and the cycle would delay the release of both."""
        self.end()
        self._parser = None

    def end(self) -> None:
        """Read nothing more, and forget the request that is being read."""
        self.is_ended, self.is_in_head = True, False
        self.current = None
        self._headers = []
        self._quiet_bytes = 0

    @property
    def is_cut_finely(self) -> bool:
        """Whether the next bytes may cost much more than copying them: each header or chunk calls Python."""
        return self.current is None or b"transfer-encoding" in self._noted

    @property
    def held(self) -> int:
        """Bytes of headers that are not complete, and of everything else without progress."""
        return 0 if self.is_ended else self._quiet_bytes

    def _feed(self, piece: bytes | memoryview) -> None:
        while (read := self._read_to_upgrade(piece)) is not None:
            piece = piece[read:]
            self._ignore_upgrade()

    def _read_to_upgrade(self, piece: bytes | memoryview) -> int | None:
        """Return how many bytes were read when a request asked for another protocol; None: all bytes were
        read.

        The caller continues outside of the `except`. Inside of it, Python would replace the context of the
        next error, in which the parser keeps the exception of a callback.
        """
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return int(upgrade.args[0])
        return None

    def _ignore_upgrade(self) -> None:
        """Continue as if the request had not asked for another protocol.

        httptools cannot ignore an upgrade: it reads the body as bytes of the other protocol, or as the next
        request. So a new parser gets made-up headers with the framing of this request, and reads the body.
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
        # The connection compares this number to notice that another request has begun, and restarts its time
        # limit.
        self.begun += 1

    def on_url(self, target: bytes) -> None:
        """The request target, or a part of it."""
        if not self._is_framing:
            self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. After a chunked body it is a trailer, which is dropped."""
        # Trailers could otherwise add headers, for example an Authorization, after the request was checked.
        if not self.is_in_head:
            return
        name = name.lower()
        if name in _NOTED:
            self._noted[name] = value if name not in self._noted else self._noted[name] + b", " + value
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        if self._is_framing:
            self._is_framing = False
            return
        self.is_in_head, self._has_advanced = False, True
        parser, noted, headers = self._parser, self._noted, self._headers
        version = parser.get_http_version()
        self._has_upgrade = parser.should_upgrade()
        # The sizes are summed only for heads that did not arrive in one piece. A piece is smaller than the
        # limit, so all others are within it.
        size = 0
        if not self._is_small or len(self._target) > TARGET_BYTES_MAX or len(headers) > HEADERS_MAX:
            size = self._check_size()
        if version != "1.1" or b"transfer-encoding" in noted or self._has_upgrade:
            _check_framing(parser.get_method(), version, noted.get(b"transfer-encoding"))
        self.current = Exchange(
            self._taker,
            parser.get_method(),
            self._target,
            headers,
            version=version,
            # HTTP/1.0 clients that ask for keep-alive are rare, and the rules for it differ between
            # implementations.
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            expects_continue=bool(noted)
            and version == "1.1"
            and noted.get(b"expect", b"").lower() == b"100-continue",
        )
        self.current.received = size
        self._dropped_bytes = 0
        self._taker.head_came(self.current)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._has_advanced = True
        self.parts += 1
        exchange = self.current
        # A request that is already refused may still send its body. It is parsed, to find its end, and
        # dropped.
        if exchange is None or exchange.is_answered:
            self._dropped_bytes += len(body)
            if self._dropped_bytes > DROPPED_BYTES_MAX:
                raise RefusedError(413, f"more than {DROPPED_BYTES_MAX} bytes came after the answer")
            return
        exchange.body += body
        exchange.received += len(body)
        if exchange.handler is not None and not exchange.collects:
            exchange.handler.received()

    def on_chunk_header(self) -> None:
        """A chunk of the body, or the last chunk, begins."""
        self._has_advanced = True
        self.parts += 1

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._has_upgrade:
            return  # the parser reports such a request as complete after its headers
        self._has_advanced = True
        exchange, self.current = self.current, None
        assert exchange is not None, "the head came before"
        if not exchange.keep_alive:
            self.is_ended = True
        exchange.is_whole = True
        self._taker.request_ended(exchange)

    def _check_size(self) -> int:
        """Return the size of the headers. Raise RefusedError for headers that are too large."""
        if len(self._target) > TARGET_BYTES_MAX:
            raise RefusedError(414, f"the request target is longer than {TARGET_BYTES_MAX} bytes")
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > HEAD_BYTES_MAX:
            raise RefusedError(431, f"the headers are larger than {HEAD_BYTES_MAX} bytes")
        if len(self._headers) > HEADERS_MAX:
            raise RefusedError(431, f"there are more than {HEADERS_MAX} headers")
        return size


def _check_framing(method: bytes, version: str, coding: bytes | None) -> None:
    """Raise RefusedError for requests that another parser could read in another way (RFC 9112, 2.3
    and 6.1).
    """
    if version not in {"1.0", "1.1"}:
        raise RefusedError(505, "the version must be HTTP/1.1 or HTTP/1.0")
    if method == b"CONNECT":
        raise RefusedError(501, "CONNECT is not supported")
    if coding is not None and version == "1.0":
        # A proxy of HTTP/1.0 would not know where the body ends, and would read its bytes as the next
        # request.
        raise RefusedError(400, "HTTP/1.0 has no Transfer-Encoding")
    if coding is not None and not is_chunked(coding):
        raise RefusedError(501, "the only Transfer-Encoding supported is chunked")


def _refusal(error: httptools.HttpParserError) -> RefusedError:
    """Return the answer to an error of the parser. The parser stores the exception of a callback as its
    context.
    """
    cause = error.__context__
    if isinstance(cause, RefusedError):
        return cause
    if isinstance(error, httptools.HttpParserCallbackError):
        return _broken(cause or error)
    return RefusedError(400, f"not a valid HTTP/1.1 request: {error}")


def _broken(error: BaseException) -> RefusedError:
    log.error("request_broke", exc_info=error)
    return RefusedError(500, "internal error of the gateway: see its log")
