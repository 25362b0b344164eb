"""[io] The idempotent producers of a node, connected with Kafka: topic of numbers, transactions, links.

`Producers` decides, and this shell performs the effects in their order and brings the results. Everything
here runs on the event loop's thread; threads wait for Kafka. The topic of numbers is found, or created, and
followed from the first attach on: a node without idempotent producers does not need it.
"""

import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final, assert_never

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.jobs import Jobs
from amqp_streams.kafka.numbered.batches import Batch, Share
from amqp_streams.kafka.numbered.openings import Opening
from amqp_streams.kafka.numbered.partitions import NumberedPartition, commit_done, numbered_log
from amqp_streams.kafka.numbered.producers import FORGETTING_MAX, SPARE, Producers
from amqp_streams.kafka.numbered.producing import (
    Close,
    Commit,
    Ended,
    Fence,
    Lost,
    NumberedProducer,
    Opened,
    Outcome,
    Phase,
    Read,
)
from amqp_streams.kafka.numbered.records import BUCKETS, ProducerKey, encoded
from amqp_streams.kafka.numbered.sending import EventProducer, Transaction
from amqp_streams.kafka.partition import KafkaPartition
from amqp_streams.kafka.settings import RECORD_OVERHEAD
from amqp_streams.kafka.sharing import producing
from amqp_streams.kafka.sharing.followed import Changes, FollowedStates
from amqp_streams.kafka.sharing.following import StateFollower
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.sharing.workers import Workers
from amqp_streams.storage.ports import (
    LATER,
    CommitDone,
    Formats,
    Later,
    Partition,
    ReadRequest,
    StoredLog,
    Use,
)
from amqp_streams.storage.questions import Figure, OpenProducer

WHAT: Final = "idempotent producers"
TICK_S: Final = 0.1
_OUTCOMES: Final = {
    producing.Outcome.COMMITTED: Outcome.COMMITTED,
    producing.Outcome.ABORTED: Outcome.ABORTED,
    producing.Outcome.UNKNOWN: Outcome.UNKNOWN,
    producing.Outcome.FENCED: Outcome.FENCED,
}

log = logging.getLogger("amqp_streams.kafka")


