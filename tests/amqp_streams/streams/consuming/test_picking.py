"""Records that are picked one by one, because they are not neighbours or need room, and are read as one
selection.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.filters import Compiled
from amqp_streams.storage.ports import Chunk, Partition, StoredLog
from amqp_streams.streams.consuming.reader import Passed, Picked, Reader, Room
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import encode
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Described, ULong
from tests.amqp_streams.streams.conftest import DATA, NOW
from tests.amqp_streams.streams.consuming.reading import Position, from_start, read, sql

# -- many at a time

WIDE = Room(1 << 20, 0, one=True)


def pick_all(reader: Reader, count_max: int = 1000, room: Room = WIDE) -> list[Picked]:
    got: list[Picked] = []
    while picked := reader.pick(count_max, None, room):
        if isinstance(picked, Picked):
            got.append(picked)
    return got


def within(first: int, end: int) -> Compiled:
    return sql(f"d.{names.OFFSET} >= '{offset_text(first)}' AND d.{names.OFFSET} < '{offset_text(end)}'")


def test_records_that_are_not_neighbours_are_selected_together(store: MemoryStore, log: StoredLog) -> None:
    chosen = [number % 3 == 0 for number in range(30)]
    log.partitions[0].append([body("yes" if each else "no") for each in chosen], bytes(30), NOW)
    store.commit()
    (picked,) = pick_all(Reader([(log.partitions[0], 0)], sql("p.subject = 'yes'")))
    assert picked.offsets.tolist() == list(range(0, 30, 3))
    assert (len(picked.messages), picked.timestamps.tolist(), picked.after, picked.weighed) == (
        10,
        [NOW] * 10,
        30,
        True,
    )


def body(subject: str) -> bytes:
    return encode(Described(ULong(0x73), [None, None, None, subject])) + DATA


@pytest.mark.parametrize("filters", [None, within(3, 17), sql("p.subject = 'yes'")])
def test_a_record_without_room_waits_or_comes_alone(
    store: MemoryStore, log: StoredLog, filters: Compiled | None
) -> None:
    log.partitions[0].append([body("yes")] * 20, bytes(20), NOW)
    store.commit()
    size = len(body("yes"))
    reader = Reader([(log.partitions[0], 3)], filters)
    nothing = reader.pick(10, None, Room(size - 1, 0, one=False))
    assert nothing == Passed(0)
    for room, count in (
        (Room(size - 1, 0, one=True), 1),
        (Room(3 * size, 0, one=True), 3),
        (Room(3 * size, 1, one=True), 2),
    ):
        picked = reader.pick(10, None, room)
        assert isinstance(picked, Picked)
        assert (len(picked.messages), picked.bytes) == (count, count * (size + room.overhead))
    assert reader.positions[0] == 9


def test_nothing_is_read_after_an_upper_bound(
    store: MemoryStore, log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that get single events do not delay it either: a reader of a range does not wait for the events
    after the range.
    """
    partition = log.partitions[0]
    for _ in range(4):
        partition.append([DATA] * 5, bytes(5), NOW)
        store.commit()
    read, places_read = type(partition).read, list[int]()

    def counted(self: Partition, at: int, size: int, _request: object = None) -> Chunk | None:
        places_read.append(at)
        return read(self, at, size)

    monkeypatch.setattr(type(partition), "read", counted)
    assert [picked.offsets.tolist() for picked in pick_all(Reader([(partition, 0)], within(7, 15)))] == [
        [7, 8, 9],
        [10, 11, 12, 13, 14],
    ]
    assert len(read_positions(Reader([(partition, 0)], within(7, 15)))) == 8
    assert max(places_read) == 10
    behind = Reader([(partition, 15)], within(7, 15))
    assert behind.pick(10, None, WIDE) is None
    assert behind.caught_up


def read_positions(reader: Reader) -> list[Position]:
    return read(reader, 100)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=20), max_size=8),
    st.sampled_from([None, "p.subject = 'yes'", "bounds", "both"]),
    st.integers(1, 12),
    st.integers(0, 400),
    st.booleans(),
)
def test_a_selection_equals_reading_one_by_one(
    appends: list[list[str]], condition: str | None, count_max: int, bytes_max: int, forget: bool
) -> None:
    bounds = f"d.{names.OFFSET} >= '{offset_text(5)}' AND d.{names.OFFSET} < '{offset_text(40)}'"
    text = {"bounds": bounds, "both": f"{bounds} AND p.subject = 'yes'"}.get(condition or "", condition)
    filters = None if text is None else sql(text)
    store = MemoryStore()
    log = store.create("log", LogSettings(partitions=2), incarnation="i")
    for index, subjects in enumerate(appends):
        log.partitions[index % 2].append(
            [body(subject) for subject in subjects], bytes(len(subjects)), NOW + index
        )
        store.commit()
    reader, got = from_start(log, filters), list[Position]()
    while picked := reader.pick(count_max, None, Room(bytes_max, 10, one=True)):
        if isinstance(picked, Picked):
            assert len(picked.messages) <= count_max
            assert picked.bytes <= bytes_max or len(picked.messages) == 1
            assert picked.offsets[-1] < picked.after
            got += [(picked.partition.index, number) for number in picked.offsets]
        if forget:
            reader.forget_chunks()
    assert sorted(got) == sorted(read(from_start(log, filters), 7))
    assert [position for position in got if position[0] == 0] == sorted(
        position for position in got if position[0] == 0
    )
