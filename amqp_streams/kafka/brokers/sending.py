"""[io] Sends the batches of all partitions to Kafka: one idempotent producer, and a thread for its reports.

The thread only waits: everything else is done on the event loop's thread. librdkafka keeps order and repeats
what was lost on the way; a batch that it gives up (`message.timeout.ms`) or whose producer broke has an
unknown outcome, which is reported as a failure. A broken producer is replaced when everything that it had in
flight was reported, so that no record of the new one is stored in front of a record of the old one.
"""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from amqp_streams.kafka.outbox import Batch, Ended, Outbox
from amqp_streams.kafka.records.plain import PlainRecord

POLL_S: Final = 0.2
"""How long the thread waits for a report before it looks whether it has to end."""
SENDING: Final[Mapping[str, object]] = {
    "acks": "all",
    "enable.idempotence": True,
    # Longer than Kafka needs to choose new leaders: about 12 s when a broker is killed.
    "message.timeout.ms": 60_000,
    # The default of Kafka's clients. Without it, librdkafka sends the first records of a batch before the
    # rest is handed over: twice the requests, and half more CPU time of the brokers.
    "linger.ms": 5,
    "log.connection.close": False,
}
"""Settings of the producer. The caller adds servers and security, and may change them."""
_CHECKED: Final = 50
"""One report in so many, and the first and last one of a batch, ask whether the thread may take more."""
_REPORTS_A_TURN: Final = 100
"""How many such reports the event loop takes before it does other work: about a millisecond."""
_FULL: Final = "the queue is full"

log = logging.getLogger("amqp_streams.kafka")


