"""A model of Kafka's transactions over partitions of a log and the topic of numbers.

What it has of the real one: a producer that is opened again fences the one before, ends its transaction, and
is answered when the markers are written; a commit is decided before its markers are there, and readers wait
for the first transaction without one; a request may come late, twice, or never; a transaction that is open
for too long is aborted, and its producer fenced.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from amqp_streams.kafka.numbered.producing import Outcome
from tests.simulation.homes.schedule import Schedule
from tests.simulation.stopping import AwayBrokers

MARKERS_MS = 45.0
TIMEOUT_MS = 10_000.0
Event = tuple[int, int]
"""A partition of the log, and the number of an event."""


@dataclass(eq=False)
class Transaction:
    """`decided`: committed or aborted, or None while it is open. `marked`: readers know."""

    id: str
    epoch: int
    events: list[Event] = field(default_factory=list)
    changes: dict[str, bytes | None] = field(default_factory=dict)
    decided: bool | None = None
    marked: bool = False


class Kafka(AwayBrokers):
    """All brokers together."""

    def __init__(self, schedule: Schedule, random: Random, buckets: int) -> None:
        super().__init__(schedule)
        self.schedule = schedule
        self.random = random
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.last: dict[str, Transaction] = {}
        self.buckets: list[list[Transaction]] = [[] for _ in range(buckets)]
        """The transactions with a record in each bucket, as offsets."""
        self.refuses = 0.0
        self.on_decided: Callable[[Transaction], None] = lambda _transaction: None

    def away(self, ms: float) -> None:
        """Nothing is answered for a while."""
        self.away_until = max(self.away_until, self.schedule.now + ms)
        self.schedule.after(ms, self._answer)

    def heal(self) -> None:
        """End all faults."""
        self.refuses, self.away_until = 0.0, self.schedule.now
        self._answer()

    # -- readers

    def stable(self, bucket: int) -> int:
        """The last stable offset: readers get what is below."""
        log = self.buckets[bucket]
        return next((at for at, each in enumerate(log) if not each.marked), len(log))

    def read(self, bucket: int, start: int, end: int) -> list[Mapping[str, bytes | None]]:
        return [each.changes for each in self.buckets[bucket][start:end] if each.decided]

    # -- requests of producers

    def open_producer(self, id_: str) -> int:
        """Fence, and end what an earlier producer left open."""
        self.epochs[id_] = self.epochs.get(id_, 0) + 1
        if id_ in self.open:
            self._decide(self.open[id_], commits=False)
        return self.epochs[id_]

    def settled(self, id_: str) -> bool:
        """Whether the markers of all transactions of this id are written: only then a fence is answered."""
        return id_ not in self.last or self.last[id_].marked

    def produce(
        self, id_: str, epoch: int, events: list[Event], bucket: int, changes: Mapping[str, bytes | None]
    ) -> Outcome | None:
        """Write into the open transaction; None: done."""
        if epoch != self.epochs.get(id_):
            return Outcome.FENCED
        if self.random.random() < self.refuses:
            return Outcome.ABORTED
        transaction = self.open.get(id_)
        if transaction is None:
            transaction = self.open[id_] = self.last[id_] = Transaction(id_, epoch)
            self.schedule.after(TIMEOUT_MS, lambda: self._time_out(transaction))
        transaction.events += events
        if changes and transaction not in self.buckets[bucket]:
            self.buckets[bucket].append(transaction)
        transaction.changes.update(changes)
        return None

    def end(self, id_: str, epoch: int, *, commits: bool) -> Outcome:
        """End the open transaction, whichever it is by now."""
        if epoch != self.epochs.get(id_):
            return Outcome.FENCED
        if id_ in self.open:
            self._decide(self.open[id_], commits=commits)
        return Outcome.COMMITTED if commits else Outcome.ABORTED

    def _time_out(self, transaction: Transaction) -> None:
        if transaction.decided is None:
            self.epochs[transaction.id] += 1
            self._decide(transaction, commits=False)

    def _decide(self, transaction: Transaction, *, commits: bool) -> None:
        del self.open[transaction.id]
        transaction.decided = commits
        if commits:
            self.on_decided(transaction)

        def mark() -> None:
            transaction.marked = True

        self.schedule.after(self.random.uniform(0.0, MARKERS_MS), mark)
