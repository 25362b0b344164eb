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
from web_console.http.outgoing import FAILURES, TooLargeError, exchange, tls_of
from web_console.sessions.logins import Tokens, TokensEndedError

ANSWER_BYTES_MAX: Final = 32 << 20
ANSWER_S_MAX: Final = 15.0
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

    def __init__(
        self, server: Server, ca_file: Path | None, token: str | None, tokens: Tokens | None = None
    ) -> None:
        """Create a client. `tokens`: gives the token for each request, instead of `token`.

        Raises:
            ValueError: the token has other characters than those of a header, or the file is not valid.
        """
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            message = "This is not a bearer token: it has other characters than letters, digits and signs."
            raise ValueError(message)
        self._server: Final = server
        self._token: Final = token
        self._tokens: Final = tokens
        self._tls: Final = tls_of(ca_file) if server.is_tls else None

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
        token = await self._current()
        head = [
            ("Host", self._server.authority),
            ("User-Agent", f"amqp-event-streams-console/{__version__}"),
            ("Accept", accept),
            ("Connection", "close"),
            *([("Authorization", f"Bearer {token}")] if token else []),
            *([("Content-Type", _JSON), ("Content-Length", str(len(body)))] if body is not None else []),
        ]
        request = h11.Request(method=method, target=self._server.path + target, headers=head)
        where = (self._server.host, self._server.port, self._tls)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                code, raw = await exchange(where, request, body or b"", bytes_max=ANSWER_BYTES_MAX)
        except TooLargeError as error:
            message = "The answer of the gateway is too large for the console."
            raise ApiError(message, 502) from error
        except FAILURES as error:
            raise AwayError(_why(error)) from error
        return _document(code, raw)

    async def _current(self) -> str | None:
        if self._tokens is None:
            return self._token
        try:
            return await self._tokens.current()
        except TokensEndedError as error:
            # As if the gateway had refused the last token: the session ends.
            raise ApiError(str(error), 401) from error


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


def _why(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); --ca names its authority"
    return ""
