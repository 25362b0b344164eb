"""[io] All logs of a Kafka cluster that belong to nodes with this prefix: see `Store`.

Any number of nodes use the same topics at once. A node keeps nothing that another one needs: logs are topics,
and everything else of this store ends with its process.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import Final, assert_never, overload

from amqp_streams.config import LogSettings
from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.kafka.asking import Asking, KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, Extent, Extents
from amqp_streams.kafka.brokers.comparing import Comparer
from amqp_streams.kafka.brokers.fetching import Fetcher, Place
from amqp_streams.kafka.brokers.figures import STATISTICS_MS, KafkaFigures, Replication
from amqp_streams.kafka.brokers.following import Follower
from amqp_streams.kafka.brokers.jobs import Job, Jobs
from amqp_streams.kafka.brokers.producers import producer_of
from amqp_streams.kafka.brokers.sending import Sender, SendingPartition
from amqp_streams.kafka.catalog import Catalog
from amqp_streams.kafka.held_back import HeldBack
from amqp_streams.kafka.looking import Look, Looker
from amqp_streams.kafka.losses import Losses
from amqp_streams.kafka.numbered.numbers import Numbers
from amqp_streams.kafka.outbox import BATCH_BYTES, Ended
from amqp_streams.kafka.partition import KafkaPartition
from amqp_streams.kafka.reading.spans import Span
from amqp_streams.kafka.records.plain import PlainRecord
from amqp_streams.kafka.settings import RECORD_OVERHEAD
from amqp_streams.kafka.states import LocalStates
from amqp_streams.storage.ports import (
    Chunk,
    CommitDone,
    Later,
    Partition,
    ReadRequest,
    StoredLog,
    StoreFacts,
)
from amqp_streams.storage.questions import Create, Delete, Find, OpenProducer, Question, Refresh, Update

_CLOSE_S: Final = 10.0

log = logging.getLogger("amqp_streams.kafka")


class KafkaStore:
    """See `Store`. `loop_call`: calls a function on the event loop's thread, from any thread."""

    def __init__(self, options: KafkaOptions, *, loop_call: Callable[..., object]) -> None:
        """Open the logs that exist. Waits for Kafka.

        Raises:
            StorageError: Kafka does not answer.
        """
        self.on_commit: Callable[[CommitDone], None] = _ignore
        self.options: Final = options
        self._loop_call: Final = loop_call
        self.states: Final = LocalStates(self._call)
        self._figures: Final = KafkaFigures()
        self._held_back: Final = HeldBack()
        connection = {**options.connection, "error_cb": self._figures.failed}
        self.administration: Final = Administration(connection)
        self._catalog: Final = Catalog(
            options.names, weak=options.weak, make=self._partition, dropped=self._dropped
        )
        self.others: Final = self._catalog.others
        self.others.gone = _gone
        self.others.attached, self.others.detached = self._attached, self._detached
        self._sending: Final[dict[SendingPartition, KafkaPartition]] = {}
        """Also those of deleted logs, until their appends have ended."""
        self._unsent: Final[dict[KafkaPartition, None]] = {}
        self._pending_bytes = 0
        self._stale: Final[dict[Place, None]] = {}
        """Partitions of topics of other programs with records that this node has sent since it asked."""
        self._ends: Final = ReadRequest("ends", self._answered_ends)
        self._away: str | None = None
        self._broken: str | None = None
        self._closed = False
        topics = self.administration.describe(filter(self._catalog.wanted, self.administration.names()))
        cluster = self.administration.cluster
        self.identity: Final = None if cluster is None else f"{cluster}/{options.names.prefix}"
        """See `Store.identity`."""
        extents = self.administration.extents(place for found in topics.values() for place in found.places)
        self._jobs: Final = Jobs(self._call)
        self._numbers: Final = Numbers(
            replace(options, connection=connection),
            self.administration,
            self._jobs,
            loop_call=self._call,
            on_commit=self._committed_numbered,
            on_taken=self._taken,
        )
        self._asking: Final = Asking(options, self.administration, self._catalog, self._jobs, self._call)
        plain = options.names.plain
        for missing in sorted(plain - topics.keys()):
            log.warning("kafka_topic_missing topic=%s", missing)
        self._fetcher: Final = Fetcher(connection, loop_call=self._call, readers=options.readers, plain=plain)
        # Records of topics of other programs have headers, which only one kind of producer takes.
        self._senders: Final = {
            each: self._new_sender(connection, plain=each) for each in {False, bool(plain)}
        }
        self._follower: Final = self._new_follower(connection)
        self._fetcher.tail = self._follower
        self._comparer: Final = Comparer(connection)
        self._losses: Final = Losses(self._jobs, self._comparer.compare, self._lost)
        self._looker: Final = Looker(
            self.administration, self._catalog, loop_call=self._call, on_look=self._looked
        )
        for found in topics.values():
            self._catalog.add(found, extents)
        self._looker.start()

    def _new_sender(self, connection: Mapping[str, object], *, plain: bool) -> Sender:
        settings = {**connection, "message.max.bytes": self.options.message_bytes + RECORD_OVERHEAD}
        if not plain:
            # Topics of our own take such batches. If one was changed, the outbox makes smaller ones.
            settings["batch.size"] = BATCH_BYTES
            settings |= {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._figures.statistics}
        return Sender(
            settings,
            loop_call=self._call,
            on_ended=self._ended,
            on_error=self._figures.failed,
            producer=partial(producer_of, plain=plain),
        )

    def _new_follower(self, connection: Mapping[str, object]) -> Follower:
        return Follower(
            connection,
            loop_call=self._call,
            on_records=self._brought,
            on_missing=self._missing,
            on_ended=self._follower_ended,
            plain=self.options.names.plain,
        )

    # -- logs

    @property
    def logs(self) -> Mapping[str, StoredLog]:
        """See `Store.logs`."""
        return self._catalog.logs

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """See `Store.create`. The incarnation is the id of the topic. Waits for Kafka."""
        try:
            return self._jobs.wait(self._asking.creating(Create(name, settings, incarnation)))
        except ValueError:
            # Another node was faster, or Kafka took a request that was repeated: then the log is known now.
            self._jobs.wait(self._asking.finding(name))
            raise

    def update(self, name: str, settings: LogSettings) -> StoredLog:
        """See `Store.update`. Waits for Kafka."""
        return self._jobs.wait(self._asking.updating(Update(name, settings)))

    def delete(self, name: str) -> None:
        """See `Store.delete`. Waits for Kafka."""
        self._jobs.wait(self._asking.deleting(name))

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`."""
        match question:
            case Create():
                return self._jobs.answer(request, question, partial(self._asking.creating, question))
            case Update():
                return self._jobs.answer(request, question, partial(self._asking.updating, question))
            case Delete(name):
                return self._jobs.answer(request, question, partial(self._asking.deleting, name))
            case Find(name):
                return self._jobs.answer(request, question, partial(self._asking.finding, name))
            case Refresh(name):
                return self._jobs.answer(request, question, partial(self._asking.refreshing, name))
            case OpenProducer(name):
                stored = self._catalog.logs.get(name)
                if stored is None:
                    message = f"log {name!r} was deleted"
                    raise LogDeletedError(message)
                return self._numbers.open(stored, question, request)
            case _:
                assert_never(question)

    def allow_numbers(self) -> None:
        """See `Store.allow_numbers`. Idempotent producers: see `Others.attached`."""

    def allow_formats(self) -> None:
        """See `Store.allow_formats`. A record has its format."""

    # -- records

    @property
    def pending_bytes(self) -> int:
        """See `Store.pending_bytes`."""
        return self._pending_bytes + self._numbers.pending_bytes

    def commit(self) -> None:
        """See `Store.commit`."""
        self._numbers.commit()
        if not self._unsent:
            return
        unsent = tuple(self._unsent)
        self._unsent.clear()
        for partition in unsent:
            if partition.failure is not None:
                self._fail(partition)
        for sender in self._senders.values():
            sender.send()

    def compress(self) -> None:
        """See `Store.compress`. Kafka stores what the topic says."""

    def apply_retention(self, now_ms: int) -> list[tuple[Partition, int]]:  # noqa: ARG002
        """See `Store.apply_retention`. Kafka does it by itself."""
        return []

    def facts(self) -> StoreFacts:
        """See `Store.facts`."""
        return StoreFacts(
            away=self._broken or self._away,
            uses=self._fetcher.uses() | self._numbers.uses(),
            figures=(*self._figures.figures(), *self._numbers.figures()),
            problems=self._numbers.problems,
        )

    def close(self, *, within_s: float | None = None) -> bool:
        """See `Store.close`. A node on Kafka has nothing to recover."""
        if self._closed:
            return True
        self._closed = True
        self.commit()
        # First: what waits for Kafka ends while the last events are sent.
        self.administration.close()
        self._fetcher.stop()
        self._comparer.stop()
        until = monotonic() + (_CLOSE_S if within_s is None else within_s)
        ended = [self._numbers.close(max(0.0, until - monotonic()))]
        ended += [sender.close(max(0.0, until - monotonic())) for sender in self._senders.values()]
        clean = all(ended)
        self.on_commit = _ignore
        self._looker.close()
        self._follower.close()
        self._fetcher.close()
        self._jobs.close()
        return clean

    # -- for the partitions

    def send(
        self,
        partition: KafkaPartition,
        values: Sequence[bytes | PlainRecord],
        keys: Sequence[bytes | None],
        size: int,
    ) -> None:
        """See `Room.send`."""
        self._senders[partition.plain].append(partition.sending, values, keys, size, partition.message_bytes)
        self._unsent[partition] = None
        self._pending_bytes += size
        self._figures.pending_events += len(values)

    def fetch(
        self, partition: KafkaPartition, at: int, bytes_max: int, request: ReadRequest | None
    ) -> Chunk | Later | None:
        """See `Room.fetch`."""
        self._follower.touch(partition.place)
        return self._fetcher.read(partition.place, at, partition.end, bytes_max, request)

    @overload
    def first_after(self, partition: KafkaPartition, after_ms: int, request: None) -> int: ...
    @overload
    def first_after(
        self, partition: KafkaPartition, after_ms: int, request: ReadRequest | None
    ) -> int | Later: ...
    def first_after(
        self, partition: KafkaPartition, after_ms: int, request: ReadRequest | None
    ) -> int | Later:
        """See `Room.first_after`."""
        begin = partial(self._seeking, partition, after_ms)
        if request is None:
            return self._jobs.wait(begin())
        return self._jobs.answer(request, (partition.place, after_ms), begin)

    def _seeking(self, partition: KafkaPartition, after_ms: int) -> Job[int]:
        # A record that comes while Kafka looks is not skipped.
        end = partition.end

        def sought(found: int | None) -> int:
            if found is not None and found >= partition.end:
                self._catalog.moved({partition.place: Extent(partition.start, found + 1)})
            return end if found is None else found

        ask = partial(self.administration.ask_first_after, partition.place, after_ms)
        return Job(ask, sought, waits=False)

    def follow(self, partition: KafkaPartition) -> None:
        """See `Room.follow`."""
        if partition.failure is None:
            self._follower.follow(partition.place, partition.end)

    # -- results of the threads, on the event loop's thread

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        # A loop that is closed needs no results any more.
        with contextlib.suppress(RuntimeError):
            self._loop_call(function, *arguments)

    def _ended(self, sending: SendingPartition, ended: Sequence[Ended]) -> None:
        """Batches of a partition ended: move its end, then report."""
        partition = self._sending[sending]
        for batch, failure in ended:
            self._pending_bytes -= batch.bytes
            self._figures.pending_events -= len(batch)
            # In a topic of other programs a transaction may hold the record back.
            if failure is None and partition.plain:
                self._stale[partition.place] = None
                self._ask_ends()
            last = None if failure is not None else batch.last_number
            if last is not None and not partition.accepted(last):
                self._losses.fell(partition.place)
            if last is not None and last >= partition.end and not partition.plain:
                partition.end = last + 1
            error = partition.failure if failure is not None and partition.failure is not None else failure
            failures: dict[Partition, StorageError] = {} if error is None else {partition: error}
            self.on_commit(
                CommitDone(
                    partition.queue,
                    batch.sequence,
                    len(batch),
                    batch.bytes,
                    perf_counter() - batch.begun_s if batch.begun_s else 0.0,
                    failures,
                )
            )

    def _committed_numbered(self, done: CommitDone) -> None:
        """A transaction of an idempotent producer ended. Readers get its events when its marker is there."""
        self.on_commit(done)

    def _attached(self, stored: StoredLog, producer: str) -> tuple[StoredLog, int]:
        return self._numbers.attached(stored, producer)

    def _detached(self, view: StoredLog) -> None:
        self._numbers.detached(view)

    def _taken(self, view: StoredLog, reason: str, stolen: bool) -> None:
        self.others.on_taken(view, reason, stolen)

    def _brought(self, spans: Sequence[tuple[Place, Span]]) -> None:
        """The follower brought records: they can be read now."""
        grown: list[Partition] = []
        for place, span in spans:
            self._fetcher.add(place, span)
            partition = self._catalog.partitions.get(place)
            if partition is not None and span.end > partition.end:
                partition.end = span.end
                grown.append(partition)
        if grown:
            self.others.on_grown(grown)

    def _ask_ends(self) -> None:
        """Learn how far the partitions with new records can be read: one question at a time."""
        if self._ends.pending is None and self._stale:
            places = tuple(self._stale)
            self._stale.clear()
            job = Job(partial(self.administration.ask_extents, places), self._took_extents, waits=False)
            self._jobs.answer(self._ends, places, lambda: job)

    def _took_extents(self, answered: Extents) -> None:
        # Without an answer, the next look learns them.
        self._catalog.moved(answered.found)

    def _answered_ends(self) -> None:
        self._ends.pending = None
        self._ask_ends()

    def _partition(self, log: str, place: Place, extent: Extent, message_bytes: int) -> KafkaPartition:
        plain = place.topic in self.options.names.plain
        partition = KafkaPartition(self, log, place, extent, message_bytes, plain=plain)
        self._sending[partition.sending] = partition
        return partition

    def _dropped(self, partition: KafkaPartition) -> None:
        """A log is gone."""
        self._follower.unfollow(partition.place)
        self._fetcher.forget(partition.place)
        self._losses.forget(partition.place)
        # Not from within the change: a commit must not end before its caller knows of the change.
        self._call(self._fail, partition)
        self._call(self._numbers.dropped, partition)

    def _fail(self, partition: KafkaPartition) -> None:
        """Fail what a partition of a lost log has not stored."""
        if partition.sending in self._sending:
            self._senders[partition.plain].fail(partition.sending, str(partition.failure))
            # Everything has ended: what Kafka reports later means nothing.
            del self._sending[partition.sending]

    def _missing(self, place: Place, at: int, first_lost: int | None) -> None:
        """The follower asked for a position that Kafka does not have."""
        partition = self._catalog.partitions.get(place)
        if partition is None:
            return
        if first_lost is not None:
            self._lost(place, first_lost)
            return
        # Retention removed it, or records were lost: a read of the position learns which.
        log.warning("kafka_position_missing place=%s position=%d", place, at)
        self.others.on_grown([partition])

    def _lost(self, place: Place, first: int) -> None:
        """Kafka lost the records of a partition from this number on."""
        partition = self._catalog.partitions.get(place)
        lost = None if partition is None else partition.truncate(first)
        if partition is None or lost is None:
            return
        self._figures.lost_events += lost.end - lost.first
        # The same loss may be found in another way as well: new records must not count as lost.
        self._losses.forget(place)
        self._fetcher.forget(place)
        self._follower.unfollow(place)
        self.others.on_truncated(partition, lost.first, lost.end)
        # There may be new records with these numbers.
        self._stale[place] = None
        self._ask_ends()

    def _follower_ended(self, reason: str) -> None:
        self._broken = reason

    def _looked(self, look: Look) -> None:
        """Take in a look at Kafka."""
        self._away = None if look.failure is None else f"Kafka does not answer: {look.failure}"
        self._losses.looked(look.extents, self._catalog.current(look.known), look.written)
        self._catalog.moved(look.extents)
        self._held_back.looked(look.extents, look.written, monotonic())
        self._figures.held_back = self._held_back.count
        if look.topics is not None:
            found = (topic.replication for topic in look.topics.values())
            self._figures.replication = sum(found, Replication())
        # A look that began before a change of this node does not know it.
        if look.topics is not None and look.changes == self._catalog.changes:
            self._catalog.compare(look.topics, look.extents)


def _ignore(_done: CommitDone) -> None:
    pass


def _gone(partition: Partition, position: int) -> str | None:
    assert isinstance(partition, KafkaPartition)
    return partition.gone(position)