class SendingPartition:
    """One partition of a topic, and what it has to send."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic: Final = topic
        self.index: Final = index
        self.outbox: Final = Outbox()


class Sender:
    """Sends for all partitions. `on_ended` is called for batches that ended, in the order of each partition.

    `loop_call`: calls a function on the event loop's thread, from any thread. `on_error` is called in any
    thread, once for each batch that failed. `producer`: makes a producer from its settings.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        loop_call: Callable[[Callable[[], None]], object],
        on_ended: Callable[[SendingPartition, Sequence[Ended]], None],
        on_error: Callable[[KafkaError], object] | None = None,
        producer: Callable[[dict[str, Any]], Producer] | None = None,
    ) -> None:
        self._settings: Final = {**SENDING, **settings}
        self._make: Final = partial(Producer, logger=log) if producer is None else producer
        self._loop_call: Final = loop_call
        self._on_ended: Final = on_ended
        self.on_error: Final = on_error
        self._producer: Producer | None = self._make(dict(self._settings))
        self._broken: Producer | None = None
        self._reports: Final[deque[_Flight]] = deque()
        self._flights: Final[dict[Batch, _Flight]] = {}
        self._unsent: Final[dict[SendingPartition, None]] = {}
        """Partitions with records that were appended since the last `send`."""
        self._waiting: Final[dict[SendingPartition, None]] = {}
        """Partitions with batches that were not handed over completely."""
        self._full = False
        """A batch was not handed over completely, because librdkafka's queue was full."""
        self._fatal: tuple[Producer, str] | None = None
        """A producer that cannot be used any more, and why."""
        self._stopping: Final = threading.Event()
        self._served: Final = threading.Event()
        self.reports_left = 0
        """How many reports that ask may be taken before the rest has to wait."""
        self._thread: Final = threading.Thread(target=self._poll, name="kafka-reports", daemon=True)
        self._thread.start()

    def append(
        self,
        partition: SendingPartition,
        values: Sequence[bytes | PlainRecord],
        keys: Sequence[bytes | None],
        size: int,
    ) -> None:
        """Add records to the next batch of a partition. See `Outbox.append`."""
        partition.outbox.append(values, keys, size)
        self._unsent[partition] = None

    def send(self) -> None:
        """Hand over everything that was appended: one batch for each partition."""
        partitions = tuple(self._unsent)
        self._unsent.clear()
        for partition in partitions:
            partition.outbox.take()
            self._waiting[partition] = None
        self._hand_over()

    def fail(self, partition: SendingPartition, reason: str) -> None:
        """Fail everything of a partition that has not ended."""
        self._unsent.pop(partition, None)
        self._waiting.pop(partition, None)
        self._end(partition, partition.outbox.fail(reason))

    def close(self, within_s: float) -> bool:
        """Send everything, wait for the reports at most this long, and end the thread.

        What was not reported in time fails. Returns whether everything was reported. May be called once.
        """
        until = monotonic() + within_s
        self._stopping.set()
        self._thread.join()
        self.reports_left = sys.maxsize
        self.send()
        while (self._waiting or self._flights) and monotonic() < until:
            if (producer := self._reporting) is not None:
                self._serve(producer, partial(producer.flush, min(POLL_S, within_s)))
            self._process()
        left = {*self._waiting, *(flight.partition for flight in self._flights.values())}
        for partition in left:
            self.fail(partition, "the node stopped before Kafka answered")
        return not left

    # -- on the event loop's thread

    def _hand_over(self) -> None:
        """Hand over what waits, in turns, until librdkafka takes no more."""
        self._full = False
        for partition in tuple(self._waiting):
            while self._producer is not None and (batch := partition.outbox.next_to_hand()) is not None:
                if not self._hand(self._producer, partition, batch):
                    # Reports make room. This partition keeps its turn.
                    self._full = True
                    return
            if self._producer is not None and partition.outbox.settled:
                self._waiting.pop(partition, None)

    def _hand(self, producer: Producer, partition: SendingPartition, batch: Batch) -> bool:
        """Hand over the rest of a batch; whether there is room for more."""
        flight = self._flights.get(batch)
        if flight is None:
            flight = self._flights[batch] = _Flight(self, producer, partition, batch)
        rest = batch.values[batch.handed :]
        if isinstance(rest[0], PlainRecord):
            errors = _produced(producer, partition, rest, flight)
            self._end(partition, partition.outbox.handed(batch, errors, full=_FULL))
            return batch.handed == len(batch) or batch.failed
        keys = batch.keys[batch.handed :]
        messages: list[dict[str, Any]] = (
            [{"value": value} for value in rest]
            if keys.count(None) == len(keys)
            else [{"value": value, "key": key} for value, key in zip(rest, keys, strict=True)]
        )
        for message in messages[::_CHECKED]:
            message["callback"] = flight.checked
        messages[-1]["callback"] = flight.last
        try:
            taken = producer.produce_batch(
                partition.topic, messages, partition=partition.index, on_delivery=flight
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._end(partition, partition.outbox.handed(batch, [str(error)] * len(messages), full=_FULL))
            return True
        errors = [None] * len(messages) if taken == len(messages) else [_reason(each) for each in messages]
        self._end(partition, partition.outbox.handed(batch, errors, full=_FULL))
        return batch.handed == len(batch) or batch.failed

    def _process(self) -> None:
        """Note the reports, replace a broken producer, and hand over what has room now."""
        while self._reports:
            flight = self._reports.popleft()
            self._end(flight.partition, flight.partition.outbox.delivered(flight.batch, flight.failure))
            if flight.fatal:
                self._replace(flight.producer, str(flight.failure))
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            self._replace(*fatal)
        if self._broken is not None and len(self._broken) == 0:
            self._broken, self._producer = None, self._make(dict(self._settings))
        if self._waiting:
            self._hand_over()

    def _replace(self, producer: Producer, reason: str) -> None:
        """Give up a producer that cannot be used any more. Its successor is made when it has reported all."""
        # A producer that was replaced may report after its successor was made.
        if producer is not self._producer:
            return
        log.error("kafka_producer_broken reason=%s", reason)
        self._broken, self._producer = producer, None
        # What it has in flight is reported at once: it will not be sent.
        producer.purge(blocking=False)
        for flight in tuple(self._flights.values()):
            # No report completes this flight, and its rest must not go to another producer.
            if flight.batch.handed < len(flight.batch):
                self._end(flight.partition, flight.partition.outbox.delivered(flight.batch, reason))

    def _end(self, partition: SendingPartition, ended: Sequence[Ended]) -> None:
        for batch, _ in ended:
            self._flights.pop(batch, None)
        if not ended:
            return
        # A failure may have held back batches that came after it.
        self._waiting[partition] = None
        self._on_ended(partition, ended)

    @property
    def _reporting(self) -> Producer | None:
        """The producer that may have something to report."""
        # Not `or`: a producer without records is false.
        return self._broken if self._producer is None else self._producer

    def _take_reports(self) -> None:
        """Take reports that wait, and let the thread wait for the next ones."""
        # The thread has ended: `close` takes the rest.
        if self._stopping.is_set():
            return
        self.reports_left = _REPORTS_A_TURN
        producer = self._reporting
        enough = producer is not None and self._serve(producer, partial(producer.poll, 0))
        self.reports_left = 0
        self._process()
        if enough:
            self._loop_call(self._take_reports)
        else:
            self._served.set()

    def reported(self, flight: "_Flight") -> None:
        """All records of a flight were reported."""
        self._reports.append(flight)

    def _serve(self, producer: Producer, call: Callable[[], object]) -> bool:
        """Let a producer report. Returns whether it has more than may be taken here. In any thread."""
        try:
            call()
        except _EnoughError:
            return True
        except KafkaException as error:
            # What confluent-kafka does with a fatal error, instead of calling its callback for errors.
            self._fatal = producer, str(error)
        return False

    # -- on the thread that waits for reports

    def _poll(self) -> None:
        while not self._stopping.is_set():
            producer = self._reporting
            if producer is None:
                self._stopping.wait(POLL_S)
                continue
            # The event loop takes the reports: for each one, confluent-kafka takes the interpreter's lock
            # anew, for which this thread would wait up to the switch interval while the loop is busy.
            more = self._serve(producer, partial(producer.poll, POLL_S))
            # A batch may have ended with a report that does not ask. Two things are not reported: there may
            # be room for the rest of a batch, and a purged producer has nothing left.
            left = more or self._reports or self._fatal or self._full
            if left or (producer is self._broken and len(producer) == 0):
                self._hand_to_loop()

    def _hand_to_loop(self) -> None:
        self._served.clear()
        self._loop_call(self._take_reports)
        while not self._served.wait(POLL_S) and not self._stopping.is_set():
            pass


class _EnoughError(Exception):
    """Raised by a report, which makes librdkafka keep the reports after it for the next `poll`."""


class _Flight:
    """The reports on the records of one batch, in any order.

    Each record has its report: a report on the last one alone would not show that an earlier one was given
    up, unless each such record made the producer unusable (`enable.gapless.guarantee`), with everything that
    other partitions have in flight.
    """

    __slots__ = ("batch", "failure", "fatal", "left", "partition", "producer", "sender")

    def __init__(self, sender: Sender, producer: Producer, partition: SendingPartition, batch: Batch) -> None:
        self.sender = sender
        self.producer = producer
        self.partition = partition
        self.batch = batch
        self.left = len(batch)
        self.failure: str | None = None
        self.fatal = False

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            if self.failure is None and self.sender.on_error is not None:
                self.sender.on_error(error)
            self.failure = self.failure or error.str()
            self.fatal = self.fatal or error.fatal()
        self.left -= 1
        if not self.left:
            self.sender.reported(self)

    def checked(self, error: KafkaError | None, message: Message) -> None:
        """A report after which the thread may have to stop."""
        self(error, message)
        sender = self.sender
        sender.reports_left -= 1
        if sender.reports_left < 0:
            raise _EnoughError

    def last(self, error: KafkaError | None, message: Message) -> None:
        """The report on the last record of the batch."""
        if error is None:
            self.batch.last_number = message.offset()
        self.checked(error, message)


def _produced(
    producer: Producer,
    partition: SendingPartition,
    records: Sequence[bytes | PlainRecord],
    flight: _Flight,
) -> list[str | None]:
    """Hand over records one by one: `produce_batch` drops headers. Why the others were not taken."""
    for taken, record in enumerate(records):
        assert isinstance(record, PlainRecord)
        try:
            producer.produce(
                partition.topic,
                record.value,
                record.key,
                partition=partition.index,
                headers=list(record.headers),
                on_delivery=flight.last if taken == len(records) - 1 else flight.checked,
            )
        except BufferError:
            return [None] * taken + [_FULL] * (len(records) - taken)
        except KafkaException as error:
            return [None] * taken + [str(error)] * (len(records) - taken)
    return [None] * len(records)


def _reason(message: Mapping[str, Any]) -> str | None:
    """What `produce_batch` notes of a message: None if it was taken."""
    error = message.get("_error")
    if error is None:
        return None
    return _FULL if isinstance(error, KafkaError) and error.code() == KafkaError._QUEUE_FULL else str(error)
