"""The position of a tracker is that of the lowest unsettled record, for any order of settlements."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_streams.streams.consuming.tracker import Tracker


def test_settling_in_order_moves_the_position_one_by_one() -> None:
    tracker = Tracker(7)
    tracker.sent(7, 3)
    assert tracker.position == 7
    for number in (7, 8, 9):
        tracker.settled(number)
        assert tracker.position == number + 1
    assert tracker.unsettled == 0


def test_the_lowest_unsettled_record_holds_the_position() -> None:
    tracker = Tracker(0)
    tracker.sent(0, 5)
    tracker.settled(1, 4)
    assert (tracker.position, tracker.unsettled) == (0, 1)
    tracker.settled(0)
    assert (tracker.position, tracker.unsettled) == (5, 0)


def test_events_that_filters_skip_move_the_position_once_all_before_them_are_settled() -> None:
    tracker = Tracker(0)
    tracker.sent(3, 1)
    tracker.skipped(10)
    assert (tracker.position, tracker.next) == (3, 10)
    tracker.settled(3)
    assert tracker.position == 10
    tracker.skipped(4)
    assert tracker.position == 10


def test_records_that_were_never_sent_and_records_long_settled_make_no_difference() -> None:
    tracker = Tracker(5)
    tracker.sent(5, 2)
    tracker.settled(0, 5)
    tracker.settled(7, 100)
    assert (tracker.position, tracker.unsettled) == (5, 2)
    tracker.settled(5)
    tracker.settled(5)
    assert (tracker.position, tracker.unsettled) == (6, 1)


def test_a_stretch_is_settled_at_once_whatever_its_ends() -> None:
    tracker = Tracker(0)
    for first in (0, 10, 20, 30):
        tracker.sent(first, 5)
    tracker.settled(2, 20)
    assert (tracker.position, tracker.unsettled) == (0, 2 + 3 + 5)
    tracker.settled(0, 100)
    assert (tracker.position, tracker.unsettled) == (35, 0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=40))
def test_no_more_ranges_are_kept_than_records_are_unsettled(settlements: list[tuple[int, int]]) -> None:
    """The limit of unsettled events bounds the memory that one link can use in the node."""
    tracker = Tracker(0)
    tracker.sent(0, 40)
    for first, count in settlements:
        tracker.settled(first, count)
        assert len(tracker._starts) == len(tracker._ends) <= tracker.unsettled


class AgainstASet(RuleBasedStateMachine):
    """The same changes applied to a tracker and to a plain set of numbers."""

    @initialize(position=st.integers(0, 20))
    def begin(self, position: int) -> None:
        self.tracker = Tracker(position)
        self.next = position
        self.unsettled: set[int] = set()

    @rule(gap=st.integers(0, 4), count=st.integers(1, 10))
    def send(self, gap: int, count: int) -> None:
        first = self.next + gap
        self.tracker.sent(first, count)
        self.next = first + count
        self.unsettled |= set(range(first, self.next))

    @rule(ahead=st.integers(-5, 10))
    def pass_over(self, ahead: int) -> None:
        self.tracker.skipped(self.next + ahead)
        self.next = max(self.next, self.next + ahead)

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data(), count=st.integers(1, 12))
    def settle(self, data: st.DataObject, count: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.unsettled)))
        self.tracker.settled(first, count)
        self.unsettled -= set(range(first, first + count))

    @rule(first=st.integers(0, 60), count=st.integers(1, 5))
    def settle_anything(self, first: int, count: int) -> None:
        self.tracker.settled(first, count)
        self.unsettled -= set(range(first, first + count))

    @invariant()
    def they_agree(self) -> None:
        assert self.tracker.position == min(self.unsettled, default=self.next)
        assert self.tracker.unsettled == len(self.unsettled)
        assert self.tracker.next == self.next


TestAgainstASet = AgainstASet.TestCase
