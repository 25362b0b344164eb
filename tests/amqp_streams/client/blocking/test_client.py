"""The blocking wrapper against a scripted node in memory. Both ends run in the client's own thread."""

import threading

import pytest

from amqp_streams.client import (
    NO_RETRY,
    ClosedError,
    ConnectError,
    Event,
    RejectedError,
    SendError,
    TimedOutError,
    blocking,
)
from amqp_streams.client.received import ReceivedEvent
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.conftest import MemoryNode
from tests.amqp_streams.client.peer import REJECTED

URL = "amqp://node"


def bodies(node: MemoryNode) -> list[object]:
    return [ReceivedEvent(message).body for message in node.stored["log"]]


def test_sent_posted_and_batched_events_arrive_in_order(node: MemoryNode) -> None:
    with blocking.connect(URL) as client, client.producer("log", window=5) as producer:
        assert producer.send(Event(0)).attempts == 1
        pending = [producer.post(Event(number)) for number in range(1, 50)]
        assert {one.result().attempts for one in pending} == {1}
        assert all(one.done for one in pending)
        producer.post_batch([Event(number) for number in range(50, 100)])
        producer.flush()
        assert bodies(node) == list(range(100))


def test_a_window_that_stays_full_is_a_timeout(node: MemoryNode) -> None:
    node.outcome = lambda message: None
    with blocking.connect(URL, retry=NO_RETRY) as client:
        producer = client.producer("log", window=2)
        producer.__enter__()
        pending = [producer.post(Event(number)) for number in range(2)]
        with pytest.raises(TimedOutError, match="room in the window"):
            producer.post(Event(2), timeout=0)
        with pytest.raises(TimedOutError, match="an outcome"):
            pending[0].result(timeout=0)
    with pytest.raises(ClosedError):
        pending[1].result()


def test_refusals_are_raised_where_they_are_asked_for(node: MemoryNode) -> None:
    node.outcome = lambda message: REJECTED
    with blocking.connect(URL) as client:
        producer = client.producer("log")
        producer.__enter__()
        with pytest.raises(RejectedError):
            producer.send(Event(0))
        pending = producer.post(Event(1))
        with pytest.raises(RejectedError):
            pending.result()
        with pytest.raises(SendError):
            producer.close()
        with pytest.raises(ClosedError):
            producer.post(Event(2)).result()


def test_events_are_received_iterated_and_settled(node: MemoryNode) -> None:
    node.outgoing["log"].extend(Event(number).encode() for number in range(8))
    with blocking.connect(URL) as client, client.consumer("log", settle="manual") as consumer:
        for event in consumer:
            consumer.settle(event)
            if event.body == 2:
                break
        rest = consumer.receive(4)
        assert [event.body for event in rest] == [3, 4, 5, 6]
        consumer.settle(rest)
        assert [event.body for event in consumer.receive()] == [7]
        assert consumer.receive(1, timeout=0) == []
        assert consumer.positions == {}
        assert consumer.link_properties == {}
    assert node.outcomes == [(int(peers.ACCEPTED), True)] * 7


def test_raw_bytes_are_received(node: MemoryNode) -> None:
    node.outgoing["log"].append(Event(1).encode())
    with blocking.connect(URL) as client, client.consumer("log") as consumer:
        assert consumer.receive_raw() == [Event(1).encode()]


def test_information_and_management_answer(node: MemoryNode) -> None:
    node.outgoing["log/$info"].append(Event({"partitions": []}).encode())

    def answer(message: bytes) -> tuple[str, bytes]:
        body = {"logs": [{"name": "log", "partitions": 1}]}
        return str(ReceivedEvent(message).reply_to), Event(body, properties={"status-code": 200}).encode()

    with blocking.connect(URL) as client:
        assert client.info("log").log == "log"
        node.answer = answer
        management = client.management
        assert [log.name for log in management.list_logs()] == ["log"]
        assert management.create_log("log", partitions=2).log == "log"
        assert management.describe_log("log").log == "log"
        assert management.update_log("log", {"retention-ms": 5}).log == "log"
        management.delete_log("log")


def test_a_failed_connection_and_a_closed_client_leave_no_thread(node: MemoryNode) -> None:
    before = {*threading.enumerate()}
    node.unreachable = 1
    with pytest.raises(ConnectError), blocking.connect(URL):
        pass
    client = blocking.connect(URL)
    client.connect()
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        client.info("log")
    with pytest.raises(ClosedError):
        client.consumer("log").settle([])
    new = {*threading.enumerate()} - before
    assert [thread for thread in new if thread.name == "amqp-streams-client"] == []


def test_several_threads_post_to_one_producer(node: MemoryNode) -> None:
    with blocking.connect(URL) as client, client.producer("log", window=10) as producer:

        def post(name: int) -> None:
            for number in range(100):
                producer.post(Event([name, number]))

        threads = [threading.Thread(target=post, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    for name in range(4):
        assert [body for body in bodies(node) if isinstance(body, list) and body[0] == name] == [
            [name, number] for number in range(100)
        ]
