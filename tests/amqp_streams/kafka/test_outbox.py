"""Batches of a partition end once and in order, whatever Kafka takes, refuses and reports."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqp_streams.kafka.outbox import BATCH_BYTES, RECORD_BYTES, Batch, Ended, Outbox
from amqp_streams.kafka.records.plain import PlainRecord

FULL = "queue full"


def plain(value: bytes | PlainRecord) -> bytes:
    assert isinstance(value, bytes)
    return value


def one(outbox: Outbox) -> Batch:
    """The batch that is next."""
    batch = outbox.next_to_hand()
    assert batch is not None
    return batch


def append(outbox: Outbox, *values: bytes) -> None:
    outbox.append(values, [None] * len(values), sum(map(len, values)))


def test_everything_that_was_appended_before_is_one_batch() -> None:
    outbox = Outbox()
    assert outbox.next_to_hand() is None
    outbox.append([b"a", b"b"], [None, b"k"], 2)
    outbox.append([b"c"], [None], 1)
    assert (outbox.sequence, outbox.pending_bytes) == (0, 3)
    batch = one(outbox)
    assert (batch.values, batch.keys, batch.sequence) == ([b"a", b"b", b"c"], [None, b"k", None], 0)
    assert outbox.handed(batch, [None] * 3, full=FULL) == []
    assert outbox.next_to_hand() is None
    assert outbox.delivered(batch) == [(batch, None)]
    assert (outbox.idle, outbox.pending_bytes, outbox.sequence) == (True, 0, 1)


def test_what_is_appended_while_a_batch_is_in_flight_is_the_next_one() -> None:
    outbox = Outbox()
    append(outbox, b"a")
    first = one(outbox)
    outbox.handed(first, [None], full=FULL)
    append(outbox, b"b")
    append(outbox, b"c")
    assert outbox.next_to_hand() is None
    assert outbox.delivered(first) == [(first, None)]
    assert one(outbox).values == [b"b", b"c"]


def test_a_batch_has_no_more_bytes_than_it_may_unless_it_is_one_append() -> None:
    outbox = Outbox()
    records = [bytes(100)] * 3
    for _ in range(3):
        outbox.append(records, [None] * 3, 300, 6 * (100 + RECORD_BYTES))
    outbox.append(records * 9, [None] * 27, 2700, 6 * (100 + RECORD_BYTES))
    append(outbox, b"last")
    sizes = []
    while not outbox.idle:
        batch = one(outbox)
        sizes.append((batch.sequence, len(batch), batch.bytes))
        outbox.handed(batch, [None] * len(batch), full=FULL)
        assert outbox.delivered(batch) == [(batch, None)]
    assert sizes == [(0, 6, 600), (1, 3, 300), (2, 28, 2704)]


def test_the_most_that_a_batch_may_have_is_the_most_of_all_batches() -> None:
    outbox = Outbox()
    half = BATCH_BYTES // 2
    for size in (half, half, half):
        outbox.append([b"v"], [None], size, 16 * BATCH_BYTES)
    assert len(one(outbox)) == 1


def test_the_rest_of_a_batch_waits_and_later_batches_wait_behind_it() -> None:
    outbox = Outbox()
    append(outbox, b"a", b"b", b"c")
    first = one(outbox)
    assert outbox.handed(first, [None, FULL, FULL], full=FULL) == []
    append(outbox, b"d")
    assert one(outbox) is first
    assert first.handed == 1
    outbox.handed(first, [None, None], full=FULL)
    assert outbox.next_to_hand() is None
    assert outbox.delivered(first) == [(first, None)]
    assert one(outbox).values == [b"d"]


def test_a_failure_is_one_of_everything_that_was_appended_before() -> None:
    outbox = Outbox()
    append(outbox, b"a", b"b")
    first = one(outbox)
    append(outbox, b"c")
    ended = outbox.handed(first, [None, "too large"], full=FULL)
    assert [str(failure) for _, failure in ended] == ["Kafka did not take the events: too large"] * 2
    assert outbox.idle
    # A report on what was taken says nothing any more.
    assert outbox.delivered(first) == []
    append(outbox, b"d")
    second = one(outbox)
    outbox.handed(second, [None], full=FULL)
    append(outbox, b"e")
    ended = outbox.delivered(second, "timed out")
    assert [(batch.sequence, str(failure)) for batch, failure in ended] == [
        (2, "the events may not be in Kafka: timed out"),
        (3, "the events may not be in Kafka: timed out"),
    ]
    assert (outbox.idle, outbox.pending_bytes) == (True, 0)


def test_a_record_taken_after_one_that_was_not_fails_the_batch() -> None:
    outbox = Outbox()
    append(outbox, b"a", b"b")
    [ended] = outbox.handed(one(outbox), [FULL, None], full=FULL)
    assert ended.failure is not None


def test_everything_that_waits_can_be_failed_at_once() -> None:
    outbox = Outbox()
    append(outbox, b"a")
    one(outbox)
    append(outbox, b"b")
    ended = outbox.fail("log x was deleted")
    assert [(batch.sequence, str(failure)) for batch, failure in ended] == [
        (0, "log x was deleted"),
        (1, "log x was deleted"),
    ]
    assert outbox.idle
    assert outbox.fail("again") == []


class Sending(RuleBasedStateMachine):
    """Kafka takes, refuses and reports at random; the records are numbers in the order of their appends."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.count = 0
        self.offered: list[int] = []
        self.ended: list[Ended] = []
        self.flying: Batch | None = None

    def note(self, ended: Sequence[Ended]) -> None:
        self.ended += ended
        if self.flying in [each.batch for each in ended]:
            self.flying = None

    @rule(count=st.integers(1, 5), batch_bytes=st.sampled_from([BATCH_BYTES, 4 * RECORD_BYTES]))
    def append(self, count: int, batch_bytes: int) -> None:
        numbers = range(self.count, self.count + count)
        self.outbox.append([b"%d" % number for number in numbers], [None] * count, count, batch_bytes)
        self.count += count

    @rule(data=st.data())
    def hand(self, data: st.DataObject) -> None:
        batch = self.outbox.next_to_hand()
        if batch is None:
            return
        assert self.flying is None, "one batch is in flight at a time"
        rest = batch.values[batch.handed :]
        taken = data.draw(st.integers(0, len(rest)))
        reason = data.draw(st.sampled_from([FULL, FULL, FULL, "broken"]))
        self.offered += [int(plain(value)) for value in rest[:taken]]
        if taken == len(rest):
            self.flying = batch
        self.note(self.outbox.handed(batch, [None] * taken + [reason] * (len(rest) - taken), full=FULL))

    @precondition(lambda self: self.flying)
    @rule(failure=st.sampled_from([None, None, None, "timed out"]))
    def report(self, failure: str | None) -> None:
        assert self.flying is not None
        self.note(self.outbox.delivered(self.flying, failure))
        assert self.flying is None
        assert failure is None or self.outbox.idle

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
        for _ in range(self.count + 1):
            if self.flying is not None:
                self.note(self.outbox.delivered(self.flying))
            if (batch := self.outbox.next_to_hand()) is not None:
                self.flying = batch
                self.note(self.outbox.handed(batch, [None] * (len(batch) - batch.handed), full=FULL))
        assert self.outbox.idle


TestSending = Sending.TestCase
