"""[io] One POST of one event, and what came back. Spec: knative-data-plane-contract, "HTTP Verbs", "Event Acknowledgement".

Laws: whatever happens there is an `Answer`, never an exception but a cancellation; redirects are not followed; nothing of an answer is kept
beyond the limits; one request is one attempt, unless it met the end of a connection that was kept alive for it.
"""

import asyncio
import io
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aiohttp import ClientError, ClientOSError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, ServerDisconnectedError
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from knative_gateway.cloudevents.http import from_http, mode_of_http
from knative_gateway.delivery.dead_letter import DATA_CHARACTERS_MAX
from knative_gateway.delivery.outcome import OK, Answer, succeeded
from knative_gateway.destinations import Destinations
from knative_gateway.dispatcher.connecting import Connector, denied, reused
from knative_gateway.errors import GatewayError

_KEPT_BYTES: Final = 4 * DATA_CHARACTERS_MAX + 4
_REASON_MAX: Final = 500
_LARGE_BODY: Final = 1 << 20
_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_PLAIN: Final = (("accept-encoding", "identity"), ("user-agent", "knative-gateway"))


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Limits of requests. `timeout_ms` where a delivery sets none; `reply_bytes_max`: of a reply, beyond which it is an error.

    `ca_file`: certificates that are trusted beside the system's; `certificate_file` and `key_file`: shown to subscribers that ask for one.
    """

    timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    reply_bytes_max: int = 16 << 20
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True


class Sender:
    """POSTs to subscribers, over connections kept alive. Use with `async with`."""

    def __init__(
        self,
        settings: SendSettings | None = None,
        destinations: Destinations | None = None,
        *,
        resolver: AbstractResolver | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.settings: Final = settings or SendSettings()
        self._destinations: Final = destinations or Destinations.parse()
        self._resolver: Final = resolver
        self._now_ms: Final = now_ms
        self._refusal: Final = lru_cache(4096)(self._destinations.refusal_of_url)
        self._session: ClientSession

    async def __aenter__(self) -> Self:
        self._session = ClientSession(
            connector=Connector(self._destinations, tls_context(self.settings), self._resolver),
            cookie_jar=DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC,
            max_line_size=65_536,
            max_field_size=65_536,
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def post(
        self, url: str, headers: Iterable[tuple[str, str]], body: bytes, *, timeout_ms: int | None = None, reply_wanted: bool = False
    ) -> Answer:
        """Send it once. `reply_wanted`: an event in a 200 is read."""
        refusal = self._refusal(url)
        if refusal is not None:
            return Answer(None, self._now_ms(), f"destination denied: {refusal}")
        limit_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        fields = CIMultiDict(_PLAIN)
        fields.extend(headers)
        began = time.monotonic()
        while True:
            reused.set(True)
            try:
                answer = await self._once(url, fields, body, limit_ms, began, reply_wanted=reply_wanted)
            except (ServerDisconnectedError, ClientOSError) as error:
                # The other side may close a connection just when it is used again: that says nothing of the event.
                if reused.get() and not isinstance(error, asyncio.TimeoutError):
                    continue
                return self._failed(error, began)
            except (ClientError, OSError, ValueError) as error:  # ValueError: a header that cannot be sent
                return self._failed(error, began, limit_ms)
            return answer

    async def _once(self, url: str, fields: CIMultiDict[str], body: bytes, limit_ms: int, began: float, *, reply_wanted: bool) -> Answer:
        data = (io.BytesIO(body) if len(body) > _LARGE_BODY else body) if body else None
        async with self._session.post(
            _parsed(url), data=data, headers=fields, allow_redirects=False, timeout=self._timeout(limit_ms)
        ) as response:
            status = response.status
            wanted = reply_wanted and status == OK and mode_of_http(response.raw_headers) is not None
            kept = await _first(response, self.settings.reply_bytes_max + 1 if wanted else _KEPT_BYTES)
            return self._read(status, response.raw_headers, kept, began, wanted=wanted)

    def _read(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, began: float, *, wanted: bool) -> Answer:
        at_ms, elapsed_ms = self._now_ms(), _since(began)
        if not wanted:
            reason = "" if succeeded(status) else f"status {status}"
            return Answer(status, at_ms, reason, body[:_KEPT_BYTES], headers, elapsed_ms=elapsed_ms)
        if len(body) > self.settings.reply_bytes_max:
            # A reply that cannot be stored fails the delivery.
            return Answer(None, at_ms, f"the reply is larger than {self.settings.reply_bytes_max} bytes", elapsed_ms=elapsed_ms)
        try:
            event, reason = from_http(headers, body), ""
        except GatewayError as error:
            event, reason = None, f"what was answered is no event: {error}"
        return Answer(status, at_ms, reason, body[:_KEPT_BYTES], headers, event, elapsed_ms)

    def _failed(self, error: Exception, began: float, limit_ms: int = 0) -> Answer:
        refusal = denied(error)
        if refusal is not None:
            reason = str(refusal)
        elif isinstance(error, TimeoutError):
            reason = f"no answer within {limit_ms} ms" if limit_ms else "timed out"
        else:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Answer(None, self._now_ms(), reason[:_REASON_MAX], elapsed_ms=_since(began))

    def _timeout(self, limit_ms: int) -> ClientTimeout:
        return _timeout(limit_ms, min(limit_ms, self.settings.connect_timeout_ms))


def tls_context(settings: SendSettings) -> ssl.SSLContext:
    """How https subscribers are met.

    Raises:
        OSError: a file cannot be read, or is none of its kind.
    """
    context = ssl.create_default_context()
    if settings.ca_file is not None:
        context.load_verify_locations(settings.ca_file)
    if settings.certificate_file is not None:
        context.load_cert_chain(settings.certificate_file, settings.key_file)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _first(response: ClientResponse, limit: int) -> bytes:
    """The beginning of the body; a connection whose body is longer is not used again."""
    pieces: list[bytes] = []
    size = 0
    content = response.content
    while size < limit and not content.at_eof():
        piece = await content.readany()
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:limit]


@lru_cache(4096)
def _parsed(url: str) -> URL:
    return URL(url)


@lru_cache(256)
def _timeout(limit_ms: int, connect_ms: int) -> ClientTimeout:
    return ClientTimeout(total=limit_ms / 1000, sock_connect=connect_ms / 1000)


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
