"""Pieces of columns, cut in Arrow."""

from array import array

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.raw import DATA_BINARY32, Sections
from spark_connector.rows.slices import Slices, contents_of

ROWS = st.lists(st.binary(max_size=300), max_size=20)


@given(ROWS, st.integers(0, 3), st.integers(0, 3))
def test_slices_of_a_column_are_its_rows_also_of_a_part_of_it(
    rows: list[bytes], before: int, after: int
) -> None:
    column = pa.array([b"before"] * before + rows + [b"after"] * after, pa.binary())
    slices = Slices.of(column[before : before + len(rows)])
    assert slices.column().to_pylist() == rows
    assert slices.sizes.to_pylist() == [len(row) for row in rows]
    assert len(slices) == len(rows)


@given(st.lists(st.binary(min_size=6, max_size=20), min_size=1))
def test_bytes_and_words_are_those_at_the_index(rows: list[bytes]) -> None:
    slices = Slices.of(pa.array(rows, pa.binary()))
    at = pa.array([one + 2 for one in slices.starts.to_pylist()], pa.int32())
    assert slices.bytes_at(at).to_pylist() == [row[2] for row in rows]
    assert slices.words_at(at).to_pylist() == [int.from_bytes(row[2:6]) for row in rows]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.binary(max_size=9))
def test_the_contents_of_a_batch_are_a_column(messages: list[bytes], front: bytes) -> None:
    body = b"".join(DATA_BINARY32 + len(message).to_bytes(4) + message for message in messages)
    sections = Sections(front + body, len(front), array("I", map(len, messages)))
    column = contents_of(sections)
    column.validate(full=True)
    assert column.to_pylist() == sections.contents() == messages
