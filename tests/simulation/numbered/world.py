"""One run: nodes, idempotent producers and misfortunes from a seed; then calm, and what must be true then.

The laws, each of which begins the message of its failure:

once: a partition has each number of a producer once, in order. truth: the highest number that an attach is
answered is at least that of all events that were accepted before the attach began. accepted: an event that
was accepted is committed. together: after each transaction, the record has the highest numbers of the events.
progress: when the faults have ended, each event is accepted within `RECOVERY_MS`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.kafka.numbered.producing import FENCED_MS, OPEN_MS
from amqp_streams.kafka.numbered.records import ProducerKey, decoded
from amqp_streams.streams.numbering import stored_id
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.sequences import with_sequence
from tests.simulation.homes.schedule import Network, Schedule
from tests.simulation.numbered.kafka import Kafka, Transaction
from tests.simulation.numbered.nodes import Link, Process, message_of

INCARNATION = "i/+"
RECOVERY_MS = OPEN_MS + 10_000 + 5 * FENCED_MS


class LawError(AssertionError):
    """A law is broken."""


def check(law: str, holds: bool, words: str) -> None:
    if not holds:
        raise LawError(f"{law}: {words}")


@dataclass(eq=False)
class Machine:
    """A machine with its clock, which runs at its own rate."""

    name: str
    offset: float
    rate: float
    process: Process | None = None
    starts: int = 0

    def boot_ms(self, now: float) -> int:
        return int(self.offset + self.rate * now)


class Ledger:
    """What all have seen of each producer. The events of a producer that was forgotten count as new."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.logs: dict[ProducerKey, dict[int, list[int]]] = {}
        self._asked: dict[ProducerKey, dict[Link, int]] = {}
        """By attach, the highest number that was accepted before it."""
        self._accepted: dict[ProducerKey, set[int]] = {}
        self._keys: dict[str, ProducerKey] = {}
        self.stored: dict[ProducerKey, set[int]] = {}
        self.forgotten: set[ProducerKey] = set()

    def add(self, key: ProducerKey) -> None:
        self._keys[key.transactional_id("t")] = key
        self.logs[key], self._accepted[key], self.stored[key] = {}, set(), set()

    def decided(self, transaction: Transaction) -> None:
        """A transaction is committed."""
        key = self._keys[transaction.id]
        self.counts["transactions"] += 1
        for partition, number in transaction.events:
            log = self.logs[key].setdefault(partition, [])
            check("once", not log or number > log[-1], f"{key} stores {number} after {log[-3:]}")
            log.append(number)
            self.stored[key].add(number)
        if key.state in transaction.changes and transaction.changes[key.state] is None:
            self._forget(key)
            return
        value = transaction.changes.get(key.state)
        if transaction.events or value is not None:
            check("together", value is not None, f"{key} has events without a record")
            reached = decoded(key.state, value or b"").reached
            stored = {partition: log[-1] for partition, log in self.logs[key].items()}
            check("together", reached == stored, f"{key}: the record has {reached}, the log {stored}")

    def _forget(self, key: ProducerKey) -> None:
        if self.logs[key]:
            self.counts["forgotten"] += 1
            self.forgotten.add(key)
        self.logs[key] = {}
        self._accepted[key].clear()
        self._asked[key] = dict.fromkeys(self._asked.get(key, ()), -1)

    def accepted(self, key: ProducerKey, numbers: Sequence[int]) -> None:
        self.counts["accepted"] += len(numbers)
        check(
            "accepted",
            self.stored[key].issuperset(numbers),
            f"{key}: {numbers} are accepted, and not committed",
        )
        # A repetition may be accepted a moment after its producer was forgotten.
        known = {number for log in self.logs[key].values() for number in log}
        self._accepted[key].update(known.intersection(numbers))

    def asks(self, link: Link) -> None:
        """An attach: the client may leave, and attach elsewhere, before it is answered."""
        key = link.client.key
        self._asked.setdefault(key, {})[link] = max(self._accepted[key], default=-1)

    def answered(self, link: Link, highest: int | None) -> None:
        self.counts["attached"] += 1
        key = link.client.key
        accepted = self._asked[key].pop(link)
        answer = -1 if highest is None else highest
        check("truth", answer >= accepted, f"{key}: answered {highest}, accepted {accepted}")


