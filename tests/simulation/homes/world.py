"""One run: nodes, consumers and misfortunes from a seed; then calm, and what must be true then.

The law of progress: when the faults have ended, within the session timeout, a lease and two seconds, each
claim is answered and each partition has an owner; then each event is processed and its settlement stored.
When a node stops in order (SIGTERM), its buckets have a new home within a second, and no link of another node
is closed for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from amqp_streams.config import LogSettings
from amqp_streams.homes.buckets import bucket_of
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import Wanted
from amqp_streams.testing import MemoryStore
from tests.simulation.homes.kafka import Kafka
from tests.simulation.homes.ledger import Ledger, check, cursor_of
from tests.simulation.homes.machines import Machine
from tests.simulation.homes.nodes import TIMES, Process
from tests.simulation.homes.peers import INCARNATION, Peer
from tests.simulation.homes.schedule import Network, Schedule

RECOVERY_MS = 6000 + TIMES.lease_ms + 2000
PROCESSED_MS = 4000
HANDOVER_MS = 1000


class World:
    """See the module. `harsh`: the misfortunes in which planted faults of leases show."""

    operates = False
    """Whether users change groups, and logs are deleted: see `changing.py`."""
    older: frozenset[str] = frozenset()
    """Machines whose nodes are of an earlier version."""

    def __init__(self, seed: int, *, stories: bool = False, harsh: bool = False) -> None:
        self.seed = seed
        self.story: list[str] = []
        self.stories = stories
        self.random = random = Random(seed)
        self.schedule = Schedule()
        self.network = Network(self.schedule, random)
        self.calm = False
        # Many consumers want one partition, nodes lose sight of each other, and the home changes often.
        self.duel = random.random() < 0.4 or harsh
        self.harsh = harsh
        self.kafka = Kafka(self.schedule, random, 1 if self.duel else random.choice((1, 1, 2)))
        partitions = 1 if self.duel else random.choice((1, 2, 3))
        self.indices = tuple(range(partitions))
        self.ends = [0] * partitions
        log = MemoryStore().create("log", LogSettings(partitions=partitions), incarnation=INCARNATION)
        self.logs = {"log": log}
        self.ledger = Ledger(self)
        self.kafka.on_decided = self.ledger.decided
        self.machines = {
            name: Machine(name, random.uniform(1e3, 1e9), random.choice((0.991, 1.0, 1.009)))
            for name in ("a", "b", "c")[: 3 if self.duel else random.choice((2, 2, 3))]
        }
        self.peers: list[Peer] = []
        self.leases: dict[int, Peer] = {}
        """By partition, the consumer to which another system gave it last."""
        self._epoch = 0
        self._add_peers()
        for machine in self.machines.values():
            self._start(machine)

    def log_of(self, incarnation: str) -> StoredLog | None:
        return next((each for each in self.logs.values() if each.incarnation == incarnation), None)

    def bucket_of(self, wanted: Wanted) -> int:
        bucket = bucket_of(wanted.incarnation, wanted.claim, wanted.container, wanted.link)
        return bucket % len(self.kafka.partitions)

    def processes(self) -> list[Process]:
        return [each.process for each in self.machines.values() if each.process and each.process.alive]

    def _add_peers(self) -> None:
        random = self.random
        kinds = random.choice(
            (("shared",), ("claimed",), ("shared", "claimed"), ("shared", None), ("plain",))
        )
        if self.duel:
            kinds = random.choice((("shared",), ("shared",), ("claimed",)))
        for group in kinds:
            for number in range(3 if self.duel else random.choice((1, 2, 3)) if group else 1):
                self.peers.append(Peer(self, f"{group}-{number}", group))

    def _start(self, machine: Machine) -> None:
        if machine.process is None or not machine.process.alive:
            self.tell(f"{machine.name} starts")
            Process(self, machine)

    def tell(self, words: str) -> None:
        if self.stories:
            self.story.append(f"{self.schedule.now:9.1f} {words}")

    # -- the run

    def run(self) -> None:
        random, storm = self.random, self.random.choice((4000, 8000, 14_000))
        storm = 20_000 if self.harsh else storm
        for peer in self.peers:
            self.schedule.after(random.uniform(0, 3000), peer.attach)
        self._every(100, self._append, storm)
        self._every(500, self._watch, storm)
        self._restart(storm)
        self._every(random.choice((300, 900, 2500)), self._give_lease, storm)
        self._begin_misfortunes(storm)
        self.network.slow = 0.0 if self.harsh else random.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        self.network.lossy = random.choice((0.0, 0.0, 0.02, 0.2))
        self.schedule.run(storm)
        self._begin_calm()
        self.schedule.run(self.schedule.now + RECOVERY_MS)
        self._check_owned("after the faults")
        self.schedule.run(self.schedule.now + PROCESSED_MS)
        self._check_processed()
        self._check_handover()

    def counts(self) -> Counter[str]:
        return self.ledger.counts

    def _every(self, ms: float, act: Callable[[], object], until: float) -> None:
        def turn() -> None:
            if self.schedule.now < until:
                act()
                self.schedule.after(self.random.uniform(0.3, 1.7) * ms, turn)

        self.schedule.after(self.random.uniform(0, ms), turn)

    def _append(self) -> None:
        self.ends[self.random.choice(self.indices)] += self.random.randint(1, 8 if self.duel else 3)

    def _watch(self) -> None:
        for peer in self.peers:
            peer.watch()

    def _restart(self, storm: float) -> None:
        """A node that has ended is started again, some time later."""

        def start() -> None:
            if self.schedule.now < storm:
                for machine in self.machines.values():
                    self._start(machine)

        self._every(5000, start, storm)

    def _give_lease(self) -> None:
        takers = [peer for peer in self.peers if peer.group == "claimed"]
        if takers:
            self._epoch += 1
            taker, partition = self.random.choice(takers), self.random.choice(self.indices)
            for other, peer in list(self.leases.items()):
                if peer is taker:
                    del self.leases[other]
            self.leases[partition] = taker
            self.tell(f"{taker.name} takes {partition} with {self._epoch}")
            taker.take(partition, self._epoch)

    # -- misfortunes

    def _begin_misfortunes(self, storm: float) -> None:
        random = self.random
        kinds = [each for each in self._misfortunes() if random.random() < 0.4]
        if self.duel:
            kinds = [self._isolate, self._ambush, self._usurp, self._client_leaves, *kinds[:2]]
        if self.harsh:
            kinds = [self._ambush]

        def one() -> None:
            random.choice(kinds)()

        if kinds:
            self._every(5000 if self.harsh else random.choice((400, 1200, 3000)), one, storm)

    def _misfortunes(self) -> list[Callable[[], None]]:
        return [
            self._kill, self._terminate, self._stop, self._stop_in_write, self._cut, self._away, self._refuse,
            self._client_leaves, self._isolate, self._usurp, self._ambush,
        ]  # fmt: skip

    def _any(self) -> Process | None:
        alive = self.processes()
        # Rather a home than another node.
        homes = [each for each in alive if each.home.buckets]
        chosen = homes if homes and self.random.random() < 0.6 else alive
        return self.random.choice(chosen) if chosen else None

    def _kill(self) -> None:
        process = self._any()
        if process is not None:
            self.tell(f"kill {process.id}")
            process.kill()
            machine = process.machine
            self.schedule.after(self.random.choice((100, 2000, 9000)), lambda: self._start(machine))

    def _terminate(self) -> None:
        process = self._any()
        if process is not None:
            self.tell(f"terminate {process.id}")
            process.terminate()
            machine = process.machine
            self.schedule.after(self.random.choice((4200, 9000)), lambda: self._start(machine))

    def _stop(self) -> None:
        process = self._any()
        if process is not None:
            ms = self.random.choice((800, 2600, 3200, 4500, 6500, 9000))
            self.tell(f"stop {process.id} for {ms}")
            process.stop(ms)

    def _stop_in_write(self) -> None:
        process = self._any()
        if process is not None:
            process.stop_in_write = self.random.choice((800, 3200, 4500, 9000))
            self.tell(f"stop {process.id} in its next write for {process.stop_in_write}")

    def _cut(self) -> None:
        ends = [*self.machines, "kafka"]
        source, target = self.random.sample(ends, 2)
        ms = self.random.choice((500, 2000, 4000, 8000))
        self.tell(f"cut {source} {target} for {ms}")
        self.network.cut(source, target, ms)
        if self.random.random() < 0.6:
            self.network.cut(target, source, ms)

    def _isolate(self) -> None:
        """A node hears no other node, but Kafka. Perhaps the home of its links changes meanwhile."""
        owners = [peer.link.process for peer in self.peers if peer.link is not None and peer.link.may_send()]
        if owners:
            chosen = self.random.choice(owners)
            ms = self.random.choice((1500, 4000, 8000))
            self.tell(f"isolate {chosen.id} for {ms}")
            self._isolate_one(chosen, ms)
            homes = [each for each in self.processes() if each.home.buckets and each is not chosen]
            act = self.random.choice((self._usurp, lambda: homes[0].terminate() if homes else None))
            self._later(self.random.choice((1, 300, 1200)), act)

    def _ambush(self) -> None:
        """Messages in one direction take long while the home changes, or while a node loses sight of it."""
        owners = [peer.link.process for peer in self.peers if peer.link is not None and peer.link.may_send()]
        homes = [each for each in self.processes() if each.home.buckets]
        if not owners or not homes:
            return
        random, network = self.random, self.network
        owner, home = random.choice(owners), random.choice(homes)
        kind = random.choice(("answers", "commits", "writes"))
        self.tell(f"ambush of {kind}: home {home.id}, owner {owner.id}")
        if kind == "answers":
            network.lag(home.name, owner.name, random.uniform(500, 2500), 2500)
            self._later(random.uniform(500, 2500), lambda: self._isolate_one(owner, 6000))
        elif kind == "commits":
            network.lag("kafka", home.name, random.uniform(1500, 3000), 3000)
            network.cut("kafka", owner.name, 8000)
            self._later(random.uniform(200, 2500), self._usurp)
        else:
            network.lag(home.name, "kafka", random.uniform(3300, 4500), 2000)
            self._later(random.uniform(200, 1500), self._usurp)

    def _later(self, ms: float, act: Callable[[], object]) -> None:
        self.schedule.after(ms, lambda: None if self.calm else act())

    def _isolate_one(self, chosen: Process, ms: float) -> None:
        for name in self.machines:
            if name != chosen.name:
                self.network.cut(name, chosen.name, ms)
                self.network.cut(chosen.name, name, ms)

    def _usurp(self) -> None:
        """The group gives buckets to another node and does not wait until its home has left them."""
        group = self.kafka.group
        if group.members:
            for bucket in group.owner:
                group.owner[bucket] = group.target[bucket] = self.random.choice(sorted(group.members))
            group.generation += 1
            self.tell(f"the group gives all buckets away: {group.owner}")

    def _away(self) -> None:
        ms = self.random.choice((300, 2000, 4500, 11_000))
        self.tell(f"Kafka away for {ms}")
        self.kafka.away(ms)

    def _refuse(self) -> None:
        self.kafka.refuses = self.random.choice((0.0, 0.3, 1.0))

    def _client_leaves(self) -> None:
        peer = self.random.choice(self.peers)
        peer.leave(self.random.choice((0, 0, 300, 4000)))
        self.schedule.after(self.random.choice((1, 50, 1500)), peer.attach)

    # -- the calm

    def _begin_calm(self) -> None:
        self.tell("calm")
        self.calm = True
        self.network.heal()
        self.kafka.heal()
        for process in self.processes():
            process.stop_in_write = 0.0
            if process.stopped:
                process.wake()
        for machine in self.machines.values():
            if machine.process is not None and machine.process.terminating:
                machine.process.kill()
            self._start(machine)
        for peer in self.peers:
            peer.attach()
        self._expire()

    def _expire(self) -> None:
        self.kafka.group.expire()
        self.schedule.after(250, self._expire)

    def _needs(self) -> Iterator[tuple[str, int, list[Peer]]]:
        """Groups and partitions that must have an owner, and who it may be."""
        for group in {peer.group for peer in self.peers}:
            of_group = [peer for peer in self.peers if peer.group == group]
            for index in self.indices:
                if group == "claimed":
                    if index in self.leases:
                        yield "claimed", index, [self.leases[index]]
                # A member has one link, which owns one partition.
                elif group is None or len(of_group) >= len(self.indices):
                    yield str(group), index, of_group

    def _owns(self, peer: Peer, index: int) -> bool:
        link = peer.link
        return link is not None and link.may_send() and index in link.trackers

    def _check_owned(self, when: str) -> None:
        for group, index, peers in self._needs():
            owned = any(self._owns(peer, index) for peer in peers)
            check("progress", owned, f"{group} {index} has no owner {when}")
        for peer in self.peers:
            link = peer.link
            waits = link is not None and not link.granted and not link.over
            if waits and peer.group in {None, "claimed"}:
                check("progress", False, f"the attach of {peer.name} is not answered {when}")
        busy = sum(
            peer.link is not None and peer.link.may_send() for peer in self.peers if peer.group == "shared"
        )
        members = sum(peer.group == "shared" for peer in self.peers)
        check("progress", busy >= min(members, len(self.indices)), f"a member has no partition {when}")

    def _check_processed(self) -> None:
        for _, index, peers in self._needs():
            for peer in peers:
                if peer.durable and self._owns(peer, index):
                    assert peer.link is not None
                    cursor = cursor_of(peer.link)
                    stored, end = self.ledger.stored(cursor, index), self.ends[index]
                    check("progress", stored == end, f"{cursor} {index} is {stored}, the log ends at {end}")

    def _check_handover(self) -> None:
        """A node stops in order: its buckets move within a second, and no other node closes a link."""
        homes = [process for process in self.processes() if process.home.buckets]
        check("progress", bool(homes), "no node is a home")
        stopped, began = self.random.choice(homes), self.schedule.now
        self.tell(f"{stopped.id} stops in order")
        stopped.terminate()
        self.schedule.run(began + HANDOVER_MS)
        self._check_owned("a second after a node stopped in order")
        closed = [link.process.id for at, link in self.ledger.closes if at >= began]
        check("progress", not closed, f"a node that stopped in order closed links of {closed}")
