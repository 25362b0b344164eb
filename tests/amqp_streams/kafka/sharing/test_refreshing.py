"""The states in memory are as new as a question, with real brokers."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from amqp_streams.errors import StorageError
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.sharing.producing import Outcome
from amqp_streams.kafka.sharing.refreshing import GAP_MS, ROUND_MS, Refreshing
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.kafka.sharing.conftest import Producers, boot_ms
from tests.amqp_streams.kafka.sharing.test_following import Following


class Asked(Administration):
    """Brokers that answer when the test says so. `rounds`: the questions of each round."""

    def __init__(self) -> None:
        self.questions: list[tuple[Place, Future[int]]] = []

    def ask_written_end(self, place: Place) -> "Future[int]":
        future: Future[int] = Future()
        self.questions.append((place, future))
        return future

    def answer(self, end: int) -> None:
        questions, self.questions = self.questions, []
        for _, future in questions:
            future.set_result(end)


class Reading:
    """A node that has read each bucket up to `position`."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.now_ms = 1000
        self.position = 5
        self.brokers = Asked()
        self.answers: list[tuple[str, StorageError | None]] = []
        self.refreshing = Refreshing(
            self.brokers, "states", 3, lambda _bucket: self.position, loop_call=self.loop.call,
            boot_ms=lambda: self.now_ms,
        )  # fmt: skip

    def ask(self, name: str) -> None:
        self.refreshing.ask(lambda failure: self.answers.append((name, failure)))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.loop.run_ready()
        self.refreshing.tick()


def test_a_question_is_answered_when_all_was_read_that_was_written_before() -> None:
    node = Reading()
    node.ask("one")
    assert [place.partition for place, _ in node.brokers.questions] == [0, 1, 2]
    node.brokers.answer(7)
    node.pass_ms(50)
    assert node.answers == []
    node.position = 7
    node.pass_ms(50)
    assert node.answers == [("one", None)]


def test_questions_that_come_meanwhile_wait_for_one_more_round() -> None:
    """What was written after the first round had asked must be read as well."""
    node = Reading()
    node.ask("one")
    for _ in range(100):
        node.ask("more")
    assert len(node.brokers.questions) == 3
    node.brokers.answer(5)
    node.pass_ms(10)
    assert node.answers == [("one", None)]
    assert node.brokers.questions == [], "not at once"
    node.pass_ms(GAP_MS)
    assert len(node.brokers.questions) == 3
    node.brokers.answer(5)
    node.pass_ms(0)
    assert len(node.answers) == 101


def test_a_failure_and_silence_are_reasons_and_the_next_round_begins() -> None:
    node = Reading()
    node.ask("one")
    node.brokers.questions[1][1].set_exception(StorageError("no leader"))
    node.pass_ms(GAP_MS)
    assert [(name, str(failure)) for name, failure in node.answers] == [("one", "no leader")]
    # Late answers of the round before mean nothing.
    late = node.brokers.questions[:1]
    node.ask("two")
    late[0][1].set_result(1)
    node.pass_ms(ROUND_MS)
    assert "was not read to its end within 5 s" in str(node.answers[-1][1])


def test_what_another_node_wrote_before_is_there(
    kafka: Cluster, administration: Administration, topic: FoundTopic, producers: Producers, bucket: int
) -> None:
    following = Following(administration, topic, kafka.servers)
    loop: Any = following.loop
    refreshing = Refreshing(
        administration, topic.name, BUCKETS, lambda each: following.follower.states.buckets[each].position,
        loop_call=loop.call, boot_ms=boot_ms,
    )  # fmt: skip
    producer, answers = producers.fenced(bucket), list[StorageError | None]()
    try:
        for number in range(3):
            assert producer.commit({"key": b"%d" % number}).outcome is Outcome.COMMITTED
            answers.clear()
            refreshing.ask(answers.append)
            await_that(lambda: bool(answers), following, refreshing)
            assert answers == [None]
            assert following.follower.states.buckets[bucket].values["key"] == b"%d" % number
    finally:
        following.follower.close()


def await_that(condition: Callable[[], bool], following: Following, refreshing: Refreshing) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the topic was not read"
        following.loop.run_ready()
        following.follower.tick()
        refreshing.tick()
        time.sleep(0.002)
