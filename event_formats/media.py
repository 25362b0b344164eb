"""Media types: the content mode that they announce, and whether data is JSON.

Spec: HTTP binding 3, JSON format 3.1.
"""

from enum import StrEnum
from typing import Final

from event_formats.errors import UnsupportedFormatError
from event_formats.event import CloudEvent
from event_formats.names import CONTENT_TYPE

STRUCTURED_JSON: Final = "application/cloudevents+json"
BATCH_JSON: Final = "application/cloudevents-batch+json"
CLOUDEVENTS: Final = "application/cloudevents"
BATCH: Final = "application/cloudevents-batch"
_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})
_SHOWN_MAX: Final = 80


class Mode(StrEnum):
    """The three content modes."""

    BINARY = "binary"
    STRUCTURED = "structured"
    BATCH = "batch"


def mode_of(content_type: str) -> Mode:
    """Return the mode that a content type announces.

    A type that does not begin with application/cloudevents announces binary mode.

    Raises:
        UnsupportedFormatError: the event format is not JSON, or the charset is not UTF-8.
    """
    if not announces_event(content_type):
        return Mode.BINARY
    media_type, charset = essence(content_type)
    if media_type not in {STRUCTURED_JSON, BATCH_JSON}:
        # A batch in another format gets advice about batches.
        kind = BATCH_JSON if media_type.startswith(BATCH) else STRUCTURED_JSON
        text = f"the event format {media_type[:_SHOWN_MAX]} is not supported: use {kind}"
        raise UnsupportedFormatError(text)
    if charset not in _CHARSETS:
        text = f"charset {charset[:_SHOWN_MAX]} is not supported: JSON is UTF-8"
        raise UnsupportedFormatError(text)
    return Mode.STRUCTURED if media_type == STRUCTURED_JSON else Mode.BATCH


def announces_event(content_type: str) -> bool:
    """Whether a media type begins with application/cloudevents: then the body is one or more events."""
    return content_type[: len(CLOUDEVENTS)].lower() == CLOUDEVENTS


def fits_binary(event: CloudEvent) -> bool:
    """Whether binary mode can carry the event: its content type must not announce another event.

    Spec: HTTP binding 1.0.2, 3; AMQP binding 1.0.2, 3.
    """
    content_type = event.attributes.get(CONTENT_TYPE)
    return content_type is None or not announces_event(str(content_type))


def is_json(content_type: str) -> bool:
    """Whether data of this type is JSON: its subtype is `json` or ends with `+json`."""
    subtype = essence(content_type)[0].rpartition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def is_unicode(content_type: str) -> bool:
    """Whether text of this type may be read as UTF-8: its charset is UTF-8 or compatible, or is absent."""
    return essence(content_type)[1] in _CHARSETS


def essence(content_type: str) -> tuple[str, str]:
    """Return type and subtype in lower case without parameters, and the charset in lower case.

    The charset is "" if the media type has none.
    """
    media_type, _, parameters = content_type.partition(";")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return media_type.strip().lower(), charset
