"""Batches on their way to Kafka: to mock brokers, and to brokers that stop and continue."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.kafka.brokers.producers import BatchProducer, PythonProducer, producer_of
from amqp_streams.kafka.brokers.sending import PARTITIONS_A_TURN, Sender, SendingPartition
from amqp_streams.kafka.outbox import Ended
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.kafka.brokers import library

DeliveryCallback = Callable[[KafkaError | None, Message], None]
QUIET: dict[str, Any] = {"log_level": 0}


class Sending:
    """A sender whose loop is the test, and what ended."""

    def __init__(self, servers: str, *, producer: Any = producer_of, **settings: object) -> None:
        self.loop = ManualLoop()
        self.servers = servers
        self.ended: dict[SendingPartition, list[Ended]] = {}
        given = {"bootstrap.servers": servers, **QUIET, **settings}
        self.sender = Sender(given, loop_call=self.loop.call, on_ended=self._note, producer=producer)

    def _note(self, partition: SendingPartition, ended: Sequence[Ended]) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.ended.setdefault(partition, []).extend(ended)

    def append(self, partition: SendingPartition, *values: bytes) -> None:
        self.sender.append(partition, values, [None] * len(values), sum(map(len, values)))

    def finish(self, *partitions: SendingPartition) -> None:
        """Send, and wait until everything of these partitions has ended."""
        self.sender.send()
        self.loop.run_until(lambda: all(each.outbox.idle for each in partitions), timeout_s=90)

    def failures(self, partition: SendingPartition) -> list[str]:
        return [str(failure) for _, failure in self.ended.get(partition, []) if failure is not None]


@pytest.fixture(autouse=True, params=["python", "compiled"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Producers hand records over in Python, or compiled."""
    library.use_kind(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def sending(mock_kafka: str) -> Iterator[Sending]:
    made = Sending(mock_kafka)
    yield made
    made.sender.close(10)


def stored(servers: str, partition: SendingPartition, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of the first records of a partition."""
    return library.stored(servers, partition.topic, partition.index, count)


def test_each_partition_gets_one_batch_of_what_was_appended(sending: Sending) -> None:
    partitions = [SendingPartition("t", index) for index in range(3)]
    for turn in range(4):
        for partition in partitions:
            sending.append(partition, b"%d" % turn, b"more")
            sending.append(partition, b"and more")
        sending.finish(*partitions)
    for partition in partitions:
        assert [ended.batch.sequence for ended in sending.ended[partition]] == [0, 1, 2, 3]
        assert [len(ended.batch) for ended in sending.ended[partition]] == [3] * 4
        assert sending.failures(partition) == []
        values = [value for turn in range(4) for value in (b"%d" % turn, b"more", b"and more")]
        assert stored(sending.servers, partition, 12) == [(None, value) for value in values]
    assert sending.sender.close(10)


def test_many_partitions_are_handed_over_in_turns(sending: Sending) -> None:
    partitions = [SendingPartition(f"t{index}", 0) for index in range(2 * PARTITIONS_A_TURN + 1)]
    for partition in partitions:
        sending.append(partition, b"a")
    sending.sender.send()
    begun = [partition for partition in partitions if partition.outbox.next_to_hand() is None]
    assert begun == partitions[:PARTITIONS_A_TURN], "the event loop has other work"
    sending.finish(*partitions)
    assert not any(sending.failures(partition) for partition in partitions)


def test_keys_and_empty_values_arrive(sending: Sending) -> None:
    partition = SendingPartition("t", 0)
    sending.sender.append(partition, [b"", b"v"], [b"key", None], 1)
    sending.finish(partition)
    assert stored(sending.servers, partition, 2) == [(b"key", b""), (None, b"v")]


def test_what_is_sent_while_a_batch_is_in_flight_is_the_next_one_and_in_order(
    sending: Sending,
) -> None:
    partition = SendingPartition("t", 1)
    for number in range(300):
        sending.append(partition, b"%d" % number)
        sending.sender.send()
    sending.finish(partition)
    assert [len(ended.batch) for ended in sending.ended[partition]] == [1, 299]
    sending.append(partition, b"300")
    sending.finish(partition)
    assert [ended.batch.sequence for ended in sending.ended[partition]] == [0, 1, 2]
    assert [value for _, value in stored(sending.servers, partition, 301)] == [b"%d" % n for n in range(301)]


def test_more_than_the_queue_of_librdkafka_holds_waits_and_stays_in_order(mock_kafka: str) -> None:
    sending = Sending(mock_kafka, **{"queue.buffering.max.messages": 7})
    partitions = [SendingPartition("t", index) for index in range(2)]
    values = [b"%d" % number for number in range(100)]
    for partition in partitions:
        sending.append(partition, *values)
    sending.finish(*partitions)
    for partition in partitions:
        assert sending.failures(partition) == []
        assert [value for _, value in stored(mock_kafka, partition, 100)] == values
    assert sending.sender.close(10)


def test_what_kafka_does_not_take_fails_with_its_reason(mock_kafka: str) -> None:
    sending = Sending(mock_kafka, **{"message.max.bytes": 2000})
    partition = SendingPartition("t", 0)
    sending.append(partition, b"x" * 3000)
    sending.finish(partition)
    [failure] = sending.failures(partition)
    assert failure.startswith("Kafka did not take the events: ")
    assert "MSG_SIZE_TOO_LARGE" in failure
    sending.append(partition, b"small")
    sending.finish(partition)
    assert [failure for _, failure in sending.ended[partition]][1:] == [None]
    assert sending.sender.close(10)


def test_a_broken_producer_is_replaced_after_its_reports(mock_kafka: str) -> None:
    """librdkafka declares a producer unusable, for example when its sequence numbers are out of order."""
    made: list[BatchProducer] = []

    def producer(settings: Mapping[str, object]) -> BatchProducer:
        # The first one reports each record as failed for good, as librdkafka does after a fatal error.
        made.append(producer_of(settings) if made else PythonProducer(settings, Breaking))
        return made[-1]

    sending = Sending(mock_kafka, producer=producer)
    partitions = [SendingPartition("t", index) for index in range(2)]
    for partition in partitions:
        sending.append(partition, b"lost?")
    sending.finish(*partitions)
    for partition in partitions:
        assert sending.failures(partition) == ["the events may not be in Kafka: out of order"]
        sending.append(partition, b"next")
    sending.finish(*partitions)
    assert len(made) == 2
    for partition in partitions:
        assert [failure for _, failure in sending.ended[partition]][1:] == [None]
    assert sending.sender.close(10)


def test_a_batch_that_a_broken_producer_had_in_part_fails_as_a_whole(mock_kafka: str) -> None:
    made: list[BatchProducer] = []

    def producer(settings: Mapping[str, object]) -> BatchProducer:
        # The first one has room for two records, and reports them as failed for good.
        small = {**settings, "queue.buffering.max.messages": 2}
        made.append(producer_of(settings) if made else PythonProducer(small, Breaking))
        return made[-1]

    sending = Sending(mock_kafka, producer=producer)
    whole, parted = SendingPartition("t", 0), SendingPartition("t", 1)
    sending.append(whole, b"0")
    sending.append(parted, b"1", b"2", b"3", b"4", b"5")
    sending.finish(whole, parted)
    assert sending.failures(parted) == ["the events may not be in Kafka: out of order"]
    sending.append(parted, b"next")
    sending.finish(parted)
    assert [failure for _, failure in sending.ended[parted]][1:] == [None]
    assert sending.sender.close(10)


class Breaking(Producer):
    """A producer whose records are reported with a fatal error."""

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        assert on_delivery is not None
        fatal = KafkaError(KafkaError._FATAL, "out of order", True)

        def failed(_: KafkaError | None, message: Message) -> None:
            on_delivery(fatal, message)

        for message in messages:
            message.pop("callback", None)
        return super().produce_batch(topic, messages, partition, on_delivery=failed)


class Raising(Producer):
    """A producer with a fatal error, which librdkafka reports once, before any record."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.sent, self.raised = threading.Event(), False

    def produce_batch(self, *arguments: Any, **named: Any) -> int:
        taken = super().produce_batch(*arguments, **named)
        self.sent.set()
        return taken

    def poll(self, timeout: float = -1) -> int:
        if self.raised:
            return super().poll(timeout)
        if not self.sent.wait(timeout):
            return 0
        self.raised = True
        raise KafkaException(KafkaError(KafkaError._FATAL, "out of order", True))


def test_a_producer_with_a_fatal_error_is_replaced_before_it_reports_a_record(mock_kafka: str) -> None:
    """After an unclean election, the new leader does not know the sequence numbers of the producer."""
    made: list[BatchProducer] = []

    def producer(settings: Mapping[str, object]) -> BatchProducer:
        made.append(producer_of(settings) if made else PythonProducer(settings, Raising))
        return made[-1]

    sending = Sending(mock_kafka, producer=producer)
    partition = SendingPartition("t", 0)
    sending.append(partition, b"lost?")
    sending.finish(partition)
    sending.loop.run_until(lambda: len(made) == 2)
    sending.append(partition, b"next")
    sending.finish(partition)
    assert sending.ended[partition][-1].failure is None
    assert sending.sender.close(10)


def test_what_was_not_reported_at_the_end_fails() -> None:
    sending = Sending("127.0.0.1:1")
    partition, other = SendingPartition("t", 0), SendingPartition("t", 1)
    sending.append(partition, b"a")
    sending.sender.send()
    sending.append(other, b"b")
    assert not sending.sender.close(0.1)
    for each in (partition, other):
        assert sending.failures(each) == ["the node stopped before Kafka answered"]
        assert each.outbox.idle


def test_a_partition_can_be_failed_alone(sending: Sending) -> None:
    gone, other = SendingPartition("t", 0), SendingPartition("t", 1)
    for partition in (gone, other):
        sending.append(partition, b"a")
    sending.sender.fail(gone, "log x was deleted")
    sending.finish(other)
    assert sending.failures(gone) == ["log x was deleted"]
    assert sending.failures(other) == []


# Once: it takes ten seconds.
@pytest.mark.parametrize("kind", ["compiled"], indirect=True)
def test_while_kafka_is_away_events_wait_then_fail_and_later_ones_are_stored(kafka: Cluster) -> None:
    client = AdminClient({"bootstrap.servers": kafka.servers, **QUIET})
    client.create_topics([NewTopic("sending-test", 1, 3)])["sending-test"].result(60)
    # A new topic may take longer than the sender waits.
    first = Producer({"bootstrap.servers": kafka.servers, **QUIET})
    first.produce("sending-test", b"first", partition=0)
    assert first.flush(60) == 0
    sending = Sending(kafka.servers, **{"message.timeout.ms": 8000})
    partition = SendingPartition("sending-test", 0)
    sending.append(partition, b"before")
    sending.finish(partition)
    assert sending.failures(partition) == []
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        sending.append(partition, b"while away")
        sending.finish(partition)
        [failure] = sending.failures(partition)
        assert failure.startswith("the events may not be in Kafka: ")
    finally:
        for broker in kafka.brokers:
            broker.signal(signal.SIGCONT)
    kafka.await_ready()
    # Kafka may choose new leaders first, so an attempt may fail. No restart of the sender is needed.
    for attempt in range(20):
        sending.append(partition, b"after %d" % attempt)
        sending.finish(partition)
        if sending.ended[partition][-1].failure is None:
            break
    assert sending.ended[partition][-1].failure is None
    assert sending.sender.close(30)
    values = [value for _, value in stored(kafka.servers, partition, 1 + len(sending.ended[partition]))]
    assert values[:2] == [b"first", b"before"]
    assert values[-1] == b"after %d" % attempt
