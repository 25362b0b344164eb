"""Two nodes on real brokers and real sockets: a link at one node, its home at the other."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.homes.bucket import Phase, Reply
from amqp_streams.homes.changing.sweeping import INCARNATION_CHARACTERS, Sweeping
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Answer, Identity, Report
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.reporting import Closed, Denied, Effect, Granted, Reporting, Send
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.home_shell import TICK_S, HomeShell
from amqp_streams.server.homes.peering import Peers
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import Claim, Wanted
from amqp_streams.testing import MemoryStore
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.server.homes.joined import Heard, secret_file

BUCKETS = 2
WAIT_S = 60.0


def boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Node:
    """A process of a node, without AMQP: homes, links and the connections to other nodes."""

    def __init__(self, name: str, world: "World", settings: PeeringSettings) -> None:
        self.name = name
        self.world = world
        self.effects: list[Effect] = []
        self.homes: dict[int, HomeRecord] = {}
        self.left = False
        self.reporting = Reporting(name, Times())
        self.peers = Peers(
            Identity(name, world.administration.cluster or "", world.names.prefix),
            settings,
            on_report=self.report,
            on_answer=self.answer,
            on_asked=lambda _process, _asked, _tell: None,
            questions=Heard(),
            on_inquiry=lambda _process, _inquiry, _tell: None,
            inquiries=Heard(),
        )
        self.shell: HomeShell

    async def begin(self) -> None:
        await self.peers.open()
        self.shell = HomeShell(
            Home(
                self.name, self.peers.address, self.world.log_of, settings=GroupSettings(), limits=Limits(),
                times=Times(),
            ),
            self.world.options,
            self.world.administration,
            self.world.topic,
            loop_call=self.call,
            boot_ms=boot_ms,
            wall_ms=lambda: int(time.time() * 1000),
            on_reply=self.reply,
            on_home=self.home,
            on_left=self.gone,
        )  # fmt: skip

    def call(self, act: object, *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.world.loop.call_soon_threadsafe(act, *arguments)  # type: ignore[arg-type]

    def report(self, report: Report) -> None:
        self.shell.report(report)

    def answer(self, answer: Answer) -> None:
        self.reporting.answer(answer, boot_ms())

    def reply(self, reply: Reply) -> None:
        self.peers.send_answer(reply.node, reply.answer)

    def home(self, bucket: int, record: HomeRecord) -> None:
        self.homes[bucket] = record
        self.reporting.home(bucket, record, boot_ms())

    def gone(self) -> None:
        self.left = True

    @property
    def serves(self) -> set[int]:
        return {number for number, each in self.shell.home.buckets.items() if each.phase is Phase.SERVING}

    def tick(self) -> None:
        self.shell.tick()
        self.reporting.tick(boot_ms())
        self.peers.tick()
        for effect in self.reporting.take_effects():
            if isinstance(effect, Send):
                self.peers.send_report(effect.address, effect.report)
            else:
                self.effects.append(effect)

    def attach(self, member: str, bucket: int, *, epoch: int | None = None) -> int:
        wanted = Wanted(
            self.world.incarnation, "user", member, "link", Claim("g", 0, epoch, member), True, (0, 0)
        )
        return self.reporting.attach(wanted, bucket, boot_ms())

    def has(self, kind: type[Granted | Denied | Closed], link: int) -> bool:
        return any(isinstance(each, kind) and each.number == link for each in self.effects)

    def may_send(self, link: int) -> bool:
        return self.reporting.may_send(link, boot_ms())


class World:
    """Starts nodes on one state topic, and lets them run until a condition is true."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.names = TopicNames(f"t{uuid.uuid4().hex[:12]}")
        self.options = KafkaOptions({"bootstrap.servers": servers, "log_level": 0}, self.names)
        self.administration = Administration(self.options.connection)
        self.topic = find_or_create(self.administration, self.names.state, BUCKETS, replicas=3, weak=False)
        self.administration.names()
        self.secret = secret_file(folder)
        self.incarnation = "i"
        self.deleted = False
        self.nodes: list[Node] = []

    def log_of(self, incarnation: str) -> StoredLog | None:
        if self.deleted or incarnation != self.incarnation:
            return None
        return MemoryStore().create("log", LogSettings(partitions=2), incarnation=incarnation)

    async def start(self) -> Node:
        settings = PeeringSettings.model_validate({"listen": "127.0.0.1:0", "secret_file": self.secret})
        node = Node(f"node {len(self.nodes)}", self, settings)
        await node.begin()
        self.nodes.append(node)
        return node

    async def until(self, condition: object) -> None:
        assert callable(condition)
        async with asyncio.timeout(WAIT_S):
            while not condition():
                for node in self.nodes:
                    node.tick()
                await asyncio.sleep(TICK_S / 5)

    async def close(self) -> None:
        for node in self.nodes:
            await node.peers.close()
            assert await asyncio.to_thread(node.shell.close, WAIT_S)
        self.administration.delete(self.topic)


