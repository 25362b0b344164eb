"""The cursor of one partition, and what fits into a delivery. How readers take turns: test_reader.py."""

import pytest

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
