"""Renders events for people and programs. Pure.

The JSON line of an event: `partition`, `offset`, `timestamp` (ISO 8601, UTC, milliseconds), `key`, `subject`,
`content_type`, `properties`, `body` (text, or the value of a message with a value as its body) or
`body_base64`, `annotations`. Missing values are null; names are stable. `message_format` is present only if
it is not 0.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from amqp_streams.wire.types import Array, Described
from service_parts.command_line.wording import escaped
from service_parts.texts import printable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_BODY_MAX: Final = 4096


class Format(StrEnum):
    """`text`: a line for people.

    `json`: a line for programs; `body`: the body and a line end; `raw`: the body only.
    """

    TEXT = "text"
    JSON = "json"
    BODY = "body"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class Shown:
    """An event to print; missing values are None."""

    partition: str | None
    offset: int | None
    timestamp_ms: int | None
    key: str | None = None
    subject: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    annotations: Mapping[str, object] = field(default_factory=dict)
    body: object = b""
    message_format: int = 0


def render(event: Shown, form: Format) -> bytes:
    """The bytes to print for an event, with a line end if the form has one."""
    if form is Format.RAW:
        return body_bytes(event.body)
    if form is Format.BODY:
        return body_bytes(event.body) + b"\n"
    if form is Format.JSON:
        text = escaped(json.dumps(as_json(event), ensure_ascii=False, allow_nan=False))
        return text.encode("utf-8", "replace") + b"\n"
    return _line(event).encode("utf-8", "replace") + b"\n"


def as_json(event: Shown) -> dict[str, object]:
    """The event as an object of JSON."""
    shown: dict[str, object] = {
        "partition": event.partition,
        "offset": event.offset,
        "timestamp": iso_time(event.timestamp_ms),
        "key": event.key,
        "subject": event.subject,
        "content_type": event.content_type,
        "properties": plain(event.properties),
    }
    if isinstance(event.body, bytes):
        try:
            shown["body"] = event.body.decode()
        except UnicodeDecodeError:
            shown["body_base64"] = base64.b64encode(event.body).decode()
    else:
        shown["body"] = plain(event.body)
    shown |= {"annotations": plain(event.annotations)}
    return shown | {"message_format": event.message_format} if event.message_format else shown


def plain(value: object) -> object:
    """A value of AMQP's type system in JSON's.

    Bytes as `{"base64": …}`, described values as `{"descriptor": …, "value": …}`.
    """
    for kind, convert in _PLAIN:
        if isinstance(value, kind):
            return convert(value)
    return str(value)


def iso_time(ms: int | None) -> str | None:
    """A time as `2026-11-21T06:30:00.000Z`; outside the calendar a number of milliseconds."""
    if ms is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=int(ms))
    except OverflowError:
        # A producer may set any timestamp.
        return str(int(ms))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body_bytes(body: object) -> bytes:
    """A body as bytes: bytes as they are, text in UTF-8, other values as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "replace")
    return json.dumps(plain(body), ensure_ascii=False).encode("utf-8", "replace")


def _line(event: Shown) -> str:
    number = "-" if event.offset is None else str(event.offset)
    body = body_bytes(event.body)
    shown = body[:_TEXT_BODY_MAX]
    text = printable(shown.decode("utf-8", "backslashreplace"))
    if len(body) > len(shown):
        text += f" … ({len(body)} bytes)"
    if event.message_format:
        text += f"\tmessage-format 0x{event.message_format:08x}"
    where = f"{event.partition if event.partition is not None else '-'}:{number}"
    return "\t".join(
        (
            where,
            iso_time(event.timestamp_ms) or "-",
            printable(event.key) if event.key is not None else "-",
            text,
        )
    )


def _name(key: object) -> str:
    value = plain(key)
    return value if isinstance(value, str) else json.dumps(value)


# The first matching kind counts: a bool is also an int. Subtypes (UInt, Symbol, Timestamp) become their base
# types.
_PLAIN: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (type(None), lambda _: None),
    (bool, bool),
    (int, int),
    (float, lambda number: float(number) if math.isfinite(number) else str(float(number))),
    (str, str.__str__),
    (bytes, lambda data: {"base64": base64.b64encode(data).decode()}),
    (Mapping, lambda mapping: {_name(key): plain(one) for key, one in mapping.items()}),
    (list, lambda values: [plain(one) for one in values]),
    (tuple, lambda values: [plain(one) for one in values]),
    (UUID, str),
    (Described, lambda one: {"descriptor": plain(one.descriptor), "value": plain(one.value)}),
    (Array, lambda one: [plain(item) for item in one.items]),
)
