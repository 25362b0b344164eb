"""Consumer groups, cursors and their management against the real node."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from amqp_streams.client import (
    EARLIEST,
    RELEASED,
    AfterOffset,
    Client,
    Consumer,
    Event,
    GroupConsumer,
    LinkRefusedError,
    ManagementError,
    OwnershipLostError,
    ReceivedEvent,
    RetryPolicy,
    blocking,
    connect,
    sql_filter,
)
from tests.amqp_streams.client.running import RunningNode

QUICK = RetryPolicy(first_ms=10, wait_max_ms=100)
SETTINGS = """
[groups]
pause = "50ms"
handover = "5s"
wait = "{wait}"
"""


def running(folder: Path, wait: str) -> Iterator[RunningNode]:
    config = folder / "node.toml"
    config.write_text(SETTINGS.format(wait=wait))
    node = RunningNode(folder, f"--config={config}").start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that delays attaches."""
    yield from running(tmp_path_factory.mktemp("waits"), "30s")


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Refuses them when no partition is free."""
    yield from running(tmp_path_factory.mktemp("refuses"), "0ms")


async def fresh(client: Client, partitions: int, events: int = 0) -> str:
    """A log that no other test has."""
    log = f"log-{uuid4().hex}"
    await client.management.create_log(log, partitions=partitions)
    if events:
        async with client.producer(log) as producer:
            for partition in range(partitions):
                await producer.post_batch([Event(number) for number in range(events)], partition=partition)
    return log


async def drain(consumer: Consumer | GroupConsumer, count: int) -> list[ReceivedEvent]:
    """The next `count` events."""
    events: list[ReceivedEvent] = []
    async with asyncio.timeout(60):
        while len(events) < count:
            events += await consumer.receive(count - len(events))
    return events


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds: members run in this event loop."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 no event reports it
            await asyncio.sleep(0.002)


Journal = list[tuple[str, str, int]]
"""Which member processed which event of which partition, in the order of processing."""


class Member:
    """One consumer with its own connection. It records its actions in order."""

    def __init__(self, name: str, url: str, log: str, journal: Journal, delay_s: float) -> None:
        self.name = name
        self.client = connect(url, retry=QUICK, container_id=f"{name}-{uuid4().hex}")
        self.consumer = self.client.group_consumer(log, "g")
        self._journal = journal
        self._delay_s = delay_s
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> "Member":
        await self.client.connect()
        await self.consumer.open()
        self._task = asyncio.create_task(self._work())
        return self

    async def _work(self) -> None:
        async for event in self.consumer:
            assert not event.revoked
            self._journal.append((self.name, str(event.partition), int(event.body)))  # type: ignore[call-overload]
            await asyncio.sleep(self._delay_s)

    async def stop(self) -> None:
        """All returned events are processed when this is called."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def leave(self) -> None:
        await self.stop()
        await self.consumer.close()
        await self.client.close()

    async def die(self) -> None:
        """End as kill -9 does: the connection ends without a detach or close.

        A reset destroys settlements that the node has not read yet, and their events are delivered again. The
        answer to a request on the same connection shows that the node has read the settlements, so that
        repeated events can be counted.
        """
        await self.stop()
        await self.client.info(self.consumer.log)
        wire = self.client._pool._first._wire
        assert wire is not None
        assert wire._stream is not None
        self.client._pool._first._closed = True
        wire._stream.abort()
        await self.client.close()


def shares(members: list[Member]) -> list[int]:
    return sorted(len(member.consumer.partitions) for member in members)


class Load:
    """A producer that numbers the events of each partition, until it is stopped.

    `sent`: how many each has then.
    """

    def __init__(self, client: Client, log: str, partitions: int) -> None:
        self._client, self._log, self.partitions = client, log, partitions
        self._stopping = False
        self._task = asyncio.create_task(self._produce())
        self.sent = 0

    async def _produce(self) -> None:
        async with self._client.producer(self._log) as producer:
            while not self._stopping:
                for partition in range(self.partitions):
                    await producer.post(Event(self.sent), partition)
                self.sent += 1
                await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self._stopping = True
        await self._task


async def finish(
    client: Client, load: Load, log: str, journal: Journal, last: Member, *, dead: set[str]
) -> None:
    """Let the last member finish the work, then check the result: all events, in order, once, except those
    that were in flight to dead members.
    """
    await load.stop()
    await until(
        lambda: len({(partition, number) for _, partition, number in journal}) == load.sent * load.partitions
    )
    await last.leave()
    [group] = await client.management.list_groups(log)
    assert [position.lag for position in group.positions] == [0] * load.partitions
    done: dict[str, list[int]] = defaultdict(list)
    for _, partition, number in journal:
        done[partition].append(number)
    for partition, numbers in done.items():
        firsts = list(dict.fromkeys(numbers))
        assert firsts == list(range(load.sent)), f"partition {partition} has a gap or is out of order"
        repeats = len(numbers) - len(firsts)
        assert repeats <= (1 if partition in dead else 0), (
            f"partition {partition}: {repeats} events were done twice"
        )


