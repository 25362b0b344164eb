"""Both faces of the client against the real node: every way in, every call, and through kill -9."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from amqp_streams.client import (
    EARLIEST,
    RELEASED,
    AfterOffset,
    AfterTime,
    AuthenticationError,
    ConnectError,
    Event,
    LinkRefusedError,
    ManagementError,
    ReceivedEvent,
    RejectedError,
    RetryPolicy,
    TlsOptions,
    blocking,
    connect,
    sql_filter,
)
from amqp_streams.client.aio import Consumer
from tests.amqp_streams.client.running import RunningNode
from tests.amqp_streams.server.peers import Authority

BOTH_LOOPS = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "authority")


@pytest.fixture(scope="module")
def node(folder: Path, authority: Authority) -> Iterator[RunningNode]:
    """One node for the tests that do not end it. Each test has its own logs."""
    users = folder / "users.json"
    add: list[str | Path] = [
        Path(sys.executable).with_name("amqp-streams"),
        "user",
        "add",
        "ann",
        "--users",
        users,
        "--password-stdin",
    ]
    subprocess.run(add, input=b"secret\n", check=True, capture_output=True)
    tls = authority.issue("localhost")
    running = RunningNode(
        folder,
        "--listen=[::1]:0",
        "--listen-tls=127.0.0.1:0",
        f"--tls-certificate={tls.certificate}",
        f"--tls-key={tls.key}",
        "--admin-listen=127.0.0.1:0",
        f"--users={users}",
        "--log=shared:2",
    )
    yield running.start()
    running.stop()


def fresh(name: str) -> str:
    """A log's name that no other test has."""
    return f"{name}-{uuid4().hex}"


async def drain(consumer: Consumer, count: int) -> list[ReceivedEvent]:
    """The next `count` events."""
    events: list[ReceivedEvent] = []
    async with asyncio.timeout(60):
        while len(events) < count:
            events += await consumer.receive(count - len(events))
    return events


@pytest.mark.parametrize(
    "way",
    [
        "amqp://{0}",
        "amqp://ann:secret@{0}",
        "amqp://{1}",
        "amqps://{2}",
        "ws://{3}/amqp",
        "ws://ann:secret@{3}/amqp",
    ],
)
async def test_every_way_in_carries_large_and_small(
    node: RunningNode, authority: Authority, way: str
) -> None:
    url = way.format(*node.amqp, *node.admin)
    bodies = [b"", b"small", bytes(900_000)]
    async with (
        connect(url, tls=TlsOptions(ca_file=authority.ca)) as client,
        client.consumer("shared", partition=0) as consumer,
        client.producer("shared", partition=0) as producer,
    ):
        await producer.post_batch([Event(body) for body in bodies])
        assert [event.body for event in await drain(consumer, 3)] == bodies


async def test_a_wrong_password_is_refused_and_not_retried(node: RunningNode) -> None:
    with pytest.raises(AuthenticationError):
        async with connect(f"amqp://ann:wrong@{node.amqp[0]}", retry=RetryPolicy(first_connect=True)):
            pass


async def test_an_untrusted_certificate_prevents_the_connection(node: RunningNode) -> None:
    with pytest.raises(ConnectError, match="the certificate is not trusted"):
        async with connect(f"amqps://{node.amqp[2]}"):
            pass


async def test_the_next_address_is_tried_when_one_does_not_answer(node: RunningNode) -> None:
    async with connect(["amqp://127.0.0.1:1", node.url]) as client:
        assert len((await client.info("shared")).partitions) == 2


