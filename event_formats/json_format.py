"""Events as JSON, one or a batch. Spec: JSON event format 1.0.2, and 0.3.

Law: **data is not serialized again.** Reading returns the text of the `data` member unchanged, with its
spaces, order of keys and spelling of numbers. Writing inserts the data unchanged.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import count

# Public, but missing from its stub.
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Final, TypeVar, cast

from event_formats.attributes import check, check_name, shown
from event_formats.errors import InvalidEventError, TooManyEventsError
from event_formats.event import CloudEvent, Value
from event_formats.json_skipping import LARGE_CHARACTERS, value_end
from event_formats.media import is_json, is_unicode
from event_formats.names import CONTENT_ENCODING, CONTENT_TYPE, DATA, DATA_BASE64

JSON: Final = "application/json"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Usual text between values: a name without escapes up to its value, and the mark after a value. One match of
# a regular expression is faster than a step for each part.
_KEY: Final = re.compile(r'"([a-z0-9_]+)"[ \t\n\r]*:[ \t\n\r]*')
_NEXT: Final = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")
_BOM: Final = b"\xef\xbb\xbf"
_INTEGER_DIGITS: Final = 11
_OPENING: Final = frozenset("[{")
_SHOWN: Final = 100
T = TypeVar("T")
_scanstring = cast("Callable[[str, int, bool], tuple[str, int]]", scanstring)


class _Raw(str):
    """The text of a JSON number, or the beginning of the text of a large list or object.

    It is not converted, to save time: most numbers are in `data`, which is only skipped.
    """

    __slots__ = ()


def _no_constant(name: str) -> object:
    text = f"{name} is not valid JSON"
    raise ValueError(text)


_decoder: Final = json.JSONDecoder(parse_int=_Raw, parse_float=_Raw, parse_constant=_no_constant)
# As above.
_scan = cast("Callable[[str, int], tuple[object, int]]", _decoder.scan_once)  # type: ignore[attr-defined]


def read_event(body: bytes) -> CloudEvent:
    """Parse an event, a JSON object.

    Raises:
        InvalidEventError: the text is not JSON or not an event. The message says where and why.
    """
    return _drained(event_steps(body))


def event_steps(body: bytes) -> Generator[None, None, CloudEvent]:
    """Parse an event in short steps, if the text is large. Returns what `read_event` returns."""
    text = _decoded(body)
    event, end = yield from _event(text, _skip(text, 0))
    _check_end(text, end)
    return event


def read_unchecked(body: bytes) -> tuple[dict[str, object], bytes | None]:
    """Return attributes and data of an event without checking the attributes.

    The value of an attribute is a str or bool, or the JSON text of another value.

    Raises:
        InvalidEventError: the text is not JSON, `specversion` is missing, the data cannot be read, or an
            attribute is not Unicode text.
    """
    text = _decoded(body)
    # Hot path: one run of the parser in C instead of a step for each member.
    quick = _quick(text)
    if quick is not None:
        attributes, raw = quick
    else:
        members, slices, end = _drained(_members(text, _skip(text, 0)))
        _check_end(text, end)
        raw = text[slices[DATA]] if DATA in members else None
        attributes = {
            name: value if type(value) in _PLAIN or name in {DATA, DATA_BASE64} else text[slices[name]]
            for name, value in members.items()
        }
    value, binary = attributes.pop(DATA, None), attributes.pop(DATA_BASE64, None)
    attributes = {name: one for name, one in attributes.items() if one is not None}
    if "specversion" not in attributes:
        raise InvalidEventError("specversion is missing")
    # Only an escape can express half of a surrogate pair.
    if "\\u" in text:
        _check_unicode(attributes)
    return attributes, _data(attributes, raw, value, binary)


def _quick(text: str) -> tuple[dict[str, object], str | None] | None:
    """Return the members of an event, and the text of its data, with one run of the JSON parser.

    None: the text of the data cannot be located in this way; read member by member.
    """
    try:
        members: dict[str, object] = _quick_decoder.decode(text)
    except (ValueError, RecursionError):
        # The slow path reports the error with its position.
        return None
    if type(members) is not dict:
        return None
    for name, value in members.items():
        if type(value) not in _PLAIN and name != DATA:
            return None
    if DATA not in members:
        return members, None
    # Without escapes, the name of the member can only be written as "data", so one occurrence is the member.
    if "\\u" in text or text.count('"data"') != 1:
        return None
    found = _KEY.match(text, text.index('"data"'))
    return None if found is None else (members, text[found.end() : _scan(text, found.end())[1]])


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    # A repeated member: the slow path reports it by its name.
    if len(members) != len(pairs):
        raise ValueError
    return members


_quick_decoder: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_once)
_PLAIN: Final = frozenset({str, bool, type(None)})


def read_batch(body: bytes, *, count_max: int) -> list[CloudEvent]:
    """Parse a JSON array of events. Raises like `batch_events`."""
    return list(batch_events(body, count_max=count_max))


def batch_events(body: bytes, *, count_max: int) -> Iterator[CloudEvent]:
    """The events of a JSON array, each parsed when it is asked for. Raises like `batch_steps`."""
    return (event for event in batch_steps(body, count_max=count_max) if event is not None)


def batch_steps(body: bytes, *, count_max: int) -> Iterator[CloudEvent | None]:
    """The events of a JSON array, each parsed when it is asked for. None: a step of a large event.

    Raises:
        InvalidEventError: the text is not an array, or one of its items is not an event.
        TooManyEventsError: the array has more than `count_max` events.
    """
    text = _decoded(body)
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise InvalidEventError("a batch must be a JSON array")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        _check_end(text, at + 1)
        return
    for number in count():
        # Before the event is parsed: a batch must not cost more than it may.
        if number >= count_max:
            message = f"the batch has more than {count_max} events"
            raise TooManyEventsError(message)
        try:
            event, at = yield from _event(text, at)
        except InvalidEventError as error:
            message = f"event {number} of the batch: {error}"
            raise InvalidEventError(message) from None
        yield event
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            _check_end(text, at + 1)
            return
        at = _skip(text, _expect(text, at, ","))


def write_event(event: CloudEvent, *, binary: bool = False) -> bytes:
    """Return the event as a JSON object.

    Data is written as JSON or text if its type is that, otherwise in Base64.

    `binary`: write the data of a 1.0 event always in Base64. In 0.3 this is not possible: Base64 needs the
    attribute `datacontentencoding` there, which would change the event.
    """
    attributes = {
        name: b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in event.attributes.items()
    }
    member = b""
    if event.data is not None:
        value = (
            None
            if binary and attributes.get("specversion") == "1.0"
            else _data_value(event.attributes, event.data)
        )
        if value is not None:
            member = b',"data":' + value
        elif attributes.get("specversion") == "0.3":
            attributes[CONTENT_ENCODING] = "base64"
            member = b',"data":"' + b64encode(event.data) + b'"'
        else:
            member = b',"data_base64":"' + b64encode(event.data) + b'"'
    return json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()[:-1] + member + b"}"


def write_batch(events: Sequence[CloudEvent]) -> bytes:
    """Return the events as a JSON array."""
    return b"[" + b",".join(map(write_event, events)) + b"]"


def is_json_text(data: bytes) -> bool:
    """Whether the bytes are one JSON value and nothing else."""
    try:
        text = data.decode()
        at = _skip(text, 0)
        end = (
            _drained(value_end(text, at))
            if len(text) > LARGE_CHARACTERS
            else _decoder.raw_decode(text, at)[1]
        )
        return _skip(text, end) == len(text)
    except (ValueError, RecursionError):
        # Also nested too deeply: a reader would fail too.
        return False


def _data_value(attributes: Mapping[str, Value], data: bytes) -> bytes | None:
    """Return the data as a JSON value that reading returns byte for byte; None if no value does."""
    content_type = attributes.get(CONTENT_TYPE)
    encoded = _in_base64(attributes)
    if isinstance(content_type, str) and is_json(content_type) and not encoded:
        # Data that only claims to be JSON would break the whole event.
        return data if is_json_text(data) else None
    if not encoded and not (isinstance(content_type, str) and is_unicode(content_type)):
        return None
    try:
        return json.dumps(data.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        # Base64 carries data that is not text.
        return None


def _in_base64(attributes: Mapping[str, object]) -> bool:
    """Whether the data of a 0.3 event is text that its sender encoded in Base64. It is not decoded."""
    return (
        attributes.get("specversion") == "0.3"
        and str(attributes.get(CONTENT_ENCODING, "")).lower() == "base64"
    )


def _decoded(body: bytes) -> str:
    try:
        return body.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        message = f"this is not UTF-8 at byte {error.start}"
        raise InvalidEventError(message) from None


def _drained(steps: Generator[None, None, T]) -> T:
    """Do all steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


