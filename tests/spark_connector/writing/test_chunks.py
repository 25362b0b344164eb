"""Where rows are divided into chunks, and the names of chunks."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.writing.chunks import Chunk, Cutter, name_of
from spark_connector.writing.messages import Target

MESSAGES = st.lists(st.tuples(st.binary(max_size=12), st.none() | st.integers(0, 2)), max_size=40)


def column(*messages: bytes) -> pa.BinaryArray:
    return pa.array(messages, pa.binary())


def cut(rows: list[tuple[bytes, Target]], sizes: list[int], **limits: Any) -> list[Chunk]:
    """Return rows that arrive in batches of these sizes, repeatedly."""
    cutter = Cutter(**limits)
    chunks: list[Chunk] = []
    at = 0
    while at < len(rows):
        size = sizes[len(chunks) % len(sizes)]
        batch = rows[at : at + size]
        at += size
        targets = pa.array([place for _, place in batch], pa.int64())
        chunks += cutter.add(column(*(message for message, _ in batch)), targets)
    return [*chunks, *cutter.rest()]


@given(MESSAGES, st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_cuts_depend_on_the_rows_and_not_on_how_they_come(
    rows: list[tuple[bytes, Target]], sizes: list[int]
) -> None:
    chunks = cut(rows, sizes, rows_max=5, bytes_max=30)
    assert chunks == cut(rows, [1], rows_max=5, bytes_max=30) == cut(rows, [100], rows_max=5, bytes_max=30)
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))


@given(MESSAGES)
def test_every_row_is_in_one_chunk_in_order_and_chunks_are_within_bounds(
    rows: list[tuple[bytes, Target]],
) -> None:
    chunks = cut(rows, [3], rows_max=5, bytes_max=30)
    for place in {place for _, place in rows}:
        sent = [message.as_py() for chunk in chunks for message in chunk.messages.get(place, [])]
        assert sent == [message for message, where in rows if where == place]
    for chunk in chunks:
        messages = [message.as_py() for ours in chunk.messages.values() for message in ours]
        assert 0 < chunk.rows == len(messages) <= 5
        assert chunk.bytes == sum(map(len, messages)) <= 30


def test_a_row_larger_than_a_chunk_is_a_chunk_of_its_own() -> None:
    chunks = cut([(b"a", 0), (b"x" * 99, 0), (b"b", 0)], [100], bytes_max=10)
    assert [chunk.messages for chunk in chunks] == [
        {0: column(b"a")},
        {0: column(b"x" * 99)},
        {0: column(b"b")},
    ]


def test_rows_that_all_go_to_one_target_need_no_list_of_targets() -> None:
    cutter = Cutter(rows_max=2)
    assert [chunk.messages for chunk in cutter.add(column(b"a", b"b", b"c"), 1)] == [{1: column(b"a", b"b")}]
    assert [chunk.messages for chunk in cutter.rest()] == [{1: column(b"c")}]
    assert [chunk.messages for chunk in Cutter(rows_max=1).add(column(b"a"), None)] == [{None: column(b"a")}]


def test_nothing_is_not_a_chunk() -> None:
    assert [*Cutter().add(column(), 0), *Cutter().rest()] == []


def test_sorted_rows_have_one_name_whatever_order_they_came_in() -> None:
    names = []
    for rows in ([b"a", b"b", b"c"], [b"c", b"a", b"b"]):
        cutter = Cutter(sort=True)
        assert not list(cutter.add(column(*rows), 0))
        [chunk] = cutter.rest()
        names.append(name_of("task", chunk, 0))
    assert names[0] == names[1]


def test_a_name_distinguishes_tasks_chunks_targets_and_rows() -> None:
    """A replay that is not exact is not taken for one, so that nothing is lost."""
    base = Chunk(0, {0: column(b"ab", b"c"), 1: column(b"ab", b"c")}, 4, 6)
    names = {
        name_of("task", base, 0),
        name_of("other", base, 0),
        name_of("task", base, 1),
        name_of("task", Chunk(1, base.messages, 4, 6), 0),
        name_of("task", Chunk(0, {0: column(b"a", b"bc")}, 2, 3), 0),
        name_of("task", Chunk(0, {0: column(b"c", b"ab")}, 2, 3), 0),
        name_of("task", Chunk(0, {0: column(b"ab")}, 1, 2), 0),
    }
    assert len(names) == 7
    assert name_of("task", base, 0) == name_of("task", Chunk(0, {0: column(b"ab", b"c")}, 2, 3), 0)