@dataclass(eq=False)
class Producer:
    """A client with one idempotent producer: it sends its numbers in order, and what was refused again."""

    world: "World"
    key: ProducerKey
    spread: bool
    link: Link | None = None
    ready: bool = False
    next: int = 0
    waiting: set[int] = field(default_factory=set)
    """What has no outcome yet."""
    owed: set[int] = field(default_factory=set)
    """What must be sent again before later events."""
    done: set[int] = field(default_factory=set)
    moves: float = 0.0

    def attach(self) -> None:
        """Attach to any node."""
        if self.link is not None:
            return
        alive = [each.process for each in self.world.machines if each.process and each.process.alive]
        if alive:
            self.ready, self.link = False, self.world.random.choice(alive).attach(self)

    def leave(self) -> None:
        """The connection is lost, in the eyes of the client; the node learns it later."""
        link, self.link = self.link, None
        if link is not None:
            self._forget()
            self.world.network.send("client", link.process.name, lambda: link.process.detach(link))

    def attached(self, link: Link, highest: int | None) -> None:
        """The attach is answered."""
        if link is self.link:
            self.ready = True
            if highest is not None and self.spread is False:
                self.done.update(number for number in self.owed if number <= highest)
                self.owed -= self.done

    def refused(self, link: Link) -> None:
        """The attach was refused."""
        self.lost(link, stolen=False)

    def lost(self, link: Link, *, stolen: bool) -> None:
        """The link was closed."""
        self.world.ledger.counts["stolen" if stolen else "closed"] += 1
        if link is self.link:
            self.link = None
            self._forget()

    def settled(self, link: Link, numbers: Sequence[int], *, accepted: bool) -> None:
        """Outcomes."""
        if link is self.link:
            self.waiting.difference_update(numbers)
            (self.done if accepted else self.owed).update(numbers)
            if not accepted:
                self.world.ledger.counts["refused"] += len(numbers)

    def turn(self) -> None:
        """Send, or attach."""
        if self.link is None:
            self.attach()
        if self.link is None or not self.ready:
            return
        random = self.world.random
        if self.owed:
            # Everything with an outcome first: the lowest number of all that were refused.
            if self.waiting:
                return
            numbers = sorted(self.owed)
            self.owed.clear()
        elif len(self.waiting) < 40 and not self.world.ended:
            numbers = list(range(self.next, self.next + random.randint(1, 6)))
            self.next = numbers[-1] + 1
        else:
            return
        self.waiting.update(numbers)
        events = [(number, self._message(number)) for number in numbers]
        link = self.link
        self.world.network.send("client", "client", lambda: link.process.send(link, events))

    def _message(self, number: int) -> bytes:
        return with_sequence(self.world.message(number, spread=self.spread), number)

    def _forget(self) -> None:
        self.owed |= self.waiting
        self.waiting.clear()
        self.ready = False