def _event(text: str, at: int) -> Generator[None, None, tuple[CloudEvent, int]]:
    """Return the event that begins at `at`, and where it ends. Yields between two steps."""
    members, slices, end = yield from _members(text, at)
    data_at, value, binary = slices.get(DATA), members.pop(DATA, None), members.pop(DATA_BASE64, None)
    attributes = {
        check_name(name): _attribute(name, value) for name, value in members.items() if value is not None
    }
    check(attributes)
    # Data without a type gets the type that the JSON format implies: in the other bindings, no type is
    # implied.
    data = _data(attributes, None if data_at is None else text[data_at], value, binary)
    if data_at is not None and CONTENT_TYPE not in attributes and not _in_base64(attributes):
        attributes[CONTENT_TYPE] = JSON
    return CloudEvent(attributes, data), end


def _data(attributes: Mapping[str, object], raw: str | None, value: object, binary: object) -> bytes | None:
    """Return the data as bytes.

    `raw`, `value`: JSON text and value of the member `data`; `binary`: value of `data_base64`. At most one of
    the members may exist.
    """
    if binary is not None:
        if attributes.get("specversion") == "0.3":
            raise InvalidEventError("data_base64 does not exist in 0.3: use datacontentencoding")
        if raw is not None:
            raise InvalidEventError("an event must not have both data and data_base64")
        return _from_base64(binary)
    if raw is None:
        return None
    content_type = attributes.get(CONTENT_TYPE)
    text_wanted = _in_base64(attributes)
    if text_wanted or (content_type is not None and not is_json(str(content_type))):
        if type(value) is str:
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise InvalidEventError("data has half of a surrogate pair, which is not text") from None
        if text_wanted:
            raise InvalidEventError("data is not a string, but datacontentencoding is base64")
    return raw.encode()


