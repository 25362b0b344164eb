"""Printed events can be read by people and parsed by programs."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.terminal.rendering import (
    Format,
    Shown,
    as_json,
    body_bytes,
    iso_time,
    plain,
    render,
)
from amqp_streams.wire.types import Array, Described, Symbol, Timestamp, UInt, ULong

EVENT = Shown(
    partition="1",
    offset=42,
    timestamp_ms=1_795_242_600_123,
    key="kitchen",
    subject="reading",
    content_type="text/plain",
    properties={"site": "lisbon", "floor": 2},
    annotations={"event-streams-group-key": "kitchen"},
    body=b"20.5",
)


def test_the_names_of_the_json_line_are_stable() -> None:
    assert json.loads(render(EVENT, Format.JSON)) == {
        "partition": "1",
        "offset": 42,
        "timestamp": "2026-11-21T06:30:00.123Z",
        "key": "kitchen",
        "subject": "reading",
        "content_type": "text/plain",
        "properties": {"site": "lisbon", "floor": 2},
        "body": "20.5",
        "annotations": {"event-streams-group-key": "kitchen"},
    }


def test_the_line_for_people_has_position_time_key_and_body() -> None:
    assert render(EVENT, Format.TEXT) == b"1:42\t2026-11-21T06:30:00.123Z\tkitchen\t20.5\n"


def test_an_absent_value_is_a_hyphen_for_people_and_null_for_programs() -> None:
    bare = Shown(None, None, None)
    assert render(bare, Format.TEXT) == b"-:-\t-\t-\t\n"
    assert as_json(bare)["key"] is None
    assert as_json(bare)["timestamp"] is None


def test_the_body_alone_is_byte_for_byte_what_was_sent() -> None:
    event = Shown("0", 0, 0, body=b"\x00\xff\n")
    assert render(event, Format.RAW) == b"\x00\xff\n"
    assert render(event, Format.BODY) == b"\x00\xff\n\n"


def test_a_body_that_is_not_text_is_shown_in_base64() -> None:
    shown = as_json(Shown("0", 0, 0, body=b"\xff\xfe"))
    assert shown["body_base64"] == "//4="
    assert "body" not in shown


def test_a_body_that_is_a_value_is_given_as_that_value() -> None:
    assert as_json(Shown("0", 0, 0, body={"temp": 20.5, "tags": [True, None]}))["body"] == {
        "temp": 20.5,
        "tags": [True, None],
    }


@given(st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=40)))
def test_a_line_is_one_line_whatever_is_in_the_event(body: bytes, key: str | None) -> None:
    """A body or a key must not look like another event, and must not move the cursor of the terminal."""
    event = Shown("0", 0, 0, key=key, body=body)
    for form in (Format.TEXT, Format.JSON):
        line = render(event, form)
        assert line.endswith(b"\n")
        assert len(line.decode().splitlines()) == 1
    assert b"\x1b" not in render(event, Format.TEXT)


def test_a_long_body_is_shortened_for_people_and_its_size_shown() -> None:
    line = render(Shown("0", 0, 0, body=b"x" * 100_000), Format.TEXT)
    assert len(line) < 5000
    assert line.endswith(b"(100000 bytes)\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (UInt(7), 7),
        (Symbol("a"), "a"),
        (Timestamp(5), 5),
        (True, True),
        (b"\x00", {"base64": "AA=="}),
        (float("nan"), "nan"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Described(ULong(0x200), [1]), {"descriptor": 0x200, "value": [1]}),
        (Array(Symbol, (Symbol("0"), Symbol("1"))), ["0", "1"]),
        ({UInt(5): {"a": (1, 2)}, True: 0}, {"5": {"a": [1, 2]}, "true": 0}),
    ],
)
def test_every_kind_of_value_has_a_form_in_json(value: object, shown: object) -> None:
    assert plain(value) == shown
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == shown


def test_a_moment_beyond_the_calendar_stays_a_number() -> None:
    assert iso_time(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("body", "data"),
    [(b"x", b"x"), ("é", "é".encode()), ({"a": 1}, b'{"a": 1}'), (None, b"null"), (20.5, b"20.5")],
)
def test_a_body_of_any_kind_has_bytes(body: object, data: bytes) -> None:
    assert body_bytes(body) == data
