"""A stored message as a page shows it: each section, and the body by its content type. Pure.

Laws: no message raises an error, and none takes more than a bounded time and memory: what is large is cut, or
shown as bytes.
"""

import codecs
import json
from dataclasses import dataclass
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, decode, few_values
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    NAMES,
    PROPERTIES,
    PROPERTIES_FIELDS,
    SEQUENCE,
    VALUE,
    Section,
    sections,
)
from amqp_streams.wire.sections import group_key
from service_parts.texts import printable
from web_console.showing.tree import Node, text_of, tree_of

TEXT_MAX: Final = 64 << 10
"""Characters of a body that a page shows."""
JSON_MAX: Final = 512 << 10
"""Bytes of a body that is parsed as JSON."""
HEX_MAX: Final = 4 << 10
PREVIEW_MAX: Final = 160
_VALUES_MAX: Final = 20_000
"""Values of a section that is decoded: a byte can be a value, and each becomes an object."""
_LISTED_VALUES_MAX: Final = 500
"""Values of a section that is decoded for one line of a list: a list has hundreds of events."""
_SECTIONS_MAX: Final = 256
_ATTRIBUTES_MAX: Final = 200
_NAME_MAX: Final = 80
"""Characters of a key or content type in a list."""
_BODY: Final = frozenset((DATA, SEQUENCE, VALUE))
_CLOUDEVENT_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")
_CONTENT_TYPE: Final = PROPERTIES_FIELDS.index("content-type")
_CLOUDEVENTS_JSON: Final = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an event.

    `kind`: "JSON", "text", "bytes", "AMQP value" or "no body". JSON and values have a `tree`, the others a
    `text`. `cut`: only a part is shown. `size`: in bytes.
    """

    kind: str
    size: int
    text: str = ""
    tree: Node | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """An event as a page shows it.

    `sections`: all but the body, each a tree, by name. `cloudevent`: the attributes of a CloudEvent; empty if
    the event is none. `problem`: why the message cannot be read.
    """

    body: Body
    sections: tuple[tuple[str, Node], ...] = ()
    cloudevent: tuple[tuple[str, str], ...] = ()
    content_type: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """An event in one line of a list. Each text is cut."""

    key: str
    content_type: str
    preview: str


def shown(message: bytes) -> Shown:
    """Return a message as a page shows it."""
    try:
        found = sections(message, _SECTIONS_MAX)
        values = {each.code: _value(message, each, _VALUES_MAX) for each in found if each.code not in _BODY}
        trees = tuple(
            (NAMES[each.code], tree_of(_named(each, values[each.code])))
            for each in found
            if each.code in values and each.code != DELIVERY_ANNOTATIONS
        )
        content_type = _content_type(values.get(PROPERTIES))
        body = _body(message, [each for each in found if each.code in _BODY], content_type)
        attributes = _cloudevent(values.get(APPLICATION_PROPERTIES), content_type, body)
        return Shown(body, trees, attributes, printable(content_type))
    except WireError as error:
        return Shown(_hex(message), problem=f"The message cannot be read: {error}")


def body_bytes(message: bytes) -> bytes:
    """Return the body for a download: the bytes of data sections, else the encoded section.

    Raises:
        WireError: the message cannot be read.
    """
    found = [each for each in sections(message) if each.code in _BODY]
    if found and found[0].code == DATA:
        return b"".join(_data(message, each) for each in found)
    return b"".join(message[each.start : each.end] for each in found)


def data_of(message: bytes) -> bytes | None:
    """Return the bytes of the data sections; None if the body is another one.

    Raises:
        WireError: the message cannot be read.
    """
    found = [each for each in sections(message, _SECTIONS_MAX) if each.code in _BODY]
    if not found or found[0].code != DATA:
        return None
    return b"".join(_data(message, each) for each in found)


def line(message: bytes) -> Line:
    """Return the line of an event in a list."""
    try:
        found = sections(message, _SECTIONS_MAX)
        heads = [each for each in found if each.code == PROPERTIES]
        content_type = _content_type(_value(message, heads[0], _LISTED_VALUES_MAX)) if heads else ""
        key = group_key(message) or ""
    except WireError:
        return Line("", "", "not a valid AMQP message")
    return Line(
        printable(key[:_NAME_MAX]),
        printable(content_type[:_NAME_MAX]),
        _preview(message, [each for each in found if each.code in _BODY]),
    )


def _preview(message: bytes, body: list[Section]) -> str:
    """Return the beginning of the body in one line."""
    if not body:
        return ""
    try:
        if body[0].code == DATA:
            start = _data(message, body[0])[: 4 * PREVIEW_MAX]
            words = start.decode(errors="replace")
            words = " ".join(words.split()) if _is_text(words[:PREVIEW_MAX]) else start.hex(" ")
        elif few_values(message, body[0].start, _LISTED_VALUES_MAX):
            value = _value(message, body[0], _LISTED_VALUES_MAX)
            words = " ".join(repr(value).split()) if isinstance(value, dict | list) else text_of(value)
        else:
            words = f"an AMQP value of {len(message):,} bytes"
    except WireError:
        return "not a valid AMQP message"
    return words if len(words) <= PREVIEW_MAX else f"{words[:PREVIEW_MAX]}…"


def _value(message: bytes, section: Section, values_max: int) -> object:
    """Return the value of a section, or its bytes if it has more than `values_max` values."""
    if not few_values(message, section.start, values_max):
        return message[section.start : section.end]
    value, _ = decode(message, section.start)
    return value.value if isinstance(value, Described) else value


def _content_type(properties: object) -> str:
    """Return the content type in the value of a properties section; empty: it has none."""
    given = (
        properties[_CONTENT_TYPE]
        if isinstance(properties, list) and len(properties) > _CONTENT_TYPE
        else None
    )
    return given if isinstance(given, str) else ""


def _named(section: Section, value: object) -> object:
    """Give the fields of the properties section their names."""
    if section.code == PROPERTIES and isinstance(value, list):
        return {name: each for name, each in zip(PROPERTIES_FIELDS, value, strict=False) if each is not None}
    return value


def _data(message: bytes, section: Section) -> bytes:
    value, _ = decode(message, section.start)
    value = value.value if isinstance(value, Described) else value
    return value if isinstance(value, bytes) else b""


def _body(message: bytes, found: list[Section], content_type: str) -> Body:
    if not found:
        return Body("no body", 0)
    if found[0].code == DATA:
        return _of_bytes(b"".join(_data(message, each) for each in found), content_type)
    values = [_value(message, each, _VALUES_MAX) for each in found]
    size = sum(each.end - each.start for each in found)
    if len(values) == 1 and isinstance(values[0], str) and type(values[0]) is str:
        return _text("AMQP value", values[0], size)
    return Body("AMQP value", size, tree=tree_of(values[0] if len(values) == 1 else values))


def _of_bytes(data: bytes, content_type: str) -> Body:
    media = content_type.partition(";")[0].strip().lower()
    is_json = media == "application/json" or media.endswith("+json") or (not media and data[:1] in b"{[")
    if is_json and data and len(data) <= JSON_MAX:
        try:
            return Body("JSON", len(data), tree=tree_of(json.loads(data)))
        # A number may have more digits than Python converts, and a text more levels than it has stack.
        except (ValueError, RecursionError):
            pass
    # The cost must not depend on what is not shown. The start of a character at the cut is left out.
    start = data[: 4 * TEXT_MAX]
    words = codecs.getincrementaldecoder("utf-8")("replace").decode(start, final=len(start) == len(data))
    words = words[: TEXT_MAX + 1]
    if not _is_text(words):
        return _hex(data)
    return Body("text", len(data), words[:TEXT_MAX], cut=len(words) > TEXT_MAX or len(start) < len(data))


def _is_text(words: str) -> bool:
    """Whether the text has neither control characters nor bytes that are not UTF-8."""
    return all(each.isprintable() or each in "\n\r\t" for each in words) and "\ufffd" not in words


def _text(kind: str, words: str, size: int) -> Body:
    return Body(kind, size, printable(words[:TEXT_MAX], also="\n\t"), cut=len(words) > TEXT_MAX)


def _hex(data: bytes) -> Body:
    lines = []
    for at in range(0, min(len(data), HEX_MAX), 16):
        part = data[at : at + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {letters}")
    return Body("bytes", len(data), "\n".join(lines), cut=len(data) > HEX_MAX)


def _cloudevent(properties: object, content_type: str, body: Body) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a CloudEvent in binary or structured mode.

    `properties`: the application properties. A hostile message may have keys that are not texts.
    """
    if content_type.lower().startswith(_CLOUDEVENTS_JSON) and body.tree is not None:
        return tuple(
            (each.name, each.text)
            for each in body.tree.children
            if not each.children and each.name not in {"data", "data_base64"}
        )
    given = properties if isinstance(properties, dict) else {}
    found = {
        key.removeprefix(prefix): value
        for prefix in _CLOUDEVENT_PREFIXES
        for key, value in given.items()
        if isinstance(key, str) and key.startswith(prefix)
    }
    return tuple((name, text_of(value)) for name, value in sorted(found.items())[:_ATTRIBUTES_MAX])
