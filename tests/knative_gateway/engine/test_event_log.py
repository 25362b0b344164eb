"""Logs through the client, and their twin in memory, with the same tests; then what only a node can do:
become unreachable.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from amqp_streams.client import Event, connect
from event_formats.amqp_binding import decode, encode
from event_formats.event import CloudEvent
from examples.node import NodeProcess
from knative_gateway.engine.appending import AppendLimits
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.errors import BadRequestError, OverloadedError, RefusedError, UnavailableError
from knative_gateway.ports import EventLog, Stored
from tests.knative_gateway.memory_log import MemoryEventLog


def message(number: int, key: str | None = None) -> bytes:
    attributes: dict[str, str | int | bool | bytes] = {
        "specversion": "1.0",
        "id": str(number),
        "source": "/s",
        "type": "t",
    }
    return encode(CloudEvent(attributes if key is None else {**attributes, "partitionkey": key}, b"x" * 10))


def ids(events: list[Stored]) -> list[str]:
    return [str(decode(event.message).attributes["id"]) for event in events]


async def take(events: AsyncIterator[Sequence[Stored]], count: int) -> list[Stored]:
    """Return at least this many events."""
    taken: list[Stored] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            taken += await anext(events)
    return taken


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(params=["memory", "amqp"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[EventLog]:
    if request.param == "memory":
        yield MemoryEventLog()
        return
    async with AmqpEventLog(request.getfixturevalue("node").url) as logs:
        await logs.wait_connected(60)
        yield logs


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"broker.test.{abs(hash(request.node.nodeid))}"


async def test_a_log_is_made_once(log: EventLog, name: str) -> None:
    assert await log.ensure(name, partitions=3, retention_ms=60_000) == 3
    assert await log.ensure(name, partitions=7, retention_ms=None) == 3
    assert await log.ends(name) == {0: None, 1: None, 2: None}


async def test_settings_that_the_node_does_not_accept_are_refused(node: NodeProcess, name: str) -> None:
    async with AmqpEventLog(node.url) as logs:
        await logs.wait_connected(60)
        with pytest.raises(RefusedError, match=f"{name}: .*must be at least 1000"):
            await logs.ensure(name, partitions=1, retention_ms=1)
        with pytest.raises(RefusedError, match="is not a valid log name"):
            await logs.ensure("x" * 300, partitions=1, retention_ms=None)


async def test_appended_events_are_read_in_order(log: EventLog, name: str) -> None:
    """The order of a partition; events of one key are in one."""
    await log.ensure(name, partitions=2, retention_ms=None)
    for number in range(20):
        await log.append(name, message(number, key="k"))
    reading = log.read(name, {0: None, 1: None})
    events = await take(reading, 20)
    assert ids(events) == [str(number) for number in range(20)]
    assert len({event.partition for event in events}) == 1
    assert [event.offset for event in events] == sorted({event.offset for event in events})
    assert events[0].message == message(0, key="k")
    await log.append(name, message(20))
    assert ids(await take(reading, 1)) == ["20"]
    await reading.aclose()  # type: ignore[attr-defined]


async def test_reading_begins_after_a_position(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=1, retention_ms=None)
    for number in range(5):
        await log.append(name, message(number))
    first = await take(log.read(name, {0: None}), 5)
    assert await log.ends(name) == {0: first[-1].offset}
    assert ids(await take(log.read(name, {0: first[2].offset}), 2)) == ["3", "4"]


async def test_a_range_has_the_events_between_two_offsets(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=2, retention_ms=None)
    for number in range(6):
        await log.append(name, message(number, key="k"))
    extents = await log.extents(name)
    [partition] = [number for number, last in extents.last.items() if last is not None]
    found = list(await log.read_range(name, partition, 1, 4, bytes_max=1 << 20))
    assert ids(found) == ["1", "2", "3"]
    assert [event.offset for event in found] == [f"{offset:016d}" for offset in (1, 2, 3)]
    assert (await take(log.read(name, {partition: found[0].offset}), 2))[0] == found[1]
    assert ids(list(await log.read_range(name, partition, 0, 6, bytes_max=1))) == ["0"]
    assert await log.read_range(name, 1 - partition, 0, 9, bytes_max=1) == []
    with pytest.raises(UnavailableError):
        await log.read_range(f"{name}.none", 0, 0, 1, bytes_max=1)


async def test_reading_begins_after_a_time(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=2, retention_ms=None)
    for number in range(6):
        await log.append(name, message(number))
        await asyncio.sleep(0.002)  # the node's clock has milliseconds
    events = await take(log.read(name, {0: None, 1: None}), 6)
    times = {int(id_): event.timestamp_ms for id_, event in zip(ids(events), events, strict=True)}
    assert sorted(ids(await take(log.read(name, await log.before(name, times[2])), 3))) == ["3", "4", "5"]
    assert await log.before(name, 0) == {0: None, 1: None}
    assert await log.before(name, times[5]) == await log.ends(name)


async def test_a_recreated_log_is_another_log(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=1, retention_ms=None)
    first = (await log.extents(name)).incarnation
    assert first
    assert (await log.extents(name)).incarnation == first
    await log.ensure(name + "x", partitions=1, retention_ms=None)
    assert (await log.extents(name + "x")).incarnation != first
    with pytest.raises(UnavailableError):
        await log.extents("nothing")


async def test_the_extents_of_a_log_are_its_first_and_last_events(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=1, retention_ms=None)
    assert (await log.extents(name))[1:] == ({0: None}, {0: None})
    for number in range(3):
        await log.append(name, message(number))
    _, first, last = await log.extents(name)
    assert last == await log.ends(name)
    assert int(last[0] or 0) - int(first[0] or 0) == 2


async def test_many_at_once_are_all_stored(log: EventLog, name: str) -> None:
    await log.ensure(name, partitions=4, retention_ms=None)
    await asyncio.gather(*(log.append(name, message(number)) for number in range(1000)))
    events = await take(log.read(name, dict.fromkeys(range(4))), 1000)
    assert sorted(map(int, ids(events))) == list(range(1000))


async def test_a_log_that_does_not_exist_is_unavailable(log: EventLog, name: str) -> None:
    with pytest.raises(UnavailableError):
        await log.append(name, message(1))
    with pytest.raises(UnavailableError):
        await log.ends(name)


async def test_a_log_that_did_not_exist_is_retried_later(node: NodeProcess, name: str) -> None:
    async with AmqpEventLog(node.url, limits=AppendLimits(retry_s=0.0)) as log:
        with pytest.raises(UnavailableError, match="not-found"):
            await log.append(name, message(1))
        await log.ensure(name, partitions=1, retention_ms=None)
        await log.append(name, message(1))
        assert ids(await take(log.read(name, {0: None}), 1)) == ["1"]
        await log.delete(name)
        await log.delete(name)
        with pytest.raises(UnavailableError):
            await log.ends(name)


async def test_a_log_that_failed_is_left_alone_for_a_while(node: NodeProcess, name: str) -> None:
    async with AmqpEventLog(node.url, limits=AppendLimits(retry_s=3600)) as log:
        for _ in range(2):
            with pytest.raises(UnavailableError, match="not-found"):
                await log.append(name, message(1))


async def test_nothing_is_read_twice_or_missed_when_the_node_dies(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Kill -9 and a restart: appends succeed when the node is back, and the reader continues at its
    position.
    """
    with NodeProcess(tmp_path_factory.mktemp("dying")) as dying:
        async with AmqpEventLog(dying.url, limits=AppendLimits(wait_s=20.0)) as log:
            await log.ensure("l", partitions=1, retention_ms=None)
            reading = log.read("l", {0: None})
            await log.append("l", message(0))
            assert ids(await take(reading, 1)) == ["0"]
            dying.kill()
            waiting = asyncio.create_task(log.append("l", message(1)))
            await asyncio.to_thread(dying.start)
            await waiting
            assert ids(await take(reading, 1)) == ["1"]


