"""[io] Copies the records of a log from a data directory to a topic, byte for byte and with their times.

Laws: each record of the log is in the topic once, in the order of its partition, wherever a copy was ended. A
copy reads what the topic has, compares it with the log, and appends what is missing; at the end, everything
has been read back and compared. So a copy that is started again continues, and needs no state of its own.

Two things make this exact. Records are appended in transactions with one transactional id for a topic: a
start of a producer with this id ends the transaction of an earlier copy, whose requests Kafka then refuses.
And while the topic has the times of its producer, which the copy needs, nodes accept no events for it
(`Catalog`); with the last step the topic gets the times of the brokers.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, Extent, FoundTopic, reason_of
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import Place, consumed, is_end, sorted_out
from amqp_streams.kafka.copying.runs import Runs
from amqp_streams.kafka.copying.source import Source, Walk
from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.chunks import Consumed
from amqp_streams.kafka.settings import RECORD_OVERHEAD, after_copy, configuration_of, while_copied

TRANSACTION_RECORDS: Final = 10_000
TRANSACTION_BYTES: Final = 8 << 20
"""A transaction is about this large: one takes Kafka about 75 ms, and readers wait for its end."""
_WAIT_S: Final = 60.0
_AGAIN_S: Final = 0.05
_TAKEN: Final = 5000

log = logging.getLogger("amqp_streams.kafka")


@dataclass(slots=True)
class CopiedPartition:
    """What a copy did with a partition. `found`: records that the topic had; `appended`: those it got now.

    `start`, `end`: the numbers of the log; `extent`: the offsets in Kafka, when the copy looked.
    """

    index: int
    start: int = 0
    end: int = 0
    found: int = 0
    appended: int = 0
    extent: Extent = field(default_factory=lambda: Extent(0, 0))
    runs: Runs = field(default_factory=Runs)


class Copier:
    """Copies one log. `advanced`: called with how many records were compared or appended since the last call.

    `message_bytes`: the largest message of the nodes.
    """

    def __init__(
        self,
        source: Source,
        topic: str,
        settings: Mapping[str, object],
        *,
        replicas: int,
        message_bytes: int,
        advanced: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._source: Final = source
        self._topic: Final = topic
        self._replicas: Final = replicas
        self._message_bytes: Final = message_bytes
        self._advanced: Final = advanced
        self._settings: Final = dict(settings)
        self._administration: Final = Administration(settings)

    def look(self) -> FoundTopic | None:
        """The topic, if it exists. Changes nothing.

        Raises:
            StorageError: Kafka does not answer, or the topic has another number of partitions.
        """
        found = self._administration.describe([self._topic]).get(self._topic)
        if found is not None and found.settings.partitions != self._partitions:
            message = (
                f"topic {self._topic!r} exists with {found.settings.partitions} partitions, but the log has"
                f" {self._partitions}: delete the topic, or use another prefix"
            )
            raise StorageError(message)
        return found

    def copy(self) -> list[CopiedPartition]:
        """Copy what is missing, and compare everything.

        Raises:
            CorruptionError: a record of the log is damaged, and the source does not skip it.
            StorageError: the topic has records that are not those of the log, or Kafka failed.
        """
        found = self.look()
        if found is None:
            found = self._administration.create(
                self._topic, self._partitions, self._replicas, while_copied(self._configuration())
            )
        if found.settings.append_times:
            # An earlier copy is complete. Nodes may have added events since.
            return [self._copied(place, None) for place in found.places]
        try:
            producer = self._producer()
            copied = [self._copied(place, producer) for place in found.places]
        except KafkaException as error:
            message = f"topic {self._topic!r}: {reason_of(error)}. Start the copy again: it continues"
            raise StorageError(message) from error
        self._administration.alter(found, after_copy(self._configuration()))
        return copied

    @property
    def _partitions(self) -> int:
        return self._source.record.settings.partitions

    def _configuration(self) -> dict[str, str]:
        return configuration_of(
            self._source.record.settings, message_bytes=self._message_bytes, replicas=self._replicas
        )

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "log.connection.close": False,
                **self._settings,
                "transactional.id": f"{self._topic}.copy",
                "message.max.bytes": self._message_bytes + RECORD_OVERHEAD,
            },
            logger=log,
        )
        # Ends the transaction of an earlier copy.
        producer.init_transactions(_WAIT_S)
        return producer

    def _copied(self, place: Place, producer: Producer | None) -> CopiedPartition:
        """Copy one partition. Without a producer, all records must be there; more may follow."""
        walk = Walk(self._source, place.partition)
        done = CopiedPartition(place.partition, start=walk.number or 0, end=walk.number or 0)
        comparison = _Comparison(place, self._settings, done, self._advanced)
        try:
            done.extent = self._extent(place)
            comparison.compare(walk, done.extent, more=producer is None)
            done.found = done.runs.count
            if producer is None:
                if walk.number is not None:
                    message = (
                        f"topic {self._topic!r} exists and is not a copy of the log: record {walk.number} of"
                        f" partition {place.partition} is missing. Delete the topic, or use another prefix"
                    )
                    raise StorageError(message)
                return done
            missing = walk.number
            if missing is not None:
                done.appended = self._append(producer, place, walk)
                self._compare_appended(comparison, place, missing, done)
        finally:
            comparison.close()
        return done

    def _append(self, producer: Producer, place: Place, walk: Walk) -> int:
        """Append the rest of a walk, in transactions."""
        count = 0
        while walk.number is not None:
            producer.begin_transaction()
            try:
                records = _produce(producer, place, walk)
                producer.commit_transaction(_WAIT_S)
            except Exception:
                # Readers of the topic would wait for its end.
                with contextlib.suppress(KafkaException):
                    producer.abort_transaction(_WAIT_S)
                raise
            count += records
            self._advanced(records)
        return count

    def _compare_appended(
        self, comparison: "_Comparison", place: Place, first: int, done: CopiedPartition
    ) -> None:
        walk, until = Walk(self._source, place.partition, first), monotonic() + _WAIT_S
        while walk.number is not None:
            done.extent = self._extent(place)
            comparison.compare(walk, done.extent, more=False)
            if walk.number is not None:
                # A transaction is visible a moment after its commit.
                if monotonic() > until:
                    message = f"{place} does not show record {walk.number} of the log after {_WAIT_S:g} s"
                    raise StorageError(message)
                sleep(_AGAIN_S)

    def _extent(self, place: Place) -> Extent:
        extents = self._administration.extents([place])
        if place not in extents:
            message = f"{place} does not answer"
            raise StorageError(message)
        return extents[place]


def _produce(producer: Producer, place: Place, walk: Walk) -> int:
    """Hand over the records of a transaction; returns how many."""
    records = size = 0
    while walk.number is not None and records < TRANSACTION_RECORDS and size < TRANSACTION_BYTES:
        piece = walk.take(TRANSACTION_RECORDS - records)
        keys = amqp.keys(piece.messages)
        for value, key, time_ms in zip(piece.values, keys, piece.times_ms, strict=True):
            # `produce_batch` takes no times.
            producer.produce(place.topic, value, key, partition=place.partition, timestamp=time_ms)
        records += len(piece.values)
        size += sum(map(len, piece.values))
    return records


class _Comparison:
    """Reads a partition of the topic, and compares its records with those of walks, one after the other."""

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, object],
        done: CopiedPartition,
        advanced: Callable[[int], None],
    ) -> None:
        self._place: Final = place
        self._done: Final = done
        self._advanced: Final = advanced
        given: dict[str, Any] = {**CONSUMING, **settings, "queued.max.messages.kbytes": 16 << 10}
        self._consumer: Final = Consumer(given, logger=log)
        self._next: int | None = None
        """The offset that comes next; None: nothing was read."""

    def close(self) -> None:
        self._consumer.close()

    def compare(self, walk: Walk, extent: Extent, *, more: bool) -> None:
        """Compare the records up to the end of an extent with those of a walk.

        `more`: records after the last of the walk may follow.

        Raises:
            StorageError: a record is not that of the log.
        """
        if self._next is None:
            self._next = extent.start
            self._consumer.assign([TopicPartition(*self._place, self._next)])
        until = monotonic() + _WAIT_S
        while self._next < extent.end and not (more and walk.number is None):
            records = self._read()
            if records is not None:
                self._compare(walk, records, more=more)
                until = monotonic() + _WAIT_S
            elif monotonic() > until:
                message = f"{self._place} brought nothing from {self._next} on within {_WAIT_S:g} s"
                raise StorageError(message)

    def _read(self) -> Consumed | None:
        """The next records; None if there is nothing yet, or no number before the end has one."""
        first = self._consumer.poll(0.5)
        if first is None:
            return None
        found, others = sorted_out([first, *self._consumer.consume(_TAKEN, 0.0)])
        for message in others:
            error = message.error()
            if error is not None and is_end(error):
                self._next = max(self._next or 0, message.offset() or 0)
            elif error is not None and not error.retriable():
                text = f"{self._place}: {error.str()}"
                raise StorageError(text)
        records = found.get(self._place)
        if records is None:
            return None
        columns = consumed(records, plain=False)
        self._next = max(self._next or 0, columns.offsets[-1] + 1)
        return columns

    def _compare(self, walk: Walk, records: Consumed, *, more: bool) -> None:
        at, count, done = 0, len(records.offsets), self._done
        while at < count:
            piece = walk.take(count - at)
            if not piece.values:
                if more:
                    return
                message = (
                    f"{self._place} has records that the log does not have, from offset"
                    f" {records.offsets[at]} on: delete the topic, or use another prefix"
                )
                raise StorageError(message)
            end = at + len(piece.values)
            same = list(piece.values) == list(records.values[at:end]) and list(piece.times_ms) == list(
                records.times_ms[at:end]
            )
            if not same:
                self._refuse(piece.first, piece.values, piece.times_ms, records, at)
            done.runs.add(piece.first, records.offsets[at:end])
            done.end = max(done.end, piece.first + len(piece.values))
            self._advanced(len(piece.values))
            at = end

    def _refuse(self, first: int, values: Any, times_ms: Any, records: Consumed, at: int) -> None:
        wrong = next(
            index
            for index in range(len(values))
            if (values[index], times_ms[index]) != (records.values[at + index], records.times_ms[at + index])
        )
        message = (
            f"{self._place} is not a copy of the log: the record at offset {records.offsets[at + wrong]} is"
            f" not record {first + wrong} of the log. Delete the topic, or use another prefix"
        )
        raise StorageError(message)
