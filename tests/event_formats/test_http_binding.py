"""Events in HTTP messages, both ways and in all modes, cross-checked with the CloudEvents SDK. HTTP binding
1.0.2.
"""

import json
from contextlib import suppress

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from hypothesis import given
from hypothesis import strategies as st

from event_formats.errors import InvalidEventError, TooManyEventsError, UnsupportedFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import (
    HttpMessage,
    events_from_http,
    from_http,
    mode_of_http,
    to_batch,
    to_binary,
    to_structured,
)
from event_formats.media import Mode
from tests.event_formats.events import TEXTS, WORDS, events

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
HEADERS = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]
STRUCTURED = (b"content-type", b"application/cloudevents+json")
BODY = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a": 1}}'


def raw(message: HttpMessage) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("ascii")) for name, value in message.headers]


@given(events(values=TEXTS))
def test_binary_comes_back_as_it_was_sent(event: CloudEvent) -> None:
    """All values are strings in headers, so reading returns strings. Only Content-Type distinguishes an
    absent body from an empty one.
    """
    message = to_binary(event)
    assert message.body == (event.data or b"")
    again = from_http([(name.title(), value) for name, value in raw(message)], message.body)
    assert dict(again.attributes) == dict(event.attributes)
    assert again.data == event.data or not (again.data or event.data)


@given(events(values=TEXTS))
def test_structured_comes_back_as_it_was_sent(event: CloudEvent) -> None:
    message = to_structured(event)
    again = from_http(raw(message), message.body)
    assert (dict(again.attributes), again.data) == (dict(event.attributes), event.data)


@given(st.lists(events(values=TEXTS), max_size=3))
def test_a_batch_comes_back_as_it_was_sent(batch: list[CloudEvent]) -> None:
    message = to_batch(batch)
    assert list(events_from_http(raw(message), message.body)) == [
        CloudEvent(dict(event.attributes), event.data) for event in batch
    ]


@given(WORDS, WORDS, TEXTS.filter(bool), st.binary(min_size=1, max_size=50))
def test_the_sdk_reads_what_is_sent_in_binary_mode(id_: str, type_: str, extension: str, data: bytes) -> None:
    ours = CloudEvent(
        {
            **REQUIRED,
            "id": id_,
            "type": type_,
            "myext": extension,
            "datacontenttype": "application/octet-stream",
        },
        data,
    )
    message = to_binary(ours)
    theirs = sdk.from_binary(sdk.HTTPMessage(dict(message.headers), message.body), JSONFormat(), SdkEvent)
    assert (theirs.get_id(), theirs.get_type(), theirs.get_extension("myext")) == (id_, type_, extension)
    got = theirs.get_data()  # which it makes text of where it can
    assert (got.encode() if isinstance(got, str) else got) == data


@given(WORDS, WORDS, TEXTS.filter(bool), st.dictionaries(TEXTS, st.integers(), max_size=3))
def test_requests_of_the_sdk_are_read(id_: str, type_: str, extension: str, data: dict[str, int]) -> None:
    attributes = {
        **REQUIRED,
        "id": id_,
        "type": type_,
        "myext": extension,
        "datacontenttype": "application/json",
    }
    theirs = SdkEvent(dict(attributes), data)
    for message in (sdk.to_binary(theirs, JSONFormat()), sdk.to_structured(theirs, JSONFormat())):
        headers = [(name.encode(), value.encode()) for name, value in message.headers.items()]
        event = from_http(headers, message.body)
        assert {name: event.attributes[name] for name in attributes} == attributes
        assert event.data is not None
        assert json.loads(event.data) == data


def test_structured_mode_is_read_by_the_sdk() -> None:
    message = to_structured(CloudEvent({**REQUIRED, "datacontenttype": "application/json"}, b'{"a": [1, 2]}'))
    theirs = sdk.from_structured(sdk.HTTPMessage(dict(message.headers), message.body), JSONFormat(), SdkEvent)
    assert theirs.get_data() == {"a": [1, 2]}


def test_the_body_of_binary_mode_is_the_data() -> None:
    """HTTP binding 3.1.2: the data is placed into the body as is; Content-Type maps to datacontenttype."""
    event = from_http(
        [*HEADERS, (b"content-type", b"application/json"), (b"x-other", b"1"), (b"ce-myext", b"a%20b")],
        b' {"a":1}\n',
    )
    assert event == CloudEvent(
        {**REQUIRED, "myext": "a b", "datacontenttype": "application/json"}, b' {"a":1}\n'
    )


def test_an_absent_body_is_no_data_and_an_empty_one_of_a_type_is_empty() -> None:
    assert from_http(HEADERS, b"").data is None
    assert from_http([*HEADERS, (b"content-type", b"text/plain")], b"").data == b""
    assert from_http(HEADERS, b"x").data == b"x"


def test_the_content_type_decides_even_next_to_headers_of_an_event() -> None:
    """HTTP binding 3: the Content-Type selects structured mode, independent of the other headers, valid or
    not.
    """
    others = [(b"ce-specversion", b"9"), (b"ce-my_ext", b"x"), (b"ce-id", b"%ff")]
    assert from_http([*others, STRUCTURED], BODY) == CloudEvent(
        {**REQUIRED, "datacontenttype": "application/json"}, b'{"a": 1}'
    )
    assert from_http([STRUCTURED, *others], BODY).attributes["id"] == "1"


