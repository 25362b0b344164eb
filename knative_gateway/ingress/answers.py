"""The answers of the ingress. Pure.

The ingress answers 202 only after the events are stored. Every answer has an `Allow` header with the methods
of the address.

Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry"; HTTP Webhooks 1.0, 4.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from event_formats.errors import (
    EventFormatError,
    InvalidEventError,
    TooManyEventsError,
    UnsupportedFormatError,
)
from knative_gateway.errors import (
    BadRequestError,
    ForbiddenError,
    GatewayError,
    OverloadedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedMediaError,
)

Header = tuple[bytes, bytes]

ALLOW: Final[Header] = (b"allow", b"POST, OPTIONS")
_TEXT: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_WEBHOOK: Final[Sequence[Header]] = ((b"webhook-allowed-origin", b"*"), (b"webhook-allowed-rate", b"*"))
_WORDS_MAX: Final = 1024
Refusal = GatewayError | EventFormatError
"""Errors that become answers: errors of the gateway, and errors of an event that cannot be decoded."""

_STATUS: Final[Mapping[type[Refusal], int]] = {
    InvalidEventError: 400,
    BadRequestError: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    TooLargeError: 413,
    TooManyEventsError: 413,
    UnsupportedFormatError: 415,
    UnsupportedMediaError: 415,
    OverloadedError: 429,
    UnavailableError: 503,
}
UNAVAILABLE_RETRY_S: Final = 1
"""`Retry-After` while a log is not available. The gateway itself retries continuously."""
_RETRY_LATER: Final[Header] = (b"retry-after", str(UNAVAILABLE_RETRY_S).encode())


class Answer(NamedTuple):
    """A response as two ASGI messages."""

    status: int
    start: dict[str, object]
    body: dict[str, object]


def answer(status: int, words: str = "", headers: Sequence[Header] = ()) -> Answer:
    """Return an answer with a line of text, or with an empty body."""
    # The words of a refusal may quote what the client sent. The bound keeps a large header out of the answer.
    body = f"{words[:_WORDS_MAX]}\n".encode(errors="replace") if words else b""
    all_headers = [ALLOW, (b"content-length", str(len(body)).encode()), *headers]
    if body:
        all_headers.append(_TEXT)
    return Answer(
        status,
        {"type": "http.response.start", "status": status, "headers": all_headers},
        {"type": "http.response.body", "body": body},
    )


def refusal(error: Refusal, *, close: bool = False) -> Answer:
    """Return the answer for an error. `close`: close the connection, because the client may still send a
    large body.
    """
    headers: list[Header] = [(b"connection", b"close")] if close else []
    if isinstance(error, OverloadedError):
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    elif isinstance(error, UnavailableError):
        headers.append(_RETRY_LATER)
    elif isinstance(error, UnauthenticatedError):
        headers.append((b"www-authenticate", b"Bearer"))
    # In the order of the table, so that a subclass must come before its base.
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return answer(status, str(error), headers)


ACCEPTED: Final = answer(202)
OPTIONS: Final = answer(200, headers=_WEBHOOK)
NOT_FOUND: Final = answer(
    404,
    "the Broker or Channel does not exist: POST events to /broker/NAMESPACE/NAME or /channel/NAMESPACE/NAME",
)
STARTING: Final = answer(503, "the gateway has not loaded all Brokers and Channels yet", [_RETRY_LATER])
NOT_ALLOWED: Final = answer(405, "the method must be POST or OPTIONS")
TOO_SLOW: Final = answer(408, "the request took too long to arrive", [(b"connection", b"close")])
BROKEN: Final = answer(500, "internal error of the gateway: see its log")
