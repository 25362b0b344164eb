"""Events as JSON: data is read byte by byte as it is in the text. JSON event format 1.0.2."""

import json
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.errors import InvalidEventError, TooManyEventsError
from event_formats.event import CloudEvent
from event_formats.json_format import (
    is_json_text,
    read_batch,
    read_event,
    read_unchecked,
    write_batch,
    write_event,
)
from tests.event_formats.events import JSON, events

HEAD = b'{"specversion":"1.0","id":"1","source":"/s","type":"t"'
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
OLD = {**REQUIRED, "specversion": "0.3"}
SPACES = st.text(" \t\r\n", max_size=3)
TEXTS_AND_NUMBERS = (
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=9)
    | st.booleans()
    | st.integers(-9, 9)
)


@given(events(values=TEXTS_AND_NUMBERS))
def test_written_events_are_read_back(event: CloudEvent) -> None:
    """Data of an unknown type is written as Base64, so it is not interpreted."""
    again = read_event(write_event(event))
    assert dict(again.attributes) == dict(event.attributes)
    assert again.data == event.data


@given(
    JSON,
    st.sampled_from([None, 1, "\t"]),
    SPACES,
    SPACES,
    st.sampled_from([None, "application/json", "a/b+json"]),
)
def test_json_data_keeps_its_bytes(
    value: object, indent: int | str | None, before: str, after: str, content_type: str | None
) -> None:
    """With any spaces and spellings, the data is the text between the colon and the comma, without the spaces
    around it.
    """
    data = json.dumps(value, indent=indent, ensure_ascii=indent is None).encode()
    kind = b"" if content_type is None else b',"datacontenttype":"' + content_type.encode() + b'"'
    for text in (
        HEAD + b',"data"' + before.encode() + b":" + after.encode() + data + before.encode() + kind + b"}",
        b'{"data":' + data + after.encode() + kind + b"," + HEAD[1:] + b"}",
    ):
        event = read_event(text)
        assert event.data == data
        assert event.attributes["datacontenttype"] == (content_type or "application/json")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"0.10",
        b"-0",
        b"1E5",
        b"9" * 5000,
        b'"\\u00e9 \\ud800"',
        b'{"b":1,"a":1,"b":2}',
        '"é😀"'.encode(),
        b"[ ]",
    ],
)
def test_odd_json_is_left_alone(data: bytes) -> None:
    """Null is data. Numbers keep their digits, and members keep their order and their duplicates."""
    assert read_event(HEAD + b',"data":' + data + b"}").data == data
    event = CloudEvent({**REQUIRED, "datacontenttype": "application/json"}, data)
    assert b'"data":' + data in write_event(event)


def test_an_event_without_data_has_none() -> None:
    event = read_event(HEAD + b"}")
    assert event == CloudEvent(REQUIRED)
    assert json.loads(write_event(event)) == REQUIRED


def test_text_is_data_in_utf_8() -> None:
    """JSON format 3.1: a string, where the type is not JSON, is the content."""
    event = read_event(HEAD + ',"datacontenttype":"text/plain","data":"\\u00e9\\n é"}'.encode())
    assert event.data == "é\n é".encode()
    assert json.loads(write_event(event))["data"] == "é\n é"


def test_a_value_that_is_not_a_string_stays_unchanged_whatever_its_type() -> None:
    assert read_event(HEAD + b',"datacontenttype":"text/plain","data":{"a": 1}}').data == b'{"a": 1}'


def test_binary_goes_as_base64() -> None:
    """JSON format 3.1.1: data_base64 MUST be Base64 text."""
    event = read_event(HEAD + b',"datacontenttype":"image/png","data_base64":"/wA="}')
    assert event.data == b"\xff\x00"
    assert json.loads(write_event(event))["data_base64"] == "/wA="


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain; charset=latin-1", "text/plain", None]
)
def test_data_that_its_type_does_not_explain_goes_as_base64(content_type: str | None) -> None:
    """Data that claims to be JSON and is not, that is not UTF-8, or whose type is unknown is not
    interpreted.
    """
    attributes = REQUIRED if content_type is None else {**REQUIRED, "datacontenttype": content_type}
    written = json.loads(write_event(CloudEvent(attributes, b"{\xe9")))
    assert b64decode(written["data_base64"]) == b"{\xe9"
    assert "data" not in written


@pytest.mark.parametrize(
    ("data", "is_json"),
    [
        (b"1", True),
        (b" [] \n", True),
        (b"", False),
        (b"{} {}", False),
        (b"NaN", False),
        (b"\xff", False),
        (b"[" * 99_999, False),
    ],
)
def test_json_text_is_one_value(data: bytes, is_json: bool) -> None:
    assert is_json_text(data) is is_json


@given(
    events(values=TEXTS_AND_NUMBERS),
    st.sampled_from(["data", "x", "a\\u0000", 'a"data"', "\ud7ff"]),
    st.sampled_from([None, 2]),
)
def test_an_event_that_is_not_checked_is_read_alike(
    event: CloudEvent, subject: str, indent: int | None
) -> None:
    """Texts like the name of the data's member must not be taken for it; a number is as it stands in the
    text.
    """
    body = write_event(CloudEvent({**event.attributes, "subject": subject}, event.data))
    for text in (body, json.dumps(json.loads(body), indent=indent, ensure_ascii=indent is None).encode()):
        try:
            strict = read_event(text)
        except InvalidEventError:
            continue
        attributes, data = read_unchecked(text)
        assert data == strict.data
        assert attributes == {
            name: value if isinstance(value, bool) else str(value)
            for name, value in strict.attributes.items()
            if name in json.loads(text)
        }


