"""One idempotent producer: what it asks of Kafka, and what becomes of its events at each outcome."""

from itertools import count

import pytest

from amqp_streams.kafka.numbered.batches import Share
from amqp_streams.kafka.numbered.producing import (
    FENCED_MS,
    OPEN_MS,
    PAUSE_MS,
    REST_MS,
    Close,
    Commit,
    Effect,
    Ended,
    Fence,
    Lost,
    NumberedProducer,
    Opened,
    Outcome,
    Phase,
    Read,
)
from amqp_streams.kafka.numbered.records import ProducerKey, ProducerRecord

KEY = ProducerKey("i/+", "p")
ME, OTHER = "me", "other"


class Stage:
    """A producer, and what it asked for."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.now_ms = 1000
        self.producer = NumberedProducer(KEY, ME, 1, self.effects, count(), self.now_ms)

    def taken(self) -> list[Effect]:
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    def kinds(self) -> list[type]:
        return [type(effect) for effect in self.taken()]

    @property
    def attempt(self) -> int:
        return self.producer._attempt

    def fenced(self, failure: str | None = None) -> None:
        self.producer.fenced(self.attempt, failure, self.now_ms)

    def read(self, record: ProducerRecord | str | None = None) -> None:
        self.producer.read(self.attempt, record, self.now_ms)

    def ended(self, outcome: Outcome = Outcome.COMMITTED) -> None:
        self.producer.ended(self.attempt, outcome, "reasons", self.now_ms)

    def open(self, record: ProducerRecord | None = None) -> None:
        """Open it with one link."""
        self.producer.open(self.now_ms)
        self.fenced()
        self.read(record)
        self.ended()
        self.producer.links += 1
        assert self.producer.phase is Phase.READY
        self.taken()

    def send(self, number: int, partition: int = 0) -> None:
        self.producer.append(Share(partition, [b"x"], [None]), number, 1)
        self.producer.commit(self.now_ms)

    def failures(self) -> list[tuple[int, str | None]]:
        return [(each.batch.sequence, each.failure) for each in self.taken() if isinstance(each, Ended)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_attach_is_answered_after_fence_reading_and_claim(stage: Stage) -> None:
    stage.producer.open(stage.now_ms)
    assert stage.kinds() == [Fence]
    stage.fenced()
    assert stage.kinds() == [Read]
    stage.read(ProducerRecord(OTHER, 2, {0: 7}))
    (claim,) = stage.taken()
    assert isinstance(claim, Commit)
    assert claim.record == ProducerRecord(ME, 2, {0: 7})
    assert not stage.producer.opened
    stage.ended()
    (opened,) = stage.taken()
    assert isinstance(opened, Opened)
    assert (opened.count, opened.failure) == (1, None)
    assert (stage.producer.record.reached, stage.producer.record.home) == ({0: 7}, 2)


def test_the_record_of_this_node_needs_no_claim(stage: Stage) -> None:
    stage.producer.open(stage.now_ms)
    stage.fenced()
    stage.read(ProducerRecord(ME, 1, {0: 7}))
    assert stage.kinds() == [Fence, Read, Opened]


def test_events_and_numbers_are_one_transaction_and_one_at_a_time(stage: Stage) -> None:
    stage.open(ProducerRecord(ME, 1, {0: 7}))
    stage.send(8)
    (first,) = stage.taken()
    assert isinstance(first, Commit)
    assert first.batch is not None
    assert (first.record, first.batch.highest) == (ProducerRecord(ME, 1, {0: 8}), {0: 8})
    stage.send(9)
    stage.send(3, partition=1)
    assert stage.kinds() == []
    assert stage.producer.record.reached == {0: 7}
    stage.ended()
    ended, second = stage.taken()
    assert isinstance(ended, Ended)
    assert ended.failure is None
    assert isinstance(second, Commit)
    assert second.record == ProducerRecord(ME, 1, {0: 9, 1: 3})
    assert stage.producer.record.reached == {0: 8}
    assert stage.producer.pending_bytes == 2


def test_after_an_aborted_transaction_everything_that_was_appended_is_refused(stage: Stage) -> None:
    stage.open()
    stage.send(0)
    stage.send(1)
    stage.taken()
    stage.ended(Outcome.ABORTED)
    reason = "Kafka did not take the events: reasons"
    assert stage.failures() == [(0, reason), (1, reason)]
    assert stage.producer.pending_bytes == 0
    stage.send(0)
    assert stage.kinds() == [Commit]


@pytest.mark.parametrize("stored", [True, False])
def test_the_record_after_a_new_fence_tells_what_a_doubtful_transaction_became(
    stage: Stage, stored: bool
) -> None:
    stage.open()
    stage.send(4)
    stage.send(5)
    stage.taken()
    stage.ended(Outcome.UNKNOWN)
    assert stage.kinds() == [Fence]
    stage.fenced()
    assert stage.kinds() == [Read]
    stage.read(ProducerRecord(ME, 1, {0: 4} if stored else {}))
    effects = stage.taken()
    if stored:
        assert [type(effect) for effect in effects] == [Ended, Commit]
        assert isinstance(effects[0], Ended)
        assert effects[0].failure is None
    else:
        assert [type(effect) for effect in effects] == [Ended, Ended]
        assert stage.producer.phase is Phase.READY


def test_a_fenced_node_waits_for_the_record_of_another_and_takes_back_what_is_its_own(stage: Stage) -> None:
    """Kafka also fences a producer whose transaction took too long."""
    stage.open()
    stage.send(0)
    stage.taken()
    stage.ended(Outcome.FENCED)
    stage.producer.tick(stage.now_ms + FENCED_MS - 1)
    assert stage.kinds() == []
    stage.now_ms += FENCED_MS
    stage.producer.tick(stage.now_ms)
    # The rightful node must not be fenced for nothing.
    assert stage.kinds() == [Read]
    stage.read("no broker")
    stage.now_ms += PAUSE_MS
    stage.producer.tick(stage.now_ms)
    assert stage.kinds() == [Read]
    stage.read(ProducerRecord(ME, 1, {}))
    assert stage.kinds() == [Fence]
    stage.fenced()
    stage.read(ProducerRecord(ME, 1, {}))
    assert stage.failures() == [(0, "Kafka did not store the events: no broker")]
    assert stage.producer.phase is Phase.READY


@pytest.mark.parametrize("found", ["followed", "read", "checked"])
def test_a_node_that_finds_another_one_in_the_record_closes_its_links(stage: Stage, found: str) -> None:
    stage.open()
    stage.send(0)
    stage.send(1)
    stage.taken()
    record = ProducerRecord(OTHER, 1, {0: 0})
    if found == "followed":
        stage.producer.followed(record)
    elif found == "read":
        stage.ended(Outcome.UNKNOWN)
        stage.fenced()
        stage.read(record)
    else:
        stage.ended(Outcome.FENCED)
        stage.producer.tick(stage.now_ms + FENCED_MS)
        stage.read(record)
    effects = [effect for effect in stage.taken() if isinstance(effect, Ended | Lost | Close)]
    accepted, lost, refused, closed = effects
    assert isinstance(accepted, Ended)
    # Another node can only have read this number because it is stored.
    assert accepted.failure is None
    assert isinstance(lost, Lost)
    assert (lost.stolen, lost.reason) == (True, "producer 'p' was attached to another node")
    assert isinstance(refused, Ended)
    assert refused.failure == lost.reason
    assert isinstance(closed, Close)
    assert stage.producer.phase is Phase.OVER


def test_a_producer_that_was_forgotten_closes_its_links(stage: Stage) -> None:
    stage.open(ProducerRecord(ME, 1, {0: 3}))
    stage.producer.followed(None)
    lost, _ = stage.taken()
    assert isinstance(lost, Lost)
    assert lost.reason == "producer 'p' was forgotten"


def test_numbers_that_were_read_before_are_not_taken_for_the_truth_later(stage: Stage) -> None:
    stage.producer.open(stage.now_ms)
    stage.fenced()
    stage.read(ProducerRecord(OTHER, 1, {0: 7}))
    stage.ended(Outcome.UNKNOWN)
    stage.fenced()
    stage.read(None)
    (claim,) = [effect for effect in stage.taken() if isinstance(effect, Commit) and effect.record][-1:]
    assert claim.record == ProducerRecord(ME, 1, {})


def test_an_attach_to_an_open_producer_waits_for_a_transaction_that_began_after_it(stage: Stage) -> None:
    stage.open(ProducerRecord(ME, 1, {0: 7}))
    stage.send(8)
    stage.taken()
    stage.producer.open(stage.now_ms)
    stage.ended()
    proof = stage.taken()[-1]
    assert isinstance(proof, Commit)
    assert (proof.record, proof.batch) == (ProducerRecord(ME, 1, {0: 8}), None)
    stage.ended()
    assert stage.kinds() == [Opened]
    stage.producer.open(stage.now_ms)
    assert stage.kinds() == [Commit]


def test_a_claim_that_another_node_has_overtaken_opens_nothing_and_is_made_again(stage: Stage) -> None:
    stage.producer.open(stage.now_ms)
    stage.fenced()
    stage.read(None)
    stage.producer.followed(ProducerRecord(OTHER, 1))
    stage.taken()
    stage.ended()
    assert stage.kinds() == [Fence]
    stage.fenced()
    stage.read(ProducerRecord(OTHER, 1))
    stage.ended()
    assert stage.kinds() == [Read, Commit, Opened]


@pytest.mark.parametrize("found", ["followed", "fenced"])
def test_an_attach_that_waits_takes_a_producer_back_and_the_links_before_it_are_closed(
    stage: Stage, found: str
) -> None:
    stage.open(ProducerRecord(ME, 1, {0: 3}))
    stage.send(4)
    stage.producer.open(stage.now_ms)
    stage.taken()
    theirs = ProducerRecord(OTHER, 1, {0: 9})
    if found == "followed":
        stage.producer.followed(theirs)
        assert stage.kinds() == [Ended, Lost, Fence]
    else:
        stage.ended(Outcome.FENCED)
        assert stage.kinds() == [Fence]
    stage.producer.links = 0
    stage.fenced()
    stage.read(theirs)
    claim = stage.taken()[-1]
    assert isinstance(claim, Commit)
    assert claim.record == ProducerRecord(ME, 1, {0: 9})
    stage.ended()
    assert stage.kinds() == [Opened]


def test_what_kafka_does_not_answer_is_asked_again_and_refused_at_last(stage: Stage) -> None:
    stage.open()
    stage.send(0)
    stage.taken()
    stage.ended(Outcome.UNKNOWN)
    began_ms = stage.now_ms
    for _ in range(3):
        stage.fenced("no broker")
        stage.now_ms += PAUSE_MS
        stage.producer.tick(stage.now_ms)
    assert stage.kinds() == [Fence] * 4
    stage.producer.tick(began_ms + OPEN_MS)
    lost, ended, closed = stage.taken()
    assert isinstance(lost, Lost)
    assert (lost.stolen, lost.reason) == (False, "producer 'p' is not ready after 30 s: no broker")
    assert isinstance(ended, Ended)
    assert isinstance(closed, Close)


def test_an_idle_producer_gives_its_thread_back_and_fences_again_when_it_sends(stage: Stage) -> None:
    stage.open()
    stage.now_ms += REST_MS
    stage.producer.tick(stage.now_ms)
    assert stage.kinds() == [Close]
    stage.send(0)
    assert stage.kinds() == [Fence]
    stage.fenced()
    stage.read(ProducerRecord(ME, 1))
    assert stage.kinds() == [Read, Commit]


def test_a_producer_that_stored_nothing_leaves_no_record(stage: Stage) -> None:
    stage.open()
    stage.producer.links -= 1
    stage.producer.leave()
    (removal,) = stage.taken()
    assert isinstance(removal, Commit)
    assert removal.record is None
    # A client comes back meanwhile.
    stage.producer.open(stage.now_ms)
    stage.ended()
    assert stage.kinds() == [Fence]
    stage.fenced()
    stage.read(None)
    stage.ended()
    stage.taken()
    stage.producer.leave()
    stage.ended()
    assert stage.kinds() == [Commit, Close]
    assert stage.producer.phase is Phase.OVER


def test_answers_to_earlier_attempts_change_nothing(stage: Stage) -> None:
    stage.open()
    stage.send(0)
    stage.ended(Outcome.UNKNOWN)
    stage.taken()
    stage.producer.ended(0, Outcome.COMMITTED, "", stage.now_ms)
    stage.producer.fenced(0, None, stage.now_ms)
    stage.producer.read(stage.attempt, None, stage.now_ms)
    assert stage.kinds() == []
    stage.producer.give_up("the node stops")
    assert stage.kinds() == [Lost, Ended, Close]
    stage.producer.give_up("again")
    assert stage.kinds() == []


def test_an_attach_that_has_left_takes_nothing_over(stage: Stage) -> None:
    stage.producer.open(stage.now_ms)
    stage.producer.open(stage.now_ms)
    stage.fenced()
    stage.producer.cancel(0)
    assert stage.kinds() == [Fence, Read]
    stage.producer.cancel(0)
    assert stage.kinds() == [Close]
    stage.read(ProducerRecord(OTHER, 1))
    assert stage.kinds() == []
    assert stage.producer.phase is Phase.OVER


def test_an_attach_that_has_left_ends_no_producer_with_a_link(stage: Stage) -> None:
    stage.open()
    stage.producer.open(stage.now_ms)
    stage.producer.open(stage.now_ms)
    stage.producer.cancel(0)
    stage.ended()
    # The other one came after the transaction had begun.
    assert stage.kinds() == [Commit, Commit]
    stage.producer.cancel(0)
    stage.ended()
    assert stage.kinds() == []
    assert stage.producer.phase is Phase.READY
