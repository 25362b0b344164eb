"""Ranges of a partition: all existing events, once, in order, to the end; with the real node, through broken
connections and kills.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    Client,
    Event,
    LinkError,
    LinkRefusedError,
    RangeReader,
    RetryPolicy,
    Run,
    TimedOutError,
    blocking,
    connect,
)
from amqp_streams.client.connection import transport
from amqp_streams.client.connection.links import ReceiverLink
from amqp_streams.client.connection.stream import Stream
from amqp_streams.client.consuming.ranges import named_filters
from amqp_streams.wire.codec import Described, Symbol
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.running import RunningNode

OVERTAKEN = "overtaken"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--sync=never").start()
    with blocking.connect(
        running.url
    ) as client:  # retention comes by every few seconds: the last test looks what it took
        client.management.create_log(OVERTAKEN, retention_bytes=1 << 20, segment_bytes=64 << 10)
        with client.producer(OVERTAKEN, window=3000) as producer:
            producer.post_batch([Event(bytes(1000))] * 3000)
    yield running
    running.stop()


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[Client]:
    async with connect(node.url, retry=RetryPolicy(first_ms=1, wait_max_ms=5)) as made:
        yield made


async def log_of(client: Client, count: int, *, partitions: int = 1, size: int = 20, **settings: Any) -> str:
    """Return a log whose partition 0 has this many events; every tenth event has the subject "ten"."""
    name = f"log-{uuid4().hex}"
    await client.management.create_log(name, partitions=partitions, **settings)
    async with client.producer(name, partition=0, window=5000) as producer:
        subjects = ["ten" if number % 10 == 0 else None for number in range(count)]
        await producer.post_batch(
            [Event(b"%0*d" % (size, number), subject=subject) for number, subject in enumerate(subjects)]
        )
    return name


async def all_of(reader: RangeReader) -> list[Run]:
    return [run async for run in reader]


def offsets(runs: list[Run]) -> list[int]:
    return [offset for run in runs for offset in run.offsets]


async def test_a_range_is_all_events_from_its_start_to_before_its_end(client: Client) -> None:
    log = await log_of(client, 1000)
    runs = await all_of(client.read_range(log, 0, 100, 900, batch_events=64))
    assert offsets(runs) == list(range(100, 900))
    assert {run.partition for run in runs} == {"0"}
    assert max(len(run) for run in runs) == 64
    assert all(len(run.offsets) == len(run.timestamps_ms) == len(run.messages) == len(run) for run in runs)
    async with client.consumer(log, partition=0, start=EARLIEST) as consumer:
        ordinary = await consumer.receive_retained(1000)
        while len(ordinary) < 1000:
            ordinary += await consumer.receive_retained(1000)
    assert [
        (message, stamp)
        for run in runs
        for message, stamp in zip(run.messages, run.timestamps_ms, strict=True)
    ] == [(event.encode(), event.timestamp_ms) for event in ordinary[100:900]]


@pytest.mark.parametrize(
    ("start", "end", "there"),
    [
        (0, None, range(50)),
        (40, 1000, range(40, 50)),
        (50, None, range(0)),
        (1 << 60, None, range(0)),
        (7, 7, range(0)),
        (9, 2, range(0)),
    ],
)
async def test_a_range_ends_by_itself_where_the_log_does(
    client: Client, start: int, end: int | None, there: range
) -> None:
    log = await log_of(client, 50)
    assert offsets(await all_of(client.read_range(log, "0", start, end))) == list(there)


async def test_an_empty_partition_is_an_empty_range(client: Client) -> None:
    assert await all_of(client.read_range(await log_of(client, 0), 0)) == []


async def test_a_filter_is_the_node_s_work_and_ends_as_well(client: Client) -> None:
    log = await log_of(client, 500)
    assert offsets(await all_of(client.read_range(log, 0, 100, 300, filter="p.subject = 'ten'"))) == list(
        range(100, 300, 10)
    )
    none = client.read_range(log, 0, 0, filter="p.subject = 'eleven'")
    assert await all_of(none) == []
    assert none.position == 500


async def test_leaving_early_detaches(client: Client) -> None:
    log = await log_of(client, 1000)
    async with client.read_range(log, 0, batch_events=10) as reader:
        (run,) = await reader.take()
        assert (list(run.offsets), reader.position) == (list(range(10)), 10)
        assert reader.attached
    assert not reader.attached
    async for run in client.read_range(log, 0, batch_events=10):
        assert len(run) == 10
        break


async def test_prefetched_bytes_are_bounded(client: Client) -> None:
    """An application that takes one batch and pauses has the window's bytes here, not the log."""
    log = await log_of(client, 20_000, size=200)
    async with client.read_range(log, 0, batch_bytes=16 << 10, prefetch_bytes=64 << 10) as reader:
        await reader.take()
        assert reader._attachment is not None
        link = reader._attachment.link
        await asyncio.sleep(0.2)
        assert link.credit <= 4
        rest = [run async for run in reader]
    assert rest[-1].offsets[-1] == 19_999


