"""Reading is a fair merge that keeps the order of each partition and loses nothing, with any
interruptions.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.filters import Compiled, compile_filters
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.consuming.reader import Passed, Reader, Run
from amqp_streams.streams.consuming.runs import TURN_EVENTS
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import encode
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Described, Symbol, Timestamp, ULong
from tests.amqp_streams.streams.conftest import DATA, NOW, Append
from tests.amqp_streams.streams.consuming.reading import Position, from_start, positions, read, run_of, sql


def later_than(after_ms: int) -> Compiled:
    kind = Symbol(names.FILTER_DELIVERY_ANNOTATIONS)
    return compile_filters({kind: Described(kind, {Symbol(names.TIMESTAMP): Timestamp(after_ms)})})


def test_an_empty_read_is_reported_once_and_waking_brings_the_next(
    store: MemoryStore, log: StoredLog, append: Append
) -> None:
    reader = from_start(log)
    assert reader.take(10) is None
    assert reader.caught_up
    append(log.partitions[2], NOW)
    reader.wake(log.partitions[2])
    reader.wake(log.partitions[2])
    assert not reader.caught_up
    assert read(reader, 10) == [(2, 0)]
    assert reader.positions == {0: 0, 1: 0, 2: 1, 3: 0}


def test_partitions_take_turns_even_when_one_is_long(store: MemoryStore, log: StoredLog) -> None:
    """A busy partition delays the others by at most one turn."""
    for index, count in enumerate((5 * TURN_EVENTS, 3, 3, 3)):
        log.partitions[index].append([b"x"] * count, bytes(count), NOW)
    store.commit()
    reader = from_start(log)
    first = [run_of(reader.take(5 * TURN_EVENTS)) for _ in range(4)]
    assert [(run.partition.index, run.count) for run in first] == [(0, TURN_EVENTS), (1, 3), (2, 3), (3, 3)]


def test_a_bound_reader_takes_all_that_is_asked_for(store: MemoryStore, log: StoredLog) -> None:
    log.partitions[0].append([b"x"] * 1000, bytes(1000), NOW)
    store.commit()
    assert run_of(Reader([(log.partitions[0], 0)]).take(900)).count == 900


def test_events_that_arrive_at_an_exhausted_partition_during_another_read_are_not_forgotten(
    store: MemoryStore, log: StoredLog
) -> None:
    """A reader that has more to read is not woken, so it must check again before it reports the end."""
    first, second = log.partitions[:2]
    reader = Reader([(first, 0), (second, 0)])
    first.append([b"x"], b"\0", NOW)
    second.append([b"x"] * 30, bytes(30), NOW)
    store.commit()
    got = [position for _ in range(3) if (run := reader.take(10)) for position in positions(run_of(run))]
    assert len(got) == 21, "the first partition was found empty, the second is not yet"
    first.append([b"y"], b"\0", NOW)
    store.commit()
    got += read(reader, 10)
    assert sorted(got) == [(0, 0), (0, 1), *((1, number) for number in range(30))]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12),
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.data(),
)
def test_a_merge_is_every_event_once_and_in_order_however_it_is_cut(
    appends: list[tuple[int, int]], counts: list[int], data: st.DataObject
) -> None:
    """Appends and reads alternate in any order. As in the node, a reader is woken only after it reported the
    end.
    """
    store = MemoryStore()
    log = store.create("log", LogSettings(partitions=4), incarnation="i")
    reader = from_start(log)
    got: list[Position] = []
    waiting = False
    for index, count in appends:
        log.partitions[index].append([b"x"] * count, bytes(count), NOW)
        store.commit()
        if waiting:
            reader.wake(log.partitions[index])
            waiting = False
        for count_max in data.draw(st.lists(st.sampled_from(counts), max_size=4)):
            run = reader.take(count_max)
            waiting = run is None
            got += positions(run_of(run)) if run else []
            if data.draw(st.booleans()):
                reader.forget_chunks()
    got += read(reader, counts[0])
    for partition in log.partitions:
        assert [number for index, number in got if index == partition.index] == list(range(partition.end))


@given(st.lists(st.integers(0, 6), max_size=20).map(sorted), st.integers(-1, 7), st.integers(1, 5))
def test_a_time_condition_passes_over_exactly_what_is_not_later(
    steps: list[int], after: int, count_max: int
) -> None:
    store = MemoryStore()
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    for step in steps:
        partition.append([b"x"], b"\0", NOW + step)
    store.commit()
    reader = Reader([(partition, 0)], later_than(NOW + after))
    assert read(reader, count_max) == [(0, number) for number, step in enumerate(steps) if step > after]


def test_a_time_condition_holds_for_events_that_come_later(
    store: MemoryStore, log: StoredLog, append: Append
) -> None:
    reader = from_start(log, later_than(NOW + 10))
    assert reader.take(10) is None
    append(log.partitions[0], NOW, NOW + 10, NOW + 11)
    reader.wake(log.partitions[0])
    assert read(reader, 10) == [(0, 2)]


def test_an_offset_that_is_still_to_come_is_waited_for(
    store: MemoryStore, log: StoredLog, append: Append
) -> None:
    reader = Reader([(log.partitions[0], 2)])
    append(log.partitions[0], NOW)
    assert reader.take(10) is None
    append(log.partitions[0], NOW, NOW)
    reader.wake(log.partitions[0])
    assert read(reader, 10) == [(0, 2)]


def test_a_reader_overtaken_by_retention_continues_at_the_earliest_and_reports_the_missed_events(
    store: MemoryStore, append: Append
) -> None:
    log = store.create("short", LogSettings(retention_ms=1000, segment_ms=1000), incarnation="i")
    partition = log.partitions[0]
    reader = Reader([(partition, 0)])
    append(partition, NOW, NOW, NOW + 5000)
    assert run_of(reader.take(1)).skipped == 0
    reader.forget_chunks()
    store.apply_retention(NOW + 5000)
    run = run_of(reader.take(10))
    assert (run.first, run.count, run.skipped) == (2, 1, 1)


@pytest.mark.timeout(10)
def test_a_reader_that_retention_left_nothing_waits_for_more(store: MemoryStore, append: Append) -> None:
    """A node that examined absent partitions would do nothing else."""
    log = store.create("short", LogSettings(retention_ms=1000, segment_ms=1000), incarnation="i")
    partition = log.partitions[0]
    append(partition, NOW, NOW, NOW)
    reader = Reader([(partition, 1)])
    store.apply_retention(NOW + 5000)
    assert partition.start == partition.end == 3
    assert reader.take(10) is None
    assert reader.caught_up
    append(partition, NOW + 5000)
    reader.wake(partition)
    run = reader.take(10)
    assert isinstance(run, Run)
    assert (run.first, run.skipped) == (3, 2)


@pytest.mark.parametrize("filters", [None, sql("TRUE OR x = 1"), later_than(0)])
def test_a_run_has_no_more_bytes_than_asked_for_but_one_message(
    store: MemoryStore, log: StoredLog, filters: Compiled | None
) -> None:
    messages = [DATA + bytes((size,)) + b"x" * size for size in (1, 2, 30, 1, 1, 40)]
    log.partitions[0].append(messages, bytes(len(messages)), NOW)
    store.commit()
    reader = from_start(log, filters)
    runs = []
    while run := reader.take(10, None, 13):
        if isinstance(run, Run):
            runs.append(run.count)
    assert runs == [2, 1, 2, 1]


def test_a_failed_read_leaves_the_reader_where_it_is(
    store: MemoryStore, log: StoredLog, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log.partitions[0], NOW)
    reader = Reader([(log.partitions[0], 0)])

    def broken(_at: int, _bytes_max: int, _request: object) -> None:
        raise StorageError

    with monkeypatch.context() as patch:
        patch.setattr(log.partitions[0], "read", broken)
        with pytest.raises(StorageError):
            reader.take(1)
    assert read(reader, 1) == [(0, 0)]


def test_a_partition_that_is_not_read_does_not_concern_the_reader(log: StoredLog) -> None:
    def position(partition: Partition) -> dict[int, int]:
        return Reader([(partition, 0)]).positions

    assert position(log.partitions[3]) == {3: 0}


def with_kind(kind: str) -> bytes:
    return encode(Described(ULong(0x74), {"kind": kind})) + b"\x00\x53\x75\xa0\x01x"


KINDS = st.lists(st.lists(st.sampled_from("abc"), max_size=12), min_size=1, max_size=3)


@given(KINDS, st.sampled_from("abcd"), st.integers(1, 5), st.booleans())
def test_a_filtered_reader_brings_what_a_look_at_every_record_would(
    partitions: list[list[str]], wanted: str, count_max: int, forgetful: bool
) -> None:
    """The events are in order within each partition, and no event is read twice, no matter how often chunks
    are freed in between.
    """
    store = MemoryStore()
    log = store.create("log", LogSettings(partitions=len(partitions)), incarnation="i")
    for partition, kinds in zip(log.partitions, partitions, strict=True):
        if kinds:
            partition.append([with_kind(kind) for kind in kinds], bytes(len(kinds)), NOW)
    store.commit()
    reader = from_start(log, sql(f"kind = '{wanted}'"))
    got: list[Position] = []
    while run := reader.take(count_max):
        if isinstance(run, Run):
            got += positions(run)
        if forgetful:
            reader.forget_chunks()
    expected = [
        (index, number)
        for index, kinds in enumerate(partitions)
        for number, kind in enumerate(kinds)
        if kind == wanted
    ]
    assert sorted(got) == expected
    assert all(
        [number for position, number in got if position == index] == sorted(n for p, n in got if p == index)
        for index in range(3)
    )
    assert reader.positions == {index: len(kinds) for index, kinds in enumerate(partitions)}, (
        "its position moves on whatever passes"
    )


def test_a_filter_that_rejects_everything_reports_progress_in_ranges(
    store: MemoryStore, log: StoredLog
) -> None:
    """Other links get their turn, and the position of the link still advances."""
    count = 5000
    log.partitions[0].append([with_kind("a")] * count, bytes(count), NOW)
    store.commit()
    reader = Reader([(log.partitions[0], 0)], sql("UPPER(kind) = 'B'"))
    passed: list[int] = []
    while run := reader.take(10):
        assert isinstance(run, Passed)
        passed.append(run.count)
    assert sum(passed) == count == reader.positions[0]
    assert max(passed) < count, "in more than one piece"


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4))
def test_an_upper_bound_ends_the_reading(low: int, high: int, count_max: int) -> None:
    store = MemoryStore()
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    partition.append([b"x"] * 10, bytes(10), NOW)
    store.commit()
    text = (
        f"d.event-streams-offset >= '{offset_text(low)}' AND d.event-streams-offset < '{offset_text(high)}'"
    )
    reader = Reader([(partition, 0)], sql(text))
    assert read(reader, count_max) == [(0, number) for number in range(10) if low <= number < high]
    partition.append([b"x"] * 5, bytes(5), NOW)
    store.commit()
    reader.wake(partition)
    assert read(reader, count_max) == [(0, number) for number in range(10, 15) if low <= number < high]


def test_a_filtered_reader_that_was_overtaken_says_so_with_its_next_event(
    store: MemoryStore, append: Append
) -> None:
    """This also holds if the filter rejects all records that the reader examined first."""
    log = store.create("short", LogSettings(retention_ms=1000, segment_ms=1000), incarnation="i")
    partition = log.partitions[0]
    reader = Reader([(partition, 0)], sql("kind = 'b'"))
    for kind, now in (("a", NOW), ("a", NOW), ("a", NOW + 5000), ("b", NOW + 5000)):
        partition.append([with_kind(kind)], b"\0", now)
        store.commit()
    store.apply_retention(NOW + 5000)
    missed = partition.start
    assert missed > 0
    runs = []
    while run := reader.take(1):
        if isinstance(run, Run):
            runs.append((run.first, run.skipped))
    assert runs == [(3, missed)]


# -- partitions that come and go


def test_partitions_that_stay_or_come_back_continue_at_their_position(log: StoredLog, append: Append) -> None:
    """4.5.1: partitions are assigned and removed without another attach. Nothing is lost and nothing is
    delivered twice.
    """
    one, two, three = log.partitions[:3]
    for each in (one, two, three):
        append(each, NOW, NOW)
    reader = Reader([(one, 0), (two, 0)])
    assert positions_of(reader, 3) == [(0, 0), (1, 0), (0, 1)]
    reader.associate([(two, 99), (three, 1)])
    assert sorted(positions_of(reader, 10)) == [(1, 1), (2, 1)]
    assert reader.positions == {1: 2, 2: 2}
    append(one, NOW)
    reader.associate([(one, 99), (two, 99), (three, 99)])
    assert positions_of(reader, 10) == [(0, 2)]


def positions_of(reader: Reader, count: int) -> list[Position]:
    """Read at most this many events, one at a time."""
    got: list[Position] = []
    while len(got) < count and (run := reader.take(1)):
        got += positions(run_of(run))
    return got


def test_a_stretch_ends_by_the_work_that_its_records_take(store: MemoryStore, log: StoredLog) -> None:
    """The cost of a filter depends on the content of a record, not only on the filter's text."""
    slow = with_kind("a" * 20_000)
    log.partitions[0].append([slow] * 20, bytes(20), NOW)
    store.commit()
    reader = Reader([(log.partitions[0], 0)], sql("UPPER(kind) LIKE '%_AAAAAAAB%'"))
    passed: list[int] = []
    while run := reader.take(10):
        assert isinstance(run, Passed)
        passed.append(run.count)
    assert passed == [1] * 20


def test_a_range_that_ends_with_the_work_limit_skips_nothing(store: MemoryStore, log: StoredLog) -> None:
    slow, good = with_kind("a" * 20_000), with_kind("xaaaaaaab")
    log.partitions[0].append([slow, good, slow, slow, good, good] * 3, bytes(18), NOW)
    store.commit()
    reader = Reader([(log.partitions[0], 0)], sql("UPPER(kind) LIKE '%_AAAAAAAB%'"))
    found = []
    while run := reader.take(1):
        found += positions(run) if isinstance(run, Run) else []
    assert [number for _, number in found] == [index for index in range(18) if index % 6 in {1, 4, 5}]
