"""Events as JSON, one or a batch. Spec: JSON event format 1.0.2, and 0.3.

One law: **data is never written anew**. The text of the `data` member is cut out of the JSON as it stands there, spaces, order of keys,
spelling of numbers and all, and put in again so.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # public in the module, missing from its stub
from typing import Final, cast

from event_formats.attributes import check, check_name, shown
from event_formats.errors import InvalidEventError, TooManyEventsError
from event_formats.event import CloudEvent, Value
from event_formats.media import is_json, is_unicode

JSON: Final = "application/json"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_BOM: Final = b"\xef\xbb\xbf"
_DATA: Final = "data"
_BASE64: Final = "data_base64"
_ENCODING: Final = "datacontentencoding"
_scanstring = cast("Callable[[str, int, bool], tuple[str, int]]", scanstring)


class _Number(str):
    """A number as it is written: data is only passed over, however many digits it has."""

    __slots__ = ()


def _no_constant(name: str) -> object:
    message = f"{name} is no JSON"
    raise ValueError(message)


_decoder: Final = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)


def read_event(body: bytes) -> CloudEvent:
    """One event, a JSON object.

    Raises:
        InvalidEventError: it is no JSON, or no event; the message says where and why.
    """
    text = _decoded(body)
    event, end = _event(text, _skip(text, 0))
    _check_end(text, end)
    return event


def read_batch(body: bytes, *, count_max: int) -> list[CloudEvent]:
    """The events of a JSON array, in order.

    Raises:
        InvalidEventError: it is none, or one of its items is no event.
        TooManyEventsError: there are more than `count_max`.
    """
    text = _decoded(body)
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise InvalidEventError("a batch is a JSON array")
    at = _skip(text, at + 1)
    events: list[CloudEvent] = []
    if text[at : at + 1] == "]":
        _check_end(text, at + 1)
        return events
    while True:
        if len(events) >= count_max:
            message = f"more than {count_max} events in a batch"
            raise TooManyEventsError(message)
        try:
            event, at = _event(text, at)
        except InvalidEventError as error:
            message = f"event {len(events)} of the batch: {error}"
            raise InvalidEventError(message) from None
        events.append(event)
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            _check_end(text, at + 1)
            return events
        at = _skip(text, _expect(text, at, ","))


def write_event(event: CloudEvent, *, binary: bool = False) -> bytes:
    """The event as a JSON object. Data that is not JSON of its own type, or not UTF-8 text, is written in Base64.

    `binary`: all data of a 1.0 event is written in Base64. (0.3 has no member for it: the event would come back with another encoding.)
    """
    attributes = {name: b64encode(value).decode() if isinstance(value, bytes) else value for name, value in event.attributes.items()}
    member = b""
    if event.data is not None:
        value = None if binary and attributes.get("specversion") == "1.0" else _data_value(event.attributes, event.data)
        if value is not None:
            member = b',"data":' + value
        elif attributes.get("specversion") == "0.3":
            attributes[_ENCODING] = "base64"
            member = b',"data":"' + b64encode(event.data) + b'"'
        else:
            member = b',"data_base64":"' + b64encode(event.data) + b'"'
    return json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()[:-1] + member + b"}"


def write_batch(events: Sequence[CloudEvent]) -> bytes:
    """The events as a JSON array."""
    return b"[" + b",".join(map(write_event, events)) + b"]"


def is_json_text(data: bytes) -> bool:
    """The bytes are one JSON value and nothing else."""
    try:
        text = data.decode()
        return _skip(text, _decoder.raw_decode(text, _skip(text, 0))[1]) == len(text)
    except (ValueError, RecursionError):
        return False


def _data_value(attributes: Mapping[str, Value], data: bytes) -> bytes | None:
    """The data as JSON, from which it is got back byte for byte; None where there is no such."""
    content_type = attributes.get("datacontenttype")
    encoded = _in_base64(attributes)
    if isinstance(content_type, str) and is_json(content_type) and not encoded:
        return data if is_json_text(data) else None
    if not encoded and not (isinstance(content_type, str) and is_unicode(content_type)):
        return None
    try:
        return json.dumps(data.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return None


def _in_base64(attributes: Mapping[str, Value]) -> bool:
    """0.3 only: the data is text that somebody encoded, and stays that."""
    return attributes.get("specversion") == "0.3" and str(attributes.get(_ENCODING, "")).lower() == "base64"


def _decoded(body: bytes) -> str:
    try:
        return body.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        message = f"this is no UTF-8 at byte {error.start}"
        raise InvalidEventError(message) from None


def _event(text: str, at: int) -> tuple[CloudEvent, int]:
    """The event at a place, and the place behind it."""
    members, slices, end = _members(text, at)
    data_at, binary = slices.get(_DATA), members.pop(_BASE64, None)
    members.pop(_DATA, None)
    attributes = {check_name(name): _attribute(name, value) for name, value in members.items() if value is not None}
    check(attributes)
    if binary is not None and attributes["specversion"] == "1.0":
        if data_at is not None:
            raise InvalidEventError("data and data_base64: there is only one of them")
        return CloudEvent(attributes, _from_base64(binary)), end
    if binary is not None:
        raise InvalidEventError("data_base64 is unknown to 0.3: it has datacontentencoding")
    if data_at is None:
        return CloudEvent(attributes), end
    return CloudEvent(attributes, _data(attributes, text[data_at])), end


def _data(attributes: dict[str, Value], raw: str) -> bytes:
    """The bytes of a data member; where no type is given it is given the one that JSON implies, for other bindings imply none."""
    content_type = attributes.get("datacontenttype")
    text_wanted = _in_base64(attributes)
    if content_type is None and not text_wanted:
        attributes["datacontenttype"] = JSON
    elif text_wanted or not is_json(str(content_type)):
        value = _decoder.decode(raw)
        if type(value) is str:
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise InvalidEventError("data has half a surrogate pair, which is no text") from None
        if text_wanted:
            raise InvalidEventError("data is no string, and datacontentencoding says base64")
    return raw.encode()


def _members(text: str, at: int) -> tuple[dict[str, object], dict[str, slice], int]:
    """Values by name, and where each stands in the text."""
    if text[at : at + 1] != "{":
        raise InvalidEventError(f"an event is a JSON object, not {shown(text[at : at + 20])}")
    members: dict[str, object] = {}
    slices: dict[str, slice] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, slices, at + 1
    try:
        while True:
            name, at = _scanstring(text, _expect(text, at, '"'), True)
            at = _skip(text, _expect(text, _skip(text, at), ":"))
            value, end = _decoder.raw_decode(text, at)
            if name in members:
                message = f"{shown(name)} is there twice"
                raise InvalidEventError(message)
            members[name], slices[name] = value, slice(at, end)
            at = _skip(text, end)
            if text[at : at + 1] == "}":
                return members, slices, at + 1
            at = _skip(text, _expect(text, at, ","))
    except JSONDecodeError as error:
        raise _no_json(error.msg, error.pos) from None
    except RecursionError:
        raise InvalidEventError("values within values too deep") from None
    except ValueError as error:
        raise InvalidEventError(str(error)) from None


def _attribute(name: str, value: object) -> Value:
    if type(value) is str or type(value) is bool:
        return value
    if type(value) is _Number and len(value) <= 11 and value.lstrip("-").isdecimal():
        return int(value)
    message = f"{name} is {shown(value)}: an attribute is a string, a boolean, or an integer of 32 bits"
    raise InvalidEventError(message)


def _from_base64(value: object) -> bytes:
    if type(value) is not str:
        raise InvalidEventError("data_base64 is no string")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError) as error:
        message = f"data_base64 is no Base64: {error}"
        raise InvalidEventError(message) from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "nothing is a match, too"
    return found.end()


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise _no_json(f"expecting {character!r}", at)
    return at + 1


def _check_end(text: str, at: int) -> None:
    if (at := _skip(text, at)) != len(text):
        raise _no_json("extra data", at)


def _no_json(why: str, at: int) -> InvalidEventError:
    return InvalidEventError(f"this is no JSON: {why} at character {at}")
