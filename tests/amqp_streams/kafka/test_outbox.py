"""Batches of a partition end once and in order, whatever Kafka takes, refuses and reports."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqp_streams.kafka.outbox import Batch, Ended, Outbox
from amqp_streams.kafka.records.plain import PlainRecord

FULL = "queue full"


def plain(value: bytes | PlainRecord) -> bytes:
    assert isinstance(value, bytes)
    return value


def test_everything_that_was_appended_before_is_one_batch() -> None:
    outbox = Outbox()
    outbox.append([b"a", b"b"], [None, b"k"], 2)
    outbox.append([b"c"], [None], 1)
    assert (outbox.sequence, outbox.pending_bytes, outbox.next_to_hand()) == (0, 3, None)
    outbox.take()
    outbox.take()
    assert outbox.sequence == 1
    batch = outbox.next_to_hand()
    assert batch is not None
    assert (batch.values, batch.keys, batch.sequence) == ([b"a", b"b", b"c"], [None, b"k", None], 0)
    assert outbox.handed(batch, [None] * 3, full=FULL) == []
    assert outbox.next_to_hand() is None
    assert outbox.delivered(batch) == [(batch, None)]
    assert (outbox.idle, outbox.pending_bytes) == (True, 0)


def test_the_rest_of_a_batch_waits_and_later_batches_wait_behind_it() -> None:
    outbox = Outbox()
    batches = []
    for value in (b"a", b"b"):
        outbox.append([value] * 3, [None] * 3, 3)
        outbox.take()
    first = outbox.next_to_hand()
    assert first is not None
    assert outbox.handed(first, [None, FULL, FULL], full=FULL) == []
    assert outbox.next_to_hand() is first
    assert first.handed == 1
    outbox.handed(first, [None, None], full=FULL)
    second = outbox.next_to_hand()
    assert second is not None
    assert second is not first
    outbox.handed(second, [None] * 3, full=FULL)
    assert outbox.delivered(second) == []
    batches = [ended.batch for ended in outbox.delivered(first)]
    assert batches == [first, second]


def test_a_record_that_kafka_refuses_fails_its_batch_with_the_reason() -> None:
    outbox = Outbox()
    for _ in range(2):
        outbox.append([b"a", b"b"], [None, None], 2)
        outbox.take()
    batch = outbox.next_to_hand()
    assert batch is not None
    ended = outbox.handed(batch, [None, "too large"], full=FULL)
    assert [str(failure) for _, failure in ended] == ["Kafka did not take the events: too large"] * 2
    assert outbox.idle
    assert outbox.settled


def test_a_record_taken_after_one_that_was_not_fails_the_batch() -> None:
    outbox = Outbox()
    outbox.append([b"a", b"b"], [None, None], 2)
    outbox.take()
    batch = outbox.next_to_hand()
    assert batch is not None
    [ended] = outbox.handed(batch, [FULL, None], full=FULL)
    assert ended.failure is not None


def test_after_a_failure_nothing_is_handed_over_before_the_flights_ended() -> None:
    outbox = Outbox()
    flights = []
    for _ in range(2):
        outbox.append([b"a"], [None], 1)
        outbox.take()
        batch = outbox.next_to_hand()
        assert batch is not None
        outbox.handed(batch, [None], full=FULL)
        flights.append(batch)
    [(failed, failure)] = outbox.delivered(flights[0], "timed out")
    assert failed is flights[0]
    assert str(failure) == "the events may not be in Kafka: timed out"
    outbox.append([b"c"], [None], 1)
    outbox.take()
    assert not outbox.settled
    assert outbox.next_to_hand() is None
    assert [batch for batch, _ in outbox.delivered(flights[1])] == [flights[1]]
    # The batch that waited is the only one: it may go now that the outcomes before it are known.
    assert outbox.next_to_hand() is not None


def test_a_failure_ends_later_batches_that_were_handed_over_in_part() -> None:
    outbox = Outbox()
    for _ in range(2):
        outbox.append([b"a", b"b"], [None, None], 2)
        outbox.take()
    first = outbox.next_to_hand()
    assert first is not None
    outbox.handed(first, [None, None], full=FULL)
    second = outbox.next_to_hand()
    assert second is not None
    outbox.handed(second, [None, FULL], full=FULL)
    assert [batch for batch, _ in outbox.delivered(first, "timed out")] == [first, second]
    assert outbox.idle
    assert outbox.settled


def test_everything_that_waits_can_be_failed_at_once() -> None:
    outbox = Outbox()
    outbox.append([b"a"], [None], 1)
    outbox.take()
    outbox.append([b"b"], [None], 1)
    ended = outbox.fail("log x was deleted")
    assert [(batch.sequence, str(failure)) for batch, failure in ended] == [
        (0, "log x was deleted"),
        (1, "log x was deleted"),
    ]
    assert outbox.idle
    assert outbox.settled
    assert outbox.fail("again") == []


class Sending(RuleBasedStateMachine):
    """Kafka takes, refuses and reports at random; the records are numbers in the order of their appends."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.count = 0
        self.offered: list[int] = []
        self.ended: list[Ended] = []
        self.flying: list[Batch] = []

    def note(self, ended: Sequence[Ended]) -> None:
        self.ended += ended
        for each in ended:
            if each.batch in self.flying:
                self.flying.remove(each.batch)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self.outbox.append([b"%d" % number for number in numbers], [None] * count, count)
        self.count += count

    @rule()
    def take(self) -> None:
        self.outbox.take()

    @rule(data=st.data())
    def hand(self, data: st.DataObject) -> None:
        batch = self.outbox.next_to_hand()
        if batch is None:
            return
        rest = batch.values[batch.handed :]
        taken = data.draw(st.integers(0, len(rest)))
        reason = data.draw(st.sampled_from([FULL, FULL, FULL, "broken"]))
        self.offered += [int(plain(value)) for value in rest[:taken]]
        if taken == len(rest):
            self.flying.append(batch)
        self.note(self.outbox.handed(batch, [None] * taken + [reason] * (len(rest) - taken), full=FULL))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), failure=st.sampled_from([None, None, None, "timed out"]))
    def report(self, data: st.DataObject, failure: str | None) -> None:
        batch = data.draw(st.sampled_from(self.flying))
        self.flying.remove(batch)
        self.note(self.outbox.delivered(batch, failure))

    @rule()
    def fail(self) -> None:
        self.note(self.outbox.fail("away"))
        assert self.outbox.idle

    @invariant()
    def records_are_offered_in_the_order_of_their_appends(self) -> None:
        assert self.offered == sorted(set(self.offered))

    @invariant()
    def batches_end_once_and_in_order(self) -> None:
        assert [ended.batch.sequence for ended in self.ended] == list(range(len(self.ended)))

    @invariant()
    def what_has_not_ended_is_pending(self) -> None:
        assert self.outbox.pending_bytes == self.count - sum(len(ended.batch) for ended in self.ended)
        assert self.outbox.idle == (self.outbox.pending_bytes == 0)

    @invariant()
    def what_is_durable_was_handed_over(self) -> None:
        for batch, failure in self.ended:
            if failure is None:
                assert {int(plain(value)) for value in batch.values} <= set(self.offered)

    def teardown(self) -> None:
        """What waits ends when Kafka takes and reports everything."""
        for _ in range(2 * self.count + 2):
            self.outbox.take()
            while (batch := self.outbox.next_to_hand()) is not None:
                self.flying.append(batch)
                self.note(self.outbox.handed(batch, [None] * (len(batch) - batch.handed), full=FULL))
            for batch in tuple(self.flying):
                self.note(self.outbox.delivered(batch))
        assert self.outbox.idle


TestSending = Sending.TestCase
