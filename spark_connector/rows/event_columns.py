"""CloudEvents out of messages: attributes and data of each row. Spec: CloudEvents 1.0.2 and its AMQP binding, JSON format. Pure.

Both spellings of the binding's prefix are read, `cloudEvents_` and `cloudEvents:`, and events in binary mode (attributes are application
properties) as well as in structured mode (the body is an event as JSON).
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES, Timestamp, WireError, decode
from spark_connector.rows.message_parts import Body, Parts
from spark_connector.rows.section_texts import FIELDS, Pairs, fields_of, typed_pairs
from spark_connector.rows.values import microseconds, text_of

PREFIXES: Final = ("cloudEvents_", "cloudEvents:")
ATTRIBUTES: Final = frozenset({"id", "source", "type", "subject", "datacontenttype", "specversion", "dataschema"})
"""Columns that are attributes of text."""
NAMES: Final = ATTRIBUTES | {"time", "data", "extensions"}
"""Columns that need an event."""

_PREFIX_LENGTH: Final = 12
_OWN: Final = ATTRIBUTES | {"time"}
_REQUIRED: Final = ("id", "source", "type")
_STRUCTURED: Final = "application/cloudevents"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = (
    "this is not a CloudEvent: neither cloudEvents_specversion among the application properties nor content-type application/cloudevents"
)
_NO_JSON: Final = "the body is not a CloudEvent as JSON"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""What JSON writes two of for a character, and a broken writer one."""
_NAMES_MAX: Final = 1024

_names: dict[bytes, str] = {}
"""Attributes by the bytes of their properties; "" for properties that are none."""


@dataclass(frozen=True, slots=True)
class Events:
    """Attributes and data of some rows; a row without an event has None."""

    attributes: list[Mapping[str, object] | None]
    data: list[Body]

    def texts(self, name: str) -> list[str | None]:
        """A column of text."""
        values = [None if one is None else one.get(name) for one in self.attributes]
        return [value if type(value) is str else text_of(value) for value in values]

    def times(self, faults: dict[int, str]) -> list[int | None]:
        """The column `time`, in microseconds since 1970 UTC. What is not a time is None, and a fault of its row."""
        found: list[int | None] = []
        for row, one in enumerate(self.attributes):
            try:
                found.append(None if one is None else _time(one.get("time")))
            except ValueError as error:
                faults.setdefault(row, str(error))
                found.append(None)
        return found

    def extensions(self) -> list[Pairs | None]:
        """All attributes that have no column."""
        return [
            None
            if one is None
            else {name: value if type(value) is str else text_of(value) for name, value in one.items() if name not in _OWN}
            for one in self.attributes
        ]


def events_of(parts: Parts) -> Events:
    """The events of messages that were taken apart with properties, application properties and body. Adds to `parts.faults`."""
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
            if row in parts.faults:
                attributes = None
            elif content_type is not None and content_type[: len(_STRUCTURED)].lower() == _STRUCTURED:
                attributes, data = _structured(body)
            else:
                attributes = _binary(properties[second], content_type)
            if attributes is not None and not ("id" in attributes and "source" in attributes and "type" in attributes):
                raise ValueError(f"this CloudEvent has no {next(name for name in _REQUIRED if name not in attributes)}")
        except (WireError, ValueError, IndexError, RecursionError) as error:
            parts.faults[row] = str(error)
            attributes = None
        add(attributes)
        put(None if attributes is None else data)
    return found


def _content_type(section: bytes) -> str | None:
    """The content-type in a properties section; what is broken has none, and is a fault of the columns that show it."""
    try:
        return text_of(FIELDS["content_type"](fields_of(section)))
    except (WireError, ValueError, IndexError):
        return None


def _binary(section: bytes, content_type: str | None) -> dict[str, object]:
    found = _short(section)
    if found is None:
        found = {
            name[_PREFIX_LENGTH:]: value
            for name, value in (typed_pairs(section) or {}).items()
            if name.startswith(PREFIXES) and value is not None
        }
    if "specversion" not in found:
        raise ValueError(_NONE)
    if content_type is not None:
        found["datacontenttype"] = content_type
    return found


def _short(section: bytes) -> dict[str, object] | None:
    """Attributes of a section as nearly everybody writes it; None: it is written in another way."""
    kind = section[3:4]
    at, end = 6 if kind == b"\xc1" else 12, len(section)
    if kind not in {b"\xc1", b"\xd1"}:
        return None
    found: dict[str, object] = {}
    while at + 1 < end:
        if section[at] != 0xA1:
            return None
        value_at = at + 2 + section[at + 1]
        key = section[at + 2 : value_at]
        name = _names.get(key)
        if name is None:
            name = _name(key)
        if section[value_at : value_at + 1] == b"\xa1":
            at = value_at + 2 + section[value_at + 1]
            if name:
                found[name] = section[value_at + 2 : at].decode()
        else:
            value, at = decode(section, value_at)
            if name and value is not None:
                found[name] = value
    return found if at == end else None


def _name(key: bytes) -> str:
    text = key.decode()
    name = text[_PREFIX_LENGTH:] if text.startswith(PREFIXES) else ""
    if len(_names) >= _NAMES_MAX:
        _names.clear()
    _names[key] = name
    return name


def _structured(body: Body) -> tuple[dict[str, object], Body]:
    try:
        event = json.loads((body or b"").decode("utf-8-sig"))
        if body is not None and _SURROGATE.search(body):
            _compact(event).encode()
    except UnicodeEncodeError:
        raise ValueError("the body has half of a surrogate pair, which is not text") from None
    except (ValueError, RecursionError):
        raise ValueError(_NO_JSON) from None
    if not isinstance(event, dict) or "specversion" not in event:
        raise ValueError(_NO_JSON)
    encoded = event.pop("data_base64", None)
    data = event.pop("data", None)
    attributes = {name: _compact(one) if isinstance(one, dict | list) else one for name, one in event.items() if one is not None}
    if isinstance(encoded, str):
        try:
            return attributes, base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise ValueError("data_base64 is not base64") from None
    if data is None:
        return attributes, None
    if isinstance(data, str) and not _is_json(attributes.get("datacontenttype")):
        return attributes, data.encode()
    return attributes, _compact(data).encode()


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_json(content_type: object) -> bool:
    """What has no type is JSON. Spec: CloudEvents JSON format 3.1."""
    media = "application/json" if content_type is None else str(content_type).partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _time(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, Timestamp):
        return microseconds(int(value))
    try:
        moment = datetime.fromisoformat(str(value).upper())
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a time of RFC 3339") from None
    if moment.tzinfo is None:
        raise ValueError(f"{str(value)[:40]!r} is a time without a zone")
    distance = moment - _EPOCH
    return (distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds
