"""What the reader of the state topic brings; test_following.py has transactions and real brokers."""

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer

from amqp_streams.kafka.sharing.reading import RECORDS, Brought, StateReader
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.kafka.sharing.conftest import connection


class Reading:
    """A reader whose loop is the test."""

    def __init__(self, servers: str) -> None:
        self.loop = ManualLoop()
        self.portions: list[tuple[int, Sequence[Brought]]] = []
        self.ended: list[str] = []
        self.reader = StateReader(
            connection(servers),
            "t",
            2,
            loop_call=self.loop.call,
            on_portion=self._take,
            on_ended=self.ended.append,
        )

    def _take(self, reading: int, portion: Sequence[Brought]) -> None:
        self.portions.append((reading, portion))
        self.reader.taken()

    def await_position(self, bucket: int, position: int) -> None:
        self.loop.run_until(
            lambda: any(
                each.bucket == bucket and each.position == position
                for _, portion in self.portions
                for each in portion
            )
        )

    def changes(self, bucket: int) -> list[tuple[str, bytes | None]]:
        return [
            change
            for _, portion in self.portions
            for each in portion
            if each.bucket == bucket
            for change in each.changes
        ]


@pytest.fixture
def producer(mock_kafka: str) -> Producer:
    made = Producer({"bootstrap.servers": mock_kafka, "log_level": 0})
    for number in range(3):
        made.produce("t", b"v%d" % number, b"k%d" % number, partition=0)
    made.produce("t", b"no key", None, partition=1)
    made.produce("t", b"not text", b"\xff\xfe", partition=1)
    made.produce("t", None, b"removed", partition=1)
    made.flush(60)
    return made


@pytest.fixture
def reading(mock_kafka: str, producer: Producer) -> Iterator[Reading]:
    assert not len(producer)
    made = Reading(mock_kafka)
    yield made
    made.reader.close()
    assert not made.ended


def test_records_come_in_their_order_and_what_no_node_wrote_is_skipped(reading: Reading) -> None:
    reading.await_position(0, 3)
    reading.await_position(1, 3)
    assert reading.changes(0) == [("k0", b"v0"), ("k1", b"v1"), ("k2", b"v2")]
    assert reading.changes(1) == [("removed", None)]


def test_new_records_follow(reading: Reading, producer: Producer) -> None:
    reading.await_position(0, 3)
    producer.produce("t", b"new", b"k0", partition=0)
    producer.flush(60)
    reading.await_position(0, 4)
    assert reading.changes(0)[3:] == [("k0", b"new")]


def test_a_portion_is_bounded_and_the_reader_waits_for_the_loop(reading: Reading, producer: Producer) -> None:
    for number in range(4 * RECORDS):
        producer.produce("t", b"%d" % number, b"key", partition=0)
    producer.flush(60)
    reading.await_position(0, 3 + 4 * RECORDS)
    assert max(sum(len(each.changes) for each in portion) for _, portion in reading.portions) <= RECORDS


def test_a_bucket_that_is_read_again_begins_with_its_first_record(reading: Reading) -> None:
    reading.await_position(0, 3)
    reading.await_position(1, 3)
    reading.portions.clear()
    reading.reader.again(0)
    reading.loop.run_until(lambda: len(reading.changes(0)) == 3)
    brought = [each for _, portion in reading.portions for each in portion if each.again or each.changes]
    # Nothing of it came before.
    assert (brought[0].bucket, brought[0].again, brought[0].position) == (0, "it was asked for", 0)
    assert {each.bucket for each in brought} == {0}


def test_a_restart_reads_everything_again_and_numbers_what_it_brings(reading: Reading) -> None:
    reading.loop.run_until(lambda: len(reading.changes(0)) == 3 and bool(reading.changes(1)))
    reading.portions.clear()
    reading.reader.restart()
    reading.loop.run_until(lambda: len(reading.changes(0)) >= 3 and bool(reading.changes(1)))
    assert reading.changes(0) == [("k0", b"v0"), ("k1", b"v1"), ("k2", b"v2")]
    assert {number for number, portion in reading.portions for each in portion if each.changes} == {1}