async def test_events_larger_than_a_batch_are_few_on_their_way_and_need_no_word_for_each_frame(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose peer has little session window left sends the remaining frames one by one, and copies the
    whole message for each of them.
    """
    grants: list[int] = []

    def drain(link: ReceiverLink, credit: int) -> None:
        grants.append(credit)
        before(link, credit)

    before = ReceiverLink.drain
    monkeypatch.setattr(ReceiverLink, "drain", drain)
    log = await log_of(client, 12, size=3 << 20)
    async with client.read_range(log, 0) as reader:
        runs = [run async for run in reader]
    assert offsets(runs) == list(range(12))
    assert len(grants) <= 14
    assert grants == [16] + [0] * (len(grants) - 1)


# -- refusals, ends, silence


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ({"partition": 9}, names.NOT_FOUND),
        ({"filter": "this is ( no SQL"}, names.INVALID_FIELD),
        ({"filter": Described(Symbol("unheard:of"), "x")}, names.NOT_IMPLEMENTED),
        ({"incarnation": "another"}, names.RESOURCE_DELETED),
    ],
)
async def test_an_unreadable_range_is_refused_with_a_message(
    client: Client, arguments: dict[str, object], condition: str
) -> None:
    log = await log_of(client, 3)
    given: dict[str, object] = {"partition": 0, **arguments}
    with pytest.raises(LinkRefusedError) as caught:
        await all_of(client.read_range(log, **given))  # type: ignore[arg-type]
    assert caught.value.condition == condition


async def test_an_unknown_log_is_reported(client: Client) -> None:
    with pytest.raises(LinkRefusedError, match="no log"):
        await all_of(client.read_range("nowhere", 0))


async def test_a_log_that_goes_while_it_is_read_is_an_error(client: Client) -> None:
    log = await log_of(client, 20_000, size=500)
    reader = client.read_range(log, 0, batch_bytes=8192, prefetch_bytes=16 << 10)
    assert offsets(await reader.take()) == list(range(reader.position))
    await client.management.delete_log(log)
    with pytest.raises(LinkError) as caught:
        await all_of(reader)
    assert caught.value.condition == names.RESOURCE_DELETED


@pytest.mark.parametrize("arguments", [{"start": -1}, {"end": -1}, {"batch_bytes": 0}, {"prefetch_bytes": 0}])
async def test_numbers_that_cannot_be_are_refused_at_once(client: Client, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        client.read_range("log", 0, **arguments)


async def test_a_node_without_batches_is_refused_and_not_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = MemoryNode()
    memory.replace_network(monkeypatch)
    async with connect("amqp://node", retry=AT_ONCE) as client:
        with pytest.raises(LinkRefusedError, match="batched"):
            await all_of(client.read_range("log", 0))


async def test_silence_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await log_of(client, 100)
    reader = client.read_range(log, 0, batch_events=10, timeout=0.05)
    assert await reader.take()
    monkeypatch.setattr(reader, "_received", lambda _count: ([], True))
    with pytest.raises(TimedOutError, match=f"partition 0 of {log}"):
        await reader.take()


# -- losses


def cut(client: Client) -> None:
    """End the connection as a pulled cable does."""
    stream = client._pool._first._wire and client._pool._first._wire._stream
    assert isinstance(stream, Stream)
    stream.abort()


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_a_range_continues_at_its_position_after_each_lost_connection(
    client: Client, compression: str | None
) -> None:
    log = await log_of(client, 4_000, size=100)
    chance, got, cuts = random.Random(7), list[Run](), 0
    async for run in client.read_range(
        log, 0, 3, 3_997, batch_bytes=16 << 10, prefetch_bytes=64 << 10, compression=compression
    ):
        got.append(run)
        if chance.random() < 0.3 and client.connected:
            cut(client)
            cuts += 1
    assert cuts > 3
    assert offsets(got) == list(range(3, 3_997))


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_a_range_continues_when_the_node_was_killed_and_restarted(
    tmp_path: Path, compression: str | None
) -> None:
    running = RunningNode(tmp_path).start()
    try:
        async with connect(running.url, retry=RetryPolicy(first_ms=1, wait_max_ms=50)) as client:
            log = await log_of(client, 5_000, size=200)
            reader = client.read_range(
                log, 0, batch_bytes=16 << 10, prefetch_bytes=32 << 10, compression=compression
            )
            got = await reader.take()
            running.kill()
            running.start()
            got += [run async for run in reader]
            assert offsets(got) == list(range(5_000))
    finally:
        running.kill()


async def test_damaged_records_are_reported_after_the_ones_before_them_and_can_be_skipped(
    tmp_path: Path,
) -> None:
    running = RunningNode(tmp_path).start()
    try:
        async with connect(running.url) as client:
            log = await log_of(client, 0, segment_bytes=64 << 10)
            async with client.producer(log) as producer:
                for _ in range(6):  # a commit is in one segment
                    await producer.post_batch([Event(bytes(1000))] * 100)
                    await producer.flush()
        running.stop()
        second = sorted((tmp_path / "data" / "logs" / log / "0").glob("*.log"))[1]
        content = bytearray(second.read_bytes())
        content[len(content) // 2] ^= 1
        second.write_bytes(content)
        running.start()
        async with connect(running.url, retry=RetryPolicy(first_ms=1, wait_max_ms=5)) as client:
            reader, got = client.read_range(log, 0), list[Run]()

            async def read() -> None:
                async for run in reader:
                    got.append(run)

            with pytest.raises(LinkError, match=second.name) as caught:
                await read()
            assert caught.value.condition == names.INTERNAL_ERROR
            assert offsets(got) == list(range(reader.position))
            assert reader.position >= int(second.stem)
            (last,) = (await client.extents(log))[log].partitions
            assert offsets(await all_of(client.read_range(log, 0, last.next - 5))) == list(
                range(last.next - 5, 600)
            )
    finally:
        running.kill()


async def test_a_namesake_made_meanwhile_is_not_taken_for_the_log(
    node: RunningNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await log_of(client, 10_000, size=200)
    reader = client.read_range(log, 0, batch_bytes=8192, prefetch_bytes=16 << 10)
    await reader.take()
    first = reader.incarnation
    made, connect_again = asyncio.Event(), client._pool._first._open

    async def held() -> transport.Wire:
        await made.wait()
        return await connect_again()

    monkeypatch.setattr(client._pool._first, "_open", held)
    cut(client)
    async with connect(node.url) as other:
        await other.management.delete_log(log)
        await other.management.create_log(log)
    made.set()
    with pytest.raises(LinkRefusedError, match=f"recreated: .* expected {first}") as caught:
        await all_of(reader)
    assert caught.value.condition == names.RESOURCE_DELETED


# -- the blocking face


def test_the_blocking_face_gives_the_same_runs(node: RunningNode) -> None:
    with blocking.connect(node.url) as client:
        name = f"log-{uuid4().hex}"
        client.management.create_log(name)
        with client.producer(name) as producer:
            producer.post_batch([Event(number) for number in range(3000)])
        assert [
            offset for run in client.read_range(name, 0, 10, 2990, batch_events=100) for offset in run.offsets
        ] == list(range(10, 2990))
        with client.read_range(name, 0, batch_events=100) as reader:
            (run,) = reader.take()
            assert (len(run), reader.position, len(reader.incarnation or "")) == (100, 100, 32)
        for run in client.read_range(name, 0, batch_events=100):
            assert len(run) == 100
            break
        with pytest.raises(LinkRefusedError), suppress(StopIteration):
            next(iter(client.read_range("nowhere", 0)))


def test_filters_are_sql_or_named_values() -> None:
    described = Described(Symbol("amqp:sql-filter"), "a = 1")
    assert named_filters(None) == {}
    assert named_filters("a = 1") == named_filters(described) == {"filter": described}
    assert named_filters({"mine": described}) == {"mine": described}


async def test_events_that_retention_removed_show_in_the_offsets(client: Client) -> None:
    async with asyncio.timeout(60):
        # No event reports it.
        while (earliest := (await client.extents(OVERTAKEN))[OVERTAKEN].partitions[0].earliest) == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert offsets(await all_of(client.read_range(OVERTAKEN, 0, 0, 3000))) == list(range(earliest, 3000))
