"""[io] Sends the batches of all partitions to Kafka: one idempotent producer, and a thread for its reports.

The thread only waits: everything else is done on the event loop's thread. librdkafka keeps order and repeats
what was lost on the way; a batch that it gives up (`message.timeout.ms`) or whose producer broke has an
unknown outcome, which is reported as a failure. A broken producer is replaced when everything that it had in
flight was reported, so that no record of the new one is stored in front of a record of the old one.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import monotonic, perf_counter
from typing import Final

from confluent_kafka import KafkaError

from amqp_streams.kafka.brokers.producers import FULL, BatchProducer, producer_of
from amqp_streams.kafka.outbox import BATCH_BYTES, Batch, Ended, Outbox
from amqp_streams.kafka.records.plain import PlainRecord

POLL_S: Final = 0.2
"""How long the thread waits for a report before it looks whether it has to end."""
PARTITIONS_A_TURN: Final = 100
"""Of how many partitions records are handed over before the event loop does other work. With a few records
each, this takes less than a millisecond.
"""
REFRESH_MS: Final = 5000
"""How often producers learn the partitions of their topics: about as soon as looks at Kafka show new ones."""
SENDING: Final[Mapping[str, object]] = {
    "acks": "all",
    "enable.idempotence": True,
    # Longer than Kafka needs to choose new leaders: about 12 s when a broker is killed.
    "message.timeout.ms": 60_000,
    # Without it, librdkafka sends the first records of a batch before the rest is handed over: twice the
    # requests, and the rest waits, for which its thread uses a core. 10,000 records are handed over in 2 ms.
    "linger.ms": 2,
    # The outbox makes batches that fit into a request by their bytes.
    "batch.num.messages": 100_000,
    # Otherwise librdkafka refuses records for partitions that were added to a topic for up to five minutes.
    "topic.metadata.refresh.interval.ms": REFRESH_MS,
    "log.connection.close": False,
}
"""Settings of the producer. The caller adds servers and security, and may change them."""

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
    thread, once for each batch that failed. `producer`: makes a producer from settings.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        loop_call: Callable[[Callable[[], None]], object],
        on_ended: Callable[[SendingPartition, Sequence[Ended]], None],
        on_error: Callable[[KafkaError], object] | None = None,
        producer: Callable[[Mapping[str, object]], BatchProducer] = producer_of,
    ) -> None:
        self._settings: Final = {**SENDING, **settings}
        self._make: Final = producer
        self._loop_call: Final = loop_call
        self._on_ended: Final = on_ended
        self.on_error: Final = on_error
        self._producer: BatchProducer | None = self._make(self._settings)
        self._broken: BatchProducer | None = None
        self._reports: Final[deque[_Flight]] = deque()
        self._flights: Final[dict[Batch, _Flight]] = {}
        self._unsent: Final[dict[SendingPartition, None]] = {}
        """Partitions with records that were appended since the last `send`."""
        self._waiting: Final[dict[SendingPartition, None]] = {}
        """Partitions with batches that were not handed over completely."""
        self._full = False
        """A batch was not handed over completely, because librdkafka's queue was full."""
        self._continuing = False
        """The event loop will hand over more."""
        self._stopping: Final = threading.Event()
        self._served: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._poll, name="kafka-reports", daemon=True)
        self._thread.start()

    def append(
        self,
        partition: SendingPartition,
        values: Sequence[bytes | PlainRecord],
        keys: Sequence[bytes | None],
        size: int,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Add records to the next batch of a partition. See `Outbox.append`."""
        partition.outbox.append(values, keys, size, batch_bytes)
        self._unsent[partition] = None

    def send(self) -> None:
        """Hand over what was appended to partitions of which nothing is in flight: one batch for each."""
        self._waiting.update(self._unsent)
        self._unsent.clear()
        self._hand_over()

    def fail(self, partition: SendingPartition, reason: str) -> None:
        """Fail everything of a partition that has not ended."""
        self._unsent.pop(partition, None)
        self._waiting.pop(partition, None)
        self._end(partition, partition.outbox.fail(reason))

    def close(self, within_s: float) -> bool:
        """Send everything, wait for the reports at most this long, and end the thread.

        What was not reported in time fails. Returns whether everything was reported. Nothing can be sent
        later.
        """
        until = monotonic() + within_s
        self._stopping.set()
        self._thread.join()
        self.send()
        while (self._waiting or self._flights) and monotonic() < until:
            if (producer := self._reporting) is not None:
                producer.finish(min(POLL_S, within_s))
            self._process()
        left = {*self._waiting, *(flight.partition for flight in self._flights.values())}
        for partition in left:
            self.fail(partition, "the node stopped before Kafka answered")
        for each in (self._producer, self._broken):
            if each is not None:
                each.close()
        self._producer = self._broken = None
        return not left

    # -- on the event loop's thread

    def _hand_over(self) -> None:
        """Hand over what waits, in turns, until librdkafka takes no more."""
        self._full = False
        for partition in tuple(islice(self._waiting, PARTITIONS_A_TURN)):
            while self._producer is not None and (batch := partition.outbox.next_to_hand()) is not None:
                if not self._hand(self._producer, partition, batch):
                    # Reports make room. This partition keeps its turn.
                    self._full = True
                    return
            if self._producer is not None:
                self._waiting.pop(partition, None)
        if self._waiting and self._producer is not None and not self._continuing:
            self._continuing = True
            self._loop_call(self._continue)

    def _continue(self) -> None:
        self._continuing = False
        self._hand_over()

    def _hand(self, producer: BatchProducer, partition: SendingPartition, batch: Batch) -> bool:
        """Hand over the rest of a batch; whether there is room for more."""
        flight = self._flights.get(batch)
        if flight is None:
            flight = self._flights[batch] = _Flight(self, producer, partition, batch)
            batch.begun_s = perf_counter()
        errors = producer.hand(partition.topic, partition.index, batch, flight)
        self._end(partition, partition.outbox.handed(batch, errors, full=FULL))
        return batch.handed == len(batch) or batch.failed

    def _process(self) -> None:
        """Note the reports, replace a broken producer, and hand over what has room now."""
        while self._reports:
            flight = self._reports.popleft()
            self._end(flight.partition, flight.partition.outbox.delivered(flight.batch, flight.failure))
            if flight.fatal:
                self._replace(flight.producer, str(flight.failure))
        if self._producer is not None and self._producer.fatal is not None:
            self._replace(self._producer, self._producer.fatal)
        if self._broken is not None and len(self._broken) == 0:
            broken, self._broken, self._producer = self._broken, None, self._make(self._settings)
            broken.close()
        if self._waiting:
            self._hand_over()

    def _replace(self, producer: BatchProducer, reason: str) -> None:
        """Give up a producer that cannot be used any more. Its successor is made when it has reported all."""
        # A producer that was replaced may report after its successor was made.
        if producer is not self._producer:
            return
        log.error("kafka_producer_broken reason=%s", reason)
        self._broken, self._producer = producer, None
        # What it has in flight is reported at once: it will not be sent.
        producer.purge()
        for flight in tuple(self._flights.values()):
            # No report completes this flight, and its rest must not go to another producer.
            if flight.batch.handed < len(flight.batch):
                self._end(flight.partition, flight.partition.outbox.delivered(flight.batch, reason))

    def _end(self, partition: SendingPartition, ended: Sequence[Ended]) -> None:
        for batch, _ in ended:
            self._flights.pop(batch, None)
        if not ended:
            return
        # What was appended in the meantime may go now.
        self._waiting[partition] = None
        self._on_ended(partition, ended)

    @property
    def _reporting(self) -> BatchProducer | None:
        """The producer that may have something to report."""
        # Not `or`: a producer without records is false.
        return self._broken if self._producer is None else self._producer

    def _take_reports(self) -> None:
        """Take reports that wait, and let the thread wait for the next ones."""
        # The thread has ended: `close` takes the rest.
        if self._stopping.is_set():
            return
        producer = self._reporting
        more = producer is not None and producer.take()
        self._process()
        if more:
            self._loop_call(self._take_reports)
        else:
            self._served.set()

    def reported(self, flight: "_Flight") -> None:
        """All records of a flight were reported."""
        self._reports.append(flight)

    # -- on the thread that waits for reports

    def _poll(self) -> None:
        while not self._stopping.is_set():
            producer = self._reporting
            if producer is None:
                self._stopping.wait(POLL_S)
                continue
            found = producer.wait(POLL_S)
            # Two things are not reported: there may be room for the rest of a batch, and a purged producer
            # has nothing left.
            left = found or self._reports or producer.fatal or self._full
            if left or (producer is self._broken and len(producer) == 0):
                self._hand_to_loop()

    def _hand_to_loop(self) -> None:
        self._served.clear()
        self._loop_call(self._take_reports)
        while not self._served.wait(POLL_S) and not self._stopping.is_set():
            pass


class _Flight:
    """The reports on the records of one batch, in any order.

    Each record has its report: a report on the last one alone would not show that an earlier one was given
    up, unless each such record made the producer unusable (`enable.gapless.guarantee`), with everything that
    other partitions have in flight.
    """

    __slots__ = ("batch", "failure", "fatal", "left", "partition", "producer", "sender")

    def __init__(
        self, sender: Sender, producer: BatchProducer, partition: SendingPartition, batch: Batch
    ) -> None:
        self.sender = sender
        self.producer = producer
        self.partition = partition
        self.batch = batch
        self.left = len(batch)
        self.failure: str | None = None
        self.fatal = False

    def report(self, count: int, error: KafkaError | None, last: int | None) -> None:
        """See `producers.Flight`."""
        if error is not None:
            if self.failure is None and self.sender.on_error is not None:
                self.sender.on_error(error)
            self.failure = self.failure or error.str()
            self.fatal = self.fatal or error.fatal()
        if last is not None:
            self.batch.last_number = last
        self.left -= count
        if not self.left:
            self.sender.reported(self)
