"""[io] Two ways to hand records to a producer of librdkafka: in Python, and compiled.

See docs/compiled-loops.md.

Law: both store the same records, in the same order, and report each of them once, in the same way.

`wait` is called in a thread. Everything else comes on the event loop's thread, and never while `wait` runs,
but `hand` may. Reports come from `take` and `finish`; in Python, the first ones come from `wait`.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.library import DONE, PRODUCER, Client, Loaded, error_of
from amqp_streams.kafka.outbox import Batch
from amqp_streams.kafka.records.plain import PlainRecord

FULL: Final = "the queue is full"
"""Why a record was not taken that can be offered again."""
_CHECKED: Final = 50
"""One report in so many, and the first and last one of a batch, ask whether the thread may take more."""
_REPORTS_A_TURN: Final = 100
"""How many such reports the event loop takes before it does other work: about a millisecond."""
_REPORTS_AT_ONCE: Final = 10_000
"""How many reports one call of the compiled loop takes, besides those of the last answer of a broker."""
_RUNS_A_TURN: Final = 500
"""How many runs of such reports the event loop takes before it does other work."""
_PURGED: Final = 0x7
"""RD_KAFKA_PURGE_F_QUEUE, _INFLIGHT and _NON_BLOCKING."""

log = logging.getLogger("amqp_streams.kafka")

_Codes: TypeAlias = tuple[int, Sequence[int]] | None
"""What `produce` of the compiled module returns."""


class Flight(Protocol):
    """Who gets the reports on the records of one batch."""

    def report(self, count: int, error: KafkaError | None, last: int | None) -> None:
        """So many records were delivered, or failed. `last`: the greatest number of them, if it is known."""


class BatchProducer(Protocol):
    """A producer of the batches of all partitions."""

    @property
    def fatal(self) -> str | None:
        """Why it cannot be used any more."""

    def hand(self, topic: str, partition: int, batch: Batch, flight: Flight) -> Sequence[str | None]:
        """Hand over the rest of a batch; why each of its records was not taken, None if it was."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for a report; whether there is something for `take`. In a thread."""

    def take(self) -> bool:
        """Pass reports on, for about a millisecond; whether there may be more of them."""

    def finish(self, timeout_s: float) -> None:
        """Wait for reports, and pass them on. Without a thread in `wait`."""

    def purge(self) -> None:
        """Report all records as failed that were not delivered. Those in flight may be stored."""

    def __len__(self) -> int:
        """How many records have no report."""

    def close(self) -> None:
        """End it, with all that was not reported. Without a thread in `wait`."""


def producer_of(settings: Mapping[str, object], *, plain: bool = False) -> BatchProducer:
    """The fastest producer with these settings. `plain`: for topics of other programs."""
    if compiled.loaded is None or plain:
        return PythonProducer(settings)
    return CompiledProducer(settings, compiled.loaded)


class _EnoughError(Exception):
    """Raised by a report, which makes librdkafka keep the reports after it for the next `poll`."""


class PythonProducer:
    """See `BatchProducer`. `make`: makes a producer of confluent-kafka from its settings."""

    def __init__(
        self, settings: Mapping[str, object], make: Callable[[dict[str, Any]], Producer] | None = None
    ) -> None:
        make = partial(Producer, logger=log) if make is None else make
        self._producer: Final = make(dict(settings))
        self._left = 0
        """How many reports that ask may be taken before the rest has to wait."""
        self._reported = False
        self.fatal: str | None = None

    def hand(self, topic: str, partition: int, batch: Batch, flight: Flight) -> Sequence[str | None]:
        """See `BatchProducer.hand`."""
        rest = batch.values[batch.handed :]
        reports = _Reports(self, flight)
        if isinstance(rest[0], PlainRecord):
            return self._handed_one_by_one(topic, partition, rest, reports)
        keys = batch.keys[batch.handed :]
        messages: list[dict[str, Any]] = (
            [{"value": value} for value in rest]
            if keys.count(None) == len(keys)
            else [{"value": value, "key": key} for value, key in zip(rest, keys, strict=True)]
        )
        for message in messages[::_CHECKED]:
            message["callback"] = reports.checked
        messages[-1]["callback"] = reports.last
        try:
            taken = self._producer.produce_batch(topic, messages, partition=partition, on_delivery=reports)
        except BufferError:
            return [FULL] * len(messages)
        except KafkaException as error:
            return [str(error)] * len(messages)
        return [None] * taken if taken == len(messages) else [_reason(each) for each in messages]

    def _handed_one_by_one(
        self, topic: str, partition: int, records: Sequence[bytes | PlainRecord], reports: "_Reports"
    ) -> Sequence[str | None]:
        """`produce_batch` drops headers."""
        for taken, record in enumerate(records):
            assert isinstance(record, PlainRecord)
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=partition,
                    headers=list(record.headers),
                    on_delivery=reports.last if taken == len(records) - 1 else reports.checked,
                )
            except BufferError:
                return [None] * taken + [FULL] * (len(records) - taken)
            except KafkaException as error:
                return [None] * taken + [str(error)] * (len(records) - taken)
        return [None] * len(records)

    def wait(self, timeout_s: float) -> bool:
        """See `BatchProducer.wait`. Reports until the first one that asks.

        The event loop takes the others: for each one, confluent-kafka takes the interpreter's lock anew, for
        which this thread would wait up to the switch interval while the loop is busy.
        """
        self._reported = False
        return self._serve(partial(self._producer.poll, timeout_s), 0) or self._reported

    def take(self) -> bool:
        """See `BatchProducer.take`."""
        return self._serve(partial(self._producer.poll, 0), _REPORTS_A_TURN)

    def finish(self, timeout_s: float) -> None:
        """See `BatchProducer.finish`."""
        self._serve(partial(self._producer.flush, timeout_s), sys.maxsize)

    def purge(self) -> None:
        """See `BatchProducer.purge`."""
        self._producer.purge(blocking=False)

    def __len__(self) -> int:
        return len(self._producer)

    def close(self) -> None:
        """See `BatchProducer.close`. confluent-kafka ends it with the object."""

    def reported(self) -> None:
        """A report that asks was passed on.

        Raises:
            _EnoughError: the next ones have to wait.
        """
        self._reported = True
        self._left -= 1
        if self._left < 0:
            raise _EnoughError

    def _serve(self, call: Callable[[], object], reports: int) -> bool:
        """Let it report. Returns whether it has more than may be taken here."""
        self._left = reports
        try:
            call()
        except _EnoughError:
            return True
        except KafkaException as error:
            # What confluent-kafka does with a fatal error, instead of calling its callback for errors.
            self.fatal = str(error)
        return False


