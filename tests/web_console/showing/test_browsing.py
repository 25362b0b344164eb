"""Which events a page reads."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import PartitionExtent
from web_console.showing.browsing import (
    PARTITIONS_MAX,
    SCAN_MAX,
    From,
    Listing,
    Read,
    Row,
    listing,
    mark,
    offsets_of,
    read_together,
    slices,
)


def extent(partition: str, earliest: int, end: int) -> PartitionExtent:
    return PartitionExtent(partition, earliest, end, 0, None, None, "open")


def read_page(
    times: dict[str, list[int]], where: From, starts: dict[str, int], count: int, wanted: set[int] | None
) -> Listing:
    """Read a page of partitions whose event i was stored at `times[partition][i]`."""
    extents = [extent(name, 0, len(stored)) for name, stored in times.items()]
    reads = []
    for each in slices(extents, where, starts, count=count, filtered=wanted is not None):
        rows = [
            Row(each.partition, offset, times[each.partition][offset], 1, "", "", "")
            for offset in range(each.start, each.end)
            if wanted is None or times[each.partition][offset] in wanted
        ]
        back = where in {From.LATEST, From.BEFORE}
        kept: Sequence[Row] = rows[-count:] if back else rows[:count]
        if len(rows) <= count:
            position = each.start if back else each.end
        else:
            position = kept[0].offset if back else rows[count].offset
        reads.append(Read(each, kept, position))
    return listing(reads, extents, where, count=count)


TIMES = st.dictionaries(
    st.sampled_from("012"), st.lists(st.integers(0, 9), max_size=25).map(sorted), min_size=1
)


@given(TIMES, st.integers(1, 7), st.none() | st.sets(st.integers(0, 9)))
def test_pages_on_from_the_earliest_have_every_event_once(
    times: dict[str, list[int]], count: int, wanted: set[int] | None
) -> None:
    seen, where, starts = [], From.EARLIEST, dict[str, int]()
    while True:
        found = read_page(times, where, starts, count, wanted)
        seen += [(row.partition, row.offset) for row in found.rows]
        assert len(found.rows) <= count
        if found.newer is None:
            break
        assert offsets_of(found.newer) != starts
        where, starts = From.AFTER, offsets_of(found.newer)
    assert sorted(seen) == all_of(times, wanted)


@given(TIMES, st.integers(1, 7), st.none() | st.sets(st.integers(0, 9)))
def test_pages_back_from_the_latest_have_every_event_once(
    times: dict[str, list[int]], count: int, wanted: set[int] | None
) -> None:
    seen, where, starts = [], From.LATEST, dict[str, int]()
    while True:
        found = read_page(times, where, starts, count, wanted)
        seen += [(row.partition, row.offset) for row in found.rows]
        if found.older is None:
            break
        where, starts = From.BEFORE, offsets_of(found.older)
    assert sorted(seen) == all_of(times, wanted)


def all_of(times: dict[str, list[int]], wanted: set[int] | None) -> list[tuple[str, int]]:
    return sorted(
        (name, offset)
        for name, stored in times.items()
        for offset, time in enumerate(stored)
        if wanted is None or time in wanted
    )


def test_a_page_with_a_filter_looks_at_a_bounded_number_of_events() -> None:
    extents = [extent(str(number), 0, 10**9) for number in range(4)]
    for where in From:
        for filtered, most in ((True, SCAN_MAX), (False, 200)):
            found = slices(extents, where, {}, count=50, filtered=filtered)
            assert sum(each.end - each.start for each in found) <= most


def test_offsets_beyond_the_log_are_moved_into_it() -> None:
    found = slices([extent("0", 10, 20)], From.OFFSET, {"0": 3}, count=5, filtered=False)
    assert found == [("0", 10, 15)]
    assert slices([extent("0", 10, 20)], From.AFTER, {"0": 99}, count=5, filtered=False) == [("0", 20, 20)]
    assert slices([extent("0", 10, 20)], From.BEFORE, {"0": 3}, count=5, filtered=False) == [("0", 10, 10)]


@given(
    st.dictionaries(st.text("0123456789abc-", min_size=1, max_size=8), st.integers(0, 10**15), max_size=32)
)
def test_a_mark_is_read_as_it_was_written(offsets: dict[str, int]) -> None:
    assert offsets_of(mark(offsets)) == offsets


@given(st.text(max_size=60))
def test_any_text_is_a_mark(text: str) -> None:
    assert len(offsets_of(text)) <= PARTITIONS_MAX


def test_of_many_partitions_those_with_the_latest_events_are_read_together() -> None:
    many = [PartitionExtent(str(number), 0, 9, 0, 1, number * 7 % 101, "open") for number in range(101)]
    found = read_together(many, {})
    assert len(found) == PARTITIONS_MAX
    assert {each.last_timestamp_ms for each in found} == set(range(101 - PARTITIONS_MAX, 101))
    assert [each for each in many if each in found] == found
    few = many[:PARTITIONS_MAX]
    assert read_together(few, {}) == few


def test_the_next_page_reads_the_partitions_of_its_mark() -> None:
    """Otherwise events that come between two pages would change what the second one shows."""
    many = [extent(str(number), 0, 9) for number in range(100)]
    assert [each.partition for each in read_together(many, {"98": 3, "4": 1, "x": 0})] == ["4", "98"]
    assert not read_together(many, {"x": 0})
