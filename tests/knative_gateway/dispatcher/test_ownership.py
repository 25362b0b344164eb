"""Replicas that share the partitions of a log, and requests to one replica that another must carry out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from event_formats.amqp_binding import encode
from knative_gateway.dispatcher import Dispatcher, DispatchSettings, Sender, worker
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Routes
from tests.knative_gateway.dispatcher.rig import MemoryCursorStore, event, route, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "broker.default.b"
PLACE = "{:016d}".format


class Parted:
    """A share with the given partitions."""

    def __init__(self, *partitions: int) -> None:
        self.partitions: frozenset[int] | None = frozenset(partitions)
        self._changed: Callable[[], None] = lambda: None

    def share(self, _: str, changed: Callable[[], None]) -> "Parted":
        self._changed = changed
        return self

    def become(self, *partitions: int) -> None:
        self.partitions = frozenset(partitions)
        self._changed()

    async def close(self) -> None:
        self.partitions = frozenset()


class Pair:
    """Two dispatchers over one log of two partitions and one store: at first each has one."""

    def __init__(self) -> None:
        self.log = MemoryEventLog()
        self.kept = MemoryCursorStore()
        self.shares = (Parted(0), Parted(1))
        self.replicas: list[Dispatcher] = []

    async def serve(self, stack: AsyncExitStack, url: str, **fields: Any) -> None:
        await self.log.ensure(LOG, partitions=2, retention_ms=None)
        sender = await stack.enter_async_context(Sender())
        wanted = route(subscriber("u", url, **fields), log=LOG)
        for share in self.shares:
            settings = DispatchSettings(flush_ms=10, idle_flush_ms=10, drain_s=0.2)
            replica = await stack.enter_async_context(
                Dispatcher(self.log, self.kept, sender, settings, ownership=share)
            )
            replica.use(Routes(1, {wanted.path: wanted}))
            self.replicas.append(replica)
        await until(lambda: [self.partitions(number) for number in (0, 1)] == [{0}, {1}])

    def partitions(self, number: int) -> set[int]:
        dispatcher = self.replicas[number].dispatcher_of("u")
        return set() if dispatcher is None else set(dispatcher.partitions)

    async def send(self, count: int) -> None:
        for number in range(count):
            await self.log.append(LOG, encode(event(number)))


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


@pytest.fixture
async def pair(server: SubscriberServer) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        made = Pair()
        await made.serve(stack, server.url())
        yield made


async def test_each_delivers_what_is_in_its_partitions(pair: Pair, server: SubscriberServer) -> None:
    await pair.send(10)
    await server.wait(10)
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(4), 1: PLACE(4)})
    assert [replica.figures("u")["delivered"] for replica in pair.replicas] == [5, 5]
    assert sorted(map(int, server.ids)) == list(range(10))


async def test_a_released_partition_is_continued_by_its_new_owner(
    pair: Pair, server: SubscriberServer
) -> None:
    await pair.send(4)
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(1), 1: PLACE(1)})
    pair.shares[0].become()
    pair.shares[1].become(0, 1)
    await until(lambda: pair.partitions(1) == {0, 1} and not pair.partitions(0))
    await pair.send(4)
    await until(lambda: pair.replicas[1].figures("u")["delivered"] == 6)
    assert len(server.ids) == 8


async def test_a_delivery_that_is_dropped_with_its_partition_makes_room_for_another_partition(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LEAVING_S", 0.05)
    over = asyncio.Event()

    async def hang_first(_: Got) -> web.StreamResponse:
        if len(server.got) == 1:
            await over.wait()
        return web.Response(status=202)

    server.behaviour = hang_first
    async with AsyncExitStack() as stack:
        pair = Pair()
        await pair.serve(stack, server.url(), in_flight_max=1)
        pair.shares[1].become()
        pair.shares[0].become(0, 1)
        await until(lambda: pair.partitions(0) == {0, 1} and not pair.partitions(1))
        await pair.send(2)
        [got] = await server.wait(1)
        dispatcher = pair.replicas[0].dispatcher_of("u")
        assert dispatcher is not None
        await until(lambda: all(each.window.open == 1 for each in dispatcher.partitions.values()))
        pair.shares[0].become({"0": 0, "1": 1}[got.id])  # the partition of the other event
        await until(lambda: sorted(server.ids) == ["0", "1"])
        over.set()


async def test_a_stop_stores_what_a_partition_that_moves_has_delivered(server: SubscriberServer) -> None:
    over = asyncio.Event()

    async def wait(_: Got) -> web.StreamResponse:
        await over.wait()
        return web.Response(status=202)

    server.behaviour = wait
    async with AsyncExitStack() as stack:
        pair = Pair()
        await pair.serve(stack, server.url())
        await pair.send(1)
        await server.wait(1)
        pair.shares[1].become()
        await until(lambda: not pair.partitions(1))  # it waits for the answer
        stopping = asyncio.create_task(pair.replicas[1].close())
        await until(lambda: not pair.replicas[1].workers)
        over.set()
        await stopping
        assert pair.kept.positions["u"][1] == PLACE(0)


async def test_a_replay_that_one_is_asked_for_reaches_the_owners_of_all_partitions(
    pair: Pair, server: SubscriberServer
) -> None:
    await pair.send(10)
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(4), 1: PLACE(4)})
    await pair.replicas[0].replay_from_offsets("u", "0=2,1=1")
    await until(lambda: len(server.ids) == 15)
    assert sorted(map(int, server.ids[10:])) == [4, 6, 7, 8, 9]
    await until(lambda: [replica.figures("u")["delivered"] for replica in pair.replicas] == [7, 8])
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(4), 1: PLACE(4)})


async def test_a_replay_waits_for_an_owner_of_the_partition(pair: Pair, server: SubscriberServer) -> None:
    """The former owner has left, and the next one is not known yet."""
    await pair.send(4)
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(1), 1: PLACE(1)})
    pair.shares[1].become()
    await until(lambda: not pair.partitions(1))
    await pair.replicas[0].replay_from_offsets("u", "1=@earliest")
    assert pair.kept.positions["u"] == {0: PLACE(1), 1: PLACE(1)}
    pair.shares[0].become(0, 1)
    await until(lambda: len(server.ids) == 6)
    assert sorted(server.ids[4:]) == ["0", "2"]


async def test_a_store_that_is_away_only_delays_it(pair: Pair, server: SubscriberServer) -> None:
    await pair.send(2)
    await until(lambda: pair.kept.positions["u"] == {0: PLACE(0), 1: PLACE(0)})
    await pair.replicas[0].replay_from_offsets("u", "1=@earliest")
    pair.kept.failing = [UnavailableError("away"), RuntimeError("a fault of ours")] * 3
    await until(lambda: len(server.ids) == 3)
    assert server.ids[2] == "0"
