"""Both ways to take records, on mock brokers: the same records, ends, errors and lines of the log."""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from amqp_streams.kafka.brokers.compiled import CompiledTaker
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.takers import PythonTaker, Taker, taker_of
from amqp_streams.kafka.brokers.taking import Other, Place
from amqp_streams.kafka.records.chunks import Consumed, joined
from tests.amqp_streams.kafka.brokers.library import use_kind

QUIET: dict[str, Any] = {"log_level": 0}
WIDE = 1 << 20
COUNT = 2000
T = Place("t", 0)
VALUES = [None if number % 7 == 3 else b"%d" % number * (number % 5) for number in range(COUNT)]
UNTIL_S = 60.0


@pytest.fixture(params=["python", "compiled"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kind(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def filled(mock_kafka: str) -> str:
    """The address of brokers with records of many sizes in a partition, some without a value."""
    producer = Producer({"bootstrap.servers": mock_kafka, "enable.idempotence": True, **QUIET})
    messages: list[dict[str, Any]] = [{"value": value} for value in VALUES]
    producer.produce_batch(T.topic, messages, partition=T.partition)
    assert producer.flush(60) == 0
    return mock_kafka


def opened(servers: str, **settings: Any) -> Taker:
    given = {**CONSUMING, "bootstrap.servers": servers, **QUIET, **settings}
    return taker_of(given, threading.Lock(), plain=False)


@pytest.fixture
def taker(kind: str, filled: str) -> Iterator[Taker]:
    made = opened(filled)
    assert isinstance(made, CompiledTaker if kind == "compiled" else PythonTaker)
    yield made
    made.close()


def until_end(taker: Taker, place: Place, count: int = 5000) -> tuple[Consumed, list[Other]]:
    """All records of a partition up to its end, and the other messages."""
    parts: list[Consumed] = []
    others: list[Other] = []
    until = time.monotonic() + UNTIL_S
    while not others and time.monotonic() < until:
        portion = taker.take(0.5, count, WIDE)
        parts += [run for of, run in portion.runs if of == place]
        others += portion.others
    return joined(parts), others


@pytest.mark.parametrize("count", [5000, 137])
def test_all_records_come_in_their_order_and_the_end_after_them(taker: Taker, count: int) -> None:
    taker.assign(T, 0)
    found, [end] = until_end(taker, T, count)
    assert list(found.offsets) == list(range(COUNT))
    assert list(found.values) == VALUES
    assert min(found.times_ms) > 1_600_000_000_000
    assert (end.place, end.offset, end.error.code()) == (T, COUNT, KafkaError._PARTITION_EOF)


def test_a_seek_continues_elsewhere_and_an_assignment_in_another_partition(taker: Taker) -> None:
    taker.assign(T, COUNT - 3)
    assert list(until_end(taker, T)[0].offsets) == [COUNT - 3, COUNT - 2, COUNT - 1]
    taker.seek(T, COUNT - 50)
    found, _ = until_end(taker, T)
    assert next(iter(found.offsets)) == COUNT - 50
    assert list(found.values)[-1] == VALUES[-1]
    other = Place(T.topic, 1)
    taker.assign(other, 0)
    portion = taker.take(UNTIL_S, 10, WIDE)
    assert [each.place for each in portion.others] == [other]
    with pytest.raises(KafkaException):
        taker.seek(T, 0)


def test_counts_and_bytes_bound_what_is_taken(taker: Taker) -> None:
    taker.assign(T, 0)
    until = time.monotonic() + UNTIL_S
    # Until the consumer has read ahead.
    while len(taker.take(0.5, 1, WIDE).runs) != 1 and time.monotonic() < until:
        pass
    assert [len(run.offsets) for _, run in taker.take(0.5, 1, WIDE).runs] == [1]
    [(_, run)] = taker.take(0.5, 5000, 100).runs
    sizes = [len(value or b"") for value in run.values]
    assert sum(sizes) >= 100
    assert sum(sizes) < 2 * 100 + max(sizes)


def test_a_position_that_does_not_exist_is_an_error_with_the_place(taker: Taker) -> None:
    taker.assign(T, COUNT + 10)
    portion = taker.take(UNTIL_S, 10, WIDE)
    [error] = portion.others
    assert portion.runs == []
    assert error.place == T
    assert error.error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
    assert taker.extent(T, UNTIL_S) == (0, COUNT)


def test_without_a_message_the_wait_ends(taker: Taker) -> None:
    portion = taker.take(0.01, 10, WIDE)
    assert (list(portion.runs), list(portion.others)) == ([], [])
    with pytest.raises(KafkaException):
        taker.extent(Place("t", 999), 1.0)


@pytest.mark.usefixtures("kind")
def test_brokers_that_are_away_are_lines_of_the_log_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library reports errors in the thread that takes records."""
    caplog.set_level(logging.DEBUG, "amqp_streams.kafka")
    errors: list[KafkaError] = []
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
    taker = opened("127.0.0.1:1", log_level=7, error_cb=errors.append, **quick)
    taker.assign(T, 0)
    until = time.monotonic() + UNTIL_S
    while (
        not errors or not any("Connection refused" in line for line in caplog.messages)
    ) and time.monotonic() < until:
        portion = taker.take(0.05, 10, WIDE)
        assert not portion.runs
        assert all(other.error.code() != KafkaError._PARTITION_EOF for other in portion.others)
    line = next(record for record in caplog.records if "Connection refused" in record.getMessage())
    assert line.levelno >= logging.INFO
    assert "#consumer-" in line.getMessage()
    assert errors[0].name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN"}
    assert errors[0].str()
    taker.close()
    taker.close()


def test_topics_of_other_programs_are_read_with_keys(filled: str) -> None:
    producer = Producer({"bootstrap.servers": filled, **QUIET})
    producer.produce("plain", b"value", key=b"key", partition=0, headers={"site": b"roof"})
    assert producer.flush(60) == 0
    settings = {**CONSUMING, "bootstrap.servers": filled, **QUIET}
    taker = taker_of(settings, threading.Lock(), plain=True)
    taker.assign(Place("plain", 0), 0)
    found, _ = until_end(taker, Place("plain", 0))
    assert (found.keys, found.headers) == ([b"key"], [[("site", b"roof")]])
    taker.close()
