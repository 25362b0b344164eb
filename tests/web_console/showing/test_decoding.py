"""Stored messages as pages show them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.types import Symbol
from web_console.showing.decoding import HEX_MAX, PREVIEW_MAX, TEXT_MAX, body_bytes, line, shown
from web_console.showing.tree import tree_of


def test_a_body_is_shown_by_its_content_type() -> None:
    text = shown(Event(b"hello", content_type="text/plain").encode())
    assert (text.body.kind, text.body.text, text.body.size) == ("text", "hello", 5)
    parsed = shown(Event(b'{"a": [1]}', content_type="application/vnd.x+json").encode())
    assert (parsed.body.kind, parsed.body.tree) == ("JSON", tree_of({"a": [1]}))
    assert shown(Event(b'{"a": 1}').encode()).body.kind == "JSON"
    assert shown(Event(b'{"a": 1}', content_type="text/plain").encode()).body.kind == "text"
    assert shown(Event(b"{no json").encode()).body.kind == "text"
    binary = shown(Event(b"\x00\x01AB").encode()).body
    assert binary.kind == "bytes"
    assert binary.text == f"00000000  {'00 01 41 42':<47}  ..AB"
    assert shown(Event(["x", 7]).encode()).body.tree == tree_of(["x", 7])
    assert shown(Event("x").encode()).body.text == "x"


def test_characters_that_change_how_a_text_is_shown_are_escaped() -> None:
    hostile = "a\u202eb\x00\n\tc"
    event = Event(hostile, key=hostile, subject=hostile, content_type="a\x00b").encode()
    assert shown(event).content_type == "a\\x00b"
    assert shown(event).body.text == "a\\u202eb\\x00\n\tc"
    assert dict(shown(event).sections)["properties"].children[0].text == "a\\u202eb\\x00\\n\\tc"
    assert (line(event).key, line(event).content_type) == ("a\\u202eb\\x00\\n\\tc", "a\\x00b")
    assert line(event).preview == "a\\u202eb\\x00\\n\\tc"


def test_all_sections_are_shown_with_the_names_of_their_fields() -> None:
    event = Event(b"x", key="k", subject="s", properties={"room": "r1"}, annotations={"x-opt-a": 1})
    found = {
        name: {each.name: each.text for each in node.children}
        for name, node in shown(event.encode()).sections
    }
    assert found["properties"] == {"subject": "s"}
    assert found["application-properties"] == {"room": "r1"}
    assert found["message-annotations"]["x-opt-a"] == "1"
    assert "k" in found["message-annotations"].values()


def test_a_cloudevent_shows_its_attributes_in_both_modes() -> None:
    binary = Event(b"{}", properties={"cloudEvents:type": "t", "cloudEvents:id": "1", "other": "x"})
    assert shown(binary.encode()).cloudevent == (("id", "1"), ("type", "t"))
    structured = Event(
        json.dumps({"type": "t", "id": "1", "data": {"a": 1}}).encode(),
        content_type="application/cloudevents+json; charset=utf-8",
    )
    assert shown(structured.encode()).cloudevent == (("type", "t"), ("id", "1"))
    assert shown(Event(b"x").encode()).cloudevent == ()


def test_a_large_body_is_cut_and_can_be_downloaded_whole() -> None:
    text = Event(b"a" * (TEXT_MAX + 1), content_type="text/plain").encode()
    assert shown(text).body.cut
    assert len(shown(text).body.text) == TEXT_MAX
    assert body_bytes(text) == b"a" * (TEXT_MAX + 1)
    binary = shown(Event(b"\x00" * (HEX_MAX + 1)).encode()).body
    assert binary.cut
    assert binary.text.count("\n") == HEX_MAX // 16 - 1
    assert len(line(text).preview) <= PREVIEW_MAX + 1


@pytest.mark.parametrize(
    "data",
    [b"[" * 200_000, b'{"a":' * 50_000, b"1" * 100_000, b'"' + b"\\u0000" * 1000 + b'"', b"\xff{"],
    ids=["lists", "maps", "digits", "nuls", "no-text"],
)
def test_hostile_json_is_shown_as_something_else(data: bytes) -> None:
    found = shown(Event(data, content_type="application/json").encode())
    assert found.problem == ""
    assert found.body.size == len(data)


def test_a_message_with_a_million_values_is_not_decoded() -> None:
    message = (
        b"\x00\x53\x77\xd0" + (4 + 1_000_000).to_bytes(4) + (1_000_000).to_bytes(4) + b"\x40" * 1_000_000
    )
    assert shown(message).body.tree == tree_of(message)
    assert line(message).preview == "an AMQP value of 1,000,012 bytes"


def section(code: int, value: Any) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


DATA = section(0x75, b"x")


def test_a_line_of_a_list_decodes_few_values_of_an_event() -> None:
    """A page has 200 events. 200 events with a million fields each took the console 50 seconds."""
    fields = [None] * 6 + [Symbol("text/plain")]
    assert line(section(0x73, fields) + DATA).content_type == "text/plain"
    assert line(section(0x73, [*fields, *[None] * 1000]) + DATA).content_type == ""
    assert line(section(0x77, [1, 2])).preview == "[1, 2]"
    assert line(section(0x77, [0] * 1000)).preview.startswith("an AMQP value of")
    assert line(DATA * 1000).preview == "not a valid AMQP message"


def test_properties_of_any_type_can_be_shown() -> None:
    """A client may send keys that are not texts, although AMQP requires texts."""
    event = {1: "x", "cloudEvents:id": 7, b"y": None, 2.5: 2}
    found = shown(section(0x74, event) + DATA)
    assert (found.problem, found.cloudevent) == ("", (("id", "7"),))
    many = {f"cloudEvents:a{number}": number for number in range(9000)}
    assert len(shown(section(0x74, many) + DATA).cloudevent) == 200


def test_only_the_beginning_of_a_text_is_examined() -> None:
    """64 MiB of text would hold up all people for seconds."""
    for start in ("a", "\u20ac", "a\u20ac", "\U0001f600", "aa\U0001f600"):
        text = start.encode() * TEXT_MAX * 2
        body = shown(Event(text + b"\x00\xff", content_type="text/plain").encode()).body
        assert (body.kind, body.size, body.cut) == ("text", len(text) + 2, True)
        assert body.text == (start * TEXT_MAX)[:TEXT_MAX]
    assert shown(Event("\u20ac".encode()[:2], content_type="text/plain").encode()).body.kind == "bytes"


@given(st.binary(max_size=300))
def test_any_bytes_can_be_shown(message: bytes) -> None:
    assert shown(message).body.kind
    assert len(line(message).preview) <= PREVIEW_MAX + 1


@given(st.binary(max_size=300), st.sampled_from([None, "application/json", "text/html"]))
def test_any_body_can_be_shown_and_downloaded(data: bytes, content_type: str | None) -> None:
    message = Event(data, content_type=content_type).encode()
    assert shown(message).problem == ""
    assert body_bytes(message) == data
