"""[io] One attempt: the POST of an event, and its answer.

Spec: knative-data-plane-contract, "HTTP Verbs", "Event Acknowledgement".

Every attempt ends with an `Answer`, unless it is cancelled. Redirects are not followed. The gateway does not
keep more of an answer than the limits allow. One request is one attempt; only a request that met a closed
idle connection is sent again, over a new connection, and is counted in `resent`. A denied destination is
never retried.
"""

import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import structlog

from event_formats.errors import EventFormatError
from event_formats.http_binding import from_http, mode_of_http
from knative_gateway.delivery.dead_letter import DATA_CHARACTERS_MAX
from knative_gateway.delivery.outcome import OK, Answer, succeeded
from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.connection import Connection, ConnectionClosedError, Response
from knative_gateway.dispatcher.posting.opening import DeniedError
from knative_gateway.dispatcher.posting.replies import BYTES_MAX
from knative_gateway.dispatcher.posting.resolving import Resolve
from knative_gateway.dispatcher.posting.slots import CONNECTIONS_MAX
from knative_gateway.dispatcher.posting.target import Target
from knative_gateway.security.destinations import Destinations
from service_parts.certificate_files import load_authorities, load_certificate

log = structlog.get_logger(__name__)

_KEPT_BYTES: Final = 4 * DATA_CHARACTERS_MAX + 4
_REASON_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Limits of requests. `timeout_ms`: for deliveries without a timeout of their own.

    `reply_bytes_max`: a larger reply is an error. `replies_bytes_max`: bytes of all replies that are received
    at once; other replies wait. `ca_file`: certificates that are trusted in addition to those of the system.
    `certificate_file` and `key_file`: for subscribers that require a client certificate.
    """

    timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    reply_bytes_max: int = 16 << 20
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    connections_max: int = CONNECTIONS_MAX
    replies_bytes_max: int = BYTES_MAX


class Outcomes(Protocol):
    """Receives the outcome of `Sender.begin`: one of these methods is called, once."""

    def accepted(self, elapsed_ms: int) -> None:
        """The subscriber accepted the event after `elapsed_ms`, without a reply."""

    def answered(self, answer: Answer) -> None:
        """The attempt ended with a reply, with an error status, or without an answer."""

    def not_received(self) -> None:
        """The idle connection had been closed. The subscriber has not seen the event, so this is not an
        attempt.
        """


class Inside(Protocol):
    """The ingress of this gateway."""

    def leads_in(self, url: str) -> bool:
        """Return whether the URL is the address of a Broker or Channel of this gateway."""

    async def take(
        self,
        url: str,
        namespace: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> tuple[int, Mapping[str, Any], Mapping[str, Any]]:
        """Store the event of a request from an object of this namespace.

        Returns the status, and the two ASGI messages of the answer.
        """


class Sender:
    """Sends requests to subscribers over idle or new connections. Use it with `async with`.

    `inside`: stores events for Brokers and Channels of this gateway without a connection.
    """

    def __init__(
        self,
        settings: SendSettings | None = None,
        destinations: Destinations | None = None,
        *,
        resolve: Resolve | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.settings: Final = settings or SendSettings()
        self._destinations: Final = destinations or Destinations.parse()
        self._resolve: Final = resolve
        self._now_ms: Final = now_ms
        # Every attempt needs the target, and parsing a URL and checking its rules is slow.
        self._target: Final = lru_cache(4096)(self._target_of)
        self.connections: Connections
        self.inside: Inside | None = None

    async def __aenter__(self) -> Self:
        settings = self.settings
        self.connections = Connections(
            self._destinations,
            tls_context(settings),
            settings.connect_timeout_ms / 1000,
            self._resolve,
            connections_max=settings.connections_max,
            replies_bytes_max=settings.replies_bytes_max,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connections.close()

    def use(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections. Requests in flight finish on their connections."""
        self.connections.use(tls)

    @property
    def resent(self) -> int:
        """How many requests were sent again because the subscriber had closed the idle connection."""
        return self.connections.resent

    def begin(
        self,
        url: str,
        fields: bytes,
        body: bytes,
        *,
        timeout_ms: int | None,
        reply_wanted: bool,
        to: Outcomes,
        owner: str = "",
    ) -> Connection | None:
        """Send one request without waiting; None if no connection is idle, or the URL is not valid or denied.

        `fields`: the result of `lines`. `to` gets the outcome, later. To stop waiting, call `abort` of the
        connection.
        """
        limit_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        limit_of = self._of_reply if reply_wanted else _of_record
        target = self._target(url)
        if isinstance(target, str):
            return None
        began = time.monotonic()

        def ended(connection: Connection, outcome: Response | OSError) -> None:
            if isinstance(outcome, Response):
                status, received, kept = outcome
                replied = reply_wanted and status == OK and mode_of_http(received) is not None
                # The usual case ends without an `Answer` object.
                if 200 <= status < 300 and not replied:
                    to.accepted(_since(began))
                    return
                try:
                    answer = self._read(status, received, kept, began, wanted=replied)
                except Exception as error:
                    # An internal error fails the attempt. Without an answer, the delivery would never end.
                    log.exception("answer_not_read", destination=target.host, status=status)
                    answer = self._failed(error, began, limit_ms)
                to.answered(answer)
            elif isinstance(outcome, ConnectionClosedError) and connection.is_stale:
                self.connections.resend(target)
                # The event was not seen, so this costs the subscriber no attempt. A plan sends it again over
                # a new connection.
                to.not_received()
            else:
                to.answered(self._failed(outcome, began, limit_ms))

        return self.connections.begin(
            target,
            fields,
            body,
            timeout_s=limit_ms / 1000,
            limit_of=limit_of,
            ended=ended,
            owner=owner,
        )

    async def post(
        self,
        url: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        *,
        timeout_ms: int | None = None,
        reply_wanted: bool = False,
        owner: str = "",
        namespace: str = "",
    ) -> Answer:
        """Send one request, and wait for the answer. `reply_wanted`: read the event of a 200.

        `owner`: the subscriber; each has a share of the connections. `namespace`: the subscriber's; each has
        a share of the lookups.
        """
        if self.inside is not None and self.inside.leads_in(url):
            return await self._store_inside(self.inside, url, namespace, headers, body)
        limit_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        limit_of = self._of_reply if reply_wanted else _of_record
        began = time.monotonic()
        target = self._target(url)
        if isinstance(target, str):
            # A rule of the operator does not change by waiting, so the event goes to its dead letter sink at
            # once.
            return Answer(None, self._now_ms(), f"destination denied: {target}", final=True)
        try:
            fields = lines(headers)
            response = await self.connections.post(
                target,
                fields,
                body,
                timeout_s=limit_ms / 1000,
                limit_of=limit_of,
                owner=owner,
                namespace=namespace,
            )
        except (OSError, ValueError) as error:
            return self._failed(error, began, limit_ms)
        status, received, kept = response
        return self._read(
            status,
            received,
            kept,
            began,
            wanted=reply_wanted and status == OK and mode_of_http(received) is not None,
        )

    async def _store_inside(
        self,
        inside: Inside,
        url: str,
        namespace: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
    ) -> Answer:
        """Return the answer of this gateway's ingress, called without a connection."""
        began = time.monotonic()
        status, _, message = await inside.take(
            url, namespace, [(name.lower().encode(), value.encode()) for name, value in headers], body
        )
        text: bytes = message["body"]
        reason = "" if succeeded(status) else f"status {status}"
        return Answer(status, self._now_ms(), reason, text, elapsed_ms=_since(began))

    def _target_of(self, url: str) -> Target | str:
        """Return the target of a URL, or the reason why the gateway may not send requests to it."""
        refusal = self._destinations.refusal_of_url(url)
        if refusal is not None:
            return refusal
        try:
            return Target.of(url)
        except ValueError as error:
            return f"{url!r} is not a valid URL: {error}"

    def _of_reply(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> int:
        wanted = status == OK and mode_of_http(headers) is not None
        # One byte more than the limit shows that the reply is too large, without receiving the rest.
        return self.settings.reply_bytes_max + 1 if wanted else _KEPT_BYTES

    def _read(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        began: float,
        *,
        wanted: bool,
    ) -> Answer:
        at_ms, elapsed_ms = self._now_ms(), _since(began)
        if not wanted:
            reason = "" if succeeded(status) else f"status {status}"
            return Answer(status, at_ms, reason, body[:_KEPT_BYTES], headers, elapsed_ms=elapsed_ms)
        if len(body) > self.settings.reply_bytes_max:
            # A reply that cannot be stored fails the attempt, even with status 200.
            return Answer(
                None,
                at_ms,
                f"the reply is larger than {self.settings.reply_bytes_max} bytes",
                elapsed_ms=elapsed_ms,
            )
        try:
            event, reason = from_http(headers, body), ""
        except EventFormatError as error:
            event, reason = None, f"the answer is not a valid event: {error}"
        except Exception as error:
            log.exception("reply_not_read")
            return Answer(
                None,
                at_ms,
                f"the reply could not be read: internal error: {error!r}"[:_REASON_MAX],
                elapsed_ms=elapsed_ms,
            )
        return Answer(status, at_ms, reason, body[:_KEPT_BYTES], headers, event, elapsed_ms)

    def _failed(self, error: Exception, began: float, limit_ms: int) -> Answer:
        if isinstance(error, DeniedError):
            reason = str(error)
        elif isinstance(error, TimeoutError) and not str(error):
            reason = f"no answer within {limit_ms} ms"
        else:
            reason = _words(error)
        return Answer(
            None,
            self._now_ms(),
            reason[:_REASON_MAX],
            elapsed_ms=_since(began),
            final=isinstance(error, DeniedError),
        )


def _words(error: Exception) -> str:
    """Return why an attempt failed, for people."""
    # The `strerror` of a TLS error is not a text of the system, and its number is not one of the system.
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        # asyncio replaces the text of the system by one that names the address. The number of an error of a
        # name lookup is negative, and its text is the right one.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        return reason[0].lower() + reason[1:]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return header fields as bytes of HTTP/1.1.

    Raises:
        ValueError: a field contains a line break or a NUL, which could add fields to the request.
    """
    fields = [f"{name}: {value}\r\n" for name, value in headers]
    # One check of the joined text is cheaper than a check of each field.
    text = "".join(fields)
    if text.count("\n") != len(fields) or text.count("\r") != len(fields) or "\0" in text:
        message = "a header has a line break or a NUL character"
        raise ValueError(message)
    return text.encode("latin-1")


def tls_context(settings: SendSettings) -> ssl.SSLContext:
    """Return the TLS context of requests to https subscribers.

    Raises:
        OSError: a file cannot be read, or does not contain a certificate or key.
    """
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False  # RFC 9525, 6.3: only subject alternative names count
    if settings.ca_file is not None:
        load_authorities(context, "CA", settings.ca_file)
    if settings.certificate_file is not None:
        load_certificate(context, settings.certificate_file, settings.key_file)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _of_record(_status: int, _headers: Sequence[tuple[bytes, bytes]]) -> int:
    return _KEPT_BYTES


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
