"""One consumer for old records, on mock brokers."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers import consuming
from amqp_streams.kafka.brokers.consuming import CONSUMING, OldRecords
from amqp_streams.kafka.brokers.takers import taker_of
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.reading.spans import Span
from tests.amqp_streams.kafka.brokers.library import use_kind

QUIET: dict[str, Any] = {"log_level": 0}
COUNT = 3000
T = Place("t", 0)


@pytest.fixture(params=["python", "compiled"])
def records(
    request: pytest.FixtureRequest, mock_kafka: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OldRecords]:
    """A consumer of a topic with `COUNT` records of four bytes in each of two partitions: their numbers."""
    use_kind(monkeypatch, request.param)
    producer = Producer({"bootstrap.servers": mock_kafka, "enable.idempotence": True, **QUIET})
    for partition in (0, 1):
        messages: list[dict[str, Any]] = [{"value": b"%04d" % number} for number in range(COUNT)]
        producer.produce_batch(T.topic, messages, partition=partition)
    assert producer.flush(60) == 0
    settings = {**CONSUMING, "bootstrap.servers": mock_kafka, **QUIET}
    made = OldRecords(taker_of(settings, threading.Lock(), plain=False), threading.Event())
    yield made
    made.close()


def numbers(span: Span) -> list[int]:
    assert span.chunk is not None
    return [int(message) for message in span.chunk.messages]


def test_it_reads_on_and_jumps_and_changes_the_partition(records: OldRecords) -> None:
    for place, at in ((T, 1000), (T, 50), (Place("t", 1), 2000), (T, 1500)):
        span = records.read(place, at, at, 40, 60)
        assert numbers(span) == list(range(at, span.end))
        assert len(numbers(span)) >= 10
        following = records.read(place, span.end, span.end, 40, 60)
        assert numbers(following) == list(range(span.end, following.end))


def test_it_brings_what_it_reads_over_and_as_much_after_it_as_is_wanted(records: OldRecords) -> None:
    first = records.read(T, 100, 100, 40, 60)
    span = records.read(T, first.end, first.end + 700, 400, 60)
    assert (span.start, numbers(span)) == (first.end, list(range(first.end, span.end)))
    assert first.end + 800 <= span.end <= first.end + 900


def test_one_read_is_bounded_also_if_records_are_small(
    records: OldRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "READ_RECORDS", 300)
    span = records.read(T, 0, 0, 1 << 20, 60)
    assert span.end - span.start <= 300


def test_a_read_up_to_the_end_of_the_partition_brings_all(records: OldRecords) -> None:
    assert numbers(records.read(T, COUNT - 5, COUNT - 5, 1 << 20, 60)) == [*range(COUNT - 5, COUNT)]


def test_a_wanted_record_that_does_not_come_is_an_error(records: OldRecords) -> None:
    with pytest.raises(StorageError, match=f"brought nothing from {COUNT} on within 1 s"):
        records.read(T, COUNT - 5, COUNT, 40, 1.0)
    assert numbers(records.read(T, 7, 7, 40, 60))[0] == 7
