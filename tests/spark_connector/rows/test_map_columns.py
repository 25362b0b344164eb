"""Keys and maps of columns of sections, compared with those that are read one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.raw import APPLICATION_PROPERTIES
from spark_connector.rows.map_columns import keys_in, maps_in
from spark_connector.rows.section_columns import MESSAGE_ANNOTATIONS, sections_of
from spark_connector.rows.section_texts import key_of, pairs_of
from spark_connector.rows.slices import Slices

KIND = pa.map_(pa.string(), pa.string())
TEXTS = st.text(max_size=9)


def section(events: list[Event], code: int) -> Slices | None:
    found = sections_of(pa.array([event.encode() for event in events], pa.binary()))
    assert found is not None
    return found.sections.get(code)


def as_maps(column: pa.MapArray) -> list[dict[str, str] | None]:
    column.validate(full=True)
    return [None if row is None else dict(row) for row in column.to_pylist()]


@given(st.lists(st.none() | TEXTS, min_size=1))
def test_keys_are_those_of_the_sections(keys: list[str | None]) -> None:
    found = section([Event(b"x", key=key) for key in keys], MESSAGE_ANNOTATIONS)
    if found is not None:
        column = keys_in(found)
        assert column is not None
        assert column.to_pylist() == keys == [key_of(one) for one in found.column().to_pylist()]


@given(
    st.lists(TEXTS, max_size=4, unique=True),
    st.lists(st.none() | st.lists(TEXTS, min_size=4, max_size=4), min_size=1),
)
def test_maps_with_the_same_names_are_read_as_columns(names: list[str], rows: list[list[str] | None]) -> None:
    events = [
        Event(b"x", properties=None if row is None else dict(zip(names, row, strict=False))) for row in rows
    ]
    found = section(events, APPLICATION_PROPERTIES)
    if found is not None:
        column = maps_in(found, KIND)
        assert column is not None
        assert as_maps(column) == [pairs_of(one) for one in found.column().to_pylist()]


@given(
    st.lists(
        st.none() | st.dictionaries(st.sampled_from("abc"), TEXTS | st.booleans() | st.just("x" * 300)),
        min_size=1,
    ),
    st.data(),
)
def test_any_sections_are_left_to_the_other_reader_or_read_like_it(
    rows: list[dict[str, object] | None], data: st.DataObject
) -> None:
    sections = [Event(b"", properties=row).encode()[:-5] for row in rows]
    row = data.draw(st.integers(0, len(sections) - 1))
    whole = bytearray(sections[row])
    if len(whole) > 6:
        whole[data.draw(st.integers(3, len(whole) - 1))] ^= data.draw(st.integers(0, 255))
    sections[row] = bytes(whole)
    slices = Slices.of(pa.array(sections, pa.binary()))
    maps, keys = maps_in(slices, KIND), keys_in(slices)
    assert keys is None or keys.null_count == len(rows)
    if maps is not None:
        assert as_maps(maps) == [pairs_of(one) for one in sections]


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": "1"}, {"b": "1"}],
        [{"a": "1"}, {"a": "1", "b": "2"}],
        [{"a": 1}, {"a": 2}],
        [{"a": "x" * 300}],
        [{f"name{number}": "" for number in range(20)} | {f"more{number}": "" for number in range(20)}],
    ],
)
def test_other_maps_are_left_to_the_other_reader(rows: list[dict[str, object]]) -> None:
    found = section([Event(b"x", properties=row) for row in rows], APPLICATION_PROPERTIES)
    assert found is not None
    assert maps_in(found, KIND) is None


def test_annotations_with_more_than_a_key_are_left_to_the_other_reader() -> None:
    found = section([Event(b"x", key="k", annotations={"x-other": 1})], MESSAGE_ANNOTATIONS)
    assert found is not None
    assert keys_in(found) is None


def test_a_text_that_is_not_utf8_is_left_to_the_other_reader() -> None:
    slices = Slices.of(
        pa.array([Event(b"", properties={"a": "zz"}).encode()[:-5].replace(b"zz", b"\xff\xff")], pa.binary())
    )
    assert maps_in(slices, KIND) is None
