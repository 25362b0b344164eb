"""One run from one seed: a node, its clients, a storm, and the calm period in which everything must
complete.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

from amqp_streams.storage.ports import Partition, Store, StoredLog
from tests.simulation.checks.bounds import STEPS_MAX, require_empty, require_paused, require_within
from tests.simulation.checks.cursors import Cursors
from tests.simulation.checks.ledger import Ledger
from tests.simulation.checks.rights import require_rights
from tests.simulation.checks.rot import flip, require_true
from tests.simulation.machine.clocks import Steps, Wall, clocks
from tests.simulation.machine.logins import PLAIN_USER, Logins
from tests.simulation.machine.network import Weather
from tests.simulation.machine.process import Node, NodeWatcher, log_lines
from tests.simulation.machine.schedule import MS, SECOND, Schedule
from tests.simulation.machine.stores import Directory
from tests.simulation.misfortunes import Misfortunes
from tests.simulation.peers.abusers import ABUSERS
from tests.simulation.peers.batches import BatchProducer
from tests.simulation.peers.client import Client
from tests.simulation.peers.consumers import Consumer
from tests.simulation.peers.forgetful import Forgetful
from tests.simulation.peers.members import Crowd, Group, Leaser, Sharer
from tests.simulation.peers.producers import Producer
from tests.simulation.peers.recreating import AGAIN, Follower, Keeper
from tests.simulation.peers.requests import Asker
from tests.simulation.peers.strangers import STRANGER, Stranger
from tests.simulation.plan import LIMITED_USER, Plan

CALM_US = 60 * SECOND
"""All that can be done is done before, unless the settings make a client slow."""
LIMITED_CALM_US = 180 * SECOND
"""The same for a producer with a quota: 200 events, some of them of 5 kB, at a lowest rate of 5 kB/s; and
for consumers that get the next event when they have settled the last one: 500 events, about 5 a second.
"""
MALLORY = "user-mallory"
"""The user of clients that misbehave."""
LEAVING_US = 45 * SECOND
"""More than the longest silence that a node bears."""


class World(NodeWatcher):
    """Everything of one run. `note` is called with each line of its story."""

    def __init__(self, seed: int, *, stories: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = Plan(self.random, Random(f"{seed} extras"), seed)
        self.schedule = Schedule()
        self.steps = Steps(counted=self.plan.counted, steps_a_reading=self.random.choice((1, 300, 3000)))
        self.wall = Wall(self.schedule)
        self.ledger = Ledger(self.schedule, self.wall.now_ms)
        self.cursors = Cursors(self.ledger, lambda call: self.schedule.after(0, call))
        self.link_numbers = count(1)
        self.stormy = True
        self.rotten: set[str] = set()
        """Names of files in which bits flipped."""
        self.story: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self._stories = stories
        self.clients: list[Client] = []
        self.nodes: list[Node] = []
        self.groups: list[Group] = []
        self.keeper: Keeper | None = None
        self.logins: Logins | None = None
        if self.plan.logins:
            users = frozenset({PLAIN_USER, LIMITED_USER, MALLORY})
            self.logins = Logins(users, frozenset({STRANGER}))
        self.misfortunes = Misfortunes(self, self.plan.faults)

    @property
    def node(self) -> Node:
        """The node that clients connect to."""
        return self.nodes[0]

    def note(self, words: str) -> None:
        """Add a line to the story of this run."""
        if self._stories:
            self.story.append(f"{self.schedule.now_us / SECOND:10.4f} {words}")

    # -- what clients ask

    def new_weather(self) -> Weather:
        random = self.random
        slow = "network" in self.plan.faults and random.random() < 0.3
        return Weather(
            random,
            delay_us=200 * MS if slow else 1 * MS,
            buffer_bytes=random.choice((4 << 10, 64 << 10)),
            block_bytes=random.choice((200, 4 << 10, 256 << 10)),
        )

    def partitions(self, log: str) -> int:
        """How many partitions a log has."""
        if log == AGAIN and self.plan.recreated is not None:
            return self.plan.recreated.partitions
        return self.plan.logs[log].partitions

    def starts(self, log: str) -> dict[int, int]:
        """Where a log's partitions begin now."""
        return {index: self.ledger.current[log, index].first for index in range(self.partitions(log))}

    def counts(self) -> dict[str, int]:
        """Return the counts of what happened."""
        starts = {"starts": sum(node.starts for node in self.nodes)}
        return self.ledger.counts | self.cursors.counts | starts

    def digest(self) -> str:
        """Return a digest of what happened. It is the same for each run of a seed."""
        told = [self.schedule.calls, self.schedule.now_us, sorted(self.counts().items()), self.story]
        tracks = sorted(
            (track.log, track.index, [(sent.key, stamp) for sent, stamp in track.records], track.seen_ms)
            for track in self.ledger.tracks.values()
        )
        return sha256(repr((told, tracks)).encode()).hexdigest()

    # -- the run

    def run(self) -> None:
        """Run the storm, the calm period, and the end."""
        size = self.plan.size
        with self._running():
            self.populate()
            self.node.start()
            for client in self.clients:
                self.schedule.after(self.random.randint(0, size.start_ms) * MS, client.start)
            self.schedule.every(100 * MS, self.produce, while_=lambda: self.stormy)
            self.schedule.every(
                self.random.choice(size.strike_ms) * MS, self.misfortunes.strike, while_=lambda: self.stormy
            )
            self.schedule.run(size.storm_us)
            self.calm_down()
            limited = any(producer.user is not None for producer in self.producers)
            limited |= self.node.settings.limits.unsettled == 1
            calm_us = LIMITED_CALM_US if limited else CALM_US
            ended = self.schedule.run(size.storm_us + calm_us, self._settled)
            assert ended, "; ".join(each.why() for each in self._all() if not each.done)
            self.leave()
            if self.steps.counted:
                steps = max(self.node.steps_max, self.node.loop.steps_max)
                assert steps <= STEPS_MAX, (
                    f"{steps} steps in one call: {self.node.slowest or self.node.loop.slowest}"
                )

    @contextmanager
    def _running(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(log_lines(self.lines))
            stack.enter_context(clocks(self.schedule, self.wall.now_ms, self.steps, Random(self.seed)))
            try:
                yield
            finally:
                for node in self.nodes:
                    if node.up:
                        node.kill()

    def populate(self) -> None:
        """Create the node and its clients."""
        random, size = self.random, self.plan.size
        settings = self.plan.settings()
        self.nodes.append(
            Node(
                self.schedule,
                self.steps,
                self.wall,
                settings,
                watcher=self,
                backend=lambda node: Directory(self.schedule, random, node.guard),
                logins=self.logins,
            )
        )
        self.producers = [
            (BatchProducer if self.plan.batches else Producer)(
                self,
                f"p{number}",
                random.choice(list(self.plan.logs)),
                numbered=random.random() < 0.35,
                user=self.plan.user(),
            )
            for number in range(random.randint(1, size.producers))
        ]
        self.consumers = [self._consumer(number) for number in range(random.randint(1, size.consumers))]
        crowded = self.plan.crowded
        groups = 0 if crowded else random.randint(0, size.groups)
        self.groups = [self._group(number) for number in range(groups)]
        members = [member for group in self.groups for member in (*group.members, *group.leasers)]
        askers = (
            [Asker(self, "asker", random.choice(list(self.plan.logs)))]
            if random.random() < (0.5 if self.plan.large else 0.3)
            else []
        )
        abusers = (
            random.sample(ABUSERS, random.randint(1, size.abusers)) if "abusers" in self.plan.faults else []
        )
        self.clients += [*self.producers, *self.consumers, *members, *askers]
        self.clients += [Crowd(self, "crowd", "lone")] if crowded else []
        self.clients += [kind(self, f"abuser-{kind.__name__.lower()}") for kind in abusers]
        if self.plan.recreated is not None:
            self._populate_again()
        if self.logins is not None:
            self.clients += [Stranger(self, f"stranger-{number}") for number in range(random.randint(1, 2))]

    def _populate_again(self) -> None:
        """Create the clients of a log that is deleted and created again."""
        random = self.random
        self.keeper = keeper = Keeper(self, "keeper")
        self.ledger.may_be_gone = lambda name, incarnation: (
            name.startswith("made-") if name != AGAIN else keeper.may_be_gone(incarnation)
        )
        producer = Producer(self, "again", AGAIN, numbered=random.random() < 0.3)
        modes = random.sample(("plain", "kept", "group"), random.randint(1, 3))
        self.clients += [keeper, producer, *(Follower(self, f"again-{mode}", mode) for mode in modes)]

        def make() -> None:
            if producer.made < self.plan.size.events:
                producer.make(random.choice((1, 1, 3)))

        self.schedule.every(random.choice((50, 200)) * MS, make, while_=lambda: self.stormy)

    def _consumer(self, number: int) -> Consumer:
        random = self.random
        log = random.choice(list(self.plan.logs))
        partition = random.randrange(self.partitions(log)) if random.random() < 0.5 else None
        kinds = ("plain", "plain", "batched", "filtered", "batched-filtered", "kept", "kept")
        kind = random.choice(kinds[:5] if self.plan.crowded else kinds)
        if kind == "kept" and self.plan.forgets:
            return Forgetful(self, f"c{number}", log, partition=partition, user=self.plan.user())
        return Consumer(
            self,
            f"c{number}",
            log,
            partition=partition,
            keeps=kind == "kept",
            batched=kind.startswith("batched"),
            filtered=kind.endswith("filtered"),
            user=self.plan.user(),
        )

    def _group(self, number: int) -> Group:
        random = self.random
        group = Group(self, f"g{number}", random.choice(list(self.plan.logs)))
        if random.random() < 0.5:
            links = random.choice((1, self.partitions(group.log)))
            group.members += [
                Sharer(self, f"sharer-{number}-{each}", group.log, group.name, links)
                for each in range(random.randint(1, self.plan.size.members))
            ]
        else:
            group.leasers += [
                Leaser(self, f"leaser-{number}-{each}", group.log, group.name)
                for each in range(random.randint(1, min(3, self.plan.size.members)))
            ]
            self.schedule.every(random.choice((500, 3000)) * MS, group.give_lease, while_=lambda: self.stormy)
        return group

    def any_log(self) -> str:
        """Some log."""
        return self.random.choice(list(self.plan.logs))

    def produce(self) -> None:
        size = self.plan.size
        if sum(producer.made for producer in self.producers) < size.events:
            self.random.choice(self.producers).make(self.random.choice(size.burst))

    def calm_down(self) -> None:
        """From now on nothing fails."""
        self.note("calm")
        self.stormy = False
        self.misfortunes.calm_down()
        for client in self.clients:
            client.calm_down()
            client.start()
        for group in self.groups:
            group.calm_down()

    def _all(self) -> list[Client | Group]:
        return [*self.clients, *self.groups]

    def _settled(self) -> bool:
        return self.schedule.calls % 50 == 0 and all(each.done for each in self._all())

    def leave(self) -> None:
        """All clients leave in order, and the node stops and starts: nothing of them is left, and
        all events are.
        """
        for client in self.clients:
            client.retire()
        self.schedule.run(self.schedule.now_us + LEAVING_US)
        require_empty(self.node.service)
        starts = self.node.starts
        self.node.stop(self.node.start)
        self.schedule.run(
            self.schedule.now_us + 20 * SECOND, lambda: self.node.starts > starts and self.node.up
        )
        assert self.node.up, "a node that was stopped starts again"
        if self.plan.rots:
            self._rot()

    def _rot(self) -> None:
        """Bits flip on the disk, while the node runs or before it starts: no reader gets other events."""
        disk, running = self.node.backend, self.random.random() < 0.5
        assert isinstance(disk, Directory)
        if not running:
            self.node.kill()
        self.rotten = {path.name for path in flip(disk.files, self.random)}
        self.note(f"bits flip in {sorted(self.rotten)}")
        if not running:
            self.node.start()
        refused = require_true(self.node.service.store, self.ledger)
        assert self.rotten or not refused, "events are refused, and nothing is damaged"
        self.ledger.counts["refused"] += refused
        reader = Consumer(self, "late", self.any_log())
        reader.start()
        self.schedule.run(self.schedule.now_us + 3 * SECOND)
        reader.retire()

    # -- NodeWatcher

    def opened(self, node: Node, store: Store) -> None:
        self.note("opened")
        if self.rotten:
            return
        self.ledger.opened(store)

    def started(self, node: Node) -> None:
        self.ledger.created(node.service.store)
        effects = node.service.effects
        attached = effects.attached

        def seen(link: Any) -> None:
            self.cursors.attached(link)
            attached(link)

        effects.attached = seen  # type: ignore[method-assign]
        tick = node.service.regular.tick

        def ticked() -> None:
            tick()
            self.ledger.retained(node.service.store)
            require_within(node.service)
            require_paused(node)
            if self.logins is not None:
                require_rights(node.service, self.logins)

        node.service.regular.tick = ticked  # type: ignore[method-assign]

    def died(self, node: Node) -> None:
        self.note("died")
        self.cursors.died()

    def stopped(self, node: Node) -> None:
        self.note("stopped")

    def refused(self, node: Node, error: BaseException) -> None:
        self.note(f"does not start: {error}")

    def power_fails(self) -> bool:
        return "power" in self.plan.faults and self.random.random() < 0.5

    def visible(self, log: StoredLog, partition: Partition) -> None:
        self.ledger.visible(log, partition)
