"""One process of a node: performs the effects of its producers, on a machine that may stop it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.batches import Batch, Share
from amqp_streams.kafka.numbered.partitions import commit_done, numbered_log
from amqp_streams.kafka.numbered.producers import Producers
from amqp_streams.kafka.numbered.producing import (
    Close,
    Commit,
    Ended,
    Fence,
    Lost,
    NumberedProducer,
    Opened,
    Outcome,
    Read,
)
from amqp_streams.kafka.numbered.records import ProducerKey, encoded
from amqp_streams.kafka.sharing.followed import FollowedStates
from amqp_streams.storage.formats.producers import USER_SEPARATOR
from amqp_streams.storage.ports import CommitDone, CommitQueue, Formats, Partition, StoredLog
from amqp_streams.streams.attach import Producing
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.numbering import Numbering
from amqp_streams.streams.receipts import Wait
from amqp_streams.streams.steps import finish
from tests.simulation.numbered.kafka import Event
from tests.simulation.stopping import StoppableProcess

if TYPE_CHECKING:
    from tests.simulation.numbered.world import Machine, World

T = TypeVar("T")
TICK_MS = 100.0
FOLLOW_MS = 60.0
REQUEST_MS = 5000.0
AGAIN_MS: Final = 1000.0
"""When librdkafka repeats a request to end a transaction."""
SURE_MS: Final = 700.0


class Client(Protocol):
    """The client of a link."""

    key: ProducerKey

    def attached(self, link: "Link", highest: int | None) -> None: ...
    def refused(self, link: "Link") -> None: ...
    def settled(self, link: "Link", numbers: Sequence[int], *, accepted: bool) -> None: ...
    def lost(self, link: "Link", *, stolen: bool) -> None: ...


@dataclass(eq=False)
class Link:
    """A link of an idempotent producer at its node."""

    process: "Process"
    client: Client
    grant: Producing | None = None
    producer: NumberedProducer | None = None
    over: bool = False


class Process(StoppableProcess):
    """A node from start to end. `id`: no other process has it."""

    def __init__(self, world: "World", machine: "Machine") -> None:
        super().__init__(world)
        machine.starts += 1
        machine.process = self
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.id = f"{machine.name}.{machine.starts}"
        self.stop_in_commit = 0.0
        """For how long the process will be stopped between the events of a transaction and its end."""
        self.links: dict[Link, None] = {}
        self.pending_bytes = 0
        self.table = FollowedStates(len(world.kafka.buckets))
        self.producers = Producers(
            self.id,
            limit=world.limit,
            remembered=world.remembered,
            values=lambda bucket: self.table.buckets[bucket].values,
            buckets=len(world.kafka.buckets),
        )
        self.numbering = Numbering(limit=100, expiry_ms=1000)
        self.intake = NumberedIntake(cast("Any", self), self.numbering)
        self._views: dict[ProducerKey, tuple[NumberedProducer, StoredLog]] = {}
        self._epochs: dict[ProducerKey, int] = {}
        """Of the transactional producers that are open here. Those before them are closed."""
        self._opening: dict[ProducerKey, list[Link]] = {}
        self._waits: dict[tuple[CommitQueue, int], list[tuple[Link, Wait, list[int]]]] = {}
        for ms, act in ((TICK_MS, self._tick), (FOLLOW_MS, self._follow)):
            self.every(ms, act)

    # -- the process on its machine

    def now_ms(self) -> int:
        return self.machine.boot_ms(self.world.schedule.now)

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self.inbox.clear()
        for link in list(self.links):
            self._lose(link, stolen=False)

    # -- timers

    def _tick(self) -> None:
        self.producers.tick(self.now_ms())

    def _follow(self) -> None:
        kafka, network = self.world.kafka, self.world.network
        if kafka.away_until > self.world.schedule.now or network.is_cut("kafka", self.name):
            return
        for bucket in range(len(kafka.buckets)):
            self._follow_to(bucket, kafka.stable(bucket))

    def _follow_to(self, bucket: int, end: int) -> None:
        start = self.table.buckets[bucket].position
        for changes in self.world.kafka.read(bucket, start, end):
            self.table.apply(bucket, list(changes.items()), end)
            for key, value in changes.items():
                self.producers.followed(key, value)
        self.table.apply(bucket, (), max(start, end))

    # -- links

    def attach(self, client: Client) -> Link:
        """A client attaches."""
        link = Link(self, client)
        self.links[link] = None
        self.world.ledger.asks(link)

        def begin() -> None:
            if link.over:
                return
            try:
                self.producers.open(client.key, 0, self.now_ms())
            except PeerError:
                self._refuse(link)
            else:
                self._opening.setdefault(client.key, []).append(link)

        self.do(begin)
        return link

    def detach(self, link: Link) -> None:
        """The client has left."""
        self.do(lambda: self._lose(link, stolen=False))

    def send(self, link: Link, events: Sequence[tuple[int, bytes]]) -> None:
        """The client sends events with these numbers."""
        self.do(lambda: self._take(link, events))

    def _take(self, link: Link, events: Sequence[tuple[int, bytes]]) -> None:
        if link.over or link.grant is None or link.grant.numbered is None or link.producer is None:
            return
        numbers, messages = [number for number, _ in events], [message for _, message in events]
        receipt = finish(self.intake.receive(link.grant, link.grant.numbered, messages, self.now_ms()))
        for wait in receipt.waits():
            indices = range(len(numbers)) if wait.indices is None else wait.indices
            entry = link, wait, [numbers[index] for index in indices]
            self._waits.setdefault((wait.queue, wait.commit), []).append(entry)
        self._tell(link, [numbers[index] for index in receipt.settled], accepted=True)
        self._tell(link, [numbers[index] for index, _ in receipt.refused], accepted=False)
        self.producers.commit(link.producer, self.now_ms())

    def append_numbered(  # noqa: PLR0917  see `Room`
        self,
        producer: NumberedProducer,
        partition: Partition,
        messages: Sequence[bytes],
        header_sizes: bytes,
        last: int,
        formats: Formats,
    ) -> None:
        """See `Room`."""
        producer.append(Share(partition.index, list(messages), [None] * len(messages)), last, len(messages))

    def allow_formats(self) -> None: ...

    def _tell(self, link: Link, numbers: Sequence[int], *, accepted: bool) -> None:
        if numbers and not link.over:
            if accepted:
                self.world.ledger.accepted(link.client.key, numbers)
            self.world.later(lambda: link.client.settled(link, numbers, accepted=accepted))

    def _refuse(self, link: Link) -> None:
        if not link.over:
            link.over = True
            self.links.pop(link, None)
            self.world.later(lambda: link.client.refused(link))

    def _lose(self, link: Link, *, stolen: bool) -> None:
        if link.over:
            return
        link.over = True
        self.links.pop(link, None)
        waiting = self._opening.get(link.client.key, [])
        if link in waiting:
            self.producers.cancel(link.client.key, waiting.index(link))
            waiting.remove(link)
        if link.grant is not None and link.grant.numbered is not None and link.producer is not None:
            self.numbering.detach(link.grant.numbered)
            self.producers.detach(link.producer, self.now_ms())
        self.world.later(lambda: link.client.lost(link, stolen=stolen))

    def _opened(self, key: ProducerKey, count: int, failure: str | None) -> None:
        waiting = self._opening.get(key, [])
        answered, waiting[:count] = waiting[:count], []
        for link in answered:
            if link.over:
                continue
            try:
                if failure is not None:
                    raise StorageError(failure)
                self.producers.answered(key, self.now_ms())
                producer = self.producers.attach(key)
            except StorageError:
                self._refuse(link)
                continue
            if key not in self._views or self._views[key][0] is not producer:
                self._views[key] = producer, numbered_log(self.world.log, producer, self)
            view = self._views[key][1]
            home = producer.record.home
            user, _, name = key.producer.partition(USER_SEPARATOR)
            numbered = self.numbering.attach(view, name, None, user=user, home=home, durable=True)
            link.producer, link.grant = producer, Producing(view, None, numbered=numbered)
            self.world.ledger.answered(link, numbered.highest)
            self.world.later(partial(client_attached, link, numbered.highest))

    def _committed(self, done: CommitDone) -> None:
        self.numbering.committed(done)
        for link, wait, numbers in self._waits.pop((done.queue, done.sequence), ()):
            failed: set[int] = set()
            for part in wait.parts:
                if part.partition in done.failures:
                    indices = range(len(numbers)) if part.indices is None else part.indices
                    failed.update(numbers[index] for index in indices)
            self._tell(link, [each for each in numbers if each not in failed], accepted=True)
            self._tell(link, sorted(failed), accepted=False)

    # -- effects and requests

    def _perform(self) -> None:
        while self.alive and self.producers.effects:
            effects = self.producers.effects.copy()
            self.producers.effects.clear()
            for effect in effects:
                if self.world.stories:
                    self.world.tell(f"{self.id}: {effect}")
                self._perform_one(effect)

    def _perform_one(self, effect: object) -> None:
        match effect:
            case Fence(key, attempt):
                self._fence(key, attempt)
            case Read(key, attempt):
                self._read(key, attempt)
            case Commit(key, attempt, record, batch):
                changes = {key.state: None if record is None else encoded(record)}
                self._commit(key, attempt, changes, batch)
            case Close(key):
                self._epochs.pop(key, None)
            case Opened(key, count, failure):
                self._opened(key, count, failure)
            case Ended(key, batch, failure):
                self._batch_ended(key, batch, failure)
            case Lost(key, _, stolen):
                for link in [each for each in self.links if each.client.key == key and each.grant]:
                    self._lose(link, stolen=stolen)
            case _:
                raise AssertionError(effect)

    def _batch_ended(self, key: ProducerKey, batch: Batch, failure: str | None) -> None:
        error = None if failure is None else StorageError(failure)
        self._committed(commit_done(self._views[key][1], batch, 0.0, error))

    def _ask(self, act: Callable[[], T], then: Callable[[T | None], object], *, repeat: bool = False) -> None:
        """Ask Kafka. None: no answer in time; the request may be carried out nevertheless."""
        network, answered = self.world.network, False

        def finish_(result: T | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                then(result)

        def carry_out() -> None:
            result = act()
            network.send("kafka", self.name, lambda: self.do(lambda: finish_(result)))

        def ask() -> None:
            if not answered:
                network.send(self.name, "kafka", lambda: self.world.kafka.ask(carry_out))

        ask()
        if repeat:
            # In a thread of librdkafka, which is stopped with the process.
            self.after(AGAIN_MS, ask)
        self.after(REQUEST_MS, lambda: finish_(None))

    def _id(self, key: ProducerKey) -> str:
        return key.transactional_id("t")

    def _fence(self, key: ProducerKey, attempt: int) -> None:
        kafka, id_ = self.world.kafka, self._id(key)

        def then(epoch: int | None) -> None:
            if epoch is not None and not kafka.settled(id_):
                self.after(10, lambda: then(epoch))
                return
            if epoch is not None:
                self._epochs[key] = epoch
            failure = None if epoch is not None else "no answer"
            self.producers.fenced(key, attempt, failure, self.now_ms())

        self._epochs.pop(key, None)
        self._ask(lambda: kafka.open_producer(id_), then)

    def _read(self, key: ProducerKey, attempt: int) -> None:
        kafka = self.world.kafka
        bucket = key.bucket % len(kafka.buckets)

        def then(end: int | None) -> None:
            if end is None:
                self.producers.read(key, attempt, "no answer", self.now_ms())
            elif kafka.stable(bucket) < end:
                self.after(10, lambda: then(end))
            else:
                self._follow_to(bucket, end)
                self.producers.read(key, attempt, None, self.now_ms())

        self._ask(lambda: len(kafka.buckets[bucket]), then)

    def _commit(
        self, key: ProducerKey, attempt: int, changes: dict[str, bytes | None], batch: Batch | None
    ) -> None:
        kafka, id_, epoch = self.world.kafka, self._id(key), self._epochs.get(key, -1)
        bucket, began = key.bucket % len(kafka.buckets), self.world.schedule.now
        events: list[Event] = []
        for share in () if batch is None else batch.shares:
            events += [(share.partition, self.world.number_of(each)) for each in share.values]

        def ended(outcome: Outcome | None) -> None:
            late = self.world.schedule.now - began >= SURE_MS
            sure = Outcome.UNKNOWN if outcome is not Outcome.FENCED and late else outcome
            self.producers.ended(key, attempt, sure or Outcome.UNKNOWN, "as it is", self.now_ms())

        def produced(result: tuple[Outcome | None] | None) -> None:
            nonlocal began
            if result is None or result[0] is Outcome.FENCED:
                ended(None if result is None else result[0])
                return
            began = self.world.schedule.now
            if self.stop_in_commit:
                stop_ms, self.stop_in_commit = self.stop_in_commit, 0.0
                self.stop(stop_ms)
            commits = result[0] is None
            self.do(lambda: self._ask(lambda: kafka.end(id_, epoch, commits=commits), ended, repeat=True))

        def record(result: tuple[Outcome | None] | None) -> None:
            if result is None or result[0] is not None:
                produced(result)
            else:
                self._ask(lambda: (kafka.produce(id_, epoch, [], bucket, changes),), produced)

        if events:
            self._ask(lambda: (kafka.produce(id_, epoch, events, bucket, {}),), record)
        else:
            record((None,))


def client_attached(link: Link, highest: int | None) -> None:
    link.client.attached(link, highest)


def message_of(number: int) -> bytes:
    """The event with this number, without its number: an AMQP value."""
    return b"\x00\x53\x77\xa0\x08" + number.to_bytes(8)
