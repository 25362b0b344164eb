"""[io] One consumer for old records: it has one position, and reads on from there or elsewhere."""

import logging
import threading
from collections.abc import Container, Mapping
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.taking import Place, consumed, is_end, place_of, size_of, sorted_out
from amqp_streams.kafka.reading.spans import Span
from amqp_streams.kafka.records.chunks import chunk_of

CONSUMING: Final[Mapping[str, object]] = {
    # No group is used, but librdkafka needs the name of one.
    "group.id": "amqp-streams",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # Never elsewhere: a position that does not exist is an error, not another position.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "fetch.message.max.bytes": 1 << 20,
    "queued.max.messages.kbytes": 2 << 10,
    # How soon a consumer whose queue was full asks for more: before a fast reader has emptied the queue. Idle
    # consumers with a full queue take 0.2 % of a core each for it.
    "fetch.queue.backoff.ms": 2,
    "log.connection.close": False,
}
"""Settings of each consumer. At most 3 MiB are read ahead by each."""
READ_RECORDS: Final = 5000
"""How many records one read brings at most, from the first that is wanted on."""
_AT_ONCE: Final = 1000
"""How many objects are made before other threads may have the interpreter's lock."""
_STEP_S: Final = 0.5
WAIT_S: Final = 10.0
"""How long a read waits for Kafka before it fails."""

log = logging.getLogger("amqp_streams.kafka")


class OvertakenError(StorageError):
    """The records at a position were removed. `start`: the number of the earliest record."""

    def __init__(self, start: int) -> None:
        self.start: Final = start
        super().__init__(f"the records before {start} were removed")


class OldRecords:
    """One consumer, and the position that it has. `working`: held while a consumer makes Python objects."""

    def __init__(
        self,
        settings: Mapping[str, object],
        plain: Container[str],
        stopping: threading.Event,
        working: threading.Lock,
    ) -> None:
        self._plain: Final = plain
        self._stopping: Final = stopping
        self._working: Final = working
        self._consumer: Final = Consumer(dict(settings), logger=log)
        self._place: Place | None = None
        """The partition that is assigned."""
        self._next: tuple[Place, int] | None = None

    def close(self) -> None:
        self._consumer.close()

    def read(self, place: Place, start: int, at: int, size: int, wait_s: float = WAIT_S) -> Span:
        """The records from `start` on: at least the one at `at`, and about `size` bytes from there on.

        Only up to its end, if the partition ends in front of `at`. `start` is `at` or the number at
        which the read before this one ended.

        Raises:
            OvertakenError: retention removed the record `start`.
            StorageError: Kafka did not answer in time, or has no such position.
        """
        if self._next != (place, start):
            self._go(place, start)
        # Whatever happens from here on, the position is known again only at the end.
        self._next = None
        records: list[Message] = []
        end, until = start, monotonic() + wait_s
        while end <= at:
            # One record only: asked for many, librdkafka would wait for all of them.
            message = self._consumer.poll(min(_STEP_S, wait_s))
            if message is not None:
                end = self._taken(place, end, [message], records)
            if at >= end > start:
                end = self._taken(place, end, self._consumer.consume(min(at - end, _AT_ONCE), 0.0), records)
            if end <= at and (monotonic() > until or self._stopping.is_set()):
                # Not at once: after a change of leaders the end may be lower for a moment.
                text = f"{place} brought nothing from {at} on within {wait_s:g} s"
                raise StorageError(text)
        # One consumer at a time: the event loop competes with each of them for the interpreter's lock, after
        # each of its system calls.
        with self._working:
            return self._read_ahead(place, start, end, records, size)

    def _go(self, place: Place, at: int) -> None:
        """Continue at another position."""
        position = TopicPartition(place.topic, place.partition, at)
        if self._place == place:
            # `assign` holds the interpreter's lock while it waits for librdkafka. `seek` does not.
            try:
                self._consumer.seek(position)
                return
            except KafkaException as error:
                log.debug("kafka_seek_refused place=%s reason=%s", place, error)
        self._place = None
        self._consumer.assign([position])
        self._place = place

    def _read_ahead(self, place: Place, start: int, end: int, records: list[Message], wanted: int) -> Span:
        """Add what librdkafka has read ahead: it costs no request."""
        # What was read over does not count.
        size, count = size_of(records[-1:]), min(1, len(records))
        while size < wanted and count < READ_RECORDS:
            some = self._consumer.consume(_wanted(wanted - size, size, count), 0.0)
            if not some:
                break
            before = len(records)
            end = self._taken(place, end, some, records)
            size, count = size + size_of(records[before:]), count + len(records) - before
        self._next = (place, end)
        plain = place.topic in self._plain
        return Span(start, end, chunk_of(consumed(records, plain=plain)) if records else None)

    def _taken(self, place: Place, at: int, messages: list[Message], records: list[Message]) -> int:
        """Take the records of the partition, or its end; returns the number after them, at least `at`."""
        found, others = sorted_out(messages)
        # Without those of an assignment before this one.
        if some := found.get(place):
            last = some[-1].offset()
            assert last is not None, "a consumed record has an offset"
            records += some
            at = max(at, last + 1)
        for message in others:
            error = message.error()
            if error is None or place_of(message) != place:
                continue
            if not is_end(error):
                self._refuse(place, at, error)
            else:
                at = max(at, message.offset() or 0)
        return at

    def _refuse(self, place: Place, at: int, error: KafkaError) -> None:
        """Raise what an error means. Temporary ones are repeated by librdkafka, and mean nothing here."""
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            try:
                start, end = self._consumer.get_watermark_offsets(
                    TopicPartition(place.topic, place.partition), timeout=WAIT_S
                )
            except KafkaException as refused:
                raise StorageError(str(refused)) from refused
            if at < start:
                raise OvertakenError(start)
            message = f"{place} ends at {end}, before {at}: Kafka lost records"
            raise StorageError(message)
        if not error.retriable() and error.code() not in _TEMPORARY:
            message = f"{place}: {error.str()}"
            raise StorageError(message)


def _wanted(missing: int, size: int, count: int) -> int:
    """How many records to take next for so many more bytes, if those taken have this size."""
    return min(missing * count // max(1, size) + 1, READ_RECORDS - count, _AT_ONCE) if count else 1


_TEMPORARY: Final = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    # The broker is behind the others: the node knows that the topic exists.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
