"""Offset ranges: the events of a plan, the ones it reports as lost, and its division into tasks."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.errors import OffsetError
from spark_connector.planning.holdings import Held, LogState
from spark_connector.planning.offsets import Edge, Offsets, Positions, StreamOffsets
from spark_connector.planning.ranges import (
    TOGETHER,
    OffsetRange,
    Task,
    beginning,
    clamp,
    cut,
    joined,
    located,
    loss_error,
    plan,
    renewed,
    replaced,
    tasks,
)

ranges = st.lists(
    st.builds(
        lambda stream, partition, start, size: OffsetRange(stream, partition, start, start + size, "i"),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.integers(0, 10**6),
        st.integers(0, 60_000) | st.integers(0, 50),
    ),
    max_size=8,
    unique_by=lambda one: (one.stream, one.partition),
)
bounds = st.integers(0, 500)
held = st.tuples(bounds, bounds).map(lambda pair: Held(min(pair), max(pair)))


def covered(found: list[Task]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return what tasks read of each partition, with neighbouring ranges joined."""
    places: dict[tuple[str, int], list[OffsetRange]] = {}
    for one in sorted((one for task in found for one in task), key=lambda one: one.start):
        places.setdefault((one.stream, one.partition), []).append(one)
    return {place: [(one.start, one.end) for one in joined(entry)] for place, entry in places.items()}


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 40), st.integers(1, 100_000))
def test_tasks_have_exactly_the_offsets_of_the_ranges(
    given_ranges: list[OffsetRange], at_least: int | None, at_most: int | None, offsets_max: int
) -> None:
    offsets_max = max(
        offsets_max, 1 + sum(map(len, given_ranges)) // 200
    )  # thousands of pieces show nothing more
    found = tasks(given_ranges, at_least=at_least, at_most=at_most, offsets_max=offsets_max)
    assert covered(found) == {
        (one.stream, one.partition): [(one.start, one.end)] for one in given_ranges if len(one)
    }
    assert sum(len(one) for task in found for one in task) == sum(map(len, given_ranges))
    assert all(task for task in found)
    total = sum(map(len, given_ranges))
    if at_most is not None:
        assert len(found) <= at_most
    elif at_least is not None:
        assert len(found) >= min(at_least, total)
    if at_most is None:
        assert all(len(one) <= offsets_max for task in found for one in task)
    assert tasks(reversed(given_ranges), at_least=at_least, at_most=at_most, offsets_max=offsets_max) == found


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 50))
def test_a_range_is_cut_into_parts_of_nearly_one_size(start: int, size: int, count: int) -> None:
    count = min(count, size)
    parts = cut(OffsetRange("t", 0, start, start + size, None), count)
    assert len(parts) == count
    assert joined(parts) == [OffsetRange("t", 0, start, start + size, None)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [OffsetRange("t", index, 0, TOGETHER // 4, "i") for index in range(8)]
    large = OffsetRange("t", 8, 0, TOGETHER * 3, "i")
    assert [len(task) for task in tasks([*small, large], at_least=None, at_most=None, offsets_max=10**6)] == [
        4,
        4,
        1,
    ]
    assert len(tasks(small, at_least=8, at_most=None, offsets_max=10**6)) == 8


def test_a_small_limit_of_offsets_bounds_every_task() -> None:
    ranges = [OffsetRange("t", index, 0, 1_030, "i") for index in range(2)]
    found = tasks(ranges, at_least=None, at_most=None, offsets_max=100)
    assert len(found) == 22
    assert max(sum(map(len, task)) for task in found) <= 100


def test_few_tasks_have_nearly_as_much_each() -> None:
    given_ranges = [OffsetRange("t", index, 0, 1000 * (index + 1), "i") for index in range(16)]
    found = tasks(given_ranges, at_least=None, at_most=4, offsets_max=10**6)
    assert sorted(sum(map(len, task)) for task in found) == [34_000] * 4


@given(st.tuples(bounds, bounds), held)
def test_each_wanted_event_is_either_present_or_lost(wanted: tuple[int, int], there: Held) -> None:
    one = OffsetRange("t", 0, *wanted, "i")
    found, losses = clamp(one, there)
    assert len(found) >= 0
    assert there.earliest <= found.start <= found.end <= there.next or len(found) == 0
    expected = len(range(max(one.start, there.earliest), min(one.end, there.next)))
    assert len(found) == expected
    if one.end >= one.start:
        assert sum(loss.count or 0 for loss in losses) == len(one) - expected
    else:
        assert losses


@pytest.mark.parametrize(
    ("wanted", "there", "words"),
    [
        (
            (0, 10),
            Held(4, 20),
            (
                "retention has removed them; requested offsets 0 to 10, available offsets 4 to 20 .ends"
                " exclusive., 4 events lost"
            ),
        ),
        (
            (0, 10),
            Held(30, 30),
            "retention has removed them; requested offsets 0 to 10, available nothing .*10 events lost",
        ),
        ((5, 30), Held(0, 20), "the log ends before the end; .*10 events lost"),
        ((25, 30), Held(0, 20), "the log ends before the start; .*5 events lost"),
        ((25, 15), Held(0, 20), "the log ends before the start; .*an unknown number of events lost"),
        ((15, 5), Held(0, 20), "the end is before the start"),
        ((0, 1), None, "the partition no longer exists; .*1 event lost"),
    ],
)
def test_a_loss_reports_position_wanted_available_and_both_remedies(
    wanted: tuple[int, int], there: Held | None, words: str
) -> None:
    _, losses = clamp(OffsetRange("temps", 3, *wanted, "i"), there)
    error = str(loss_error(losses))
    assert "log 'temps', partition 3" in error
    assert "failOnDataLoss to false" in error
    assert "new checkpoint" in error
    assert re.search(words, error)


def test_many_losses_make_no_endless_error() -> None:
    losses = [loss for index in range(100) for loss in clamp(OffsetRange("t", index, 0, 1, "i"), None)[1]]
    assert str(loss_error(losses)).count("partition") < 12
    assert "95 more partitions" in str(loss_error(losses))


def test_the_loss_of_a_batch_says_that_its_frame_was_planned_before() -> None:
    _, losses = clamp(OffsetRange("t", 0, 0, 1, "i"), None)
    assert "call load() again" in str(loss_error(losses, planned_once=True))
    assert "load()" not in str(loss_error(losses))


def state(incarnation: str = "i", **partitions: tuple[int, int]) -> LogState:
    return LogState(incarnation, {int(name[1:]): Held(*pair) for name, pair in partitions.items()})


def offsets(incarnation: str = "i", **following: int) -> Offsets:
    return Offsets(
        {"t": StreamOffsets(incarnation, {int(name[1:]): number for name, number in following.items()})}
    )


@given(
    st.dictionaries(st.integers(0, 4), st.tuples(bounds, bounds), max_size=5),
    st.dictionaries(st.integers(0, 4), bounds, max_size=5),
    st.data(),
)
def test_a_plan_has_what_is_between_start_and_end_once(
    has: dict[int, tuple[int, int]], start: dict[int, int], data: st.DataObject
) -> None:
    available = {"t": LogState("i", {index: Held(min(pair), max(pair)) for index, pair in has.items()})}
    end = {index: data.draw(st.integers(start.get(index, 0), 600)) for index in has}
    found = plan(
        Offsets({"t": StreamOffsets("i", start)}), Offsets({"t": StreamOffsets("i", end)}), available
    )
    wanted = {(index, number) for index, last in end.items() for number in range(start.get(index, 0), last)}
    got = Counter((one.partition, number) for one in found.ranges for number in range(one.start, one.end))
    assert set(got.values()) <= {1}
    assert set(got) == {
        (index, number)
        for index, number in wanted
        if available["t"].partitions[index].earliest <= number < available["t"].partitions[index].next
    }
    assert sum(loss.count or 0 for loss in found.losses) == len(wanted) - len(got)


def test_partitions_that_are_new_are_read_from_their_beginning() -> None:
    found = plan(offsets(p0=5), offsets(p0=7, p1=3), {"t": state(p0=(0, 9), p1=(0, 9))})
    assert [(one.partition, one.start, one.end) for one in found.ranges] == [(0, 5, 7), (1, 0, 3)]
    assert not found.losses


def test_a_recreated_log_is_read_from_its_beginning_and_reported() -> None:
    found = plan(offsets("old", p0=50), offsets("new", p0=4), {"t": state("new", p0=(0, 9))})
    assert [(one.start, one.end, one.incarnation) for one in found.ranges] == [(0, 4, "new")]
    assert ["recreated" in str(loss) for loss in found.losses] == [True]


def test_a_batch_of_a_deleted_log_is_lost_as_a_whole() -> None:
    for available in ({}, {"t": state("new", p0=(0, 90))}):
        found = plan(offsets("old", p0=5), offsets("old", p0=9), available)
        assert not found.ranges
        assert [loss.count for loss in found.losses] == [4]


def test_the_first_batch_begins_where_its_end_says() -> None:
    """After a crash in the first batch, Spark gives a new start: the events in between would be lost."""
    end = Offsets({"t": StreamOffsets("i", {0: 30})}, begun={"t": {0: 10}})
    again = Offsets({"t": StreamOffsets("i", {0: 25})}, initial=True)
    assert [(one.start, one.end) for one in plan(again, end, {"t": state(p0=(0, 40))}).ranges] == [(10, 30)]


def test_positions_are_located_in_what_the_log_has() -> None:
    available = {"t": state(p0=(3, 9), p1=(0, 5), p2=(7, 7))}
    assert located(Positions(Edge.EARLIEST), available, Edge.EARLIEST) == {"t": {0: 3, 1: 0, 2: 7}}
    assert located(Positions(Edge.LATEST, {"t": {0: 4, 1: Edge.EARLIEST}}), available, Edge.EARLIEST) == {
        "t": {0: 4, 1: 0, 2: 7}
    }
    with pytest.raises(
        OffsetError, match=r"partition 3 does not exist .log 't', startingOffsets.*partitions 0 to 2"
    ):
        located(Positions(Edge.EARLIEST, {"t": {3: 0}}), available, Edge.EARLIEST)


def test_offsets_of_an_earlier_log_of_the_name_are_reported_as_lost() -> None:
    available = {"t": state("new", p0=(0, 9))}
    assert [str(loss) for loss in replaced(Positions(Edge.EARLIEST, {"t": {0: 4}}, {"t": "old"}), available)]
    assert not replaced(Positions(Edge.EARLIEST, {"t": {0: 4}}, {"t": "new"}), available)
    assert beginning({"t": {0: 4}}, available).streams["t"].incarnation == "new"


def test_numbers_of_an_earlier_log_of_the_name_mean_nothing_in_this_one() -> None:
    available = {"t": state("new", p0=(0, 9)), "u": state("u", p0=(0, 9))}
    positions = Positions(Edge.EARLIEST, {"t": {0: 4}, "u": {0: 3}}, {"t": "old", "u": "u"})
    assert located(renewed(positions, available), available, Edge.EARLIEST) == {"t": {0: 0}, "u": {0: 3}}
    unknown = Positions(Edge.EARLIEST, {"t": {0: 4}})
    assert located(renewed(unknown, available), available, Edge.EARLIEST) == {"t": {0: 4}, "u": {0: 0}}
