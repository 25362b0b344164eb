"""Readers of a store whose numbers have gaps and whose times fall get exactly the events that match, each
once and in order, and find the end.
"""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.filters import Compiled
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.consuming.reader import Passed, Picked, Reader, Room, Run
from amqp_streams.streams.consuming.start import start_position
from amqp_streams.testing import MemoryStore, Uneven
from amqp_streams.wire.codec import encode
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Described, ULong
from tests.amqp_streams.streams.conftest import NOW
from tests.amqp_streams.streams.consuming.reading import sql

Event = tuple[int, int, bytes]
"""Number, time and message of an event."""

COMMITS = st.lists(
    st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 6)), min_size=1, max_size=4), max_size=8
)
SKIPS = st.lists(st.integers(0, 3), min_size=1, max_size=5)
BOUNDS = st.integers(-8, 8)
SUBJECTS = (b"a", b"b", b"c")


def body(number: int) -> bytes:
    return encode(Described(ULong(0x73), [None, None, None, SUBJECTS[number % 3].decode()])) + (
        b"\x00\x53\x75\xa0\x04" + number.to_bytes(4)
    )


def filled(skips: list[int], commits: list[list[tuple[int, int]]], *, times_fall: bool) -> Partition:
    """A partition with these appends: how far the clock is off, and how many events."""
    store = MemoryStore(uneven=Uneven(skips, times_fall))
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    count = 0
    for appends in commits:
        for off_ms, events in appends:
            partition.append([body(count + each) for each in range(events)], bytes(events), NOW + off_ms)
            count += events
        store.commit()
    return partition


def everything(partition: Partition) -> list[Event]:
    """What the partition has, one record after the other."""
    found: list[Event] = []
    at = 0
    while (chunk := partition.read(at, 1)) is not None:
        found.append((chunk.number(0), chunk.timestamps[0], chunk.messages[0]))
        at = chunk.end
    return found


def taken(reader: Reader, count_max: int) -> list[Event]:
    got: list[Event] = []
    while run := reader.take(count_max, NOW):
        if isinstance(run, Run):
            part = slice(run.start, run.start + run.count)
            numbers = range(run.first, run.first + run.count)
            got += zip(numbers, run.chunk.timestamps[part], run.chunk.messages[part], strict=True)
            assert run.skipped == 0, "a gap is not a loss"
    return got


def picked(reader: Reader, count_max: int) -> list[Event]:
    got: list[Event] = []
    while run := reader.pick(count_max, NOW, Room(1 << 20, 0, one=True)):
        if isinstance(run, Picked):
            got += zip(run.offsets, run.timestamps, run.messages, strict=True)
            assert run.after > run.offsets[-1]
            assert run.skipped == 0
        else:
            assert isinstance(run, Passed)
    return got


@given(SKIPS, COMMITS, st.integers(1, 7), st.booleans())
def test_every_event_is_read_once_and_in_order(
    skips: list[int], commits: list[list[tuple[int, int]]], count_max: int, times_fall: bool
) -> None:
    partition = filled(skips, commits, times_fall=times_fall)
    wanted = everything(partition)
    assert len(wanted) == sum(events for appends in commits for _, events in appends)
    for read in (taken, picked):
        reader = Reader([(partition, 0)])
        assert read(reader, count_max) == wanted
        assert reader.caught_up
        assert reader.position(0) == partition.end


class Wanted(NamedTuple):
    """The conditions of a filter; times are relative to `NOW`."""

    first: int
    end: int | None
    after_ms: int | None
    before_ms: int | None
    content: bool


NUMBERS = st.integers(0, 30)
WANTED = st.builds(
    Wanted, NUMBERS, st.none() | NUMBERS, st.none() | BOUNDS, st.none() | BOUNDS, st.booleans()
)


@given(SKIPS, COMMITS, st.integers(1, 7), WANTED)
def test_each_filter_gets_exactly_the_events_that_match(
    skips: list[int], commits: list[list[tuple[int, int]]], count_max: int, wanted: Wanted
) -> None:
    first, end, after_ms, before_ms, content = wanted
    partition = filled(skips, commits, times_fall=True)
    terms = [f"d.{names.OFFSET} >= '{offset_text(first)}'"]
    terms += [] if end is None else [f"d.{names.OFFSET} < '{offset_text(end)}'"]
    terms += [] if after_ms is None else [f"d.{names.TIMESTAMP} > {NOW + after_ms}"]
    terms += [] if before_ms is None else [f"d.{names.TIMESTAMP} < {NOW + before_ms}"]
    terms += ["p.subject = 'b'"] if content else []
    filters: Compiled = sql(" AND ".join(terms))
    matching = [
        (number, stamp, message)
        for number, stamp, message in everything(partition)
        if number >= first
        and (end is None or number < end)
        and (after_ms is None or stamp > NOW + after_ms)
        and (before_ms is None or stamp < NOW + before_ms)
        and (not content or b"\xa1\x01b" in message)
    ]
    for read in (taken, picked):
        reader = Reader([(partition, start_position(filters, partition))], filters)
        assert read(reader, count_max) == matching


@given(SKIPS, COMMITS)
def test_a_reader_waits_for_the_end_and_not_for_a_number(
    skips: list[int], commits: list[list[tuple[int, int]]]
) -> None:
    """Numbers in front of the end may belong to no event: a reader that has read all is at the end."""
    partition = filled(skips, commits, times_fall=False)
    for bounds in (None, sql(f"d.{names.OFFSET} < '{offset_text(partition.end)}'")):
        reader = Reader([(partition, 0)], bounds)
        taken(reader, 100)
        assert reader.caught_up
        assert reader.position(0) == partition.end


def test_only_what_retention_removed_is_reported_as_skipped() -> None:
    settings = LogSettings(retention_ms=10_000, segment_ms=1000)
    store = MemoryStore(uneven=Uneven((0, 3)))
    partition = store.create("log", settings, incarnation="i").partitions[0]
    for second in range(20):
        partition.append([body(second)], b"\0", NOW + 1000 * second)
        store.commit()
    reader = Reader([(partition, 0)])
    first = reader.take(1)
    assert isinstance(first, Run)
    store.apply_retention(NOW + 20_000)
    reader.forget_chunks()
    runs = [run for run in iter(lambda: reader.take(100), None) if isinstance(run, Run)]
    assert runs[0].skipped == partition.start - first.first - 1 > 0
    assert [run.skipped for run in runs[1:]] == [0] * (len(runs) - 1)
