"""The events that a producer was given: order, window, resending."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqp_streams.client.errors import ClosedError, RejectedError, ReleasedError
from amqp_streams.client.producing.outbox import FAILURES_KEPT, Entry, LoneEntry, Outbox

RELEASED = ReleasedError("released")
REJECTED = RejectedError("amqp:decode-error")


def outbox(
    count: int = 0, *, events_max: int = 1000, bytes_max: int = 1 << 20, attempts_max: int = 3
) -> Outbox:
    box = Outbox(events_max=events_max, bytes_max=bytes_max, attempts_max=attempts_max)
    box.add(entries(count))
    return box


def entries(count: int, first: int = 0) -> list[Entry]:
    return [Entry(number, b"m%d" % number) for number in range(first, first + count)]


def events(taken: list[Entry]) -> list[object]:
    return [entry.event for entry in taken]


def test_the_oldest_goes_first() -> None:
    box = outbox(5)
    assert events(box.take(2)) == [0, 1]
    assert events(box.take(9)) == [2, 3, 4]
    assert box.take(9) == []


def test_the_window_counts_what_has_no_outcome() -> None:
    box = outbox(4, events_max=5)
    assert box.room == 1
    taken = box.take(4)
    assert box.room == 1
    box.accepted(taken[:3])
    assert box.room == 4


def test_bytes_close_the_window_but_one_event_always_fits() -> None:
    box = Outbox(events_max=10, bytes_max=10, attempts_max=1)
    assert box.room > 0
    box.add([Entry(0, bytes(100))])
    assert box.room == 0
    box.accepted(box.take(1))
    assert box.room == 10
    assert box.bytes == 0


def test_unsent_events_go_first_again() -> None:
    box = outbox(4)
    taken = box.take(4)
    box.put_back(taken[1:])
    assert events(box.take(2)) == [1, 2]
    assert [entry.attempts for entry in taken] == [1, 1, 1, 0]


def test_an_accepted_one_has_its_outcome_and_calls_back_once() -> None:
    box = outbox()
    entry, calls = Entry("e", b""), []
    entry.on_outcome = lambda: calls.append(entry.outcome)
    box.add([entry])
    box.accepted(box.take(1))
    assert calls == [True]


def test_while_released_ones_wait_nothing_younger_goes() -> None:
    box = outbox(5)
    taken = box.take(3)
    box.refused(taken[1], RELEASED)
    assert box.take(9) == []
    assert not box.resend_due
    box.accepted([taken[0], taken[2]])
    assert box.resend_due
    box.resend()
    assert events(box.take(9)) == [1, 3, 4]


def test_released_ones_go_again_in_their_order_whatever_order_they_came_back_in() -> None:
    box = outbox(3)
    taken = box.take(3)
    for entry in reversed(taken):
        box.refused(entry, RELEASED)
    box.resend()
    assert events(box.take(9)) == [0, 1, 2]


def test_one_released_too_often_is_a_failure() -> None:
    box = outbox(1, attempts_max=2)
    for _ in range(3):
        [entry] = box.take(1)
        box.refused(entry, RELEASED)
        box.resend()
    assert entry.outcome is RELEASED
    assert box.take_failures() == ([(0, RELEASED)], 1)
    assert box.events == 0


def test_a_rejected_message_fails_at_once_and_is_reported_once() -> None:
    box = outbox(2)
    first, second = box.take(2)
    box.refused(first, REJECTED)
    box.accepted([second])
    assert box.take_failures() == ([(0, REJECTED)], 1)
    assert box.take_failures() == ([], 0)
    assert (box.events, box.bytes) == (0, 0)


def test_an_event_whose_sender_waits_for_it_does_not_fail_the_flush() -> None:
    box = outbox()
    entry = LoneEntry("e", b"m")
    box.add([entry])
    box.take(1)
    box.refused(entry, REJECTED)
    assert entry.outcome is REJECTED
    assert box.take_failures() == ([], 0)


def test_one_given_up_before_it_was_sent_is_not_sent() -> None:
    box = outbox(1)
    entry = LoneEntry("e", b"m")
    box.add([entry, *entries(1, first=7)])
    entry.cancelled = True
    assert events(box.take(9)) == [0, 7]
    assert isinstance(entry.outcome, ClosedError)
    assert box.events == 2


def test_failures_kept_are_bounded_and_all_are_counted() -> None:
    box = outbox(FAILURES_KEPT + 5)
    for entry in box.take(1000):
        box.refused(entry, REJECTED)
    failures, count = box.take_failures()
    assert (len(failures), count) == (FAILURES_KEPT, FAILURES_KEPT + 5)


def test_a_lost_link_sends_everything_without_an_outcome_again_in_order() -> None:
    box = outbox(6)
    taken = box.take(4)
    box.accepted([taken[2]])
    box.refused(taken[1], RELEASED)
    box.lost()
    again = box.take(9)
    assert events(again) == [0, 1, 3, 4, 5]
    assert [entry.attempts for entry in again] == [2, 2, 2, 1, 1]


def test_after_a_permanent_failure_every_event_has_that_outcome() -> None:
    box = outbox(3)
    box.take(2)
    error = ClosedError("gone")
    box.fail(error)
    assert box.take_failures() == ([(0, error), (1, error), (2, error)], 3)
    assert (box.events, box.bytes) == (0, 0)


class Life(RuleBasedStateMachine):
    """For any behaviour of the peer, an event has one outcome, and the events on a link are in the order of
    posting.
    """

    def __init__(self) -> None:
        super().__init__()
        self.box = Outbox(events_max=50, bytes_max=1 << 20, attempts_max=1000)
        self.given: list[Entry] = []
        self.flight: list[Entry] = []
        self.link: list[int] = []
        self.outcomes: list[int] = []

    @rule(count=st.integers(1, 10))
    def add(self, count: int) -> None:
        count = min(count, self.box.room)
        added = entries(count, first=len(self.given))
        for entry in added:
            entry.on_outcome = lambda entry=entry: self.outcomes.append(entry.event)
        self.given += added
        if added:
            self.box.add(added)

    @rule(count=st.integers(1, 10), sent=st.integers(0, 10))
    def send(self, count: int, sent: int) -> None:
        taken = self.box.take(count)
        self.box.put_back(taken[sent:])
        self.flight += taken[:sent]
        self.link += [entry.number for entry in taken[:sent]]

    @precondition(lambda self: self.flight)
    @rule(count=st.integers(1, 5))
    def accept(self, count: int) -> None:
        accepted, self.flight = self.flight[:count], self.flight[count:]
        self.box.accepted(accepted)

    @precondition(lambda self: self.flight)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        entry = self.flight.pop(data.draw(st.integers(0, len(self.flight) - 1)))
        self.box.refused(entry, RELEASED)

    @precondition(lambda self: self.box.resend_due)
    @rule()
    def resend(self) -> None:
        self.box.resend()
        self.link = []

    @rule()
    def lose(self) -> None:
        self.box.lost()
        self.flight = []
        self.link = []

    @invariant()
    def order_is_kept(self) -> None:
        assert self.link == sorted(self.link)

    @invariant()
    def each_has_one_outcome_at_most(self) -> None:
        assert len(set(self.outcomes)) == len(self.outcomes)
        assert self.box.events == len(self.given) - len(self.outcomes)
        assert self.box.room >= 0

    def teardown(self) -> None:
        self.box.lost()
        self.box.accepted(self.box.take(1000))
        assert sorted(self.outcomes) == [entry.event for entry in self.given]


TestLife = Life.TestCase


@given(st.lists(st.integers(1, 20)), st.integers(1, 20))
def test_everything_added_is_taken_once_in_order(counts: list[int], take: int) -> None:
    box = outbox(events_max=1000)
    total = 0
    for count in counts:
        box.add(entries(count, first=total))
        total += count
    taken: list[object] = []
    while batch := box.take(take):
        taken += events(batch)
    assert taken == list(range(total))
