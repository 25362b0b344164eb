"""Columns as sections, read back with the engine's client and with Proton."""

from typing import Any

import proton
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event, ReceivedEvent
from amqp_streams.client.raw import Timestamp
from spark_connector.writing.sections import (
    application_properties,
    body_sections,
    data_sections,
    entries_of,
    key_sections,
    properties_sections,
)

# Around the bounds where AMQP's short forms end.
LENGTHS = st.one_of(st.integers(0, 20), st.integers(250, 260), st.just(70_000))
TEXTS = st.one_of(st.text(max_size=8), LENGTHS.map("é".__mul__), LENGTHS.map("x".__mul__))
BINARIES = st.one_of(st.binary(max_size=8), LENGTHS.map(b"\xff".__mul__))
NAMES = st.text(min_size=1, max_size=8)
pa.array([0])  # the first array takes the time of importing pandas


def read(pieces: list[bytes], body: bytes = b"\x00\x53\x75\xa0\x00") -> list[ReceivedEvent]:
    return [ReceivedEvent(piece + body) for piece in pieces]


@given(st.lists(BINARIES | st.none(), min_size=1, max_size=4))
def test_binary_bodies_are_data_sections_and_nulls_are_null(bodies: list[bytes | None]) -> None:
    pieces = body_sections(pa.array(bodies, pa.binary())).to_pylist()
    assert [event.body for event in read(pieces, b"")] == bodies
    assert pieces == [b"\x00\x53\x77\x40" if body is None else Event(body).encode() for body in bodies]


@given(st.lists(TEXTS | st.none(), min_size=1, max_size=4), st.sampled_from([pa.string(), pa.large_string()]))
def test_string_bodies_are_text_to_everybody(bodies: list[str | None], kind: pa.DataType) -> None:
    pieces = body_sections(pa.array(bodies, kind)).to_pylist()
    assert [event.body for event in read(pieces, b"")] == bodies
    for piece, body in zip(pieces, bodies, strict=True):
        message = proton.Message()
        message.decode(piece)
        assert message.body == body


@given(st.lists(TEXTS | st.none(), min_size=1, max_size=4))
def test_data_is_the_bytes_of_a_text(data: list[str | None]) -> None:
    pieces = data_sections(pa.array(data, pa.string())).to_pylist()
    assert [event.body for event in read(pieces, b"")] == [
        one if one is None else one.encode() for one in data
    ]


@given(st.lists(TEXTS | st.none(), max_size=6))
def test_a_key_is_the_group_key_that_the_engine_routes_by(keys: list[str | None]) -> None:
    pieces = key_sections(pa.array(keys, pa.string())).to_pylist()
    assert pieces == [b"" if key is None else Event(b"", key=key).encode()[:-5] for key in keys]


FIELDS = {
    "message_id": TEXTS,
    "subject": TEXTS,
    "correlation_id": TEXTS,
    "content_type": st.sampled_from(["text/plain", "a" * 300]),
    "creation_time": st.integers(0, 1 << 41),
}


@given(
    st.lists(
        st.fixed_dictionaries({name: values | st.none() for name, values in FIELDS.items()}),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_properties_have_the_fields_that_are_given(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1))
    kinds = {name: pa.timestamp("ms", "UTC") if name == "creation_time" else pa.string() for name in names}
    events = read(
        properties_sections(
            len(rows), {name: pa.array([row[name] for row in rows], kinds[name]) for name in names}
        )
    )
    for event, row in zip(events, rows, strict=True):
        found = {
            name: getattr(event, "creation_time_ms" if name == "creation_time" else name) for name in FIELDS
        }
        assert found == {name: row[name] if name in names else None for name in FIELDS}


@given(
    st.lists(st.dictionaries(NAMES, TEXTS | st.none(), max_size=4) | st.none(), min_size=1, max_size=4),
    st.data(),
)
def test_a_map_is_application_properties_without_its_nulls(
    rows: list[dict[str, str | None] | None], data: st.DataObject
) -> None:
    column = pa.array(
        [None if row is None else list(row.items()) for row in rows], pa.map_(pa.string(), pa.string())
    )
    start = data.draw(st.integers(0, len(rows) - 1), "a slice, as batches may be")
    events = read(application_properties(entries_of(column[start:])))
    wanted = [
        {name: value for name, value in (row or {}).items() if value is not None} for row in rows[start:]
    ]
    assert [dict(event.properties) for event in events] == wanted


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "é"),
        (pa.binary(), b"\x00\xff"),
        (pa.bool_(), True),
        (pa.bool_(), False),
        (pa.int8(), -128),
        (pa.int16(), 32_767),
        (pa.int32(), -(1 << 31)),
        (pa.int64(), (1 << 63) - 1),
        (pa.float32(), 0.5),
        (pa.float64(), 0.1),
    ],
)
def test_a_value_keeps_its_type(kind: pa.DataType, value: Any) -> None:
    """A filter of the log can compare numbers as numbers."""
    column = pa.array(
        [{"it": value, "other": 1}, {"it": None, "other": 2}, None],
        pa.struct([("it", kind), ("other", pa.int32())]),
    )
    events = read(application_properties(entries_of(column)))
    assert [dict(event.properties) for event in events] == [{"it": value, "other": 1}, {"other": 2}, {}]
    in_a_map = pa.array([[("it", value)]], pa.map_(pa.string(), kind))
    assert [dict(event.properties) for event in read(application_properties(entries_of(in_a_map)))] == [
        {"it": value}
    ]


@pytest.mark.parametrize("zone", [None, "UTC", "America/Los_Angeles"])
def test_times_are_timestamps_of_amqp_in_milliseconds(zone: str | None) -> None:
    column = pa.array([[("at", 1_700_000_000_123_999)]], pa.map_(pa.string(), pa.timestamp("us", zone)))
    [event] = read(application_properties(entries_of(column)))
    assert event.properties["at"] == Timestamp(1_700_000_000_123)
    assert isinstance(event.properties["at"], Timestamp)


def test_more_properties_than_the_short_form_holds_are_written_in_the_long_one() -> None:
    many = {f"name-{number}": str(number) for number in range(200)}
    column = pa.array([list(many.items())], pa.map_(pa.string(), pa.string()))
    [event] = read(application_properties(entries_of(column)))
    assert event.properties == many


def test_names_are_checked_where_that_is_asked_for() -> None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    column = pa.array([[("never-seen-before", "1")]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(ValueError, match="never-seen-before"):
        entries_of(column, "prefix_", refuse)
