"""The state topic in memory, with real brokers: what a load answers, and what is noticed."""

import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.figures import Replication
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.sharing.followed import Changes, FollowedStates
from amqp_streams.kafka.sharing.following import FORGOTTEN_MS, FULL_MS, LOAD_MS, StateFollower
from amqp_streams.kafka.sharing.producing import Outcome
from amqp_streams.kafka.sharing.state_topic import state_configuration
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.kafka.sharing.conftest import Producers, boot_ms, committed, connection

SMALL = {**state_configuration(3), "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


class Following:
    """A follower whose loop is the test. `ahead_ms`: what its clock is ahead of the machine's."""

    def __init__(
        self,
        administration: Administration,
        found: FoundTopic,
        servers: str,
        states: FollowedStates | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.loop = ManualLoop()
        self.ahead_ms = 0
        self.changes: dict[int, list[tuple[str, bytes | None]]] = {}
        self.lost: list[tuple[frozenset[int], str]] = []
        self.follower = StateFollower(
            connection(servers) | dict(settings or {}),
            administration,
            found,
            loop_call=self.loop.call,
            boot_ms=lambda: boot_ms() + self.ahead_ms,
            on_changes=self._change,
            on_lost=lambda buckets, why: self.lost.append((buckets, why)),
            look_s=0.1,
            states=states,
        )

    def _change(self, bucket: int, changes: Changes) -> None:
        self.changes.setdefault(bucket, []).extend(changes)

    def load(self, bucket: int) -> Mapping[str, bytes] | StorageError:
        answers = self.begin(bucket)
        self.await_that(lambda: bool(answers))
        return answers[0]

    def begin(self, bucket: int) -> list[Mapping[str, bytes] | StorageError]:
        answers: list[Mapping[str, bytes] | StorageError] = []
        self.follower.load(bucket, answers.append)
        return answers

    def await_that(self, condition: Callable[[], bool]) -> None:
        """Run the loop until the condition holds. Looks bring calls all the time."""
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, self.follower.problems
            self.loop.run_ready()
            self.follower.tick()
            time.sleep(0.005)


@pytest.fixture
def following(administration: Administration, topic: FoundTopic, kafka: Cluster) -> Iterator[Following]:
    made = Following(administration, topic, kafka.servers)
    yield made
    made.follower.close()


@pytest.fixture
def own(administration: Administration) -> Iterator[FoundTopic]:
    """A topic with one bucket that this test may spoil."""
    found = administration.create(f"t{uuid.uuid4().hex[:12]}.state", 1, 3, SMALL)
    yield found
    administration.delete(administration.await_topic(found.name))


def test_a_load_after_the_fence_has_every_committed_record_and_no_other(
    following: Following, producers: Producers, bucket: int
) -> None:
    first = producers.fenced(bucket)
    for number in range(5):
        assert first.commit({f"{number}": b"1", "last": b"%d" % number}).outcome is Outcome.COMMITTED
    assert first.commit({"0": None}).outcome is Outcome.COMMITTED
    assert first.write({"open": b"1", "last": b"open"}, time.monotonic() + 60) is None
    second = producers.fenced(bucket)
    wanted = {"1": b"1", "2": b"1", "3": b"1", "4": b"1", "last": b"4"}
    assert following.load(bucket) == wanted
    assert second.commit({"last": b"second"}).outcome is Outcome.COMMITTED
    assert following.load(bucket) == wanted | {"last": b"second"}
    # In the order of the partition, for who follows the records.
    assert [value for key, value in following.changes[bucket] if key == "last"][-2:] == [b"4", b"second"]


def test_a_load_waits_for_a_transaction_that_is_open(
    following: Following, producers: Producers, bucket: int
) -> None:
    """Without a fence the end of the partition may be behind an open transaction."""
    producer, until = producers.fenced(bucket), time.monotonic() + 60
    assert producer.write({"open": b"1"}, until) is None
    answers = following.begin(bucket)
    following.await_that(lambda: following.follower._loads[bucket, None].end is not None)
    assert not answers
    assert producer.end(until) is None
    following.await_that(lambda: bool(answers))
    assert answers == [{"open": b"1"}]


def test_an_empty_bucket_is_loaded(following: Following, bucket: int) -> None:
    assert following.load(bucket) == {}
    assert following.follower.problems == ()


def test_a_load_that_takes_too_long_says_what_it_waits_for_and_following_continues(
    following: Following, producers: Producers, kafka: Cluster, bucket: int
) -> None:
    producer = producers.fenced(bucket)
    assert producer.commit({"a": b"1"}).outcome is Outcome.COMMITTED
    assert following.load(bucket) == {"a": b"1"}
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    answers = following.begin(bucket)
    following.ahead_ms += LOAD_MS
    following.follower.tick()
    for broker in kafka.brokers:
        broker.signal(signal.SIGCONT)
    (answer,) = answers
    assert isinstance(answer, StorageError)
    assert str(answer).endswith("within 5 s, no broker answered where it ends")
    assert following.load(bucket) == {"a": b"1"}


class Elected(Administration):
    """Asks the leader before, which another one has replaced, with its first question."""

    asked = 0

    def ask_written_end(self, place: Place) -> "Future[int]":
        self.asked += 1
        if self.asked > 1:
            return super().ask_written_end(place)
        refused: Future[int] = Future()
        refused.set_exception(StorageError("Leader epoch is older than broker epoch"))
        return refused


def test_a_load_asks_again_if_the_leader_has_changed(kafka: Cluster, topic: FoundTopic, bucket: int) -> None:
    administration = Elected(connection(kafka.servers))
    following = Following(administration, topic, kafka.servers)
    assert following.load(bucket) == {}
    assert administration.asked == 2
    following.follower.close()


def test_a_topic_that_is_created_again_is_read_again(
    administration: Administration, own: FoundTopic, kafka: Cluster
) -> None:
    producers = Producers(kafka.servers, own.name)
    assert producers.fenced(0).commit({"a": b"old"}).outcome is Outcome.COMMITTED
    following = Following(administration, own, kafka.servers)
    assert following.load(0) == {"a": b"old"}
    administration.delete(own)
    again = administration.create(own.name, 1, 3, SMALL)
    assert again.id != own.id
    following.await_that(lambda: any("created again" in why for _, why in following.lost))
    assert following.load(0) == {}
    assert producers.fenced(0).commit({"b": b"new"}, 60).outcome is not Outcome.FENCED
    following.await_that(lambda: following.follower.states.buckets[0].values == {"b": b"new"})
    assert following.follower.problems == ()
    following.follower.close()
    producers.close()


def test_a_topic_that_is_gone_is_a_problem_in_words(administration: Administration, kafka: Cluster) -> None:
    found = administration.create(f"t{uuid.uuid4().hex[:12]}.state", 1, 3, SMALL)
    following = Following(administration, found, kafka.servers)
    assert following.load(0) == {}
    administration.delete(found)
    following.await_that(lambda: bool(following.follower.problems))
    assert following.follower.problems == (f"topic {found.name!r} is missing",)
    following.follower.close()


def test_settings_that_are_changed_later_are_a_problem_in_words(
    administration: Administration, own: FoundTopic, kafka: Cluster
) -> None:
    following = Following(administration, own, kafka.servers)
    administration.alter(own, {"cleanup.policy": "compact,delete"})
    following.await_that(lambda: bool(following.follower.problems))
    (words,) = following.follower.problems
    assert "its cleanup.policy is not compact" in words
    administration.alter(own, {"cleanup.policy": "compact"})
    following.await_that(lambda: not following.follower.problems)
    following.follower.close()


def test_lost_brokers_are_a_problem_in_words(following: Following, topic: FoundTopic) -> None:
    following.follower._looked(replace(topic, replication=Replication(leaderless=2, short=3)))
    two, three = following.follower.problems
    assert two == f"2 buckets of topic {topic.name!r} have no leader: brokers are lost"
    assert three.startswith(f"3 buckets of topic {topic.name!r} have too few replicas in sync, so nothing")
    following.await_that(lambda: not following.follower.problems)


def await_no_room(following: Following) -> None:
    """Wait until the reader waits for the loop, which does not run."""
    room, until = following.follower._reader._room, time.monotonic() + 60
    while room.acquire(blocking=False):
        room.release()
        assert time.monotonic() < until, "the reader reads without bound"
        time.sleep(0.05)


def test_records_that_are_lost_in_front_of_the_reader_are_noticed(
    administration: Administration, own: FoundTopic, kafka: Cluster
) -> None:
    """The reader stops when the loop takes nothing, and Kafka removes what it has not read."""
    administration.alter(own, {"cleanup.policy": "compact,delete"})
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for number in range(2500):
        producer.produce(own.name, b"x" * 4000, b"%d" % number, partition=0)
        producer.poll(0)
    producer.flush(60)
    small = {"queued.max.messages.kbytes": 64, "fetch.message.max.bytes": 10_000}
    following = Following(administration, own, kafka.servers, settings=small)
    await_no_room(following)
    admin = AdminClient(connection(kafka.servers))  # type: ignore[arg-type]  # all values are allowed
    admin.delete_records([TopicPartition(own.name, 0, 2400)])[TopicPartition(own.name, 0)].result(60)
    following.await_that(lambda: bool(following.lost))
    ((buckets, why),) = following.lost
    assert buckets == {0}
    assert "out of range" in why.lower()
    loaded = following.load(0)
    assert isinstance(loaded, dict)
    assert sorted(loaded, key=int) == [f"{number}" for number in range(2400, 2500)]
    following.follower.close()


def test_compaction_leaves_the_latest_value_of_each_key(
    administration: Administration, own: FoundTopic, kafka: Cluster
) -> None:
    producers = Producers(kafka.servers, own.name)
    producer, count = producers.fenced(0), 16
    for number in range(count):
        ended = producer.commit({"large": bytes([number]) * 200_000, "n": b"%d" % number}, 60)
        assert ended.outcome in {Outcome.COMMITTED, Outcome.UNKNOWN}
        if ended.outcome is Outcome.UNKNOWN:
            producer = producers.fenced(0)
    until = time.monotonic() + 60
    while len(committed(kafka.servers, own.name, 0)) > count:
        assert time.monotonic() < until, "nothing was compacted"
        time.sleep(0.2)
    following = Following(administration, own, kafka.servers)
    loaded = following.load(0)
    assert loaded == {"large": bytes([count - 1]) * 200_000, "n": b"%d" % (count - 1)}
    following.follower.close()
    producers.close()


def test_a_bucket_that_is_too_large_has_no_home_and_is_read_again_later(
    administration: Administration, own: FoundTopic, kafka: Cluster
) -> None:
    producers = Producers(kafka.servers, own.name)
    producer = producers.fenced(0)
    assert producer.commit({"a": b"1", "b": b"2", "c": b"3"}).outcome is Outcome.COMMITTED
    following = Following(administration, own, kafka.servers, states=FollowedStates(1, keys_max=2))
    answer = following.load(0)
    assert isinstance(answer, StorageError)
    assert str(answer) == f"bucket 0 of topic {own.name!r} is too large: it has 3 keys (at most 2)"
    (words,) = following.follower.problems
    assert words.endswith("Its groups and cursors cannot be used until some are deleted")
    assert producer.commit({"a": None}).outcome is Outcome.COMMITTED
    following.ahead_ms += FULL_MS
    following.await_that(lambda: not following.follower.problems)
    assert following.load(0) == {"b": b"2", "c": b"3"}
    assert not following.lost
    following.follower.close()
    producers.close()


def test_a_node_that_did_not_reach_kafka_for_long_reads_everything_again(
    following: Following, bucket: int
) -> None:
    """Kafka has forgotten by then that keys were removed."""
    assert following.load(bucket) == {}
    following.ahead_ms += FORGOTTEN_MS + 1
    following.await_that(lambda: bool(following.lost))
    ((buckets, why),) = following.lost
    assert len(buckets) == 16
    assert why == "Kafka was not reached for 12 hours"
    assert following.load(bucket) == {}