async def test_members_come_go_and_die_and_every_event_is_done_once_in_order(node: RunningNode) -> None:
    journal = Journal()
    async with connect(node.url) as client:
        log = await fresh(client, 6)
        load = Load(client, log, 6)
        first, second, third = [
            Member(name, node.url, log, journal, 0.0002) for name in ("first", "second", "third")
        ]
        await first.join()
        await until(lambda: shares([first]) == [6])
        await second.join()
        await until(lambda: shares([first, second]) == [3, 3])
        await third.join()
        await until(lambda: shares([first, second, third]) == [2, 2, 2])
        await second.leave()
        await until(lambda: shares([first, third]) == [3, 3])
        dead = set(first.consumer.partitions)
        await first.die()
        await until(lambda: shares([third]) == [6])
        await finish(client, load, log, journal, third, dead=dead)
    assert {name for name, _, _ in journal} == {"first", "second", "third"}


async def test_a_node_that_refuses_instead_of_keeping_attaches_waiting_shares_out_all_the_same(
    refusing: RunningNode,
) -> None:
    journal = Journal()
    async with connect(refusing.url) as client:
        log = await fresh(client, 2)
        load = Load(client, log, 2)
        first, second = [Member(name, refusing.url, log, journal, 0.0002) for name in ("first", "second")]
        await first.join()
        await until(lambda: shares([first]) == [2])
        await second.join()
        await until(lambda: shares([first, second]) == [1, 1])
        await first.leave()
        await until(lambda: shares([second]) == [2])
        await finish(client, load, log, journal, second, dead=set())
    assert {name for name, _, _ in journal} == {"first", "second"}


async def test_unsettled_events_go_to_the_next_owner_and_the_previous_one_is_notified(
    node: RunningNode,
) -> None:
    async with connect(node.url) as one, connect(node.url) as other:
        log = await fresh(one, 1, events=10)
        async with one.group_consumer(log, "g", settle="manual") as consumer:
            events = await drain(consumer, 6)
            consumer.settle(events[:3])
            consumer.settle(events[4], RELEASED)
            [again] = await drain(consumer, 1)
            assert again.body in {4, 6}
        assert [event.revoked for event in events] == [False, False, False, True, False, True]
        async with other.group_consumer(log, "g") as consumer:
            assert [event.body for event in await drain(consumer, 7)] == list(range(3, 10))


async def test_a_group_of_more_partitions_than_a_connection_has_sessions(node: RunningNode) -> None:
    async with connect(node.url) as client:
        log = await fresh(client, 100, events=2)
        async with client.group_consumer(log, "g", candidates=16) as consumer:
            events = await drain(consumer, 200)
            assert len(consumer.partitions) == 100
            assert len({(event.partition, event.offset) for event in events}) == 200


async def test_a_group_reads_filtered_and_its_cursor_passes_what_is_filtered_out(node: RunningNode) -> None:
    async with connect(node.url) as client:
        log = await fresh(client, 2)
        async with client.producer(log) as producer:
            await producer.post_batch(
                [Event(number, properties={"n": number}) for number in range(100)], partition=1
            )
        async with client.group_consumer(log, "g", filters={"high": sql_filter("n >= 90")}) as consumer:
            assert [event.body for event in await drain(consumer, 10)] == list(range(90, 100))
        async with connect(node.url) as other, other.group_consumer(log, "g") as consumer:
            assert await consumer.receive(timeout=0.2) == []


def test_the_blocking_face_shares_a_group_with_another(node: RunningNode) -> None:
    told: list[str] = []
    with blocking.connect(node.url) as one, blocking.connect(node.url) as other:
        one.management.create_log("blocking", partitions=2)
        with one.producer("blocking") as producer:
            for partition in (0, 1):
                producer.post_batch([Event(number) for number in range(50)], partition)
        with one.group_consumer(
            "blocking", "g", on_assigned=told.append, on_revoked=lambda name: told.append(f"-{name}")
        ) as first:
            seen = []
            for event in first:
                seen.append((event.partition, event.body))
                if len({partition for partition, _ in seen}) == 2:
                    break
            assert set(told) == {"0", "1"}
            assert first.partitions == ("0", "1")
        assert sorted(told) == ["-0", "-1", "0", "1"]
        with other.group_consumer("blocking", "g", settle="manual") as second:
            while len(seen) < 100:
                events = second.receive(timeout=60)
                assert events
                seen += [(event.partition, event.body) for event in events]
                second.settle(events)
    assert len(set(seen)) == len(seen) == 100


async def test_a_greater_epoch_takes_a_partition_and_the_loser_is_notified(node: RunningNode) -> None:
    async with connect(node.url) as one, connect(node.url) as other:
        log = await fresh(one, 1, events=3)
        async with one.consumer(log, partition=0, group="g", epoch=1, start=EARLIEST) as owner:
            assert owner.epoch == 1
            assert len(await owner.receive()) == 3
            with pytest.raises(LinkRefusedError, match="amqp:resource-locked"):
                async with other.consumer(log, partition=0, group="g", epoch=1):
                    pass
            async with other.consumer(log, partition=0, group="g", epoch=2, start=EARLIEST) as winner:
                assert (winner.epoch, winner.partitions) == (2, ("0",))
                with pytest.raises(OwnershipLostError, match="epoch 2"):
                    await owner.receive()
                assert len(await winner.receive()) == 3