def test_0_3_is_read_and_stays_0_3() -> None:
    """Events of 0.3 are never upgraded: version and attributes are passed on unchanged."""
    headers = [
        (b"ce-specversion", b"0.3"),
        *HEADERS[1:],
        (b"ce-schemaurl", b"/schema"),
        (b"ce-datacontentencoding", b"base64"),
    ]
    event = from_http(headers, b"/wA=")
    assert event == CloudEvent(
        {**REQUIRED, "specversion": "0.3", "schemaurl": "/schema", "datacontentencoding": "base64"}, b"/wA="
    )
    assert ("ce-specversion", "0.3") in to_binary(event).headers


@pytest.mark.parametrize("missing", range(4))
def test_each_required_header_is_missed(missing: int) -> None:
    name = HEADERS[missing][0].decode()[3:]
    with pytest.raises(InvalidEventError, match=name):
        from_http(HEADERS[:missing] + HEADERS[missing + 1 :], b"{}")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ((b"ce-id", b"2"), "ce-id occurs twice"),
        ((b"CE-ID", b"2"), "ce-id occurs twice"),
        ((b"ce-my_ext", b"2"), "'my_ext' is not an attribute name"),
        ((b"ce-", b"2"), "not an attribute name"),
        ((b"ce-data", b"2"), "cannot have the name 'data'"),
        ((b"ce-time", b"now"), "time 'now'"),
        ((b"ce-x", b"%ff"), "x is not UTF-8"),
        ((b"ce-x", b"%00"), "x has U[+]0000"),
        ((b"ce-datacontenttype", b"text/plain"), "not a valid header"),
        ((b"content-type", b"x"), "datacontenttype"),
    ],
)
def test_an_error_in_a_header_is_reported(header: tuple[bytes, bytes], words: str) -> None:
    with pytest.raises(InvalidEventError, match=words):
        from_http([*HEADERS, header], b"")


def test_two_content_types_are_an_error() -> None:
    twice = [(b"content-type", b"text/plain"), (b"content-type", b"application/json")]
    with pytest.raises(InvalidEventError, match="Content-Type occurs twice"):
        from_http([*HEADERS, *twice], b"")
    with pytest.raises(InvalidEventError, match="differs from Content-Type"):
        from_http([*HEADERS, twice[0], (b"ce-datacontenttype", b"text/html")], b"")
    assert (
        from_http([*HEADERS, twice[0], (b"ce-datacontenttype", b"text/plain")], b"").attributes[
            "datacontenttype"
        ]
        == "text/plain"
    )


def test_the_absence_of_events_is_reported() -> None:
    with pytest.raises(InvalidEventError, match="neither a ce-specversion header"):
        from_http([(b"content-type", b"application/json")], b"{}")
    with pytest.raises(UnsupportedFormatError):
        from_http([(b"content-type", b"application/cloudevents+xml")], b"<a/>")


def test_a_batch_is_not_an_event() -> None:
    headers = [(b"content-type", b"application/cloudevents-batch+json")]
    with pytest.raises(InvalidEventError, match="a batch is not allowed"):
        from_http(headers, b"[]")
    assert list(events_from_http(headers, b"[]")) == []
    assert len(events_from_http(headers, b"[" + BODY + b"," + BODY + b"]")) == 2
    with pytest.raises(TooManyEventsError):
        events_from_http(headers, b"[" + BODY + b"," + BODY + b"]", count_max=1)


def test_one_event_is_a_batch_of_one() -> None:
    assert len(events_from_http(HEADERS, b"")) == len(events_from_http([STRUCTURED], BODY)) == 1


@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ([], None),
        ([(b"Content-Type", b"text/html")], None),
        ([(b"Ce-SpecVersion", b"x")], Mode.BINARY),
        ([(b"Content-Type", b"Application/CloudEvents+json; charset=utf-8")], Mode.STRUCTURED),
        ([(b"ce-specversion", b"1.0"), (b"content-type", b"application/cloudevents+json")], Mode.STRUCTURED),
        ([(b"content-type", b"application/cloudevents-batch+json")], Mode.BATCH),
    ],
)
def test_headers_decide_whether_a_message_has_an_event(
    headers: list[tuple[bytes, bytes]], mode: Mode | None
) -> None:
    assert mode_of_http(headers) is mode


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"ce-id", b"ce-specversion", b"ce-x", b"content-type", b"ce-Y_"]),
            st.binary(max_size=9),
        )
    ),
    st.binary(),
)
def test_garbage_is_refused_and_nothing_else(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    with suppress(InvalidEventError, UnsupportedFormatError):
        from_http(headers, body)


def test_names_by_the_thousand_do_not_fill_the_memory() -> None:
    from event_formats import http_binding  # noqa: PLC0415  (its memory is looked into)

    for number in range(3 * 2048):
        from_http([*HEADERS, (b"x-%d" % number, b"")], b"")
    assert len(http_binding._classified) <= 2048


def test_values_of_all_types_become_their_texts() -> None:
    """HTTP binding 3.1.3.1, CloudEvents 2.3: the canonical strings."""
    event = CloudEvent({**REQUIRED, "a": True, "b": -1, "c": b"\xff"})
    assert [value for name, value in to_binary(event).headers if len(name) == 4] == ["true", "-1", "/w=="]
