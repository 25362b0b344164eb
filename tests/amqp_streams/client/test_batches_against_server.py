"""Batched sends of both faces of the client against the real node, through bad events and kill -9."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    Client,
    Event,
    ReceivedEvent,
    RejectedError,
    RetryPolicy,
    SendError,
    blocking,
    connect,
)
from amqp_streams.client.message import with_target_partition
from tests.amqp_streams.client.running import RunningNode

PATIENT = RetryPolicy(first_ms=5, wait_max_ms=50, attempts_max=10_000)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--auto-create=1").start()
    yield running
    running.stop()


@pytest.fixture
def log() -> str:
    return f"log-{uuid4().hex}"


async def stored(client: Client, log: str) -> list[ReceivedEvent]:
    """All events of a log, those of each partition in order."""
    count = sum(each.event_count or 0 for each in (await client.info(log)).partitions)
    events: list[ReceivedEvent] = []
    async with client.consumer(log, start=EARLIEST) as consumer:
        while len(events) < count:
            events += await consumer.receive()
    return events


async def test_events_are_sent_in_batches_and_stored_as_they_are(node: RunningNode, log: str) -> None:
    events = [
        Event(number, key=f"k{number % 3}", properties={"n": number}, message_format=number % 2)
        for number in range(3000)
    ]
    async with connect(node.url) as client, client.producer(log, window=700) as producer:
        assert producer._batching.events_max > 0
        await producer.send_many(events)
        found = await stored(client, log)
    assert [event.body for event in found] == list(range(3000))
    assert [(event.key, event.message_format) for event in found] == [
        (event.key, event.message_format) for event in events
    ]
    assert [event.properties for event in found] == [event.properties for event in events]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
async def test_compressed_batches_are_stored_as_they_are(
    node: RunningNode, log: str, compression: str
) -> None:
    events = [Event(f"event {number}", properties={"n": number}) for number in range(5000)]
    async with (
        connect(node.url) as client,
        client.producer(log, window=2000, compression=compression, producer_id="p") as producer,
    ):
        await producer.send_many(events)
        assert producer._batching._codec is not None
        found = await stored(client, log)
        runs = [run async for run in client.read_range(log, 0, compression=compression)]
    assert [(event.body, event.properties) for event in found] == [(e.body, e.properties) for e in events]
    assert [message for run in runs for message in run.messages] == [e.encode() for e in events]


@pytest.mark.parametrize("batch_bytes", [0, 2000, 256 << 10])
async def test_each_of_many_senders_gets_its_own_outcome(
    node: RunningNode, log: str, batch_bytes: int
) -> None:
    async with connect(node.url) as client, client.producer(log, batch_bytes=batch_bytes) as producer:
        bad = {3, 4, 50, 99}
        sends = [producer.send(b"garbage" if number in bad else Event(number)) for number in range(100)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert {number for number, each in enumerate(outcomes) if isinstance(each, RejectedError)} == bad
        assert all(str(outcomes[number]).startswith(names.DECODE_ERROR) for number in bad)
        assert all(
            each.attempts == 1 for number, each in enumerate(outcomes) if not isinstance(each, BaseException)
        )
        found = await stored(client, log)
    assert [event.body for event in found] == [number for number in range(100) if number not in bad]


@pytest.mark.parametrize(("producer_id", "compression"), [(None, None), ("p", None), ("p", "zstd")])
async def test_bad_events_are_named_and_the_others_are_stored_in_order(
    node: RunningNode, log: str, producer_id: str | None, compression: str | None
) -> None:
    """Also those of the batches that were in flight behind the bad one."""
    event = Event("x").encode()
    nowhere = with_target_partition(event, "77")
    events = [Event(number).encode() for number in range(4000)]
    bad = {0: nowhere, 7: nowhere, 8: nowhere, 1500: nowhere, 2600: nowhere, 3999: nowhere}
    for index, message in bad.items():
        events[index] = message
    async with (
        connect(node.url) as client,
        client.producer(
            log, window=5000, batch_bytes=4096, producer_id=producer_id, compression=compression
        ) as producer,
    ):
        with pytest.raises(SendError, match="6 events were not accepted; the first, with index 0") as failed:
            await producer.send_many(events)
        assert list(failed.value.indexes) == sorted(bad)
        assert [each for each, _ in failed.value.failures] == [nowhere] * 6
        assert all(names.NOT_FOUND in str(error) for _, error in failed.value.failures)
        assert not any("batch" in str(error) for _, error in failed.value.failures)
        await producer.send(Event(4000))
        found = await stored(client, log)
    assert [one.body for one in found] == [number for number in range(4001) if number not in bad]


async def test_a_lingering_event_waits_for_others(node: RunningNode, log: str) -> None:
    async with connect(node.url) as client, client.producer(log, linger_ms=60_000) as producer:
        first = await producer.post(Event(0))
        await asyncio.sleep(0.05)
        assert not first.done
        await producer.flush()
        assert first.done
        pending = [await producer.post(Event(number)) for number in range(1, 1001)]
        assert [(await each).attempts for each in pending] == [1] * 1000, "the window was full"
        sending = asyncio.create_task(producer.send_many([Event("many")] * 3))
        await asyncio.wait_for(sending, 30)


def test_the_blocking_client_sends_batches_too(node: RunningNode, log: str) -> None:
    with blocking.connect(node.url) as client:
        with client.producer(log) as producer:
            producer.send_many([Event(number) for number in range(500)])
            with pytest.raises(SendError) as failed:
                producer.send_many([Event(500), b"garbage", Event(501)])
            assert failed.value.indexes == (1,)
            waiting = [producer.post(Event(number)) for number in range(502, 600)]
            assert all(one.result().attempts == 1 for one in waiting)
        with client.consumer(log, start=EARLIEST) as consumer:
            found: list[object] = []
            while len(found) < 600:
                found += [event.body for event in consumer.receive()]
    assert found == list(range(600))


@pytest.mark.parametrize(
    ("producer_id", "compression"), [(None, None), ("p", None), (None, "lz4"), ("p", "zstd")]
)
def test_an_accepted_batch_survives_kill_9_as_a_whole(
    tmp_path: Path, producer_id: str | None, compression: str | None
) -> None:
    """With numbers, no event is stored twice, although batches are sent again in other sizes."""
    node = RunningNode(tmp_path, "--log=log:3").start()
    try:
        asyncio.run(_killed(node, producer_id, compression))
    finally:
        node.stop()


async def _killed(node: RunningNode, producer_id: str | None, compression: str | None) -> None:
    accepted = 0
    async with connect(node.url, retry=PATIENT) as client:
        async with client.producer(
            "log", window=2000, producer_id=producer_id, compression=compression
        ) as producer:
            for turn in range(4):
                sending = asyncio.create_task(producer.send_many(_numbered(accepted, 5000), timeout=120))
                if turn == 1:
                    await asyncio.sleep(0.01)
                    await asyncio.to_thread(node.kill)
                    await asyncio.to_thread(node.start)
                await sending
                accepted += 5000
        found = await stored(client, "log")
    numbers = [event.body for event in found]
    assert set(numbers) == set(range(accepted))
    if producer_id is not None:
        assert len(numbers) == accepted
    for rest in range(5):
        firsts = list(dict.fromkeys(event.body for event in found if event.key == f"k{rest}"))
        assert firsts == sorted(firsts)  # type: ignore[type-var]  # the bodies are numbers


def _numbered(first: int, count: int) -> list[Event]:
    return [Event(number, key=f"k{number % 5}") for number in range(first, first + count)]
