"""Micro-batches: never more than the limits, always progress, and no event skipped, with a crash at any
point.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_connector.planning.admission import Lag, Limits, admit, advance, held_back, lags, share
from spark_connector.planning.holdings import Available, Held, LogState
from spark_connector.planning.offsets import Edge, Offsets, Positions, StreamOffsets
from spark_connector.planning.ranges import beginning, located, plan
from tests.properties import examples

counts = st.lists(st.integers(0, 2000), min_size=1, max_size=12)


@given(counts, st.data(), st.integers(1, 5000), st.integers(0, 10**6))
def test_a_share_is_within_the_limit_and_something(
    given_counts: list[int], data: st.DataObject, limit: int, first: int
) -> None:
    costs = data.draw(st.lists(st.integers(1, 300), min_size=len(given_counts), max_size=len(given_counts)))
    found = share(given_counts, costs, limit, first)
    assert all(0 <= got <= count for got, count in zip(found, given_counts, strict=True))
    used = sum(got * cost for got, cost in zip(found, costs, strict=True))
    assert used <= limit or (sum(found) == 1 and used > limit)
    assert any(found) == any(given_counts)


@given(counts, st.integers(1, 5000), st.integers(0, 10**6))
def test_a_limit_of_offsets_is_used_up(given_counts: list[int], limit: int, first: int) -> None:
    assert sum(share(given_counts, [1] * len(given_counts), limit, first)) == min(limit, sum(given_counts))


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    st.none() | st.integers(1, 2000),
    st.none() | st.integers(1, 50_000),
)
def test_both_limits_hold_together(given_counts: list[int], offsets: int | None, size: int | None) -> None:
    waiting = [
        Lag("t", index, 7 * index, 7 * index + count, 1 + 13 * index)
        for index, count in enumerate(given_counts)
    ]
    found = admit(waiting, Limits(offsets, size))
    assert offsets is None or sum(found) <= offsets
    used = sum(got * lag.cost for got, lag in zip(found, waiting, strict=True))
    assert size is None or used <= size or sum(found) == 1
    assert any(found) == any(given_counts)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 5))
def test_every_partition_has_its_turn(given_counts: list[int], limit: int) -> None:
    """If a batch has fewer events than partitions, the partitions without events are first in the
    next batch.
    """
    starts = [0] * len(given_counts)
    without = [0] * len(given_counts)
    while any(start < end for start, end in zip(starts, given_counts, strict=True)):
        waiting = [
            Lag("t", index, start, end)
            for index, (start, end) in enumerate(zip(starts, given_counts, strict=True))
        ]
        found = admit(waiting, Limits(limit))
        assert sum(found) > 0
        for index, got in enumerate(found):
            without[index] = 0 if got or starts[index] == given_counts[index] else without[index] + 1
            starts[index] += got
        assert max(without) <= 2 * len(given_counts)


def test_large_and_small_partitions_advance_in_proportion() -> None:
    assert share([9000, 1000, 0], [1, 1, 1], 1000, 0) == [900, 100, 0]


def test_an_event_larger_than_the_limit_passes_alone() -> None:
    assert sum(share([5, 5], [1000, 1000], 10, 0)) == 1


def available(*held: tuple[int, int], incarnation: str = "i") -> Available:
    return {"t": LogState(incarnation, {index: Held(*pair) for index, pair in enumerate(held)})}


def standing(*following: int, incarnation: str = "i") -> Offsets:
    return Offsets({"t": StreamOffsets(incarnation, dict(enumerate(following)))})


def test_where_nothing_is_new_the_end_is_the_start() -> None:
    start = standing(5, 7)
    assert advance(start, available((0, 5), (3, 7)), Limits()) is start
    assert advance(start, available((0, 9), (3, 7)), Limits(), hold=True) is start


def test_the_first_batch_is_made_even_of_nothing_so_that_the_checkpoint_knows_where_the_query_began() -> None:
    start = Offsets(standing(5, 7).streams, initial=True)
    for hold in (True, False):
        end = advance(start, available((0, 5), (3, 7)), Limits(), hold=hold)
        assert end == Offsets(start.streams, begun={"t": {0: 5, 1: 7}})
    assert advance(end, available((0, 5), (3, 7)), Limits()) is end


def test_deleted_logs_do_not_count_for_the_limit() -> None:
    assert [lag.count for lag in lags(standing(5, 7), available((8, 10), (3, 9)))] == [2, 2]
    assert advance(standing(5, 7), available((8, 10), (3, 7)), Limits(1)).streams["t"].next == {0: 9, 1: 7}


def test_partitions_that_were_added_are_read_from_their_beginning() -> None:
    assert advance(standing(5), available((0, 5), (0, 3)), Limits()).streams["t"].next == {0: 5, 1: 3}


def test_a_recreated_log_is_read_from_its_beginning() -> None:
    end = advance(standing(50), available((0, 3), incarnation="new"), Limits())
    assert end.streams["t"] == StreamOffsets("new", {0: 3})


def test_a_log_that_lost_its_end_is_read_on_where_it_ends_now() -> None:
    assert advance(standing(50), available((0, 30)), Limits()).streams["t"].next == {0: 30}


def test_a_log_that_joins_a_running_query_is_read_from_its_earliest_and_the_end_says_so() -> None:
    both = {**available((0, 5)), "u": LogState("j", {0: Held(4, 9)})}
    end = advance(standing(5), both, Limits())
    assert end.begun == {"u": {0: 4}}
    assert [(one.stream, one.start, one.end) for one in plan(standing(5), end, both).ranges] == [("u", 4, 9)]


def test_a_log_that_is_away_keeps_its_position_and_continues_there() -> None:
    both = Offsets({**standing(5).streams, "u": StreamOffsets("j", {0: 7})})
    assert advance(both, available((0, 5)), Limits()) is both
    away = advance(both, available((0, 6)), Limits())
    assert away.streams["u"] == StreamOffsets("j", {0: 7})
    back = {**available((0, 6)), "u": LogState("j", {0: Held(0, 9)})}
    again = advance(away, back, Limits())
    assert [(one.stream, one.start, one.end) for one in plan(away, again, back).ranges] == [("u", 7, 9)]
    anew = {**available((0, 6)), "u": LogState("k", {0: Held(0, 3)})}
    found = plan(away, advance(away, anew, Limits()), anew)
    assert [(one.stream, one.start, one.end) for one in found.ranges] == [("u", 0, 3)]
    assert len(found.losses) == 1


def test_too_little_waits_for_a_limited_time() -> None:
    assert held_back(5, 10, 0, 1000)
    assert not held_back(10, 10, 0, 1000)
    assert not held_back(5, 10, 1000, 1000)
    assert not held_back(0, None, 0, 0)


@dataclass
class Engine:
    """The behaviour of Spark with a source, as measured: the end of a batch is in the checkpoint before the
    batch is read, its commit after.
    """

    begin: Edge
    limit: int
    log: list[list[int]]
    ends: dict[int, Offsets] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    read: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    initial: Offsets | None = None
    crashes: list[bool] = field(default_factory=list)

    def holdings(self) -> Available:
        return available(*((0, len(partition)) for partition in self.log))

    def may_crash(self) -> None:
        if self.crashes and self.crashes.pop():
            raise ConnectionAbortedError

    def run(self, batches: int) -> None:
        """A run of the query: uncommitted ranges are read again first."""
        self.initial = None
        last = max(self.ends, default=-1)
        if last >= 0 and last not in self.commits:
            self.batch(last)
        for number in range(max(self.ends, default=-1) + 1, max(self.ends, default=-1) + 1 + batches):
            self.may_crash()
            start = self.start_of(number)
            self.may_crash()
            self.log[0].append(len(self.log[0]))  # a producer sends just now
            end = Offsets.of(advance(start, self.holdings(), Limits(self.limit)).json())
            if end.text() == start.text():
                return
            self.may_crash()
            self.ends[number] = end
            self.batch(number)

    def start_of(self, number: int) -> Offsets:
        if number:
            return self.ends[number - 1]
        if self.initial is None:
            numbers = located(Positions(self.begin), self.holdings(), Edge.EARLIEST)
            self.initial = beginning(numbers, self.holdings())
        return Offsets.of(self.initial.json())

    def batch(self, number: int) -> None:
        self.may_crash()
        found = plan(self.start_of(number), self.ends[number], self.holdings())
        assert not found.losses
        rows = {(one.partition, offset) for one in found.ranges for offset in range(one.start, one.end)}
        assert self.read.setdefault(number, rows) == rows, "a batch that is read again is another"
        self.may_crash()
        self.commits.add(number)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(Edge),
    st.integers(1, 7),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.lists(st.lists(st.booleans(), max_size=12), max_size=5),
)
def test_nothing_is_lost_or_doubled_whatever_crashes_when_and_whatever_comes_in_between(
    begin: Edge, limit: int, sizes: list[int], crashes: list[list[bool]]
) -> None:
    """The invariant holds from the first end in the checkpoint, for any start of the query. Batch 0 has a gap
    before it.
    """
    engine = Engine(begin, limit, [list(range(size)) for size in sizes])
    for plan_of_crashes in [*crashes, []]:
        engine.crashes = plan_of_crashes
        try:
            engine.run(3)
        except ConnectionAbortedError:
            engine.log[-1].append(0)
    first, last = engine.ends[0], engine.ends[max(engine.ends)]
    begun = first.begun["t"]
    assert begin is Edge.LATEST or not any(begun.values())
    wanted = {
        (index, number)
        for index, end in last.streams["t"].next.items()
        for number in range(begun[index], end)
    }
    assert sorted(row for rows in engine.read.values() for row in rows) == sorted(wanted)
