"""CloudEvents out of messages: attributes and data of each row. Spec: CloudEvents 1.0.2 and its AMQP binding, JSON format. Pure.

Both spellings of the binding's prefix are read, `cloudEvents_` and `cloudEvents:`, and events in binary mode (attributes are application
properties) as well as in structured mode (the body is an event as JSON).
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES, Timestamp, WireError
from spark_connector.message_parts import Body, Memory, Parts
from spark_connector.section_texts import FIELDS, Pairs, fields_of, typed_pairs
from spark_connector.values import text_of

PREFIXES: Final = ("cloudEvents_", "cloudEvents:")
ATTRIBUTES: Final = ("id", "source", "type", "subject", "datacontenttype", "specversion", "dataschema")
"""Columns that are attributes of text."""
NAMES: Final = frozenset({*ATTRIBUTES, "time", "data", "extensions"})
"""Columns that need an event."""

_PREFIX_LENGTH: Final = 12
_OWN: Final = frozenset({*ATTRIBUTES, "time"})
_REQUIRED: Final = ("id", "source", "type")
_STRUCTURED: Final = "application/cloudevents"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = (
    "this is no CloudEvent: neither cloudEvents_specversion among the application properties nor content-type application/cloudevents"
)
_NO_JSON: Final = "the body is no CloudEvent as JSON"


@dataclass(slots=True)
class Events:
    """Columns of some rows; a row without an event has None in each. `times` in microseconds since 1970 UTC."""

    texts: dict[str, list[str | None]] = field(default_factory=lambda: {name: [] for name in ATTRIBUTES})
    times: list[int | None] = field(default_factory=list)
    extensions: list[Pairs | None] = field(default_factory=list)
    data: list[Body] = field(default_factory=list)

    def add(self, attributes: dict[str, object], data: Body) -> None:
        """One event. Raises ValueError and adds nothing if it is none."""
        for name in _REQUIRED:
            if name not in attributes:
                raise ValueError(f"this CloudEvent has no {name}")
        time = _time(attributes.get("time"))
        texts = [text_of(attributes.get(name)) for name in ATTRIBUTES]
        extensions = [(name, text_of(value)) for name, value in attributes.items() if name not in _OWN]
        for column, text in zip(self.texts.values(), texts, strict=True):
            column.append(text)
        self.times.append(time)
        self.extensions.append(extensions)
        self.data.append(data)

    def skip(self) -> None:
        """A row without an event."""
        for column in self.texts.values():
            column.append(None)
        self.times.append(None)
        self.extensions.append(None)
        self.data.append(None)


def events_of(parts: Parts, content_types: Memory) -> Events:
    """The events of messages that were taken apart with properties, application properties and body. Adds to `parts.faults`."""
    found = Events()
    sections = [list(parts.tables[PROPERTIES]), list(parts.tables[APPLICATION_PROPERTIES])]
    rows = zip(parts.codes[PROPERTIES], parts.codes[APPLICATION_PROPERTIES], parts.bodies, strict=True)
    for row, (first, second, body) in enumerate(rows):
        if row in parts.faults:
            found.skip()
            continue
        try:
            content_type = content_types(sections[0][first])
            if isinstance(content_type, str) and content_type[: len(_STRUCTURED)].lower() == _STRUCTURED:
                found.add(*_structured(body))
            else:
                found.add(_binary(sections[1][second], content_type), body)
        except (WireError, ValueError, IndexError) as error:
            parts.faults[row] = str(error)
            found.skip()
    return found


def content_type_of(section: bytes) -> object:
    """The content-type in a properties section."""
    return FIELDS["content_type"](fields_of(section))


def _binary(section: bytes, content_type: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in (typed_pairs(section) or {}).items():
        if name.startswith(PREFIXES) and value is not None:
            found[name[_PREFIX_LENGTH:]] = value
    if "specversion" not in found:
        raise ValueError(_NONE)
    if content_type is not None:
        found["datacontenttype"] = content_type
    return found


def _structured(body: Body) -> tuple[dict[str, object], Body]:
    try:
        event = json.loads(body or b"")
    except (ValueError, RecursionError):
        raise ValueError(_NO_JSON) from None
    if not isinstance(event, dict) or "specversion" not in event:
        raise ValueError(_NO_JSON)
    encoded = event.pop("data_base64", None)
    data = event.pop("data", None)
    attributes = {name: value for name, value in event.items() if value is not None}
    if isinstance(encoded, str):
        try:
            return attributes, base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise ValueError("data_base64 is no base64") from None
    if data is None:
        return attributes, None
    if isinstance(data, str) and not _is_json(attributes.get("datacontenttype")):
        return attributes, data.encode()
    return attributes, json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _is_json(content_type: object) -> bool:
    """What has no type is JSON. Spec: CloudEvents JSON format 3.1."""
    media = "application/json" if content_type is None else str(content_type).partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _time(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, Timestamp):
        return int(value) * 1000
    try:
        moment = datetime.fromisoformat(str(value).upper())
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is no time of RFC 3339") from None
    if moment.tzinfo is None:
        raise ValueError(f"{str(value)[:40]!r} is a time without a zone")
    distance = moment - _EPOCH
    return (distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds


def pairs_at(rows: Sequence[Pairs | None]) -> tuple[list[int | None], list[str], list[str | None]]:
    """Maps as Arrow wants them: where each begins (None: a null), all keys, all values."""
    starts: list[int | None] = []
    keys: list[str] = []
    values: list[str | None] = []
    for row in rows:
        starts.append(None if row is None else len(keys))
        for key, value in row or ():
            keys.append(key)
            values.append(value)
    starts.append(len(keys))
    return starts, keys, values