async def test_a_durable_consumer_continues_at_its_position_on_another_connection(node: RunningNode) -> None:
    async with connect(node.url) as client:
        log = await fresh(client, 2, events=20)
    seen: list[tuple[str | None, object]] = []
    for _ in range(4):
        async with (
            connect(node.url, container_id="subscriber") as client,
            client.consumer(log, durable="sub", start=EARLIEST, settle="manual", credit=10) as consumer,
        ):
            events = await consumer.receive(10)
            seen += [(event.partition, event.body) for event in events]
            consumer.settle(events)
    assert len(set(seen)) == len(seen)
    assert len(seen) > 20


async def test_cursors_are_listed_moved_and_removed(node: RunningNode) -> None:
    async with connect(node.url, container_id="manager") as client:
        log = await fresh(client, 2, events=10)
        management = client.management
        async with client.consumer(log, durable="sub", start=EARLIEST) as consumer:
            while len(await consumer.receive_retained()) > 0:
                pass
            [cursor] = await management.list_cursors(log)
            assert (cursor.container, cursor.link, cursor.group, cursor.active) == (
                "manager",
                "sub",
                None,
                True,
            )
            with pytest.raises(ManagementError) as used:
                await management.reset_cursor(log, cursor.id, EARLIEST)
            assert used.value.status == 409
        moved = await management.reset_cursor(log, cursor.id, AfterOffset(6), partition="1")
        assert [position.lag for position in moved.positions] == [0, 3]
        async with client.consumer(log, durable="sub") as consumer:
            assert [event.body for event in await consumer.receive_retained()] == [7, 8, 9]
        await management.delete_cursor(log, cursor.id)
        assert await management.list_cursors(log) == []
        async with client.group_consumer(log, "g") as member:
            await drain(member, 20)
        group = await management.reset_group(log, "g", EARLIEST)
        assert [position.lag for position in group.positions] == [10, 10]
        assert await management.describe_group(log, "g") == group
        await management.delete_group(log, "g")
        assert await management.list_groups(log) == []


async def test_the_end_of_retained_events_is_found_with_a_filter_that_passes_nothing(
    node: RunningNode,
) -> None:
    async with connect(node.url) as client:
        log = await fresh(client, 2, events=2000)
        async with client.consumer(log, start=EARLIEST, filters={"none": sql_filter("n > 1")}) as consumer:
            assert await consumer.receive_retained(timeout=60) == []
        async with client.consumer(log, start=EARLIEST, credit=50) as consumer:
            count = 0
            while events := await consumer.receive_retained(timeout=60):
                count += len(events)
            assert count == 4000


@pytest.mark.parametrize("end", [RunningNode.kill, RunningNode.stop], ids=["kill -9", "SIGTERM"])
async def test_members_owners_and_durable_consumers_continue_after_a_restart_of_the_node(
    tmp_path: Path, end: Callable[[RunningNode], None]
) -> None:
    """The node writes cursors periodically: the events that were settled last may be delivered again, but no
    event is missed.
    """
    node = RunningNode(tmp_path).start()
    revoked: list[str] = []
    try:
        async with connect(
            node.url, container_id="c", retry=RetryPolicy(first_ms=5, wait_max_ms=50, attempts_max=10_000)
        ) as client:
            log = await fresh(client, 2, events=100)
            async with (
                client.group_consumer(log, "g", on_revoked=revoked.append) as member,
                client.consumer(log, partition=0, group="owned", epoch=1, start=EARLIEST) as owner,
                client.consumer(log, durable="sub", start=EARLIEST) as durable,
                client.producer(log) as producer,
            ):
                seen = [await drain(member, 80), await drain(owner, 10), await drain(durable, 80)]
                await until(lambda: member.partitions == ("0", "1"))
                await asyncio.to_thread(end, node)
                for number in range(100, 120):
                    await producer.post(Event(number), partition=number % 2)
                await asyncio.to_thread(node.start)
                await producer.flush()
                consumers: tuple[Consumer | GroupConsumer, ...] = (member, owner, durable)
                for consumer, events, count in zip(consumers, seen, (220, 110, 220), strict=True):
                    async with asyncio.timeout(60):
                        while len({(event.partition, event.offset) for event in events}) < count:
                            events.extend(await consumer.receive())
                assert sorted(revoked) == ["0", "1"]
                assert member.partitions == ("0", "1")
    finally:
        node.stop()
    for events in seen:
        for partition in {str(event.partition) for event in events}:
            numbers = [event.body for event in events if event.partition == partition]
            assert list(dict.fromkeys(numbers)) == [*range(100), *range(100 + int(partition), 120, 2)]