@pytest.fixture
async def world(kafka: Cluster, tmp_path: Path) -> AsyncIterator[World]:
    made = World(kafka.servers, tmp_path)
    yield made
    await made.close()


async def test_a_link_is_granted_by_the_home_at_another_node_and_goes_on_when_the_home_moves(
    world: World,
) -> None:
    one = await world.start()
    await world.until(lambda: one.serves == {0, 1})
    two = await world.start()
    await world.until(lambda: len(one.serves) == 1 and len(two.serves) == 1)
    (bucket,) = one.serves
    # The link is at the second node, the home of its group at the first.
    link = two.attach("a", bucket)
    await world.until(lambda: two.has(Granted, link) and two.may_send(link))
    assert one.shell.home.buckets[bucket].serving is not None
    # A consumer of the first node with a greater epoch takes the partition over: its home tells the second.
    other = one.attach("b", bucket, epoch=5)
    await world.until(lambda: one.has(Granted, other) and two.has(Closed, link))
    assert not two.may_send(link)
    # One with a lower epoch is refused, across the nodes.
    late = two.attach("c", bucket, epoch=4)
    await world.until(lambda: two.has(Denied, late))
    # The connection is lost: grants are renewed on the next.
    third = two.attach("d", bucket, epoch=6)
    await world.until(lambda: two.has(Granted, third))
    call = two.peers._calls[one.peers.address]
    before = call._connection
    assert before is not None
    before.abort()
    await world.until(lambda: call._connection not in {None, before})
    ends_ms = boot_ms() + 2000
    await world.until(lambda: boot_ms() > ends_ms and two.may_send(third))
    # The first node stops: the second is the home, and its link is the same.
    one.shell.stop()
    await world.until(lambda: one.left and two.serves == {0, 1})
    await world.until(lambda: two.may_send(third) and two.homes[bucket].node == two.name)
    assert not two.has(Closed, third)


async def test_the_states_of_a_log_are_removed_when_its_topic_is_gone(world: World) -> None:
    topics = [
        world.administration.create(f"{world.names.prefix}.{name}", 2, 3, {}) for name in ("gone", "left")
    ]
    try:
        world.incarnation = topics[0].id
        assert len(world.incarnation) == INCARNATION_CHARACTERS
        node = await world.start()
        await world.until(lambda: node.serves == {0, 1})
        links = [node.attach(f"m{bucket}", bucket, epoch=3) for bucket in (0, 1)]
        await world.until(lambda: all(node.has(Granted, link) for link in links))
        for link in links:
            node.reporting.detach(link, boot_ms())
        await world.until(lambda: not node.reporting.busy)
        sweeping = Sweeping(node.shell, world.log_of, Times(sweep_ms=50, gone_ms=500))

        described = 0

        async def step() -> None:
            """One step, with the real ids of the topics."""
            nonlocal described
            if sweeping.tick(boot_ms()):
                described += 1
                sweeping.described(await asyncio.to_thread(world.administration.ids), boot_ms())
            node.tick()
            await asyncio.sleep(0.005)

        # A node that does not have the log, while its topic exists.
        world.deleted = True
        while described < 15:
            await step()
        assert sweeping.removed == 0
        world.administration.delete(topics[0])

        def kept() -> set[tuple[int, str]]:
            return {(each, key) for each in (0, 1) for key in node.shell.states(each) if key != "home"}

        assert len(kept()) == 6, "an epoch, a cursor and an owner in each bucket"
        async with asyncio.timeout(WAIT_S):
            while kept():
                await step()
        followed = node.shell._follower.states.buckets
        await world.until(lambda: all(each.values.keys() == {"home"} for each in followed))
    finally:
        world.administration.delete(topics[1])
