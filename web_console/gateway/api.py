"""[io] The API of a gateway over HTTP/1.1: each request has a connection, each answer is a JSON object.

Laws: an answer has at most `ANSWER_BYTES_MAX` bytes and takes at most `ANSWER_S_MAX` seconds. The token is
sent to the server of the settings only: redirects are not followed.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import h11

from amqp_streams import __version__
from service_parts.networks import is_this_machine

ANSWER_BYTES_MAX: Final = 32 << 20
ANSWER_S_MAX: Final = 15.0
_HEAD_BYTES_MAX: Final = 64 << 10
_READ_BYTES: Final = 64 << 10
_WORDS_MAX: Final = 500
_JSON: Final = "application/json"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"

Document = Mapping[str, Any]


class ApiError(Exception):
    """The gateway refused a request, or gave an answer that is not valid. `code`: the HTTP status."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code: Final = code


class AwayError(Exception):
    """The gateway does not answer."""


def status_of(error: ApiError) -> int:
    """Return the status of the answer to a request that failed with this error."""
    return error.code if 400 <= error.code < 600 else 502


@dataclass(frozen=True, slots=True)
class Server:
    """Where the API of a gateway is. `path`: before all paths, without a slash at the end."""

    host: str
    port: int
    path: str
    is_tls: bool

    @property
    def is_local(self) -> bool:
        """Whether nothing that is sent there leaves this machine."""
        return is_this_machine(self.host)

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def server_of(url: str) -> Server:
    """Return the server of a URL.

    Raises:
        ValueError: the URL is not valid, or has a user or a query.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        message = f"{url[:200]!r} is not an http:// or https:// URL without a user"
        raise ValueError(message)
    if parts.query or parts.fragment or not (url.isascii() and url.isprintable()) or " " in url:
        message = f"{url[:200]!r} is not a URL with only host, port and path"
        raise ValueError(message)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Server(parts.hostname, port, parts.path.rstrip("/"), parts.scheme == "https")


class Api:
    """The API as one person uses it."""

    def __init__(self, server: Server, ca_file: Path | None, token: str | None) -> None:
        """Create a client.

        Raises:
            ValueError: the token has other characters than those of a header, or the file is not valid.
        """
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            message = "This is not a bearer token: it has other characters than letters, digits and signs."
            raise ValueError(message)
        self._server: Final = server
        self._token: Final = token
        self._tls: Final = _tls(ca_file) if server.is_tls else None

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, as_table: bool = False
    ) -> Document:
        """Return a document.

        Raises:
            ApiError: the gateway refuses the request.
            AwayError: the gateway does not answer.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        return await self._ask("GET", target, None, _TABLE if as_table else _JSON)

    async def post(self, path: str, document: Document) -> Document:
        """Send a document, and return the answer.

        Raises:
            ApiError: the gateway refuses the request.
            AwayError: the gateway does not answer.
        """
        return await self._ask("POST", path, json.dumps(document).encode(), _JSON)

    async def _ask(self, method: str, target: str, body: bytes | None, accept: str) -> Document:
        head = [
            ("Host", self._server.authority),
            ("User-Agent", f"amqp-event-streams-console/{__version__}"),
            ("Accept", accept),
            ("Connection", "close"),
            *([("Authorization", f"Bearer {self._token}")] if self._token else []),
            *([("Content-Type", _JSON), ("Content-Length", str(len(body)))] if body is not None else []),
        ]
        request = h11.Request(method=method, target=self._server.path + target, headers=head)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                code, raw = await self._exchange(request, body or b"")
        except (TimeoutError, OSError, h11.RemoteProtocolError) as error:
            raise AwayError(_why(error)) from error
        return _document(code, raw)

    async def _exchange(self, request: h11.Request, body: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(self._server.host, self._server.port, ssl=self._tls)
        try:
            protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
            sent = [protocol.send(request), protocol.send(h11.Data(data=body)) if body else b""]
            writer.write(b"".join(part or b"" for part in [*sent, protocol.send(h11.EndOfMessage())]))
            await writer.drain()
            return await _answer(protocol, reader)
        finally:
            # Not awaited: a peer that does not read must not hold the page.
            writer.close()


async def _answer(protocol: h11.Connection, reader: asyncio.StreamReader) -> tuple[int, bytes]:
    code, raw = 0, bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            code = event.status_code
        elif isinstance(event, h11.Data):
            raw += event.data
            if len(raw) > ANSWER_BYTES_MAX:
                message = "The answer of the gateway is too large for the console."
                raise ApiError(message, 502)
        elif isinstance(event, h11.EndOfMessage):
            return code, bytes(raw)
        elif isinstance(event, h11.ConnectionClosed):
            message = "the connection ended"
            raise ConnectionResetError(message)


def _document(code: int, raw: bytes) -> Document:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not 200 <= code < 300:
        words = found.get("message") if isinstance(found, dict) else None
        said = words[:_WORDS_MAX] if isinstance(words, str) and words else f"The gateway answers {code}."
        raise ApiError(said, code)
    if not isinstance(found, dict):
        message = "The answer is not one of a gateway. Is --server right?"
        raise ApiError(message, 502)
    return found


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except OSError as error:
        message = f"{ca_file} cannot be read: {error.strerror or error}"
        raise ValueError(message) from error


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); --ca names its authority"
    return ""
