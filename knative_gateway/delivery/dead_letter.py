"""The event as it goes to the dead letter sink: the original, with attributes that tell what became of it.

Spec: knative-event-delivery, "deadLetterSink" (knativeerrorcode, knativeerrordata); knative-delivery-design, "CloudEvent extensions"
(deadlettersubscriberuri, deadletterreason, deadletterretry); knativeerrordest is Knative's own. Laws: data and all other attributes stay as
they are; what logs in at a URL is not shown; whatever a subscriber answered, the values are valid CloudEvents Strings and Integers.
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
"""Of the answer's body in `knativeerrordata`."""
NO_ANSWER_CODE: Final = 500
"""`knativeerrorcode` where no answer came: it is always present."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that failed. `code` None: no answer came. `number`: of its destination, from 1. `at_ms`: since 1970 UTC."""

    destination: str
    url: str
    number: int
    at_ms: int
    code: int | None
    reason: str
    body: bytes
    retryable: bool


def dead_letter(event: CloudEvent, failure: Attempt, *, subscriber_url: str, attempts: int) -> CloudEvent:
    """The event for the dead letter sink. `failure`: the final one; `attempts`: how often the event was sent to the subscriber."""
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
    """A URL as it may be shown to others: less the user and password that it has."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return url if "@" not in parts.netloc else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def as_text(body: bytes) -> str:
    """The beginning of a body as a CloudEvents String: what is no UTF-8 becomes U+FFFD."""
    # A character has four bytes at most: no more is looked at, so that one that is cut in two is beyond what is kept.
    return as_string(body[: 4 * DATA_CHARACTERS_MAX + 4].decode("utf-8", "replace"))


def as_string(text: str) -> str:
    """The text as a String of CloudEvents 1.0 (section 3): control characters and what is no character become spaces; cut to the limit."""
    return "".join(" " if _is_disallowed(ord(character)) else character for character in text[:DATA_CHARACTERS_MAX])


def _is_disallowed(code: int) -> bool:
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