def boot_ms() -> int:
    """CLOCK_BOOTTIME in ms."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def numbered_figures(producers: int, ends: Mapping[str, int], taken: int) -> Iterator[Figure]:
    """The figures of idempotent producers. `ends`: how many transactions ended, by outcome."""
    yield Figure(
        "kafka_numbered_producers",
        "Idempotent producers that are open at this node.",
        {(): float(producers)},
    )
    yield Figure(
        "kafka_numbered_transactions",
        "Transactions of idempotent producers, by outcome.",
        {(outcome.name.lower(),): float(ends.get(outcome.name, 0)) for outcome in Outcome},
        labels=("outcome",),
        counter=True,
    )
    yield Figure(
        "kafka_numbered_taken",
        "Idempotent producers that this node lost to another one.",
        {(): float(taken)},
        counter=True,
    )


class Numbers:
    """`topic_of`: the topic of a log. `on_commit`: see `Store`. `on_taken`: see `Others`."""

    def __init__(
        self,
        options: KafkaOptions,
        administration: Administration,
        jobs: Jobs,
        *,
        loop_call: Callable[..., object],
        on_commit: Callable[[CommitDone], None],
        on_taken: Callable[[StoredLog, str, bool], None],
    ) -> None:
        self.pending_bytes = 0
        self.pending_events = 0
        self._options: Final = options
        self._administration: Final = administration
        self._jobs: Final = jobs
        self._loop_call: Final = loop_call
        self._on_commit: Final = on_commit
        self._on_taken: Final = on_taken
        self._states: Final = FollowedStates(BUCKETS)
        self._producers: Final = Producers(
            uuid.uuid4().hex,
            limit=options.numbered,
            remembered=options.remembered,
            values=lambda bucket: self._states.buckets[bucket].values,
            size=lambda bucket: self._states.buckets[bucket].size,
            ending=lambda: self._workers.ending,
        )
        self._workers: Final[Workers[ProducerKey, Transaction]] = Workers(
            self._made,
            named=lambda key: f"producer {key.producer!r}",
            loop_call=loop_call,
            # Those that end, and those that are forgotten, have a thread for a moment. One user has at most
            # two for each producer, and `SPARE`, so that others get theirs.
            threads_max=3 * options.numbered + FORGETTING_MAX + SPARE,
        )
        self._follower: StateFollower | None = None
        self._starting: Future[FoundTopic] | None = None
        self._unusable = ""
        """Why the topic of numbers was not found or created the last time."""
        self._early: Final[list[Opening]] = []
        """What waits for the topic of numbers."""
        self._openings: Final[dict[ProducerKey, deque[Opening]]] = {}
        self._views: Final[dict[ProducerKey, tuple[NumberedProducer, StoredLog]]] = {}
        self._unread: Final[set[ProducerKey]] = set()
        """Producers whose bucket could not be read to its end: perhaps a transaction hangs."""
        self._unsent: Final[dict[NumberedProducer, None]] = {}
        self._begun: Final[dict[Batch, float]] = {}
        self._ends: Final[Counter[str]] = Counter()
        self._taken = 0
        self._performing = False
        self._stopping: Final = threading.Event()
        self._handled: Final = threading.Event()
        self._ticker: Final = threading.Thread(target=self._tick_all, name="kafka-numbers", daemon=True)

    # -- for the store

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps idempotent producers from sending, in words."""
        if self._follower is None:
            return (self._unusable,) if self._unusable else ()
        return self._follower.problems

    def uses(self) -> dict[str, Use]:
        """How many producers are in use."""
        return {"kafka_numbered": Use(self._producers.in_use, self._options.numbered)}

    def figures(self) -> Iterator[Figure]:
        """The figures for operators."""
        return numbered_figures(len(self._producers.producers), self._ends, self._taken)

    def open(self, stored: StoredLog, question: OpenProducer, request: ReadRequest) -> Later | None:
        """The answer to `OpenProducer`."""
        key = ProducerKey(stored.incarnation, question.producer)
        pending = request.pending
        if not isinstance(pending, Opening) or pending.key != key:
            request.cancel()
            pending = Opening(key, question.home, request, self._cancelled)
            self._begin(pending)
            request.pending = pending
        if not pending.ended:
            return LATER
        request.pending = None
        if pending.error is not None:
            raise pending.error
        return None

    def attached(self, stored: StoredLog, producer: str) -> tuple[StoredLog, int]:
        """See `Others.attached`."""
        key = ProducerKey(stored.incarnation, producer)
        found = self._producers.attach(key)
        if key not in self._views or self._views[key][0] is not found:
            self._views[key] = found, numbered_log(stored, found, self)
        # The settings of the log may have changed.
        view = replace(stored, partitions=self._views[key][1].partitions)
        return view, found.record.home

    def detached(self, view: StoredLog) -> None:
        """See `Others.detached`."""
        partition = view.partitions[0]
        assert isinstance(partition, NumberedPartition)
        self._producers.detach(partition.producer, boot_ms())

    def append_numbered(  # noqa: PLR0917  as of `Partition.append`
        self,
        producer: NumberedProducer,
        partition: Partition,
        messages: Sequence[bytes],
        header_sizes: bytes,
        last: int,
        formats: Formats,
    ) -> None:
        """See `Room`."""
        assert isinstance(partition, KafkaPartition)
        self._producers.require_room(producer, partition.index)
        values, keys, size = partition.records(messages, header_sizes, formats)
        producer.append(Share(partition.index, values, keys), last, size)
        self.pending_bytes += size
        self.pending_events += len(values)
        self._unsent[producer] = None

    def commit(self) -> None:
        """Begin the transactions that can begin."""
        if not self._unsent:
            return
        now, unsent = perf_counter(), tuple(self._unsent)
        self._unsent.clear()
        for producer in unsent:
            # What was appended may have been refused meanwhile.
            if producer.next.events:
                self._begun.setdefault(producer.next, now)
            self._producers.commit(producer, boot_ms())
        self._perform()

    def dropped(self, partition: KafkaPartition) -> None:
        """A log is gone. Not from within the change of the logs."""
        for key, (_, view) in tuple(self._views.items()):
            if any(
                isinstance(each, NumberedPartition) and each.partition is partition
                for each in view.partitions
            ):
                self._producers.lose(key.incarnation, str(partition.failure))
        self._perform()

    def close(self, within_s: float) -> bool:
        """Give up all producers, and end the threads. Returns whether they have ended in time."""
        self._stopping.set()
        self._handled.set()
        self._producers.give_up("the node stops")
        self._perform()
        if self._ticker.is_alive():
            self._ticker.join()
        if self._follower is not None:
            self._follower.close()
        return self._workers.close(within_s)

    # -- the topic of numbers

    def _begin(self, opening: Opening) -> None:
        if self._follower is not None:
            self._open(opening)
            return
        self._early.append(opening)
        if self._starting is None:
            options = self._options
            find = partial(
                find_or_create, self._administration, options.names.numbers, BUCKETS, weak=options.weak,
                replicas=options.replicas, what=WHAT,
            )  # fmt: skip
            self._starting = self._jobs.submit(find)
            self._starting.add_done_callback(partial(self._loop_call, self._found))

    def _found(self, found: "Future[FoundTopic]") -> None:
        self._starting = None
        early = self._early.copy()
        self._early.clear()
        if self._stopping.is_set():
            return
        try:
            self._follow(found.result())
        except StorageError as error:
            if str(error) != self._unusable:
                log.error("kafka_numbers_unusable reason=%s", error)
            self._unusable = str(error)
            for opening in early:
                opening.end(error)
            return
        for opening in early:
            try:
                self._open(opening)
            except PeerError as error:
                opening.end(error)

    def _follow(self, found: FoundTopic) -> None:
        self._follower = StateFollower(
            self._options.connection,
            self._administration,
            found,
            weak=self._options.weak,
            what=WHAT,
            loop_call=self._loop_call,
            boot_ms=boot_ms,
            on_changes=self._changed,
            on_lost=self._states_lost,
            states=self._states,
        )
        self._ticker.start()

    def _changed(self, _bucket: int, changes: Changes) -> None:
        for state, value in changes:
            self._producers.followed(state, value)
        self._perform()

    def _states_lost(self, buckets: frozenset[int], why: str) -> None:
        self._producers.lose_buckets(buckets, why)
        self._perform()

    def _tick_all(self) -> None:
        while not self._stopping.wait(TICK_S):
            self._handled.clear()
            self._loop_call(self._tick)
            # A busy loop must not collect ticks.
            while not self._handled.wait(TICK_S) and not self._stopping.is_set():
                pass

    def _tick(self) -> None:
        self._handled.set()
        if self._follower is not None and not self._stopping.is_set():
            self._follower.tick()
            self._producers.tick(boot_ms())
            self._perform()

    # -- effects

    def _open(self, opening: Opening) -> None:
        self._producers.open(opening.key, opening.home, boot_ms())
        self._openings.setdefault(opening.key, deque()).append(opening)
        self._perform()

    def _cancelled(self, opening: Opening) -> None:
        """A client has left: its attach must not take the producer from where the client is now."""
        waiting = self._openings.get(opening.key, deque())
        if opening in self._early:
            self._early.remove(opening)
        elif opening in waiting:
            self._producers.cancel(opening.key, waiting.index(opening))
            waiting.remove(opening)
            self._perform()

    def _perform(self) -> None:
        # What an effect causes is performed after it.
        if self._performing:
            return
        self._performing = True
        effects = self._producers.effects
        try:
            while effects:
                found = effects.copy()
                effects.clear()
                for effect in found:
                    self._perform_one(effect)
        finally:
            self._performing = False

    def _perform_one(self, effect: Fence | Read | Commit | Close | Opened | Ended | Lost) -> None:
        match effect:
            case Fence(key, attempt):
                hangs = key in self._unread
                # Once for each reading that failed: Kafka may be too slow for the end of another transaction.
                self._unread.discard(key)
                self._workers.fence(key, partial(self._fenced, key, attempt), ends_hanging=hangs)
            case Read(key, attempt):
                assert self._follower is not None
                self._follower.reach(key.bucket, key, partial(self._read, key, attempt))
            case Commit():
                self._write(effect)
            case Close(key):
                self._workers.release(key)
                self._unread.discard(key)
                if key in self._views and self._views[key][0].phase is Phase.OVER:
                    del self._views[key]
            case Opened(key, count, failure):
                self._opened(key, count, failure)
            case Ended(key, batch, failure):
                self._batch_ended(key, batch, failure)
            case Lost(key, reason, stolen):
                self._taken += stolen
                self._on_taken(self._views[key][1], reason, stolen)
            case _:
                assert_never(effect)

    def _write(self, effect: Commit) -> None:
        key, batch = effect.key, effect.batch
        value = None if effect.record is None else encoded(effect.record)
        topic = "" if batch is None else self._options.names.of_log(self._views[key][1].name)
        asked = Transaction(key.state, value, topic, batch)
        self._workers.commit(key, asked, partial(self._ended, key, effect.attempt))

    def _opened(self, key: ProducerKey, count: int, failure: str | None) -> None:
        waiting = self._openings.get(key, deque())
        error = None if failure is None else StorageError(failure)
        for _ in range(min(count, len(waiting))):
            self._producers.answered(key, boot_ms())
            waiting.popleft().end(error)
        if not waiting:
            self._openings.pop(key, None)

    def _batch_ended(self, key: ProducerKey, batch: Batch, failure: str | None) -> None:
        view = self._views[key][1]
        self.pending_bytes -= batch.bytes
        self.pending_events -= batch.events
        error = None if failure is None else StorageError(failure)
        partition = view.partitions[0]
        if error is not None and isinstance(partition, NumberedPartition):
            error = partition.failure or error
        seconds = perf_counter() - self._begun.pop(batch, perf_counter())
        self._on_commit(commit_done(view, batch, seconds, error))

    def _fenced(self, key: ProducerKey, attempt: int, failure: str | None) -> None:
        self._producers.fenced(key, attempt, failure, boot_ms())
        self._perform()

    def _read(self, key: ProducerKey, attempt: int, failure: StorageError | None) -> None:
        if failure is not None:
            self._unread.add(key)
        self._producers.read(key, attempt, None if failure is None else str(failure), boot_ms())
        self._perform()

    def _ended(self, key: ProducerKey, attempt: int, ended: producing.Ended) -> None:
        self._ends[ended.outcome.name] += 1
        if ended.outcome is not producing.Outcome.COMMITTED:
            outcome = ended.outcome.name.lower()
            # Another node has the producer now: any client may cause this.
            level = logging.INFO if ended.outcome is producing.Outcome.FENCED else logging.WARNING
            log.log(level, "numbered_commit_failed outcome=%s reason=%s", outcome, ended.reason)
        self._producers.ended(key, attempt, _OUTCOMES[ended.outcome], ended.reason, boot_ms())
        self._perform()

    def _made(self, key: ProducerKey) -> EventProducer:
        options = self._options
        return EventProducer(
            {**options.connection, "message.max.bytes": options.message_bytes + RECORD_OVERHEAD},
            topic=options.names.numbers,
            bucket=key.bucket,
            transactional_id=key.transactional_id(options.names.prefix),
            named=f"producer {key.producer!r}",
        )
