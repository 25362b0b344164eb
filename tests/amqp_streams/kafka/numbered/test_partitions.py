"""A log as an idempotent producer appends to it: what is appended waits for the producer's transaction."""

from array import array
from collections.abc import Sequence
from itertools import count

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.kafka.numbered.batches import Share
from amqp_streams.kafka.numbered.partitions import NumberedPartition, commit_done, numbered_log
from amqp_streams.kafka.numbered.producing import NumberedProducer
from amqp_streams.kafka.numbered.records import ProducerKey, ProducerRecord
from amqp_streams.storage.ports import Formats, Numbers, Partition, StoredLog
from amqp_streams.testing import MemoryStore

NOW = 1_700_000_000_000


class Room:
    """Takes what is appended."""

    def append_numbered(  # noqa: PLR0917  see `Room`
        self,
        producer: NumberedProducer,
        partition: Partition,
        messages: Sequence[bytes],
        header_sizes: bytes,
        last: int,
        formats: Formats,
    ) -> None:
        size = sum(map(len, messages))
        producer.append(Share(partition.index, messages, [None] * len(messages)), last, size)


@pytest.fixture
def log() -> StoredLog:
    return MemoryStore(auto=True).create("log", LogSettings(partitions=2), incarnation="i")


@pytest.fixture
def producer() -> NumberedProducer:
    return NumberedProducer(ProducerKey("i", "p"), "me", 0, [], count(), 0)


def test_what_is_appended_is_in_the_next_transaction_of_all_partitions(
    log: StoredLog, producer: NumberedProducer
) -> None:
    view = numbered_log(log, producer, Room())
    first, second = view.partitions
    assert first.queue is second.queue
    assert first.queue.alone
    first.append([b"a", b"bc"], bytes(2), NOW, Numbers("p", array("Q", [3, 4])))
    second.append([b"d"], bytes(1), NOW, Numbers("p", array("Q", [7])))
    assert (first.queue.sequence, first.queue.pending_bytes) == (0, 4)
    batch = producer.next
    assert batch.highest == {0: 4, 1: 7}
    done = commit_done(view, batch, 0.5, None)
    assert (done.queue, done.sequence, done.events, done.bytes) == (first.queue, 0, 3, 4)
    assert done.failures == {}
    failed = commit_done(view, batch, 0.5, StorageError("reasons"))
    assert set(failed.failures) == {first, second}


def test_its_numbers_are_those_of_this_producer(log: StoredLog, producer: NumberedProducer) -> None:
    first, second = numbered_log(log, producer, Room()).partitions
    assert first.producers == {}
    producer.record = ProducerRecord("me", 0, {1: 9})
    assert first.producers == {}
    assert {key: reached.sequence for key, reached in second.producers.items()} == {"p": 9}


def test_everything_else_is_that_of_the_log(log: StoredLog, producer: NumberedProducer) -> None:
    inner = log.partitions[1]
    inner.append([b"a"], bytes(1), NOW)
    partition = numbered_log(log, producer, Room()).partitions[1]
    assert (partition.log, partition.index, partition.start, partition.end) == ("log", 1, 0, inner.end)
    assert (partition.gaps, partition.times_may_fall) == (inner.gaps, inner.times_may_fall)
    assert partition.facts() == inner.facts()
    assert partition.read(0, 10) == inner.read(0, 10)
    assert partition.seek_timestamp(NOW) == inner.seek_timestamp(NOW)
    partition.follow()


def test_nothing_is_appended_to_a_producer_that_is_not_here_or_a_log_that_is_gone(
    log: StoredLog, producer: NumberedProducer
) -> None:
    partition = numbered_log(log, producer, Room()).partitions[0]
    assert isinstance(partition, NumberedPartition)
    assert partition.failure is None
    producer.give_up("the node stops")
    with pytest.raises(StorageError, match="'p' is not here any more: attach again"):
        partition.append([b"a"], bytes(1), NOW, Numbers("p", array("Q", [1])))
    partition.partition.failure = LogDeletedError("gone")  # type: ignore[attr-defined]  # of this store
    assert str(partition.failure) == "gone"
