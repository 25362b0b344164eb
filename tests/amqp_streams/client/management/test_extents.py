"""The first and the next offsets of logs, as the real node reports them."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import cast
from uuid import uuid4

import pytest

from amqp_streams.client import (
    EARLIEST,
    Event,
    LinkError,
    LogExtent,
    ManagementError,
    PartitionExtent,
    RetryPolicy,
    blocking,
    connect,
)
from amqp_streams.client.management.extents import ask_extents, extents_body, read_extents
from amqp_streams.wire.codec import Symbol, Timestamp
from tests.amqp_streams.client.running import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--sync=never").start()
    yield running
    running.stop()


async def test_extents_are_numbers_for_all_partitions_of_all_logs_at_once(node: RunningNode) -> None:
    logs = [f"log-{uuid4().hex}" for _ in range(2)]
    async with connect(node.url) as client:
        for log in logs:
            await client.management.create_log(log, partitions=2)
        async with client.producer(logs[1], partition=1) as producer:
            await producer.post_batch([Event(number) for number in range(7)])
        extents = await client.extents(logs)
        infos = {log: await client.info(log) for log in logs}
        assert await client.extents(logs[0]) == {logs[0]: extents[logs[0]]}
        assert await client.extents(["nowhere", logs[0]], missing_ok=True) == {logs[0]: extents[logs[0]]}
    assert list(extents) == logs
    assert extents[logs[0]] == LogExtent(
        logs[0],
        infos[logs[0]].incarnation or "",
        tuple(PartitionExtent(str(index), 0, 0, 0, None, None, "running") for index in range(2)),
        events_out=0,
        consumers=0,
        groups=0,
    )
    full, told = extents[logs[1]].partitions[1], infos[logs[1]].partitions[1]
    assert (full.earliest, full.next, full.bytes) == (0, 7, told.bytes)
    assert (full.first_timestamp_ms, full.last_timestamp_ms) == (
        told.first_timestamp_ms,
        told.last_timestamp_ms,
    )
    assert full.bytes > 0


async def test_extents_say_what_consumers_got_and_who_reads(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with connect(node.url) as client:
        await client.management.create_log(log)
        async with client.producer(log) as producer:
            await producer.post_batch([Event(number) for number in range(7)])
        async with (
            client.consumer(log, start=EARLIEST) as one,
            client.group_consumer(log, "g", start=EARLIEST) as other,
        ):
            for consumer in (one, other):
                for _ in range(7):
                    await anext(consumer)
            found = (await client.extents(log))[log]
        left = (await client.extents(log))[log]
        async with asyncio.timeout(60):
            # A link that is closed is gone when the node has read it.
            while left.consumers:
                left = (await client.extents(log))[log]
    assert (found.events_out, found.consumers, found.groups) == (14, 2, 1)
    # The group has a cursor.
    assert (left.events_out, left.consumers, left.groups) == (14, 0, 1)


def test_an_earlier_node_sends_no_figures_of_readers() -> None:
    """A user without the right `manage` gets the first one only."""
    entry = {"name": "log", "incarnation": "i", "partitions": []}
    assert read_extents({"logs": [entry]}) == {"log": LogExtent("log", "i", ())}
    assert read_extents({"logs": [entry | {"events-out": 7}]})["log"] == LogExtent("log", "i", (), 7)
    full = entry | {"events-out": 7, "consumers": 2, "groups": 1}
    assert read_extents({"logs": [full]})["log"] == LogExtent("log", "i", (), 7, 2, 1)


@pytest.mark.parametrize(("at_once", "requests"), [(10, 1), (5, 3), (1, 19)])
async def test_more_than_a_node_describes_at_once_is_asked_for_in_parts(at_once: int, requests: int) -> None:
    logs, asked = [f"log-{number}" for number in range(10)], 0

    async def ask(operation: str, body: Mapping[str, object]) -> Mapping[str, object]:
        nonlocal asked
        asked += 1
        names = cast("list[str]", body["logs"])
        if len(names) > at_once:
            raise ManagementError(400, "ask for fewer logs")
        assert (operation, body["missing-ok"]) == ("EXTENTS", True)
        return {"logs": [{"name": name, "incarnation": "i", "partitions": []} for name in names]}

    assert list(await ask_extents(ask, logs, missing_ok=True)) == logs
    assert asked == requests


@pytest.mark.parametrize("status", [400, 403])
async def test_a_log_that_cannot_be_asked_for_alone_is_an_error(status: int) -> None:
    async def ask(_: str, body: Mapping[str, object]) -> Mapping[str, object]:
        if "wrong" in cast("list[str]", body["logs"]):
            raise ManagementError(status, "not this one")
        return {"logs": []}

    with pytest.raises(ManagementError, match="not this one"):
        await ask_extents(ask, ["fine", "wrong", "also-fine"], missing_ok=False)


async def test_an_offset_at_a_time_is_that_of_the_first_event_then_or_later(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with connect(node.url) as client:
        await client.management.create_log(log, partitions=2)
        async with (
            client.producer(log, partition=0) as producer,
            client.consumer(log, partition=0, start=EARLIEST) as consumer,
        ):
            stamps: list[int] = []
            while len(set(stamps)) < 3:
                await producer.send(Event("x"))
                (event,) = await consumer.receive()
                stamps.append(event.timestamp_ms or 0)
        for at_ms in (0, stamps[0], stamps[-1] - 1, stamps[-1], stamps[-1] + 1, 1 << 60):
            first = next((number for number, stamp in enumerate(stamps) if stamp >= at_ms), len(stamps))
            assert await client.offset_at(log, 0, at_ms) == {"0": first}
        assert await client.offset_at(log, None, 0) == {"0": 0, "1": 0}
        assert await client.offset_at(log, ["1", 0], stamps[-1] + 1) == {"1": 0, "0": len(stamps)}


@pytest.mark.parametrize(
    ("log", "partitions", "status"), [("nowhere", None, 404), ("here", 9, 404), ("no name", None, 400)]
)
async def test_missing_objects_are_reported(
    node: RunningNode, log: str, partitions: int | None, status: int
) -> None:
    async with connect(node.url) as client:
        if not (await client.management.list_logs()) or log == "here":
            await client.management.create_log("here")
        with pytest.raises(ManagementError) as caught:
            await client.offset_at(log, partitions, 0)
        assert caught.value.status == status


def test_the_blocking_face_asks_the_same(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    with blocking.connect(node.url) as client:
        client.management.create_log(log)
        client.producer(log).__enter__().send(Event("x"))
        assert client.extents([log])[log].partitions[0].next == 1
        assert client.offset_at(log, "0", 0) == {"0": 0}


async def test_questions_share_links_and_survive_a_cut(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with connect(node.url, retry=RetryPolicy(first_ms=1, wait_max_ms=5)) as client:
        await client.management.create_log(log)
        await asyncio.gather(*(client.extents(log) for _ in range(20)))
        wire = client._pool._first._wire
        assert wire is not None
        assert len(wire._attachments) == 2
        waiting = asyncio.gather(*(client.extents(log) for _ in range(5)))
        await asyncio.sleep(0)
        assert wire._stream is not None
        wire._stream.abort()
        assert [answer[log].partitions[0].next for answer in await waiting] == [0] * 5
        assert client._pool._first._wire is not wire


def test_the_request_is_a_list_of_logs_with_options_only_if_given() -> None:
    assert extents_body(["a", "b"]) == {"logs": ["a", "b"]}
    assert extents_body(["a"], ["0"], 5) == {
        "logs": ["a"],
        "partitions": [Symbol("0")],
        "timestamp": Timestamp(5),
    }


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"logs": 5},
        {"logs": [{"name": "a"}]},
        {"logs": [{"name": "a", "incarnation": "i", "partitions": [5]}]},
    ],
)
def test_another_answer_is_an_error(answer: dict[str, object]) -> None:
    with pytest.raises(LinkError, match="valid extents"):
        read_extents(answer)
