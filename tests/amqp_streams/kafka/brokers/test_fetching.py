"""Reads of older records, from mock brokers and from brokers."""

import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.consuming import OldRecords
from amqp_streams.kafka.brokers.fetching import Fetcher, OvertakenError, Place
from amqp_streams.kafka.reading import reads as deciding
from amqp_streams.kafka.reading.spans import Span
from amqp_streams.storage.ports import LATER, Chunk, ReadRequest
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster

QUIET: dict[str, Any] = {"log_level": 0}
WIDE = 1 << 20
COUNT = 3000
T = Place("t", 0)


class Reads:
    """A fetcher whose loop is the test."""

    def __init__(self, servers: str, **settings: Any) -> None:
        self.loop = ManualLoop()
        given = {"readers": 4, "wait_s": 60.0, **settings}
        self.fetcher = Fetcher({"bootstrap.servers": servers, **QUIET}, loop_call=self.loop.call, **given)
        self.ready: list[object] = []

    def request(self, owner: object) -> ReadRequest:
        return ReadRequest(owner, lambda: self.ready.append(owner))

    def later(self, place: Place, at: int, end: int, owner: object = "owner") -> Chunk | None:
        """Read as a link does: ask, wait, ask again."""
        request = self.request(owner)
        while (found := self.fetcher.read(place, at, end, WIDE, request)) is LATER:
            self.ready.clear()
            self.loop.run_until(lambda: bool(self.ready), timeout_s=90)
        assert isinstance(found, Chunk | None)
        return found


@pytest.fixture
def filled(mock_kafka: str) -> str:
    """The address of brokers that have `COUNT` records in a partition: their numbers."""
    producer = Producer({"bootstrap.servers": mock_kafka, "enable.idempotence": True, **QUIET})
    messages: list[dict[str, Any]] = [{"value": b"%d" % number} for number in range(COUNT)]
    producer.produce_batch(T.topic, messages, partition=T.partition)
    assert producer.flush(60) == 0
    return mock_kafka


@pytest.fixture
def reads(filled: str) -> Iterator[Reads]:
    made = Reads(filled)
    yield made
    made.fetcher.close()


def numbers(chunk: object) -> list[int]:
    assert isinstance(chunk, Chunk)
    assert [int(message) for message in chunk.messages] == [
        chunk.number(index) for index in range(len(chunk))
    ]
    return [chunk.number(index) for index in range(len(chunk))]


def test_a_read_that_waits_and_one_that_answers_later_bring_the_same(reads: Reads) -> None:
    for at in (0, 1, 1500, COUNT - 1):
        reads.fetcher.forget(T)
        waited = numbers(reads.fetcher.read(T, at, COUNT, WIDE, None))
        reads.fetcher.forget(T)
        assert numbers(reads.later(T, at, COUNT))[0] == waited[0] == at
    assert reads.fetcher.read(T, COUNT, COUNT, WIDE, None) is None


def test_a_whole_partition_is_read_in_order(reads: Reads) -> None:
    at, found = 0, list[int]()
    while (chunk := reads.later(T, at, COUNT)) is not None:
        found += numbers(chunk)
        at = chunk.end
    assert found == list(range(COUNT))


def test_what_one_reader_brought_serves_its_neighbours_at_once(reads: Reads) -> None:
    chunk = reads.later(T, 100, COUNT)
    assert chunk is not None
    assert numbers(reads.fetcher.read(T, 150, COUNT, 1, reads.request("another"))) == [150]


