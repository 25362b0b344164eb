"""Transactions of one bucket with real brokers: who may commit, and what is known about the outcome."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import FoundTopic
from amqp_streams.kafka.sharing.parts import RECORDS_MAX
from amqp_streams.kafka.sharing.producing import RECORD_BYTES_MAX, SURE_S, BucketProducer, Outcome
from bench.products.kafka_cluster import Broker, Cluster
from tests.amqp_streams.kafka.sharing.conftest import Producers, boot_ms, committed, connection

TOO_LARGE = b"x" * (RECORD_BYTES_MAX + 1)


@contextmanager
def stopped(kafka: Cluster) -> Iterator[None]:
    """All brokers stop, and continue at the end."""
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        continued(kafka)


def continued(kafka: Cluster) -> None:
    for broker in kafka.brokers:
        broker.signal(signal.SIGCONT)


def coordinator(kafka: Cluster, transactional_id: str) -> Broker:
    """The broker that coordinates the transactions of this id."""
    admin = AdminClient(connection(kafka.servers))  # type: ignore[arg-type]  # all values are allowed
    partitions = admin.list_topics("__transaction_state", timeout=60).topics["__transaction_state"].partitions
    number = 0
    for character in transactional_id:
        number = (number * 31 + ord(character)) & 0xFFFFFFFF
    leader = partitions[(number & 0x7FFFFFFF) % len(partitions)].leader
    return next(broker for broker in kafka.brokers if broker.number == leader)


def test_what_is_committed_is_read_and_its_time_is_that_of_the_beginning(
    kafka: Cluster, producers: Producers, bucket: int
) -> None:
    producer, before_ms = producers.fenced(bucket), boot_ms()
    ended = producer.commit({"a": b"1", "b": b"2"})
    assert (ended.outcome, ended.reason) == (Outcome.COMMITTED, "")
    assert before_ms <= ended.began_ms <= boot_ms()
    assert producer.commit({"a": None}).outcome is Outcome.COMMITTED
    assert committed(kafka.servers, producers.topic, bucket) == [("a", b"1"), ("b", b"2"), ("a", None)]


def test_a_producer_that_was_fenced_commits_nothing_any_more(
    kafka: Cluster, producers: Producers, bucket: int
) -> None:
    first = producers.fenced(bucket)
    assert first.commit({"a": b"first"}).outcome is Outcome.COMMITTED
    second = producers.fenced(bucket)
    ended = first.commit({"a": b"too late"})
    assert ended.outcome is Outcome.FENCED
    assert f"bucket {bucket}: another node has fenced this one" in ended.reason
    assert second.commit({"a": b"second"}).outcome is Outcome.COMMITTED
    # It stays deposed.
    assert first.commit({"a": b"again"}).outcome is Outcome.FENCED
    assert committed(kafka.servers, producers.topic, bucket) == [("a", b"first"), ("a", b"second")]


def test_an_open_transaction_is_ended_by_the_next_fence(
    kafka: Cluster, producers: Producers, bucket: int
) -> None:
    first, until = producers.fenced(bucket), time.monotonic() + 60
    assert first.write({"a": b"open"}, until) is None
    second = producers.fenced(bucket)
    # Readers do not wait for the timeout of the open transaction.
    assert committed(kafka.servers, producers.topic, bucket) == []
    failure = first.end(until)
    assert failure is not None
    assert failure.outcome is Outcome.FENCED
    assert second.commit({"a": b"second"}).outcome is Outcome.COMMITTED
    assert committed(kafka.servers, producers.topic, bucket) == [("a", b"second")]


def test_a_transaction_with_a_refused_record_is_aborted_and_the_next_one_is_not(
    kafka: Cluster, producers: Producers, bucket: int
) -> None:
    producer = producers.fenced(bucket)
    ended = producer.commit({"a": b"1", "b": TOO_LARGE})
    assert ended.outcome is Outcome.ABORTED
    assert "too large" in ended.reason.lower()
    assert producer.commit({"a": b"2"}).outcome is Outcome.COMMITTED
    assert committed(kafka.servers, producers.topic, bucket) == [("a", b"2")]


def test_a_commit_without_an_answer_has_an_unknown_outcome_and_happens_as_a_whole_or_not(
    kafka: Cluster, producers: Producers, bucket: int
) -> None:
    producer, until = producers.fenced(bucket), time.monotonic() + 60
    assert producer.commit({"a": b"before", "b": b"before"}).outcome is Outcome.COMMITTED
    assert producer.write({"a": b"after", "b": b"after"}, until) is None
    with stopped(kafka):
        failure = producer.end(time.monotonic() + 0.3)
    assert failure is not None
    assert failure.outcome is Outcome.UNKNOWN
    assert "the outcome of a transaction is not known" in failure.reason
    producers.fenced(bucket)
    found = dict(committed(kafka.servers, producers.topic, bucket))
    assert found["a"] == found["b"]
    assert found["a"] in {b"before", b"after"}


def test_a_commit_that_takes_long_is_in_doubt(kafka: Cluster, producers: Producers, bucket: int) -> None:
    """librdkafka may have asked twice, and the second request may reach the next transaction."""
    producer, until = producers.fenced(bucket), time.monotonic() + 60
    assert producer.write({"a": b"slow"}, until) is None
    with stopped(kafka):
        timer = threading.Timer(2 * SURE_S, continued, [kafka])
        timer.start()
        failure = producer.end(until)
        timer.join()
    assert failure is not None
    assert failure.outcome is Outcome.UNKNOWN
    assert "may have been repeated" in failure.reason


def test_a_broker_that_is_killed_between_begin_and_commit_loses_nothing_that_was_committed(
    kafka: Cluster, producers: Producers, topic: FoundTopic, bucket: int
) -> None:
    producer = producers.fenced(bucket)
    assert producer.commit({"a": b"before", "b": b"before"}).outcome is Outcome.COMMITTED
    assert producer.write({"a": b"after", "b": b"after"}, time.monotonic() + 60) is None
    victim = coordinator(kafka, f"{topic.name}.bucket.{bucket}")
    victim.signal(signal.SIGKILL)
    failure = producer.end(time.monotonic() + 5)
    victim.start(with_parent=True)
    successor = producers.fenced(bucket)
    found = dict(committed(kafka.servers, producers.topic, bucket))
    assert found["a"] == found["b"]
    assert failure is not None or found["a"] == b"after"
    assert successor.commit({"a": b"next"}, 60).outcome in {Outcome.COMMITTED, Outcome.UNKNOWN}
    kafka.await_ready()


def mocked(servers: str) -> BucketProducer:
    return BucketProducer(connection(servers), "t", 0, transactional_id="t.bucket.0", boot_ms=boot_ms)


def test_more_than_one_transaction_may_have_is_written_in_several(mock_kafka: str) -> None:
    producer = mocked(mock_kafka)
    producer.fence(60)
    changes: dict[str, bytes | None] = {f"{number}": b"v" for number in range(RECORDS_MAX + 1)}
    assert producer.commit(changes, 60).outcome in {Outcome.COMMITTED, Outcome.UNKNOWN}
    producer.close()


def test_an_abort_after_another_part_was_committed_has_an_unknown_outcome(mock_kafka: str) -> None:
    producer = mocked(mock_kafka)
    producer.fence(60)
    changes: dict[str, bytes | None] = {f"{number}": b"v" for number in range(RECORDS_MAX)}
    ended = producer.commit({**changes, "last": TOO_LARGE}, 60)
    assert ended.outcome is Outcome.UNKNOWN
    producer.close()


def test_a_fence_without_an_answer_says_which_bucket_and_why() -> None:
    producer = mocked("127.0.0.1:1")
    with pytest.raises(StorageError, match="bucket 0 of topic 't' cannot be fenced: "):
        producer.fence(0.2)
    producer.close()
    producer.close()