@pytest.mark.parametrize(
    ("members", "attributes", "data"),
    [
        (b',"type2":"data","data":{"data":[1, 2]}', {"type2": "data"}, b'{"data":[1, 2]}'),
        (b',"d\\u0061ta":[1,  2]', {}, b"[1,  2]"),
        (b',"a":{"b": 1},"c":-0,"e":null,"data":1.50', {"a": '{"b": 1}', "c": "-0"}, b"1.50"),
        (b',"A_b":[]', {"A_b": "[]"}, None),
        (b',"data":{"a":1,"a":2}', {}, b'{"a":1,"a":2}'),
    ],
)
def test_any_attribute_is_read_without_checks(
    members: bytes, attributes: dict[str, object], data: bytes | None
) -> None:
    assert read_unchecked(HEAD + members + b"}") == ({**REQUIRED, **attributes}, data)


def test_a_null_attribute_is_absent() -> None:
    """JSON format 2.2: null is as if it were not there."""
    assert read_event(HEAD + b',"subject":null,"data_base64":null}') == CloudEvent(REQUIRED)


def test_values_keep_their_types() -> None:
    """JSON format 2.2: Boolean, Integer and String have JSON types of their own."""
    event = read_event(HEAD + b',"a":true,"b":-5,"c":"5","d":2147483647}')
    assert {name: event.attributes[name] for name in "abcd"} == {
        "a": True,
        "b": -5,
        "c": "5",
        "d": 2147483647,
    }


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (b',"a":1.5', "an integer of at most 32 bits"),
        (b',"a":2147483648', "32 bits"),
        (b',"a":99999999999999999999', "32 bits"),
        (b',"a":{}', "a is {}"),
        (b',"a":["x"]', "a is"),
        (b',"a_b":1', "not an attribute name"),
        (b',"id":"2"', "'id' occurs twice"),
        (b',"time":"now"', "time"),
        (b',"subject":"\\ud800"', "D800"),
        (b',"datacontenttype":"a/b","data":"\\ud800"', "surrogate"),
        (b',"data":1,"data_base64":"MQ=="', "must not have both"),
        (b',"data_base64":"%"', "not Base64"),
        (b',"data_base64":"MQ"', "not Base64"),
        (b',"data_base64":5', "not a string"),
        (b',"data":NaN', "NaN is not valid JSON"),
        (b',"data":01', "expecting ','"),
        (b',"data":"\n"', "control character"),
        (b',"data":', "not valid JSON"),
        (b",", "expecting"),
        (b',"data":' + b"[" * 99_999, "too deep"),
    ],
)
def test_errors_are_reported(members: bytes, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words):
        read_event(HEAD + members + b"}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON object"),
        (b"[]", "JSON object"),
        (b"{}", "specversion is missing"),
        (HEAD, "expecting ','"),
        (HEAD + b"} x", "extra data at character 56"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'{"specversion"}', "expecting ':'"),
    ],
)
def test_a_message_that_is_not_an_event_is_reported(body: bytes, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words):
        read_event(body)


@given(st.binary() | st.text().map(str.encode), st.integers(0, 80))
def test_garbage_is_an_error_and_nothing_else(garbage: bytes, cut: int) -> None:
    for body in (garbage, (HEAD + b"}")[:cut] + garbage):
        try:
            read_event(body)
            read_batch(body, count_max=9)
        except (InvalidEventError, TooManyEventsError):
            pass


def test_a_byte_order_mark_is_accepted() -> None:
    assert read_event(b"\xef\xbb\xbf" + HEAD + b"}").attributes == REQUIRED


def test_base64_of_0_3_stays_the_text_it_is() -> None:
    """In 0.3, the encoded text is the data, and an attribute names the encoding. Neither changes."""
    body = (
        b'{"specversion":"0.3","id":"1","source":"/s","type":"t",'
        b'"datacontentencoding":"base64","data":"/wA="}'
    )
    event = read_event(body)
    assert event == CloudEvent({**OLD, "datacontentencoding": "base64"}, b"/wA=")
    assert json.loads(write_event(event)) == json.loads(body)


def test_bytes_of_0_3_are_written_as_it_has_them() -> None:
    written = json.loads(write_event(CloudEvent(OLD, b"\xff\x00")))
    assert written == {**OLD, "datacontentencoding": "base64", "data": "/wA="}


@pytest.mark.parametrize("members", [b',"data_base64":"/wA="', b',"datacontentencoding":"base64","data":5'])
def test_0_3_is_read_by_its_own_rules(members: bytes) -> None:
    with pytest.raises(InvalidEventError, match="datacontentencoding"):
        read_event(HEAD.replace(b"1.0", b"0.3") + members + b"}")


@given(st.lists(events(values=TEXTS_AND_NUMBERS), max_size=4))
def test_a_batch_is_read_as_it_was_written(batch: list[CloudEvent]) -> None:
    again = read_batch(write_batch(batch), count_max=4)
    assert [(dict(event.attributes), event.data) for event in again] == [
        (dict(event.attributes), event.data) for event in batch
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "JSON array"),
        (b"[{}]", "event 0 of the batch: specversion"),
        (b"[" + HEAD + b"}, {}]", "event 1 of the batch"),
        (b"[" + HEAD + b"},]", "event 1 of the batch"),
        (b"[" + HEAD + b"} " + HEAD + b"}]", "expecting ','"),
        (b"[] []", "extra data"),
    ],
)
def test_a_broken_batch_is_reported_with_its_event(body: bytes, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words):
        read_batch(body, count_max=9)


def test_a_batch_has_a_limit() -> None:
    with pytest.raises(TooManyEventsError, match="more than 2 events"):
        read_batch(b"[" + b",".join([HEAD + b"}"] * 3) + b"]", count_max=2)
