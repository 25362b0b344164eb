"""CloudEvents from messages: attributes and data of each row. Pure.

Both prefixes of the binding and both content modes are read. The rules for names and values are not checked,
so that a query can examine events that a Broker refuses.

Spec: CloudEvents 1.0.2, its AMQP binding and JSON format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES, Timestamp, WireError
from event_formats.amqp_binding.reading import NOT_AN_EVENT, attributes_in
from event_formats.errors import EventFormatError
from event_formats.json_format import read_unchecked
from event_formats.media import announces_event
from event_formats.memory import Memory
from event_formats.names import AMQP_PREFIX, AMQP_PREFIXES, CONTENT_TYPE, DATA
from spark_connector.rows.message_parts import Body, Parts
from spark_connector.rows.section_texts import FIELDS, Pairs, fields_of, typed_pairs
from spark_connector.rows.values import in_range, microseconds, text_of

ATTRIBUTES: Final = frozenset({"id", "source", "type", "subject", CONTENT_TYPE, "specversion", "dataschema"})
"""Columns that are attributes of type String."""
NAMES: Final = ATTRIBUTES | {"time", DATA, "extensions"}
"""Columns that need an event."""

_PREFIX_LENGTH: Final = len(AMQP_PREFIX)
_OWN: Final = ATTRIBUTES | {"time"}
_REQUIRED: Final = ("id", "source", "type")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_JSON: Final = "the body is not a CloudEvent as JSON"

_names: Final[Memory[bytes, str]] = Memory(1024, 255)
"""Attributes by the bytes of their properties; "" for properties that are not attributes."""


@dataclass(frozen=True, slots=True)
class Events:
    """Attributes and data of some rows; None for a row without an event."""

    attributes: list[Mapping[str, object] | None]
    data: list[Body]

    def texts(self, name: str) -> list[str | None]:
        """Return a column of text."""
        values = [None if one is None else one.get(name) for one in self.attributes]
        # Hot path: most values are plain text already.
        return [value if type(value) is str else text_of(value) for value in values]

    def times(self, faults: dict[int, str]) -> list[int | None]:
        """Return the column `time`, in microseconds since 1970 UTC.

        A value that is not a time becomes None, and is added to `faults` by its row.
        """
        found: list[int | None] = []
        for row, one in enumerate(self.attributes):
            try:
                found.append(None if one is None else _time(one.get("time")))
            except ValueError as error:
                faults.setdefault(row, str(error))
                found.append(None)
        return found

    def extensions(self) -> list[Pairs | None]:
        """Return all attributes that do not have a column."""
        return [
            None
            if one is None
            else {
                name: value if type(value) is str else text_of(value)
                for name, value in one.items()
                if name not in _OWN
            }
            for one in self.attributes
        ]


def events_of(parts: Parts) -> Events:
    """Return the events of messages whose properties, application properties and body are in `parts`.

    Rows without a valid event are added to `parts.faults`.
    """
    # Once for each distinct section, not for each row.
    types = [_content_type(section) for section in parts.tables[PROPERTIES]]
    properties = list(parts.tables[APPLICATION_PROPERTIES])
    found = Events([], [])
    add, put = found.attributes.append, found.data.append
    for row, (first, second, body) in enumerate(
        zip(parts.codes[PROPERTIES], parts.codes[APPLICATION_PROPERTIES], parts.bodies, strict=True)
    ):
        data = body
        try:
            content_type = types[first]
            # The message is malformed, so its sections may be missing.
            if row in parts.faults:
                attributes = None
            elif content_type is not None and announces_event(content_type):
                attributes, data = _structured(body)
            else:
                attributes = _binary(properties[second], content_type)
            if attributes is not None and not (
                "id" in attributes and "source" in attributes and "type" in attributes
            ):
                raise ValueError(
                    f"this CloudEvent has no {next(name for name in _REQUIRED if name not in attributes)}"
                )
        # One bad message must not fail the task: `mode` decides what happens to its row.
        except (WireError, ValueError, IndexError, RecursionError) as error:
            parts.faults[row] = str(error)
            attributes = None
        add(attributes)
        put(None if attributes is None else data)
    return found


def _content_type(section: bytes) -> str | None:
    """Return the content-type in a properties section, or None if the section is not valid.

    The columns that show the section report the fault.
    """
    try:
        return text_of(FIELDS["content_type"](fields_of(section)))
    except (WireError, ValueError, IndexError):
        return None


def _binary(section: bytes, content_type: str | None) -> dict[str, object]:
    # Hot path: reads the usual form without decoding the map.
    found = attributes_in(section, 0, len(section), _names, _name)
    if found is None:
        found = {
            name[_PREFIX_LENGTH:]: value
            for name, value in (typed_pairs(section) or {}).items()
            if name.startswith(AMQP_PREFIXES) and value is not None
        }
    if "specversion" not in found:
        raise ValueError(NOT_AN_EVENT)
    if content_type is not None:
        found[CONTENT_TYPE] = content_type
    return found


def _name(key: bytes) -> str:
    text = key.decode()
    return _names.keep(key, text[_PREFIX_LENGTH:] if text.startswith(AMQP_PREFIXES) else "")


def _structured(body: Body) -> tuple[dict[str, object], Body]:
    """Return the event of a body in structured mode. `event_formats` reads it, as for the gateway."""
    try:
        return read_unchecked(body or b"")
    except EventFormatError as error:
        raise ValueError(f"{_NO_JSON}: {error}") from None


def _time(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, Timestamp):
        return microseconds(int(value))
    try:
        # RFC 3339 allows `t` and `z`, which Python does not read.
        moment = datetime.fromisoformat(str(value).upper())
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a time of RFC 3339") from None
    if moment.tzinfo is None:
        raise ValueError(f"{str(value)[:40]!r} is a time without a zone")
    distance = moment - _EPOCH
    # In integers: a float would lose microseconds.
    return in_range((distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds)
