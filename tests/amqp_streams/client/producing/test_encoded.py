"""Batches that a program encodes itself, against a live node."""

from array import array
from collections.abc import Iterator
from uuid import uuid4

import pytest

from amqp_streams.client import EARLIEST, Event, LinkRefusedError, RejectedError, SendError
from amqp_streams.client.blocking import Client, connect
from amqp_streams.client.raw import DATA_BINARY32, SEQUENCE_FRONT, encoded_batch
from tests.amqp_streams.client.running import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--auto-create=1").start()
    yield running
    running.stop()


@pytest.fixture
def log() -> str:
    return f"log-{uuid4().hex}"


def batch(bodies: list[object], first: int | None = None) -> bytes:
    """The bytes of a batch. `first`: the number of the first event."""
    messages = [Event(body).encode() for body in bodies]
    if first is not None:
        messages = [
            SEQUENCE_FRONT + number.to_bytes(8) + message for number, message in enumerate(messages, first)
        ]
    sections = b"".join(DATA_BINARY32 + len(message).to_bytes(4) + message for message in messages)
    return encoded_batch(array("I", map(len, messages)), sections)


def bodies(client: Client, log: str) -> list[object]:
    with client.consumer(log, start=EARLIEST) as consumer:
        return [event.body for event in consumer.receive_retained(100)]


def test_encoded_batches_are_stored_as_their_events_between_others(node: RunningNode, log: str) -> None:
    with connect(node.url) as client:
        with client.producer(log) as producer:
            assert producer.batch_events > 0
            producer.post_encoded([batch(["a", "b"]), batch(["c"])])
            producer.post_batch([Event("d")])
            producer.flush()
            assert producer.unsettled == 0
        assert bodies(client, log) == ["a", "b", "c", "d"]


def test_events_with_numbers_are_stored_once(node: RunningNode, log: str) -> None:
    with connect(node.url) as client:
        for _ in range(2):
            with client.producer(log, partition=0, producer_id="one") as producer:
                producer.post_encoded([batch(["a", "b"], 0), batch(["c"], 2)])
        assert bodies(client, log) == ["a", "b", "c"]


def test_a_batch_that_the_node_refuses_fails_as_a_whole(node: RunningNode, log: str) -> None:
    with connect(node.url) as client:
        producer = client.producer(log)
        producer.__enter__()
        producer.post_encoded([encoded_batch(array("I", [3]), DATA_BINARY32 + b"\0\0\0\3" + b"bad")])
        with pytest.raises(SendError) as refused:
            producer.flush()
        [(_, error)] = refused.value.failures
        assert isinstance(error, RejectedError)
        producer.close()
        assert bodies(client, log) == []


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_batches_after_a_refused_one_are_stored_in_order(
    node: RunningNode, log: str, compression: str | None
) -> None:
    """The node waits after the refused batch, and releases those that were sent already."""
    bad = Event("x" * 600).encode()
    sections = b"".join(DATA_BINARY32 + len(each).to_bytes(4) + each for each in (bad, b"bad"))
    refused = encoded_batch(array("I", [len(bad), 3]), sections)
    with connect(node.url) as client:
        with client.producer(log, compression=compression) as producer:
            producer.post_encoded([batch(["a", "b"]), refused, batch(["c"]), refused, batch(["d", "e"])])
            producer.post_batch([Event("f"), Event("g")])
            with pytest.raises(SendError) as failed:
                producer.flush()
        assert failed.value.count == 2
        assert bodies(client, log) == ["a", "b", "c", "d", "e", "f", "g"]


def test_without_batches_it_is_an_error(node: RunningNode, log: str) -> None:
    with connect(node.url) as client, client.producer(log, batch_bytes=0) as producer:
        assert producer.batch_events == 0
        with pytest.raises(LinkRefusedError, match="does not take batches"):
            producer.post_encoded([batch(["a"])])