async def test_a_node_that_is_away_is_reported_as_such(name: str) -> None:
    limits = AppendLimits(events=2, wait_s=0.05)
    async with AmqpEventLog("amqp://127.0.0.1:1", limits=limits) as log:
        assert not log.connected
        with pytest.raises(UnavailableError, match="does not answer within"):
            await log.wait_connected(0.01)
        waiting = [asyncio.create_task(log.append(name, message(number))) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match=r"2 events .* wait .* is unreachable"):
            await log.append(name, message(3))
        for one in waiting:
            with pytest.raises(UnavailableError, match="did not store the event within"):
                await one


async def test_a_node_that_gives_no_credit_pushes_back(node: NodeProcess, name: str) -> None:
    """Waiting appends are bounded in number, bytes and time. Beyond a limit, senders get 429."""
    async with AmqpEventLog(node.url, limits=AppendLimits(events=2)) as log:
        await log.ensure(name, partitions=1, retention_ms=None)
        await log.append(name, message(0))
        waiting = [asyncio.create_task(log.append(name, message(number))) for number in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="2 events"):
            await log.append(name, message(3))
        await asyncio.gather(*waiting)
    async with AmqpEventLog(node.url, limits=AppendLimits(bytes=100)) as log:
        big = message(4) + b""
        waiting = [
            asyncio.create_task(log.append(name, big + b"\x00\x53\x75\xa0\x32" + bytes(50))) for _ in range(2)
        ]
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) in (
            ["NoneType", "UnavailableError"],
            ["NoneType", "OverloadedError"],
        )


async def test_an_event_that_the_log_never_takes_is_invalid_and_harms_no_other(
    node: NodeProcess, name: str
) -> None:
    """The partition key is too long for an annotation. Sending it again would not help."""
    async with AmqpEventLog(node.url) as log:
        await log.wait_connected(60)
        await log.ensure(name, partitions=2, retention_ms=None)
        done = await asyncio.gather(
            log.append(name, message(1)),
            log.append(name, message(2, key="k" * 300_000)),
            log.append(name, message(3)),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in done] == [type(None), BadRequestError, type(None)]
        assert "message-annotations has" in str(done[1])


async def test_a_caller_that_gives_up_harms_no_other(node: NodeProcess, name: str) -> None:
    async with AmqpEventLog(node.url) as log:
        await log.ensure(name, partitions=1, retention_ms=None)
        given_up = asyncio.create_task(log.append(name, message(0)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await log.append(name, message(1))
        assert ids(await take(log.read(name, {0: None}), 1))[-1] == "1"


async def test_closing_waits_for_what_is_on_its_way(node: NodeProcess, name: str) -> None:
    log = AmqpEventLog(node.url)
    async with log:
        await log.ensure(name, partitions=1, retention_ms=None)
        waiting = [asyncio.create_task(log.append(name, message(number))) for number in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)


async def test_a_message_of_another_format_is_read_with_it(node: NodeProcess, name: str) -> None:
    async with AmqpEventLog(node.url) as logs:
        await logs.wait_connected(60)
        await logs.ensure(name, partitions=1, retention_ms=None)
        async with connect(node.url) as client, client.producer(name) as producer:
            await producer.post_batch([message(0), Event(b"batch", message_format=0x80013701), message(1)])
        events = await take(logs.read(name, {0: None}), 3)
    assert [stored.message_format for stored in events] == [0, 0x80013701, 0]
    assert ids([events[0], events[2]]) == ["0", "1"]
