"""The cursor of one partition, and what fits into a delivery. How readers take turns: test_reader.py."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.config import LogSettings
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.runs import PartitionCursor, Room, Run
from amqp_streams.testing import MemoryStore

NOW = 1_700_000_000_000
MESSAGES = [b"\x00\x53\x75\xa0\x01" + b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    ("room", "wanted"),
    [
        (Room(100, 0, one=False), (3, 60)),
        (Room(60, 0, one=False), (3, 60)),
        (Room(59, 0, one=False), (2, 30)),
        (Room(60, 10, one=False), (2, 50)),
        (Room(9, 0, one=True), (1, 10)),
        (Room(9, 0, one=False), (0, 0)),
    ],
)
def test_as_many_are_taken_as_have_room(room: Room, wanted: tuple[int, int]) -> None:
    assert room.counted([bytes(10), bytes(20), bytes(30)]) == wanted


@given(
    st.one_of(
        st.lists(st.integers(0, 40), min_size=1, max_size=12),
        st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda pair: [pair[0]] * pair[1]),
    ),
    st.builds(Room, st.integers(0, 300), st.integers(0, 30), one=st.booleans(), formatted=st.integers(0, 9)),
    st.booleans(),
)
def test_what_has_room_is_what_fits_one_by_one(sizes: list[int], room: Room, formatted: bool) -> None:
    """Messages of one size take another path."""
    formats = array("I", [7] * len(sizes)) if formatted else None
    count = taken = 0
    for size in sizes:
        more = taken + size + room.overhead + room.formatted * formatted
        if more > room.size and not (room.one and not count):
            break
        count, taken = count + 1, more
    assert room.counted([bytes(size) for size in sizes], formats) == (count, taken)


def test_a_cursor_that_returns_its_chunk_continues_at_its_position() -> None:
    store, held = MemoryStore(), Held()
    (partition,) = store.create("temps", LogSettings(), incarnation="x").partitions
    partition.append(list(MESSAGES), bytes(5), NOW)
    store.commit()
    cursor = PartitionCursor(partition, 0, None, latest=partition.end, held=held)
    got: list[bytes] = []
    while isinstance(run := cursor.run(2, None, None), Run):
        got += run.chunk.messages[run.start : run.start + run.count]
        assert held.bytes > 0
        cursor.forget()
        assert held.bytes == 0
    assert got == MESSAGES