class _Reports:
    """What confluent-kafka calls for the records of one batch."""

    __slots__ = ("_flight", "_producer")

    def __init__(self, producer: PythonProducer, flight: Flight) -> None:
        self._producer = producer
        self._flight = flight

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        self._flight.report(1, error, None)

    def checked(self, error: KafkaError | None, _message: Message) -> None:
        """A report after which the thread may have to stop."""
        self._flight.report(1, error, None)
        self._producer.reported()

    def last(self, error: KafkaError | None, message: Message) -> None:
        """The report on the last record of the batch."""
        self._flight.report(1, error, message.offset() if error is None else None)
        self._producer.reported()


def _reason(message: Mapping[str, Any]) -> str | None:
    """What `produce_batch` notes of a message: None if it was taken."""
    error = message.get("_error")
    if error is None:
        return None
    return FULL if isinstance(error, KafkaError) and error.code() == KafkaError._QUEUE_FULL else str(error)


class CompiledProducer:
    """See `BatchProducer`. For topics of our own: records have no headers.

    The reports of a batch have its number, and come in a few runs, not one for each record.
    """

    def __init__(self, settings: Mapping[str, object], parts: Loaded) -> None:
        self._client: Final = Client(PRODUCER, settings, parts.library)
        self._library: Final = parts.library
        self._produce: Final = parts.module.produce
        self._reports: Final = parts.module.reports
        self._numbers: Final = count(1)
        self._number_of: Final[dict[Flight, int]] = {}
        self._flights: Final[dict[int, tuple[Flight, int]]] = {}
        """By number, the flights of records without a report, and how many these are."""
        self._found: Final[deque[tuple[int, int, int, int]]] = deque()
        """Reports that `wait` has taken: number, how many, error, greatest offset."""

    @property
    def fatal(self) -> str | None:
        """See `BatchProducer.fatal`."""
        return self._client.fatal

    def hand(self, topic: str, partition: int, batch: Batch, flight: Flight) -> Sequence[str | None]:
        """See `BatchProducer.hand`."""
        first, rest = batch.handed, len(batch) - batch.handed
        number = self._number_of.get(flight) or next(self._numbers)
        keys = None if batch.keys.count(None) == len(batch) else batch.keys
        codes: _Codes = self._produce(
            self._client.handle, topic, partition, batch.values, keys, first, number, KafkaError._QUEUE_FULL
        )
        errors: Sequence[str | None] = [None] * rest
        if codes is not None:
            errors = [None] * (codes[0] - first) + [self._reason(code) for code in codes[1]]
        if taken := errors.count(None):
            self._number_of[flight] = number
            _, before = self._flights.get(number, (flight, 0))
            self._flights[number] = flight, before + taken
        return errors

    def wait(self, timeout_s: float) -> bool:
        """See `BatchProducer.wait`."""
        reported, events = self._reports(self._client.events, round(timeout_s * 1000), _REPORTS_AT_ONCE)
        for event in events:
            self._client.take_event(event)
        self._found.extend(reported)
        return bool(self._found)

    def take(self) -> bool:
        """See `BatchProducer.take`."""
        for _ in range(min(len(self._found), _RUNS_A_TURN)):
            number, records, code, last = self._found.popleft()
            flight, left = self._flights.pop(number)
            if left > records:
                self._flights[number] = flight, left - records
            else:
                del self._number_of[flight]
            error = None if code == DONE else error_of(code, self._library)
            flight.report(records, error, last if last >= 0 else None)
        return bool(self._found)

    def finish(self, timeout_s: float) -> None:
        """See `BatchProducer.finish`."""
        self.wait(timeout_s)
        while self.take():
            pass

    def purge(self) -> None:
        """See `BatchProducer.purge`."""
        self._library.rd_kafka_purge(self._client.handle, _PURGED)

    def __len__(self) -> int:
        return sum([left for _, left in self._flights.values()])

    def close(self) -> None:
        """See `BatchProducer.close`."""
        self._client.close()

    def _reason(self, code: int) -> str | None:
        if code == DONE:
            return None
        return FULL if code == KafkaError._QUEUE_FULL else str(error_of(code, self._library))
