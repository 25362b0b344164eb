"""A model of Kafka: the state topic with transactional producers, and the group of the nodes.

What it has of the real one: a producer that is opened again fences the one before, and ends its transaction;
a commit is decided before its markers are in the partition, so the last stable offset lags; a request may be
carried out although its client has given up on it, also much later; a member that is silent for the session
timeout is expelled and does not hear of it before it asks; buckets move only after their member has given
them back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from amqp_streams.homes.bucket import Outcome
from tests.simulation.homes.schedule import Schedule
from tests.simulation.stopping import AwayBrokers

Changes = Mapping[str, bytes | None]
SESSION_MS = 6000.0
MARKERS_MS = 45.0


@dataclass(eq=False)
class Transaction:
    """`decided`: committed or aborted, or None while it is open. `marked`: readers know."""

    epoch: int
    changes: list[Changes] = field(default_factory=list)
    decided: bool | None = None
    marked: bool = False


@dataclass(eq=False)
class StatePartition:
    """One partition of the state topic. Each transaction counts as one offset."""

    bucket: int
    epoch: int = 0
    log: list[Transaction] = field(default_factory=list)
    open: Transaction | None = None
    values: dict[str, bytes] = field(default_factory=dict)
    """All decided changes, whether readers know them or not: the truth."""

    def stable(self) -> int:
        """The last stable offset: readers get what is below."""
        for at, transaction in enumerate(self.log):
            if not transaction.marked:
                return at
        return len(self.log)

    def read(self, start: int, end: int) -> list[Changes]:
        return [
            changes
            for transaction in self.log[start:end]
            if transaction.decided
            for changes in transaction.changes
        ]


@dataclass(eq=False)
class Member:
    """A node in the group, as the coordinator knows it."""

    heard: float
    told: int = -1


class Group:
    """The coordinator of the group of all nodes."""

    def __init__(self, schedule: Schedule, buckets: int) -> None:
        self.schedule = schedule
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.owner: dict[int, str | None] = dict.fromkeys(range(buckets))
        self.target: dict[int, str | None] = dict.fromkeys(range(buckets))

    def expire(self) -> None:
        """Expel silent members."""
        for node in [
            each for each, member in self.members.items() if self.schedule.now - member.heard > SESSION_MS
        ]:
            self.leave(node)

    def join(self, node: str) -> None:
        self.members[node] = Member(self.schedule.now)
        self._rebalance()

    def leave(self, node: str) -> None:
        if self.members.pop(node, None) is not None:
            for bucket, owner in self.owner.items():
                if owner == node:
                    self.owner[bucket] = None
            self._rebalance()

    def given_back(self, node: str, generation: int, buckets: frozenset[int]) -> None:
        if node in self.members and generation <= self.generation:
            for bucket in buckets:
                if self.owner[bucket] == node and self.target[bucket] != node:
                    self.owner[bucket] = self.target[bucket]
            self.generation += 1

    def heartbeat(self, node: str) -> tuple[int, frozenset[int], frozenset[int]] | None:
        """The generation, what the node has, and what it must give back. None: it is not a member."""
        member = self.members.get(node)
        if member is None:
            return None
        member.heard = self.schedule.now
        owned = frozenset(bucket for bucket, owner in self.owner.items() if owner == node)
        return self.generation, owned, frozenset(bucket for bucket in owned if self.target[bucket] != node)

    def _rebalance(self) -> None:
        self.generation += 1
        nodes = sorted(self.members)
        loads = dict.fromkeys(nodes, 0)
        most = -(-len(self.owner) // len(nodes)) if nodes else 0
        # Buckets stay where they are, as far as the loads allow it.
        for bucket in sorted(self.owner, key=lambda each: self.owner[each] is None):
            kept = self.owner[bucket]
            if kept is not None and loads[kept] < most:
                loads[kept] += 1
            else:
                kept = min(nodes, key=loads.__getitem__) if nodes else None
                if kept is not None:
                    loads[kept] += 1
            self.target[bucket] = kept
        for bucket, owner in self.owner.items():
            if owner is None:
                self.owner[bucket] = self.target[bucket]


class Kafka(AwayBrokers):
    """All brokers together. `away_until`: a broker is lost, and nothing is answered until its successor
    leads.
    """

    def __init__(self, schedule: Schedule, random: Random, buckets: int) -> None:
        super().__init__(schedule)
        self.schedule = schedule
        self.random = random
        self.partitions = [StatePartition(bucket) for bucket in range(buckets)]
        self.group = Group(schedule, buckets)
        self.refuses = 0.0
        """How many of the writes find too few replicas in sync."""
        self.on_decided: Callable[[int, Transaction], None] = lambda _bucket, _transaction: None

    def away(self, ms: float) -> None:
        """Nothing is answered for a while. The timers of members begin anew afterwards."""
        self.away_until = max(self.away_until, self.schedule.now + ms)
        for member in self.group.members.values():
            member.heard = self.away_until
        self.schedule.after(ms, self._answer)

    def heal(self) -> None:
        """End all faults."""
        self.refuses = 0.0
        if self.away_until > self.schedule.now:
            self.away_until = self.schedule.now
            for member in self.group.members.values():
                member.heard = self.schedule.now
        self._answer()

    # -- requests; each answers with a value

    def open_producer(self, bucket: int) -> int:
        """Fence, and end what an earlier producer left open."""
        partition = self.partitions[bucket]
        partition.epoch += 1
        if partition.open is not None:
            self._decide(partition, commits=False)
        return partition.epoch

    def produce(self, bucket: int, epoch: int, changes: Changes) -> Outcome | None:
        """Write into the open transaction; None: done."""
        partition = self.partitions[bucket]
        if epoch != partition.epoch:
            return Outcome.FENCED
        if self.random.random() < self.refuses:
            return Outcome.ABORTED
        if partition.open is None:
            partition.open = Transaction(epoch)
            partition.log.append(partition.open)
        partition.open.changes.append(changes)
        return None

    def end(self, bucket: int, epoch: int, *, commits: bool) -> Outcome:
        """End the open transaction."""
        partition = self.partitions[bucket]
        if epoch != partition.epoch:
            return Outcome.FENCED
        if partition.open is not None:
            self._decide(partition, commits=commits)
        return Outcome.COMMITTED if commits else Outcome.ABORTED

    def _decide(self, partition: StatePartition, *, commits: bool) -> None:
        transaction, partition.open = partition.open, None
        assert transaction is not None
        transaction.decided = commits
        if commits:
            for changes in transaction.changes:
                for key, value in changes.items():
                    if value is None:
                        partition.values.pop(key, None)
                    else:
                        partition.values[key] = value
            self.on_decided(partition.bucket, transaction)

        def mark() -> None:
            transaction.marked = True

        self.schedule.after(self.random.uniform(0.0, MARKERS_MS), mark)
