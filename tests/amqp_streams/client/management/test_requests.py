"""`$info` and `$management` against a scripted node in memory."""

import asyncio

import proton
import pytest

from amqp_streams.client import (
    Event,
    LinkError,
    LinkRefusedError,
    LogInfo,
    ManagementError,
    PartitionInfo,
    RejectedError,
    TimedOutError,
    connect,
)
from amqp_streams.client.management.requests import log_info
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.wire.codec import Array, Symbol, Timestamp, Value
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.peer import REJECTED
from tests.amqp_streams.client.producing.test_producer import settle_loop

URL = "amqp://node"
PARTITION: dict[Value, Value] = {
    "partition": Symbol("0"),
    "earliest-offset": Symbol("0000000000000001"),
    "latest-offset": None,
    "event-count": 7,
    "bytes": 70,
    "first-timestamp": Timestamp(5),
    "last-timestamp": Timestamp(6),
    "state": "running",
}


def answering(
    node: MemoryNode, status: int, body: object, description: str | None = None
) -> list[ReceivedEvent]:
    """Let `$management` give this answer, and return the requests that it received."""
    requests: list[ReceivedEvent] = []

    def answer(message: bytes) -> tuple[str, bytes] | None:
        request = ReceivedEvent(message)
        requests.append(request)
        properties = {"status-code": status, "statusCode": status} | (
            {} if description is None else {"status-description": description}
        )
        return str(request.reply_to), Event(
            body, properties=properties, correlation_id=request.correlation_id
        ).encode()

    node.answer = answer
    return requests


def test_figures_are_read_and_what_is_unknown_is_kept() -> None:
    body = {
        "log": "l",
        "partitions": [PARTITION],
        "incarnation": "i",
        "retention-ms": 5,
        "sync": "always",
        "more": 1,
    }
    info = log_info("l", body)
    entry = PartitionInfo("0", 1, None, 7, 70, 5, 6, "running")
    assert info == LogInfo("l", (entry,), incarnation="i", sync="always", settings={"retention_ms": 5})
    assert info.details["more"] == 1


@pytest.mark.parametrize("partitions", [None, 3, "x", [1, "a"], Array(int, (1, 2))])
def test_figures_of_another_shape_are_not_partitions(partitions: object) -> None:
    assert log_info("l", {"partitions": partitions}) == LogInfo("l", ())


def test_partitions_may_come_as_an_array() -> None:
    assert len(log_info("l", {"partitions": Array(dict, (PARTITION,))}).partitions) == 1


def test_an_answer_that_is_not_a_map_is_an_error() -> None:
    with pytest.raises(LinkError, match="not a map"):
        log_info("l", "text")


async def test_info_asks_once_and_closes_its_link(node: MemoryNode) -> None:
    node.outgoing["log/$info"].append(Event({"partitions": [PARTITION]}).encode())
    async with connect(URL) as client:
        assert (await client.info("log")).partitions[0].event_count == 7
        await settle_loop()
        assert node.peer.senders == []


async def test_info_is_asked_again_when_the_connection_is_lost(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        asking = asyncio.create_task(client.info("log"))
        await settle_loop()
        node.outgoing["log/$info"].append(Event({"partitions": []}).encode())
        node.lose()
        assert (await asking).partitions == ()


async def test_info_that_is_refused_or_late_says_so(node: MemoryNode) -> None:
    node.refused["log/$info"] = proton.Condition("amqp:not-found", "no log")
    async with connect(URL) as client:
        with pytest.raises(LinkRefusedError, match="no log"):
            await client.info("log")
        with pytest.raises(TimedOutError, match="information on other"):
            await client.info("other", timeout=0.001)


async def test_a_request_says_what_it_is_about_and_where_the_answer_goes(node: MemoryNode) -> None:
    requests = answering(node, 201, {"partitions": [PARTITION], "retention-ms": 60})
    async with connect(URL) as client:
        made = await client.management.create_log("log", partitions=2, retention_ms=60)
    assert made.retention_ms == 60
    [request] = requests
    assert request.properties == {"operation": "CREATE", "type": "event-log", "name": "log"}
    assert request.body == {"partitions": 2, "retention-ms": 60}
    assert request.message_id == request.correlation_id
    [receiving] = [link for link in node.attaches if link.is_sender]
    assert (receiving.remote_source.address, receiving.remote_target.address) == (
        "$management",
        request.reply_to,
    )


async def test_every_operation_has_its_name(node: MemoryNode) -> None:
    requests = answering(
        node, 200, {"logs": [{"name": "b", "partitions": 2}, {"name": "a", "partitions": [1, 2, 3]}]}
    )
    async with connect(URL) as client:
        assert [(log.name, log.partitions) for log in await client.management.list_logs()] == [
            ("a", 3),
            ("b", 2),
        ]
        await client.management.describe_log("a")
        await client.management.update_log("a", {"retention-ms": None})
        await client.management.delete_log("a")
    assert [request.properties["operation"] for request in requests] == ["QUERY", "READ", "UPDATE", "DELETE"]
    assert requests[2].body == {"retention-ms": None}


async def test_a_status_other_than_success_is_an_error(node: MemoryNode) -> None:
    answering(node, 409, None, "log 'a' already exists")
    async with connect(URL) as client:
        with pytest.raises(ManagementError, match="409: log 'a' already exists") as caught:
            await client.management.create_log("a")
    assert caught.value.status == 409


async def test_a_request_that_is_refused_is_an_error(node: MemoryNode) -> None:
    node.outcome = lambda message: REJECTED
    async with connect(URL) as client:
        with pytest.raises(RejectedError):
            await client.management.list_logs()


async def test_no_answer_is_a_timeout(node: MemoryNode) -> None:
    async with connect(URL) as client:
        with pytest.raises(TimedOutError, match="READ of a"):
            await client.management.describe_log("a", timeout=0.001)
        await settle_loop()
        assert node.peer.senders == []
