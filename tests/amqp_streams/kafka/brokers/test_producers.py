"""Records are handed over and reported in the same way in Python and compiled: on mock brokers."""

from collections.abc import Callable, Iterator, Sequence
from ctypes import c_void_p
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import KafkaError

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.producers import (
    FULL,
    BatchProducer,
    CompiledProducer,
    PythonProducer,
    producer_of,
)
from amqp_streams.kafka.outbox import Batch
from amqp_streams.kafka.records.plain import PlainRecord
from tests.amqp_streams.kafka.brokers.library import stored, use_kind

Make = Callable[..., BatchProducer]


class Reports:
    """What was reported of the records of one batch."""

    def __init__(self, producer: BatchProducer) -> None:
        self.producer = producer
        self.count = 0
        self.calls = 0
        self.errors: list[KafkaError] = []
        self.last: int | None = None

    def report(self, count: int, error: KafkaError | None, last: int | None) -> None:
        self.count += count
        self.calls += 1
        if error is not None:
            self.errors.append(error)
        if last is not None:
            self.last = last

    def wait(self, count: int) -> None:
        """Until so many records were reported."""
        until = monotonic() + 60
        while self.count < count and monotonic() < until:
            self.producer.wait(1.0)
            while self.producer.take():
                pass
        assert self.count == count


@pytest.fixture(params=["python", "compiled"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kind(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def make(kind: str) -> Iterator[Make]:
    made: list[BatchProducer] = []

    def producer(servers: str, *, plain: bool = False, **settings: object) -> BatchProducer:
        given = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        made.append(producer_of({**given, **settings}, plain=plain))
        assert isinstance(made[-1], CompiledProducer if kind == "compiled" and not plain else PythonProducer)
        return made[-1]

    yield producer
    for each in made:
        each.close()


def batch_of(values: Sequence[bytes | PlainRecord], keys: Sequence[bytes | None] | None = None) -> Batch:
    return Batch(0, list(values), list(keys or [None] * len(values)), 0)


def test_records_with_keys_are_stored_and_reported(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka)
    batch = batch_of([b"", b"v", b"w"], [b"key", None, b""])
    reports = Reports(producer)
    assert producer.hand("t", 0, batch, reports) == [None] * 3
    assert len(producer) == 3
    reports.wait(3)
    assert (reports.errors, reports.last, len(producer)) == ([], 2, 0)
    assert stored(mock_kafka, "t", 0, 3) == [(b"key", b""), (None, b"v"), (b"", b"w")]


def test_the_rest_of_a_batch_that_did_not_fit_is_handed_over_later(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka, **{"queue.buffering.max.messages": 3})
    batch, reports = batch_of([b"%d" % number for number in range(10)]), Reports(producer)
    while batch.handed < len(batch):
        errors = producer.hand("t", 0, batch, reports)
        taken = list(errors).count(None)
        assert taken <= 3
        assert errors == [None] * taken + [FULL] * (len(batch) - batch.handed - taken)
        batch.handed += taken
        reports.wait(batch.handed)
    assert reports.last == 9
    assert [value for _, value in stored(mock_kafka, "t", 0, 10)] == [b"%d" % number for number in range(10)]


def test_a_record_that_is_too_large_is_named(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka, **{"message.max.bytes": 2000})
    reports = Reports(producer)
    first, second = producer.hand("t", 0, batch_of([b"small", bytes(3000)]), reports)
    assert first is None
    assert second is not None
    assert "MSG_SIZE_TOO_LARGE" in second
    reports.wait(1)
    assert reports.errors == []


def test_many_records_of_one_batch_have_few_reports_when_compiled(
    make: Make, kind: str, mock_kafka: str
) -> None:
    producer = make(mock_kafka)
    batch, reports = batch_of([b"v"] * 5000), Reports(producer)
    assert producer.hand("t", 0, batch, reports) == [None] * 5000
    reports.wait(5000)
    assert reports.last == 4999
    assert reports.calls == 5000 if kind == "python" else reports.calls < 100


def test_reports_of_many_batches_are_taken_in_turns(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka)
    flights = [Reports(producer) for _ in range(2000)]
    for flight in flights:
        assert producer.hand("t", 0, batch_of([b"v"]), flight) == [None]
    until, most = monotonic() + 60, 0
    while sum(flight.count for flight in flights) < 2000 and monotonic() < until:
        producer.wait(1.0)
        more = True
        while more:
            before = sum(flight.count for flight in flights)
            more = producer.take()
            most = max(most, sum(flight.count for flight in flights) - before)
    assert [flight.count for flight in flights] == [1] * 2000
    assert [flight.last for flight in flights] == list(range(2000))
    assert most <= 500, "the event loop has other work"


def test_purged_records_are_reported_as_failed(make: Make) -> None:
    producer = make("127.0.0.1:1")
    reports = Reports(producer)
    assert producer.hand("t", 0, batch_of([b"a", b"b"]), reports) == [None, None]
    assert not producer.wait(0.01)
    producer.purge()
    reports.wait(2)
    assert {error.code() for error in reports.errors} <= {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
    assert (reports.last, len(producer)) == (None, 0)


def test_what_waits_is_finished_without_a_thread(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka)
    reports = Reports(producer)
    producer.hand("t", 0, batch_of([b"a"]), reports)
    until = monotonic() + 60
    while len(producer) and monotonic() < until:
        producer.finish(1.0)
    assert (reports.count, reports.last) == (1, 0)


@pytest.mark.parametrize("kind", ["compiled"], indirect=True)
def test_after_a_fatal_error_of_the_library_nothing_is_taken(make: Make, mock_kafka: str) -> None:
    producer: Any = make(mock_kafka)
    assert compiled.loaded is not None
    handle, code = c_void_p(producer._client.handle), KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    compiled.loaded.library.rd_kafka_test_fatal_error(handle, code, b"out of order")
    until = monotonic() + 60
    while producer.fatal is None and monotonic() < until:
        producer.wait(0.1)
    assert "out of order" in producer.fatal
    [error] = producer.hand("t", 0, batch_of([b"a"]), Reports(producer))
    assert "FATAL" in error
    assert len(producer) == 0


def test_records_with_headers_have_a_producer_in_python(make: Make, mock_kafka: str) -> None:
    producer = make(mock_kafka, plain=True)
    reports = Reports(producer)
    records = [PlainRecord(b"k", b"v", [("name", b"header")]), PlainRecord(None, b"w", [])]
    assert producer.hand("t", 0, batch_of(records), reports) == [None, None]
    reports.wait(2)
    assert reports.last == 1
    assert stored(mock_kafka, "t", 0, 2) == [(b"k", b"v"), (None, b"w")]