async def test_the_next_address_is_tried_when_one_accepts_connections_and_is_silent(
    node: RunningNode,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = [f"amqp://127.0.0.1:{silent.getsockname()[1]}", node.url]
        async with connect(urls, timeout=4.0) as client:
            assert len((await client.info("shared")).partitions) == 2
            assert str(client._pool.address) == node.url
            async with connect(urls, timeout=None, retry=RetryPolicy(first_connect=True)) as waiting:
                assert waiting.connected


async def test_management_makes_describes_changes_lists_and_deletes(node: RunningNode) -> None:
    async with connect(node.url) as client:
        management = client.management
        made = await management.create_log("managed", partitions=3, retention_ms=60_000)
        assert [entry.partition for entry in made.partitions] == ["0", "1", "2"]
        assert made.retention_ms == 60_000
        with pytest.raises(ManagementError) as refused:
            await management.create_log("managed")
        assert refused.value.status == 409
        assert (await management.update_log("managed", {"retention-ms": 120_000})).retention_ms == 120_000
        assert (await management.describe_log("managed")).retention_ms == 120_000
        assert ("managed", 3) in [(log.name, log.partitions) for log in await management.list_logs()]
        await management.delete_log("managed")
        with pytest.raises(ManagementError, match="managed") as unknown:
            await management.describe_log("managed")
        assert unknown.value.status == 404


async def test_unknown_logs_and_partitions_are_refused_with_words(node: RunningNode) -> None:
    async with connect(node.url) as client:
        for log, partition in (("nowhere", None), ("shared", 9)):
            with pytest.raises(LinkRefusedError, match="amqp:not-found"):
                async with client.consumer(log, partition=partition):
                    pass
            with pytest.raises(LinkRefusedError, match="amqp:not-found"):
                async with client.producer(log, partition=partition):
                    pass
        with pytest.raises(LinkRefusedError, match="nowhere"):
            await client.info("nowhere")
        async with client.producer("shared") as producer:
            with pytest.raises(RejectedError, match="amqp:decode-error"):
                await producer.send(b"no message")
            with pytest.raises(RejectedError, match="amqp:not-found"):
                await producer.send(Event(b""), partition=9)


async def test_events_are_read_from_every_kind_of_start(node: RunningNode) -> None:
    log = fresh("starts")
    async with connect(node.url) as client:
        await client.management.create_log(log, partitions=2)
        async with client.producer(log) as producer:
            await producer.post_batch([Event(number) for number in range(10)], partition=0)
            await producer.post_batch([Event(number) for number in range(5)], partition=1)
            await producer.flush()
            info = await client.info(log)
            assert [(entry.event_count, entry.latest_offset) for entry in info.partitions] == [
                (10, 9),
                (5, 4),
            ]
            last_ms = max(entry.last_timestamp_ms or 0 for entry in info.partitions)
            while time.time_ns() // 1_000_000 <= last_ms:
                await client.info(log)
            await producer.send(Event("late"), partition=1)
        async with client.consumer(log, start=EARLIEST) as consumer:
            assert len(await drain(consumer, 16)) == 16
            assert consumer.positions == {"0": 9, "1": 5}
        async with client.consumer(log, partition=0, start=AfterOffset(6)) as consumer:
            assert [(event.body, event.offset) for event in await drain(consumer, 3)] == [
                (n, n) for n in (7, 8, 9)
            ]
        async with client.consumer(log, start=AfterTime(last_ms)) as consumer:
            [event] = await drain(consumer, 1)
            assert (event.body, event.partition) == ("late", "1")
            assert await consumer.receive(timeout=0) == []


async def test_latest_with_a_filter_is_what_is_accepted_after_the_attach(node: RunningNode) -> None:
    log = fresh("alerts")
    filters = {"hot": sql_filter("temp > 80")}

    async def alert(body: str) -> None:
        async with client.producer(log) as producer:
            await producer.send(Event(body, properties={"temp": 99}))

    async with connect(node.url, container_id=fresh("c")) as client:
        await client.management.create_log(log)
        await alert("old")
        async with (
            client.consumer(log, filters=filters) as one,
            client.consumer(log, start="latest", partition=0, filters=filters) as other,
            client.consumer(log, durable="alerts", filters=filters) as durable,
            client.group_consumer(log, "g", start="latest", filters=filters) as group,
        ):
            while not group.partitions:
                await group.receive(1, timeout=0.01)
            await alert("new")
            for consumer in (one, other, durable, group):
                assert [event.body for event in await consumer.receive(timeout=60)] == ["new"]
        await alert("meanwhile")
        async with client.consumer(log, durable="alerts", filters=filters) as durable:
            assert [event.body for event in await durable.receive(timeout=60)] == ["meanwhile"], (
                "a kept cursor counts, not the start"
            )


async def test_a_start_may_be_a_word_and_a_wrong_one_is_an_error_at_once(node: RunningNode) -> None:
    log = fresh("words")
    async with connect(node.url) as client:
        await client.management.create_log(log)
        async with client.producer(log) as producer:
            await producer.post_batch([Event(number) for number in range(3)])
        async with client.consumer(log, start="earliest") as consumer:
            assert [event.body for event in await drain(consumer, 3)] == [0, 1, 2]
        async with client.consumer(log, start=AfterOffset(1)) as consumer:
            assert [event.body for event in await drain(consumer, 1)] == [2]
        makers: tuple[Callable[..., object], ...] = (
            client.consumer,
            partial(client.group_consumer, group="g"),
        )
        for make in makers:
            with pytest.raises(ValueError, match="'nonsense' is not a start: give 'earliest', 'latest'"):
                make(log, start="nonsense")


async def test_one_key_goes_to_one_partition_in_order(node: RunningNode) -> None:
    log = fresh("keys")
    async with connect(node.url) as client:
        await client.management.create_log(log, partitions=4)
        async with client.producer(log) as producer:
            await producer.post_batch([Event(number, key=f"key {number % 7}") for number in range(700)])
        partitions_of: dict[str, set[str]] = {}
        bodies: dict[str, list[object]] = {}
        async with client.consumer(log, start=EARLIEST) as consumer:
            for event in await drain(consumer, 700):
                partitions_of.setdefault(event.key or "", set()).add(event.partition or "")
                bodies.setdefault(event.key or "", []).append(event.body)
        assert all(len(partitions) == 1 for partitions in partitions_of.values())
        assert bodies == {f"key {rest}": list(range(rest, 700, 7)) for rest in range(7)}


async def test_released_events_come_again(node: RunningNode) -> None:
    log = fresh("released")
    async with connect(node.url) as client:
        await client.management.create_log(log)
        async with client.producer(log) as producer:
            await producer.post_batch([Event(number) for number in range(4)])
        async with client.consumer(log, start=EARLIEST, settle="manual") as consumer:
            events = await drain(consumer, 4)
            consumer.settle(events[:2])
            consumer.settle(events[2:], RELEASED)
            again = await drain(consumer, 2)
            assert [event.body for event in again] == [2, 3]
            consumer.settle(again)


async def test_thousands_go_through_a_small_window_and_little_credit(node: RunningNode) -> None:
    message = Event(bytes(100)).encode()
    log = fresh("thousands")
    async with connect(node.url) as client:
        await client.management.create_log(log, partitions=3)
        async with client.producer(log, window=50) as producer:
            await producer.post_batch([message] * 5000)
        async with client.consumer(log, start=EARLIEST, credit=30, settle="none") as consumer:
            count = 0
            while count < 5000:
                count += len(await consumer.receive_raw(100))


def test_the_blocking_face_does_the_same(node: RunningNode) -> None:
    with blocking.connect(node.url) as client:
        client.management.create_log("blocking", partitions=2)
        assert "blocking" in [log.name for log in client.management.list_logs()]
        with client.producer("blocking", window=20) as producer:
            assert producer.send(Event(0, key="k")).attempts == 1
            pending = [producer.post(Event(number, key="k")) for number in range(1, 100)]
            assert [one.result().attempts for one in pending] == [1] * 99
            producer.post_batch([Event(number, key="k") for number in range(100, 200)])
            producer.flush()
            assert all(one.done for one in pending)
        assert sum(entry.event_count or 0 for entry in client.info("blocking").partitions) == 200
        with client.consumer("blocking", start=EARLIEST) as consumer:
            seen = []
            for event in consumer:
                seen.append(event.body)
                if len(seen) == 5:
                    break
            while len(seen) < 200:
                seen += [event.body for event in consumer.receive(50)]
            assert seen == list(range(200))
            assert consumer.receive(1, timeout=0) == []
        client.management.delete_log("blocking")


@pytest.mark.parametrize("end", [RunningNode.kill, RunningNode.stop], ids=["kill -9", "SIGTERM"])
def test_a_restart_loses_nothing_accepted_and_repeats_nothing_to_a_consumer(
    tmp_path: Path, end: Callable[[RunningNode], None]
) -> None:
    """Two restarts under load: every event is stored, and the consumer of all partitions gets the stored
    events once, in order.
    """
    node = RunningNode(tmp_path, "--log=log:3").start()
    try:
        asyncio.run(_restarts(node, end))
    finally:
        node.stop()


async def _restarts(node: RunningNode, end: Callable[[RunningNode], None]) -> None:
    total = 3000
    received: list[ReceivedEvent] = []
    retry = RetryPolicy(
        first_ms=5, wait_max_ms=50, attempts_max=10_000
    )  # a busy machine takes seconds to start a node
    async with connect(node.url, retry=retry) as client, client.consumer("log", credit=100) as consumer:

        async def produce() -> None:
            async with client.producer("log", window=64) as producer:
                for number in range(total):
                    await producer.post(Event(number, key=f"{number % 5}"))

        async def kill() -> None:
            for limit in (700, 1700):
                while len(received) < limit:
                    received.extend(await consumer.receive(50))
                await asyncio.to_thread(end, node)
                await asyncio.to_thread(node.start)

        async with asyncio.timeout(60):
            await asyncio.gather(produce(), kill())
            stored = sum(entry.event_count or 0 for entry in (await client.info("log")).partitions)
            while len(received) < stored:
                received.extend(await consumer.receive())
    assert {event.body for event in received} == set(range(total))
    positions = [(event.partition, event.offset) for event in received]
    assert len(set(positions)) == len(positions) == stored
    for partition in "012":
        offsets = [offset for one, offset in positions if one == partition]
        assert offsets == list(range(len(offsets)))
    for rest in range(5):
        firsts = list(dict.fromkeys(event.body for event in received if event.key == str(rest)))
        assert firsts == sorted(firsts)  # type: ignore[type-var]  # the bodies are numbers


async def test_the_node_evaluates_a_filter(node: RunningNode) -> None:
    async with connect(node.url) as client:
        log = f"filtered-{uuid4().hex}"
        await client.management.create_log(log)
        async with client.producer(log) as producer:
            await producer.post_batch(
                [Event(b"%d" % temp, properties={"temp": temp}) for temp in (60, 85, 70, 90)]
            )
        async with client.consumer(log, start=EARLIEST, filters={"hot": sql_filter("temp > 80")}) as consumer:
            got: list[object] = []
            while len(got) < 2:
                got += [event.body for event in await consumer.receive(timeout=60)]
        assert got == [b"85", b"90"]
        with pytest.raises(LinkRefusedError, match="amqp:invalid-field"):
            async with client.consumer(log, filters={"hot": sql_filter("temp >")}):
                pass