class World:
    """See the module. `harsh`: the misfortunes in which planted faults show."""

    def __init__(self, seed: int, *, stories: bool = False, harsh: bool = False) -> None:
        self.seed = seed
        self.story: list[str] = []
        self.stories = stories
        self.harsh = harsh
        self.random = random = Random(seed)
        self.schedule = Schedule()
        self.network = Network(self.schedule, random)
        self.calm = self.ended = False
        self.kafka = Kafka(self.schedule, random, random.choice((1, 2)))
        self.limit = random.choice((2, 3, 64))
        self.remembered = random.choice((2, 1000, 1000))
        count = random.choice((1, 2, 3))
        self.log = MemoryStore().create("log", LogSettings(partitions=count), incarnation=INCARNATION)
        self.ledger = Ledger()
        self.kafka.on_decided = self.ledger.decided
        self.machines = [
            Machine(name, random.uniform(1e3, 1e9), random.choice((0.991, 1.0, 1.009)))
            for name in ("a", "b", "c")[: random.choice((2, 2, 3))]
        ]
        # Three of one user, and one of another, to which one of them gives way.
        users = "mmnm"[: random.choice((1, 2, 4))]
        self.producers = [
            Producer(self, ProducerKey(INCARNATION, stored_id(user, f"p{number}")), random.random() < 0.5)
            for number, user in enumerate(users)
        ]
        for producer in self.producers:
            self.ledger.add(producer.key)
        for machine in self.machines:
            self._start(machine)

    def tell(self, words: str) -> None:
        if self.stories:
            self.story.append(f"{self.schedule.now:9.1f} {words}")

    def later(self, act: Callable[[], object]) -> None:
        """A client hears of it a moment later."""
        self.schedule.after(1.0, act)

    def message(self, number: int, *, spread: bool) -> bytes:
        """An event; with `spread`, with a partition of its own."""
        body = message_of(number)
        if not spread:
            return body
        target = str(number % len(self.log.partitions)).encode()
        name = names.TARGET_PARTITION.encode()
        entry = b"\xa3" + bytes([len(name)]) + name + b"\xa3" + bytes([len(target)]) + target
        return b"\x00\x53\x71\xc1" + bytes([len(entry) + 1, 2]) + entry + body

    def number_of(self, message: object) -> int:
        """The number of a stored event."""
        assert isinstance(message, bytes)
        return int.from_bytes(message[-8:])

    def counts(self) -> Counter[str]:
        return self.ledger.counts

    def processes(self) -> list[Process]:
        return [each.process for each in self.machines if each.process and each.process.alive]

    def _start(self, machine: Machine) -> None:
        if machine.process is None or not machine.process.alive:
            self.tell(f"{machine.name} starts")
            Process(self, machine)

    # -- the run

    def run(self) -> None:
        random, storm = self.random, 20_000 if self.harsh else self.random.choice((4000, 9000, 16_000))
        for producer in self.producers:
            self._every(random.choice((30, 120, 400)), producer.turn, float("inf"))
            if random.random() < 0.6:
                self._every(random.choice((700, 3000)), producer.leave, storm)
        kinds = [each for each in self._misfortunes() if self.harsh or random.random() < 0.5]

        def one() -> None:
            random.choice(kinds)()

        if kinds:
            self._every(random.choice((300, 900, 2500)), one, storm)
        self._every(3000, self._restart, storm)
        self.network.slow = random.choice((0.0, 0.02, 0.1))
        self.network.lossy = random.choice((0.0, 0.0, 0.05))
        self.schedule.run(storm)
        self._begin_calm()
        self.schedule.run(self.schedule.now + RECOVERY_MS)
        self._check()

    def _every(self, ms: float, act: Callable[[], object], until: float) -> None:
        def turn() -> None:
            if self.schedule.now < until:
                act()
                self.schedule.after(self.random.uniform(0.3, 1.7) * ms, turn)

        self.schedule.after(self.random.uniform(0, ms), turn)

    def _restart(self) -> None:
        for machine in self.machines:
            self._start(machine)

    # -- misfortunes

    def _misfortunes(self) -> list[Callable[[], None]]:
        return [self._kill, self._stop, self._stop_in_commit, self._cut, self._lag, self._away, self._refuse]

    def _any(self) -> Process | None:
        alive = self.processes()
        return self.random.choice(alive) if alive else None

    def _kill(self) -> None:
        process = self._any()
        if process is not None:
            self.tell(f"kill {process.id}")
            process.kill()
            machine = process.machine
            self.schedule.after(self.random.choice((100, 2000)), lambda: self._start(machine))

    def _stop(self) -> None:
        process = self._any()
        if process is not None:
            ms = self.random.choice((300, 800, 2600, 9000, 12_000))
            self.tell(f"stop {process.id} for {ms}")
            process.stop(ms)

    def _stop_in_commit(self) -> None:
        process = self._any()
        if process is not None:
            process.stop_in_commit = self.random.choice((800, 3000, 11_000))

    def _cut(self) -> None:
        machine, ms = self.random.choice(self.machines).name, self.random.choice((400, 900, 2000, 6000))
        source, target = self.random.choice(((machine, "kafka"), ("kafka", machine)))
        self.tell(f"cut {source} {target} for {ms}")
        self.network.cut(source, target, ms)

    def _lag(self) -> None:
        """Requests come late: one that is repeated comes twice."""
        machine = self.random.choice(self.machines).name
        self.tell(f"lag {machine}")
        self.network.lag(machine, "kafka", self.random.uniform(300, 2500), self.random.choice((200, 1500)))

    def _away(self) -> None:
        ms = self.random.choice((300, 2000, 6000, 12_000))
        self.tell(f"Kafka away for {ms}")
        self.kafka.away(ms)

    def _refuse(self) -> None:
        self.kafka.refuses = self.random.choice((0.0, 0.1, 0.5))

    # -- the calm

    def _begin_calm(self) -> None:
        self.tell("calm")
        self.calm = self.ended = True
        self.network.heal()
        self.kafka.heal()
        # More producers than this cannot be in use at once.
        for process in self.processes():
            process.stop_in_commit = 0.0
            process.producers.limit = 64
            process.wake()
        self.limit = 64
        for machine in self.machines:
            self._start(machine)

    def _check(self) -> None:
        for producer in self.producers:
            left = set(range(producer.next)) - producer.done
            check("progress", not left, f"{producer.key.producer} has no outcome for {sorted(left)[:5]}")
            stored = self.ledger.stored[producer.key]
            check("once", stored.issuperset(range(producer.next)), f"{producer.key.producer} lacks events")
            if producer.key in self.ledger.forgotten:
                continue
            for partition, log in self.ledger.logs[producer.key].items():
                wanted = list(range(producer.next))
                if producer.spread:
                    wanted = [each for each in wanted if each % len(self.log.partitions) == partition]
                check("once", log == wanted, f"{producer.key.producer} in {partition}: {log[:9]}")
