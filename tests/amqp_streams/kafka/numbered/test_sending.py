"""Events and their numbers in one transaction, with librdkafka's mock brokers."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import is_end
from amqp_streams.kafka.numbered.batches import Batch, Share
from amqp_streams.kafka.numbered.sending import EventProducer, Transaction
from amqp_streams.kafka.records.plain import PlainRecord
from amqp_streams.kafka.sharing.producing import Outcome
from tests.amqp_streams.kafka.sharing.conftest import connection

LARGEST = 1 << 20


def made(servers: str) -> EventProducer:
    return EventProducer(
        {**connection(servers), "message.max.bytes": LARGEST},
        topic="numbers",
        bucket=1,
        transactional_id="t.number.x",
        named="producer 'p'",
    )


def records(servers: str, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    """What is in a partition, whether its transaction was committed or not: the mock brokers read all."""
    reader = Consumer({**CONSUMING, **connection(servers)})
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found = []
    while (message := reader.poll(60)) is not None:
        error = message.error()
        if error is not None and is_end(error):
            break
        if error is None:
            key = message.key()
            found.append((key.encode() if isinstance(key, str) else key, message.value()))
    reader.close()
    return found


def batch_of(*shares: Share) -> Batch:
    batch = Batch(0)
    for number, share in enumerate(shares):
        batch.add(share, number, 1)
    return batch


def test_events_of_all_partitions_and_the_record_are_written(mock_kafka: str) -> None:
    producer = made(mock_kafka)
    producer.fence(60)
    batch = batch_of(
        Share(0, [b"a", b"b"], [None, b"k"]),
        Share(1, [PlainRecord(b"l", b"c", [("h", b"1")])], [None]),
    )
    ended = producer.commit(Transaction("number/i/p", b"{}", "log", batch), 60)
    assert ended.outcome in {Outcome.COMMITTED, Outcome.UNKNOWN}
    assert records(mock_kafka, "log", 0) == [(None, b"a"), (b"k", b"b")]
    assert records(mock_kafka, "log", 1) == [(b"l", b"c")]
    assert records(mock_kafka, "numbers", 1) == [(b"number/i/p", b"{}")]
    producer.close()


def test_a_record_alone_claims_or_removes_a_producer(mock_kafka: str) -> None:
    producer = made(mock_kafka)
    producer.fence(60)
    for value in (b"{}", None):
        assert producer.commit(Transaction("number/i/p", value), 60).outcome is not Outcome.ABORTED
    assert records(mock_kafka, "numbers", 1) == [(b"number/i/p", b"{}"), (b"number/i/p", None)]
    producer.close()


def test_an_event_that_librdkafka_does_not_take_aborts_the_whole_transaction(mock_kafka: str) -> None:
    producer = made(mock_kafka)
    producer.fence(60)
    batch = batch_of(Share(0, [b"a", b"x" * (LARGEST + 1)], [None, None]))
    ended = producer.commit(Transaction("number/i/p", b"{}", "log", batch), 60)
    assert ended.outcome is Outcome.ABORTED
    assert "too large" in ended.reason.lower()
    producer.close()
