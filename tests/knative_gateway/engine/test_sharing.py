"""Two replicas over one node and one store: each has its share, and the survivor has it all."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Self

import pytest
from structlog.testing import capture_logs

from amqp_streams.client import connect
from event_formats.amqp_binding import encode
from examples.node import NodeProcess
from knative_gateway.dispatcher import Dispatcher, DispatchSettings, Sender
from knative_gateway.dispatcher.ownership import AWAIT_S
from knative_gateway.engine import sharing
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.engine.sharing import GroupShares
from knative_gateway.ports import Routes, Subscriber
from tests.knative_gateway.dispatcher.rig import MemoryCursorStore, event, route, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer

PARTITIONS = 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    return f"broker.test.{abs(hash(request.node.nodeid))}"


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


class Replica:
    """A dispatcher with its own connections."""

    def __init__(self, node: NodeProcess, kept: MemoryCursorStore, log: str) -> None:
        self.log = log
        self.node, self.kept = node, kept
        self.stack = AsyncExitStack()
        self.dispatcher: Dispatcher

    async def __aenter__(self) -> Self:
        self.events = await self.stack.enter_async_context(AmqpEventLog(self.node.url))
        await self.events.wait_connected(60)
        await self.events.ensure(self.log, partitions=PARTITIONS, retention_ms=None)
        self.client = await self.stack.enter_async_context(connect(self.node.url))
        sender = await self.stack.enter_async_context(Sender())
        settings = DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2)
        self.dispatcher = Dispatcher(
            self.events, self.kept, sender, settings, ownership=GroupShares(self.client)
        )
        await self.stack.enter_async_context(self.dispatcher)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    def serve(self, *subscribers: Subscriber) -> None:
        wanted = route(*subscribers, log=self.log)
        self.dispatcher.use(Routes(1, {wanted.path: wanted}))

    @property
    def partitions(self) -> set[int]:
        dispatcher = self.dispatcher.dispatcher_of("u")
        return set() if dispatcher is None else set(dispatcher.partitions)

    async def send(self, first: int, end: int) -> None:
        await asyncio.gather(
            *(self.events.append(self.log, encode(event(number))) for number in range(first, end))
        )


async def test_replicas_share_and_take_over(node: NodeProcess, log: str, server: SubscriberServer) -> None:
    """Replicas share the partitions evenly while both run. One gets all of them when the other leaves or
    dies, and no event is missed.
    """
    kept = MemoryCursorStore()
    spec = subscriber("u", server.url())
    async with Replica(node, kept, log) as survivor:
        survivor.serve(spec)
        await until(lambda: survivor.partitions == set(range(PARTITIONS)))
        await survivor.send(0, 50)
        await server.wait(50)
        mortal = Replica(node, kept, log)
        await mortal.__aenter__()
        mortal.serve(spec)
        await until(lambda: len(mortal.partitions) == len(survivor.partitions) == PARTITIONS // 2)
        assert not mortal.partitions & survivor.partitions
        await survivor.send(50, 150)
        await until(lambda: len(set(server.ids)) == 150)
        # It dies: no connection is closed, and nothing is kept any more.
        await asyncio.gather(mortal.client.close(), mortal.events.close())
        await survivor.send(150, 200)
        await until(lambda: survivor.partitions == set(range(PARTITIONS)))
        await until(lambda: len(set(server.ids)) == 200)
        await mortal.__aexit__()
    assert Counter(server.ids).most_common(1)[0][1] <= 2


async def test_a_replica_that_leaves_hands_over_what_it_completed(
    node: NodeProcess, log: str, server: SubscriberServer
) -> None:
    kept = MemoryCursorStore()
    spec = subscriber("u", server.url())
    async with Replica(node, kept, log) as first:
        first.serve(spec)
        await until(lambda: len(first.partitions) == PARTITIONS)
        await first.send(0, 20)
        await until(lambda: first.dispatcher.figures("u")["delivered"] == 20)
    async with Replica(node, kept, log) as second:
        second.serve(spec)
        await until(lambda: len(second.partitions) == PARTITIONS)
        await second.send(20, 40)
        await until(lambda: second.dispatcher.figures("u")["delivered"] == 20)
    assert sorted(map(int, server.ids)) == list(range(40))


@pytest.mark.parametrize(("await_s", "level"), [(AWAIT_S, "info"), (0.0, "warning")])
async def test_a_log_that_the_leader_is_about_to_create_is_awaited(
    node: NodeProcess, log: str, monkeypatch: pytest.MonkeyPatch, await_s: float, level: str
) -> None:
    """A warning with the advice to create the log would be wrong."""
    monkeypatch.setattr(sharing, "AWAIT_S", await_s)
    async with connect(node.url) as client, AmqpEventLog(node.url) as events:
        with capture_logs() as lines:
            share = GroupShares(client).share(log, lambda: None)
            await until(lambda: any(line["event"] == "share_lost" for line in lines))
        [lost] = [line for line in lines if line["event"] == "share_lost"]
        assert lost["log_level"] == level
        assert ("log create" in lost["reason"]) == (level == "warning")
        await events.ensure(log, partitions=PARTITIONS, retention_ms=None)
        await until(lambda: share.partitions == frozenset(range(PARTITIONS)))
        with capture_logs() as lines:
            await events.delete(log)
            await until(lambda: any(line["event"] == "share_lost" for line in lines))
        assert {line["log_level"] for line in lines if line["event"] == "share_lost"} == {"info"}
        await share.close()
