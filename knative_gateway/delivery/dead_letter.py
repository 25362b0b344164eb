"""The event for the dead letter sink: the original event, with attributes that describe the failure. Pure.

Data and other attributes do not change. User and password of a URL are removed. For any answer of a
subscriber, the values are valid CloudEvents Strings and Integers.

Spec: knative-event-delivery, "deadLetterSink" (knativeerrorcode, knativeerrordata); knative-delivery-design,
"CloudEvent extensions" (deadlettersubscriberuri, deadletterreason, deadletterretry). Knative's implementation
also adds knativeerrordest.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from event_formats.event import CloudEvent, Value

ERROR_DESTINATION: Final = "knativeerrordest"
ERROR_CODE: Final = "knativeerrorcode"
ERROR_DATA: Final = "knativeerrordata"
SUBSCRIBER_URI: Final = "deadlettersubscriberuri"
REASON: Final = "deadletterreason"
RETRY: Final = "deadletterretry"
DATA_CHARACTERS_MAX: Final = 1024
"""Characters of an answer's body in `knativeerrordata`."""
NO_ANSWER_CODE: Final = 500
"""`knativeerrorcode` if no answer came, because the attribute must be present."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt.

    `number`: counts the attempts at this destination, from 1. `at_ms`: since 1970 UTC. `code`: None if no
    answer came.
    """

    destination: str
    url: str
    number: int
    at_ms: int
    code: int | None
    reason: str
    body: bytes
    retryable: bool


def dead_letter(event: CloudEvent, failure: Attempt, *, subscriber_url: str, attempts: int) -> CloudEvent:
    """Return the event for the dead letter sink.

    `failure`: the last failure. `attempts`: how many times the event was sent to the subscriber.
    """
    added: dict[str, Value] = {
        ERROR_DESTINATION: as_string(without_login(failure.url)),
        ERROR_CODE: NO_ANSWER_CODE if failure.code is None else failure.code,
        ERROR_DATA: as_text(failure.body),
        SUBSCRIBER_URI: as_string(without_login(subscriber_url)),
        REASON: as_string(failure.reason),
        RETRY: attempts,
    }
    return CloudEvent({**event.attributes, **added}, event.data)


def without_login(url: str) -> str:
    """Return a URL without its user and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return (
        url if "@" not in parts.netloc else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    )


def as_text(body: bytes) -> str:
    """Return the beginning of a body as a CloudEvents String. Bytes that are not UTF-8 become U+FFFD."""
    # A character has at most 4 bytes. 4 more bytes are decoded, so the limit does not cut a character in two.
    return as_string(body[: 4 * DATA_CHARACTERS_MAX + 4].decode("utf-8", "replace"))


def as_string(text: str) -> str:
    """Return a text as a String of CloudEvents 1.0 (section 3), cut to the limit.

    Control characters, surrogates and noncharacters become spaces.
    """
    return "".join(
        " " if _is_disallowed(ord(character)) else character for character in text[:DATA_CHARACTERS_MAX]
    )


def _is_disallowed(code: int) -> bool:
    return (
        code <= 0x1F
        or 0x7F <= code <= 0x9F
        or 0xD800 <= code <= 0xDFFF
        or 0xFDD0 <= code <= 0xFDEF
        or code & 0xFFFE == 0xFFFE
    )
