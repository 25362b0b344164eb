"""Lines, JSON and CSV become the intended events, and errors are reported with their line."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.terminal.drafts import (
    Common,
    CsvDrafter,
    Draft,
    Drafter,
    JsonDrafter,
    LineDrafter,
    parse_property,
)
from amqp_streams.cli.terminal.reading import InputError
from amqp_streams.cli.terminal.rendering import Format, Shown, render
from tests.amqp_streams.decoded import binary


def drafted(drafter: Drafter, *lines: bytes) -> list[Draft]:
    """The drafts of these lines."""
    drafts = [drafter(line, number) for number, line in enumerate(lines, 1)]
    return [draft for draft in drafts if draft is not None]


def draft_of(drafter: Drafter, *lines: bytes) -> Draft:
    """The one draft of these lines."""
    (draft,) = drafted(drafter, *lines)
    return draft


def test_a_line_is_the_body_as_it_is() -> None:
    event = draft_of(LineDrafter(Common()), b" 20.5\xff ").event
    assert event.body == b" 20.5\xff "
    assert event.key is None
    assert event.properties is None


def test_common_values_are_in_every_event() -> None:
    common = Common(
        key="kitchen", content_type="text/plain", subject="reading", properties={"site": "lisbon"}
    )
    event = draft_of(LineDrafter(common), b"20.5").event
    assert (event.key, event.content_type, event.subject, event.properties) == (
        "kitchen",
        "text/plain",
        "reading",
        {"site": "lisbon"},
    )


def test_the_first_group_of_the_key_regex_is_the_key() -> None:
    drafter = LineDrafter(Common(key_regex=re.compile(rb"^(\S+) ")))
    drafts = drafted(drafter, b"10.0.0.1 GET /", b"nothing", "caf\u00e9 au lait".encode())
    assert [draft.event.key for draft in drafts] == ["10.0.0.1", None, "caf\u00e9"]


def test_a_group_that_took_no_part_gives_no_key() -> None:
    assert draft_of(LineDrafter(Common(key_regex=re.compile(rb"(a)|b"))), b"b").event.key is None


def test_a_json_line_says_everything_about_its_event() -> None:
    line = {
        "body": "20.5",
        "key": "kitchen",
        "partition": 3,
        "subject": "reading",
        "content_type": "text/plain",
        "message_id": "m1",
        "correlation_id": "c1",
        "properties": {"floor": 2, "ok": True, "note": None},
    }
    event, partition = draft_of(JsonDrafter(Common()), json.dumps(line).encode())
    assert partition == "3"
    assert (event.body, event.key, event.subject, event.content_type) == (
        b"20.5",
        "kitchen",
        "reading",
        "text/plain",
    )
    assert (event.message_id, event.correlation_id) == ("m1", "c1")
    assert event.properties == {"floor": 2, "ok": True, "note": None}


def test_a_body_that_is_not_text_is_sent_as_json() -> None:
    event = draft_of(JsonDrafter(Common()), b'{"body": {"temp": 20.5}}').event
    assert json.loads(binary(event.body)) == {"temp": 20.5}
    assert isinstance(event.body, bytes)
    assert event.content_type == "application/json"


def test_a_json_line_wins_over_what_is_common() -> None:
    common = Common(key="all", subject="s", content_type="text/plain", properties={"a": "1", "b": "1"})
    event = draft_of(
        JsonDrafter(common),
        b'{"key": "own", "subject": "t", "content_type": "x/y", "properties": {"b": "2"}}',
    ).event
    assert (event.key, event.subject, event.content_type, event.properties) == (
        "own",
        "t",
        "x/y",
        {"a": "1", "b": "2"},
    )


@given(
    st.binary(max_size=100),
    st.one_of(st.none(), st.text(max_size=10)),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)),
)
def test_the_output_of_receive_is_input_of_send(
    body: bytes, key: str | None, properties: dict[str, object]
) -> None:
    """A log can be copied with `receive --format json | send --json-lines`."""
    line = render(Shown("1", 7, 1, key=key, properties=properties, body=body), Format.JSON)
    event, partition = draft_of(JsonDrafter(Common()), line.rstrip(b"\n"))
    assert (event.body, event.key, event.properties or {}, partition) == (body, key, properties, "1")


def test_empty_lines_between_json_lines_are_not_events() -> None:
    assert drafted(JsonDrafter(Common()), b"", b"  ") == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"boddy": 1}', "unknown entry 'boddy'; known are body,"),
        (b'{"key": 5}', "'key' must be a text"),
        (b'{"properties": 5}', "'properties' must be an object"),
        (b'{"properties": {"a": [1]}}', r"property 'a' must be a text, a number, true, false or null"),
        (b'{"body_base64": "?"}', "'body_base64'"),
        (b'{"body_base64": "", "body": ""}', "without 'body'"),
    ],
)
def test_a_wrong_json_line_is_named_by_its_number(line: bytes, complaint: str) -> None:
    with pytest.raises(InputError, match=f"line 7: .*{complaint}"):
        JsonDrafter(Common())(line, 7)


def test_binary_bodies_come_in_base64() -> None:
    line = json.dumps({"body_base64": base64.b64encode(b"\xff\x00").decode()}).encode()
    assert draft_of(JsonDrafter(Common()), line).event.body == b"\xff\x00"


def test_a_row_of_csv_is_a_json_object_of_its_columns() -> None:
    event = draft_of(CsvDrafter(Common()), b"date,temp", b"2010/01/01 00:00,39.4").event
    assert event.body == b'{"date": "2010/01/01 00:00", "temp": "39.4"}'
    assert event.content_type == "application/json"


def test_a_row_of_csv_can_be_sent_as_the_line_that_it_was() -> None:
    event = draft_of(CsvDrafter(Common(), as_json=False), b"date,temp", b'"a,b", 1').event
    assert event.body == b'"a,b", 1'
    assert event.content_type is None


def test_the_key_of_a_row_is_a_column_or_made_of_columns() -> None:
    header, row = b"date,temp", b"2010/01/01 00:00,39.4"
    assert draft_of(CsvDrafter(Common(), key_column="date"), header, row).event.key == "2010/01/01 00:00"
    assert draft_of(CsvDrafter(Common(), key_template="{date:.10}"), header, row).event.key == "2010/01/01"


def test_columns_can_be_properties_and_numbers_are_numbers() -> None:
    """The filters of the node can then compare them."""
    header, row = b"site,temp,n,zip,big,empty", b"roof,39.4,-5,007,99999999999999999999,"
    event = draft_of(
        CsvDrafter(Common(properties={"a": "b"}), property_columns=["temp", "site"]), header, row
    ).event
    assert event.properties == {"a": "b", "temp": 39.4, "site": "roof"}
    every = draft_of(
        CsvDrafter(Common(), as_json=False, property_columns=["*"]), header, row
    ).event.properties
    assert every == {"site": "roof", "temp": 39.4, "n": -5, "zip": "007", "big": 1e20, "empty": ""}
    assert every is not None
    assert [type(value) for value in every.values()] == [str, float, int, str, float, str]


def test_a_column_may_have_any_name() -> None:
    assert draft_of(CsvDrafter(Common(), key_column="a{b}.c"), b"a{b}.c", b"x").event.key == "x"


def test_a_byte_order_mark_is_not_a_part_of_the_first_column() -> None:
    assert draft_of(CsvDrafter(Common(), key_column="date"), b"\xef\xbb\xbfdate", b"x").event.key == "x"


def test_quoted_cells_may_hold_line_ends() -> None:
    assert json.loads(binary(draft_of(CsvDrafter(Common()), b"a,b", b'"1\n2",3').event.body)) == {
        "a": "1\n2",
        "b": "3",
    }


@pytest.mark.parametrize(
    ("drafter", "rows", "complaint"),
    [
        (CsvDrafter(Common()), [b"a,b", b"1"], "row 2 has 1 cells, but the header has 2 columns"),
        (CsvDrafter(Common()), [b"a,a"], "duplicate column name"),
        (CsvDrafter(Common()), [b"a", b"\xff"], "row 2 is not valid CSV in UTF-8"),
        (CsvDrafter(Common()), [b"a", b'"x"y'], "row 2 is not valid CSV"),
        (
            CsvDrafter(Common(), property_columns=["a", "c"]),
            [b"a,b"],
            "--property-column: no column named 'c'; the columns are a, b",
        ),
        (CsvDrafter(Common(), key_column="c"), [b"a,b"], "no column named 'c'; the columns are a, b"),
        (
            CsvDrafter(Common(), key_template="{c}"),
            [b"a,b", b"1,2"],
            "no column named 'c'; the columns are a, b",
        ),
        (CsvDrafter(Common(), key_template="{a"), [b"a,b", b"1,2"], "--key-template: row 2"),
        (CsvDrafter(Common(), key_template="{}"), [b"a,b", b"1,2"], "--key-template: row 2"),
    ],
)
def test_a_wrong_row_is_named_by_its_number(drafter: CsvDrafter, rows: list[bytes], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        drafted(drafter, *rows)


def test_a_property_is_a_name_and_a_value() -> None:
    assert parse_property("a=b=c") == ("a", "b=c")
    assert parse_property("a=") == ("a", "")


@pytest.mark.parametrize("text", ["", "a", "=b"])
def test_a_property_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_property(text)