def test_neighbours_that_ask_at_once_share_one_read(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    read = OldRecords.read

    def counted(tail: OldRecords, place: Place, start: int, at: int, *rest: Any) -> Span:
        loads.append(at)
        return read(tail, place, start, at, *rest)

    monkeypatch.setattr(OldRecords, "read", counted)
    reads = Reads(filled, readers=1)
    requests = {at: reads.request(at) for at in (100, 150, 200)}
    for at, request in requests.items():
        assert reads.fetcher.read(T, at, COUNT, 1, request) is LATER
    reads.loop.run_until(lambda: len(reads.ready) == len(requests), timeout_s=90)
    for at, request in requests.items():
        assert numbers(reads.fetcher.read(T, at, COUNT, 1, request)) == [at]
    assert loads == [100]
    reads.fetcher.close()


def test_nothing_behind_the_end_that_the_node_knows_is_read(reads: Reads) -> None:
    assert numbers(reads.fetcher.read(T, 10, 13, WIDE, None)) == [10, 11, 12]


def test_many_readers_far_apart_all_get_their_records(filled: str) -> None:
    """More readers than consumers, and a cache that holds the records of few of them."""
    reads = Reads(filled, readers=2, cache_bytes=1)
    requests = {at: reads.request(at) for at in range(0, COUNT, 60)}
    got: dict[int, int] = {}

    def look() -> bool:
        for at in set(requests) - set(got):
            found = reads.fetcher.read(T, at, COUNT, 1, requests[at])
            if found is not LATER:
                got[at] = numbers(found)[0]
        return len(got) == len(requests)

    reads.loop.run_until(look, timeout_s=90)
    assert got == {at: at for at in requests}
    reads.fetcher.close()


def test_readers_far_apart_get_fair_shares(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads on as fast as it can, with fewer consumers than readers and a cache for few of them.

    Each of the two consumers may still be busy with its first read while the other serves all the rest.
    """
    monkeypatch.setattr(deciding, "READ_BYTES", 40)
    monkeypatch.setattr(deciding, "READ_BYTES_MIN", 40)
    reads = Reads(filled, readers=2, cache_bytes=4 << 10)
    starts = range(0, COUNT, 150)
    requests = {start: reads.request(start) for start in starts}
    at = {start: start for start in starts}

    def look() -> bool:
        for start in starts:
            found = reads.fetcher.read(T, at[start], COUNT, 40, requests[start])
            if isinstance(found, Chunk):
                at[start] = found.end
        return sum(at.values()) - sum(starts) >= 600

    reads.loop.run_until(look, timeout_s=90)
    shares = sorted(at[start] - start for start in starts)
    assert shares[2] >= shares[len(shares) // 2] / 3, shares
    reads.fetcher.close()


def test_a_read_brings_about_as_much_as_it_should(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read brings beyond that displaces what other readers need."""
    monkeypatch.setattr(deciding, "READ_BYTES", 400)
    monkeypatch.setattr(deciding, "READ_BYTES_MIN", 400)
    reads = Reads(filled)
    chunk = reads.later(T, 1000, COUNT)
    assert chunk is not None
    assert 400 <= sum(map(len, chunk.messages)) <= 408
    reads.fetcher.close()


def test_a_read_that_was_given_up_is_not_answered(reads: Reads) -> None:
    request = reads.request("gone")
    assert reads.fetcher.read(T, 5, COUNT, WIDE, request) is LATER
    request.cancel()
    assert reads.later(T, 5, COUNT, "other") is not None
    reads.loop.run_ready()
    assert "gone" not in reads.ready


def test_without_kafka_a_read_fails_after_its_time_with_the_reason() -> None:
    reads = Reads("127.0.0.1:1", wait_s=1.0)
    words = r"partition 0 of topic 't' brought nothing from 0 on within 1 s"
    with pytest.raises(StorageError, match=words):
        reads.fetcher.read(T, 0, 10, WIDE, None)
    with pytest.raises(StorageError, match=words):
        reads.later(T, 0, 10)
    reads.fetcher.close()


@pytest.fixture
def topic(kafka: Cluster) -> Iterator[tuple[Reads, AdminClient, Place]]:
    """A topic on real brokers, with transactions: numbers 0 to 2, a marker, an aborted one, then another."""
    place = Place("fetching-test", 0)
    client = AdminClient({"bootstrap.servers": kafka.servers, **QUIET})
    if place.topic not in client.list_topics(timeout=60).topics:
        client.create_topics([NewTopic(place.topic, 1, 3)])[place.topic].result(60)
        producer = Producer(
            {"bootstrap.servers": kafka.servers, "transactional.id": "fetching-test", **QUIET}
        )
        producer.init_transactions(60)
        for values, commit in (([b"0", b"1", b"2"], True), ([b"aborted"], False), ([b"6"], True)):
            producer.begin_transaction()
            for value in values:
                producer.produce(place.topic, value, partition=0)
            producer.flush(60)
            (producer.commit_transaction if commit else producer.abort_transaction)(60)
    reads = Reads(kafka.servers)
    yield reads, client, place
    reads.fetcher.close()


def test_markers_and_aborted_records_are_gaps(topic: tuple[Reads, AdminClient, Place]) -> None:
    reads, _, place = topic
    at, found = 0, list[int]()
    while (chunk := reads.later(place, at, 8)) is not None:
        found += numbers(chunk)
        at = chunk.end
    assert found == [0, 1, 2, 6]
    assert reads.fetcher.read(place, 7, 8, WIDE, None) is None, "the marker at 7 is no record"


def test_a_read_waits_for_a_topic_that_a_broker_does_not_know_yet(
    kafka: Cluster, topic: tuple[Reads, AdminClient, Place]
) -> None:
    reads, client, _ = topic
    place, request = Place(f"late-{uuid.uuid4().hex[:12]}", 0), reads.request("owner")
    assert reads.fetcher.read(place, 0, 1, WIDE, request) is LATER
    client.create_topics([NewTopic(place.topic, 1, 3)])[place.topic].result(60)
    producer = Producer({"bootstrap.servers": kafka.servers, **QUIET})
    producer.produce(place.topic, b"0", partition=0)
    assert producer.flush(60) == 0
    reads.loop.run_until(lambda: bool(reads.ready), timeout_s=90)
    found = reads.fetcher.read(place, 0, 1, WIDE, request)
    assert isinstance(found, Chunk)
    assert numbers(found) == [0]


def test_a_read_of_removed_records_says_where_the_rest_begins(
    topic: tuple[Reads, AdminClient, Place],
) -> None:
    reads, client, place = topic
    client.delete_records([TopicPartition(place.topic, 0, 2)])[TopicPartition(place.topic, 0, 2)].result(60)
    with pytest.raises(OvertakenError) as overtaken:
        reads.later(place, 0, 8)
    assert overtaken.value.start == 2
    with pytest.raises(StorageError, match="ends at 8, before 1000: Kafka lost records"):
        reads.fetcher.read(place, 1000, 2000, WIDE, None)


def test_a_read_that_waits_for_kafka_ends_when_the_node_stops() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reads = Reads(f"127.0.0.1:{silent.getsockname()[1]}", wait_s=600.0)
        request = reads.request("owner")
        assert reads.fetcher.read(T, 0, 1, WIDE, request) is LATER
        reads.fetcher.close()
        reads.loop.run_until(lambda: bool(reads.ready), timeout_s=60)
        with pytest.raises(StorageError, match="brought nothing"):
            reads.fetcher.read(T, 0, 1, WIDE, request)
