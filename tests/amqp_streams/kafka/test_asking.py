"""Questions about logs that other nodes create, change and delete, and while Kafka is away."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers import administration
from amqp_streams.storage.ports import LATER, Later, Partition, ReadRequest, StoredLog
from amqp_streams.storage.questions import Create, Delete, Find, Question, Refresh, Update
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.storage.conftest import Hand, read_all

LOG = "log"
TWO = LogSettings(partitions=2)


@contextmanager
def away(kafka: Cluster) -> Iterator[None]:
    """All brokers are stopped."""
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for broker in kafka.brokers:
            broker.signal(signal.SIGCONT)


class Asked:
    """A question that was asked, and its answer."""

    def __init__(self, hand: Hand, question: Question) -> None:
        self._hand = hand
        self._question = question
        self._request = ReadRequest("asked", self._ready)
        self.answers: list[StoredLog | Exception | None] = []
        self.later = self._ask() is LATER

    def _ask(self) -> StoredLog | Later | None:
        return self._hand.store.ask(self._question, self._request)

    def _ready(self) -> None:
        try:
            answer = self._ask()
        except (StorageError, ValueError, KeyError) as error:
            self.answers.append(error)
        else:
            assert answer is not LATER
            self.answers.append(answer)

    def answer(self) -> StoredLog | Exception | None:
        """Wait for the answer."""
        self._hand.loop.run_until(lambda: bool(self.answers))
        (answer,) = self.answers
        return answer


def lost(hand: Hand) -> list[str]:
    """The reasons with which logs are lost from now on."""
    reasons: list[str] = []
    assert hand.store.others is not None
    hand.store.others.on_lost = lambda _log, reason: reasons.append(reason)
    return reasons


def test_questions_wait_elsewhere_while_kafka_is_away_and_are_answered_when_it_is_back(
    kafka: Cluster, hand: Hand, partition: Partition
) -> None:
    hand.store.create("old", LogSettings(), incarnation="i")
    hand.store.create("changed", LogSettings(), incarnation="i")
    questions = (
        Create("new", TWO, "i"),
        Update("changed", LogSettings(retention_ms=3_600_000)),
        Delete("old"),
        Find("none"),
        Refresh(LOG, (0,)),
    )
    with away(kafka):
        asked = [Asked(hand, question) for question in questions]
        assert all(each.later for each in asked)
        # The loop is free: what the node has in memory can be used.
        assert hand.store.logs[LOG].partitions[0] is partition
        partition.append([b"a"], bytes(1), 0)
        hand.store.commit()
        assert hand.store.pending_bytes == 1
    made, changed, deleted, found, refreshed = (each.answer() for each in asked)
    assert made is hand.store.logs["new"]
    assert changed is hand.store.logs["changed"]
    assert hand.store.logs["changed"].settings.retention_ms == 3_600_000
    assert (deleted, found, refreshed) == (None, None, None)
    assert "old" not in hand.store.logs
    hand.loop.run_until(lambda: not hand.store.pending_bytes)
    assert read_all(partition) == [b"a"]


def test_a_question_that_kafka_does_not_answer_in_time_fails_with_words(
    kafka: Cluster, hand: Hand, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "CHANGE_S", 2.0)
    monkeypatch.setattr(administration, "ANSWER_S", 1.0)
    with away(kafka):
        asked = [Asked(hand, Create("new", TWO, "i")), Asked(hand, Refresh(partition.log, (0,)))]
        doubtful, unanswered = (each.answer() for each in asked)
        with pytest.raises(StorageError, match="the time cannot be looked up"):
            hand.answer(lambda request: partition.seek_timestamp(5, request))
    assert "did not answer in time whether it will create topic" in str(doubtful)
    assert "no partition answers" in str(unanswered)
    monkeypatch.undo()
    # The broker may have had the request. Whether it did or not, one more request makes it certain.
    again = Asked(hand, Create("new", TWO, "i")).answer()
    if isinstance(again, Exception):
        assert "exists" in str(again)
    hand.loop.run_until(lambda: "new" in hand.store.logs)
    assert len(hand.store.logs["new"].partitions) == 2


def test_what_another_node_accepted_before_the_question_can_be_read_after_the_answer(
    hand: Hand, other: Hand
) -> None:
    other.store.create(LOG, TWO, incarnation="i")
    log = hand.ask(Find(LOG))
    assert log is hand.store.logs[LOG]
    theirs = other.store.logs[LOG].partitions
    for number in range(20):
        other.write(theirs[number % 2], b"%d" % number)
        hand.ask(Refresh(LOG, (0, 1)))
        assert [each.end for each in log.partitions] == [each.end for each in theirs]
    assert read_all(log.partitions[0]) == [b"%d" % number for number in range(0, 20, 2)]


def test_many_questions_about_one_log_at_once_share_their_answers(
    hand: Hand, partition: Partition, other: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other.ask(Find(LOG)) is not None
    theirs = other.store.logs[LOG].partitions[0]
    asked_kafka: list[int] = []
    ask_extents = administration.Administration.ask_extents

    def counted(self: administration.Administration, places: object) -> object:
        # On a busy machine, any number of looks come in between.
        if threading.current_thread().name != "kafka-looks":
            asked_kafka.append(1)
        return ask_extents(self, places)  # type: ignore[arg-type]

    monkeypatch.setattr(administration.Administration, "ask_extents", counted)
    first = [Asked(hand, Refresh(LOG, (0,))) for _ in range(100)]
    other.write(theirs, b"a")
    second = [Asked(hand, Refresh(LOG, (0,))) for _ in range(100)]
    assert {each.answer() for each in first + second} == {None}
    assert read_all(partition) == [b"a"]
    hand.loop.run_ready()
    assert len(asked_kafka) <= 2, "one for the questions before the event, one for those after it"


def test_a_log_that_another_node_deleted_is_gone_after_a_question_about_it(
    hand: Hand, partition: Partition, other: Hand
) -> None:
    reasons = lost(hand)
    assert other.ask(Find(LOG)) is not None
    other.ask(Delete(LOG))
    assert hand.ask(Refresh(LOG, (0,))) is None
    assert LOG not in hand.store.logs
    assert reasons == ["log 'log' was deleted"]
    with pytest.raises(StorageError, match="deleted"):
        partition.append([b"a"], bytes(1), 0)
    with pytest.raises(KeyError):
        hand.ask(Delete(LOG))
    assert hand.ask(Find(LOG)) is None
    again = hand.ask(Create(LOG, TWO, "i"))
    assert again is hand.store.logs[LOG]


def test_a_change_of_a_log_that_another_node_deleted_says_that_it_does_not_exist(
    hand: Hand, partition: Partition, other: Hand
) -> None:
    assert other.ask(Find(LOG)) is not None
    other.ask(Delete(LOG))
    with pytest.raises(KeyError):
        hand.ask(Update(partition.log, LogSettings(retention_ms=3_600_000)))


@pytest.mark.parametrize("events", [0, 3])
def test_a_log_that_another_node_made_anew_is_the_new_one_after_a_question_about_it(
    hand: Hand, partition: Partition, other: Hand, events: int
) -> None:
    hand.write(partition, b"a", b"b")
    reasons = lost(hand)
    assert other.ask(Find(LOG)) is not None
    other.ask(Delete(LOG))
    new = other.ask(Create(LOG, TWO, "i"))
    assert new is not None
    if events:
        other.write(new.partitions[0], *[b"x"] * events)
    hand.ask(Refresh(LOG, (0,)))
    hand.ask(Refresh(LOG, (0,)))
    if events > 2:
        # The end did not fall, so nothing in the answer shows that it is another topic: the next look does.
        hand.loop.run_until(lambda: bool(reasons))
    assert reasons == ["log 'log' was deleted and created again"] or "partitions have changed" in reasons[0]
    hand.loop.run_until(lambda: LOG in hand.store.logs)
    now = hand.store.logs[LOG]
    assert now.incarnation == new.incarnation
    assert read_all(now.partitions[0]) == [b"x"] * events
    with pytest.raises(StorageError, match="deleted and created again"):
        partition.append([b"c"], bytes(1), 0)