def _members(text: str, at: int) -> Generator[None, None, tuple[dict[str, object], dict[str, slice], int]]:
    """Return the members of a JSON object: values by name, and the position of each value in the text.

    Also returns where the object ends. Yields between two steps.
    """
    if text[at : at + 1] != "{":
        raise InvalidEventError(f"an event is a JSON object, not {shown(text[at : at + 20])}")
    members: dict[str, object] = {}
    slices: dict[str, slice] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, slices, at + 1
    try:
        while True:
            key = _KEY.match(text, at)
            if key is not None:
                name, at = key[1], key.end()
            else:
                # A name with escapes or other characters, which the expression does not match.
                name, at = _scanstring(text, _expect(text, at, '"'), True)
                at = _skip(text, _expect(text, _skip(text, at), ":"))
            value, end = yield from _value(text, at)
            # Two members with one name have no defined meaning (RFC 8259, 4).
            if name in members:
                message = f"{shown(name)} occurs twice"
                raise InvalidEventError(message)
            members[name], slices[name] = value, slice(at, end)
            following = _NEXT.match(text, end)
            if following is None:
                raise _no_json("expecting ','", _skip(text, end))
            at = following.end()
            if following[1] == "}":
                return members, slices, at
    except JSONDecodeError as error:
        raise _no_json(error.msg, error.pos) from None
    except RecursionError:
        raise InvalidEventError("values are nested too deeply") from None
    except ValueError as error:
        raise InvalidEventError(str(error)) from None


def _value(text: str, at: int) -> Generator[None, None, tuple[object, int]]:
    """Return the value that begins at `at`, and where it ends. Of a large list or object, only a `_Raw`."""
    if len(text) - at <= LARGE_CHARACTERS or text[at : at + 1] not in _OPENING:
        try:
            return _scan(text, at)
        except StopIteration as stop:
            raise _no_json("expecting a value", stop.value) from None
    end = yield from value_end(text, at)
    return _Raw(text[at : at + _SHOWN]), end


def _attribute(name: str, value: object) -> Value:
    if type(value) is str or type(value) is bool:
        return value
    # `int` of a long text is slow. Eleven characters hold every integer of 32 bits with its sign.
    if type(value) is _Raw and len(value) <= _INTEGER_DIGITS and value.lstrip("-").isdecimal():
        return int(value)
    message = (
        f"{name} is {shown(value)}: an attribute is a string, a boolean, or an integer of at most 32 bits"
    )
    raise InvalidEventError(message)


def _check_unicode(attributes: Mapping[str, object]) -> None:
    """Refuse half of a surrogate pair: JSON can express it, but it is not text and cannot be encoded."""
    for name, value in attributes.items():
        try:
            name.encode()
            str(value).encode()
        except UnicodeEncodeError:
            message = f"{shown(name)} has half of a surrogate pair, which is not text"
            raise InvalidEventError(message) from None


def _from_base64(value: object) -> bytes:
    if type(value) is not str:
        raise InvalidEventError("data_base64 is not a string")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError) as error:
        message = f"data_base64 is not Base64: {error}"
        raise InvalidEventError(message) from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "an empty match is a match"
    return found.end()


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise _no_json(f"expecting {character!r}", at)
    return at + 1


def _check_end(text: str, at: int) -> None:
    if (at := _skip(text, at)) != len(text):
        raise _no_json("extra data", at)


def _no_json(why: str, at: int) -> InvalidEventError:
    return InvalidEventError(f"this is not valid JSON: {why} at character {at}")
