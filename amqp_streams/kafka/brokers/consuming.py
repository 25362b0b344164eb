"""[io] One consumer for old records: it has one position, and reads on from there or elsewhere."""

import logging
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.takers import Taker
from amqp_streams.kafka.brokers.taking import Place, Portion, is_end
from amqp_streams.kafka.reading.spans import Span
from amqp_streams.kafka.records.chunks import Consumed, chunk_of, joined

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
OVER_RECORDS: Final = 1000
OVER_BYTES: Final = 4 << 20
"""How much is read over in one step."""
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
    """One consumer, and the position that it has."""

    def __init__(self, taker: Taker, stopping: threading.Event) -> None:
        self._taker: Final = taker
        self._stopping: Final = stopping
        self._place: Place | None = None
        """The partition that is assigned."""
        self._next: tuple[Place, int] | None = None

    def close(self) -> None:
        self._taker.close()

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
        records: list[Consumed] = []
        end, until = start, monotonic() + wait_s
        while end <= at:
            # What is read over does not count.
            count, wanted = (min(at - end, OVER_RECORDS), OVER_BYTES) if end < at else (READ_RECORDS, size)
            portion = self._taker.take(min(_STEP_S, wait_s), count, wanted)
            end = self._taken(place, end, portion, records)
            if end <= at and (monotonic() > until or self._stopping.is_set()):
                # Not at once: after a change of leaders the end may be lower for a moment.
                text = f"{place} brought nothing from {at} on within {wait_s:g} s"
                raise StorageError(text)
        self._next = (place, end)
        return Span(start, end, chunk_of(joined(records)) if records else None)

    def _go(self, place: Place, at: int) -> None:
        """Continue at another position."""
        if self._place == place:
            # `assign` of confluent-kafka holds the interpreter's lock while it waits. `seek` does not.
            try:
                self._taker.seek(place, at)
                return
            except KafkaException as error:
                log.debug("kafka_seek_refused place=%s reason=%s", place, error)
        self._place = None
        self._taker.assign(place, at)
        self._place = place

    def _taken(self, place: Place, at: int, portion: Portion, records: list[Consumed]) -> int:
        """Take the records of the partition, or its end; returns the number after them, at least `at`."""
        for of, run in portion.runs:
            # Without those of an assignment before this one.
            if of == place:
                records.append(run)
                at = max(at, run.offsets[-1] + 1)
        for other in portion.others:
            if other.place != place:
                continue
            if not is_end(other.error):
                self._refuse(place, at, other.error)
            else:
                at = max(at, other.offset)
        return at

    def _refuse(self, place: Place, at: int, error: KafkaError) -> None:
        """Raise what an error means. Temporary ones are repeated by librdkafka, and mean nothing here."""
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            try:
                start, end = self._taker.extent(place, WAIT_S)
            except KafkaException as refused:
                raise StorageError(str(refused)) from refused
            if at < start:
                raise OvertakenError(start)
            message = f"{place} ends at {end}, before {at}: Kafka lost records"
            raise StorageError(message)
        if not error.retriable() and error.code() not in _TEMPORARY:
            message = f"{place}: {error.str()}"
            raise StorageError(message)


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
