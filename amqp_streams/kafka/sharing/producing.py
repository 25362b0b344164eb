"""[io] Transactional producers: each fences the producers before it. That of a bucket writes states.

Their methods wait for Kafka, so they are called in one thread that is not the event loop's.

Laws: after `fence`, no producer with this transactional id that was opened before can commit. COMMITTED and
ABORTED are certain. After every other outcome the producer is of no use: fence again with a new one, and read
what it may have written before anything is decided.

A request to end a transaction that librdkafka repeats could reach the broker after the next transaction has
begun, and end that one: librdkafka does not use the second version of Kafka's transactions (KIP-890).
librdkafka waits at least four fifths of `retry.backoff.ms` before it repeats a request. So an end that took
less than `SURE_S` was asked for once, and one that took longer counts as an unknown outcome.

A *hanging* transaction is one that the coordinator takes for ended, and a partition does not: nothing behind
it can be read. It was seen after all brokers had been killed within seconds. The end of a later transaction
of the same producer in that partition ends it, too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from amqp_streams.errors import StorageError
from amqp_streams.kafka.sharing.parts import parts

FENCE_S: Final = 5.0
"""How long a fence may take. A coordinator that has just started needs one or two seconds."""
COMMIT_S: Final = 5.0
"""How long all transactions of one commit may take."""
SURE_S: Final = 0.7
"""An end of a transaction that took less was asked for once."""
RECORD_BYTES_MAX: Final = 2 << 20
"""The largest record with its key: see `STATE_VALUE_BYTES_MAX` and `STATE_KEY_BYTES_MAX`."""
TRANSACTIONAL: Final[Mapping[str, object]] = {
    "acks": "all",
    # An open transaction hides what comes after it from readers, until it is fenced or this time is over.
    "transaction.timeout.ms": 10_000,
    "message.timeout.ms": int(COMMIT_S * 1000),
    "socket.timeout.ms": int(COMMIT_S * 1000),
    # At least `SURE_S` with the jitter of a fifth.
    "retry.backoff.ms": 1000,
    "retry.backoff.max.ms": 2000,
    "message.max.bytes": RECORD_BYTES_MAX,
    "delivery.report.only.error": True,
    "log.connection.close": False,
}
"""Settings of each producer. The caller adds servers and security."""
NOTHING: Final = b"nothing"
"""The key of a record without a value, which changes nothing."""
_STEP_S: Final = 0.1
_FENCED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}

log = logging.getLogger("amqp_streams.kafka")


class Outcome(Enum):
    """How a commit ended. FENCED: another node has fenced this producer, so it is deposed."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a commit.

    `began_ms`: when its first transaction began, by CLOCK_BOOTTIME. A lease counts from there. `reason`: why
    it was not committed.
    """

    outcome: Outcome
    began_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction was not committed."""

    outcome: Outcome
    reason: str


class TransactionalProducer:
    """A producer with a transactional id, of a bucket: a partition of `topic`, which is compacted.

    `settings`: those of librdkafka for servers and security, and others. `named`: what it is, for messages.
    `logger`: takes librdkafka's lines.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        topic: str,
        bucket: int,
        transactional_id: str,
        named: str,
        logger: logging.Logger = log,
    ) -> None:
        self._topic: Final = topic
        self._bucket: Final = bucket
        self._named: Final = named
        self._failed: Final[list[KafkaError]] = []
        given: dict[str, Any] = {**TRANSACTIONAL, **settings, "transactional.id": transactional_id}
        self._open: Producer | None = Producer(given, logger=logger)

    def fence(self, within_s: float = FENCE_S, *, ends_hanging: bool = False) -> None:
        """Fence the producers with this id that were opened before. May be called once.

        `ends_hanging`: then commit a record that changes nothing, which ends a hanging transaction of these
        producers in the bucket. Whether it was to be committed or aborted is not known; the caller reads the
        bucket afterwards, and takes what it finds for the truth.

        Raises:
            StorageError: Kafka did not answer in time, or does not permit it. It may be done later.
        """
        until = monotonic() + within_s
        try:
            # Otherwise librdkafka looks for the coordinator before it knows a broker, and again after 0.5 s.
            self.producer.list_topics(timeout=within_s)
            self.producer.init_transactions(max(_STEP_S, until - monotonic()))
        except KafkaException as error:
            message = f"{self._named} cannot be fenced: {_text(error)}"
            raise StorageError(message) from error
        if ends_hanging:
            self._end_hanging(monotonic() + COMMIT_S)

    def _end_hanging(self, until: float) -> None:
        failure = self.written(self._produce_nothing, until) or self.end(until)
        if failure is not None:
            message = f"{self._named}: an earlier transaction cannot be ended: {failure.reason}"
            raise StorageError(message)
        log.warning("kafka_earlier_transactions_ended what=%s", self._named)

    def _produce_nothing(self, _until: float) -> None:
        self.producer.produce(self._topic, None, NOTHING, partition=self._bucket, on_delivery=self.reported)

    def written(self, produce: Callable[[float], None], until: float) -> Failure | None:
        """Begin a transaction, and write what `produce` writes until then; None: `end` may follow."""
        self._failed.clear()
        try:
            self.producer.begin_transaction()
            produce(until)
            left = self.producer.flush(max(0.0, until - monotonic()))
        except _ERRORS as error:
            return self._abort(error, until)
        if self._failed:
            return self._abort(KafkaException(self._failed[0]), until)
        if left:
            return Failure(Outcome.UNKNOWN, f"Kafka did not answer about {left} records in time")
        return None

    def end(self, until: float) -> Failure | None:
        """Commit the open transaction; None: it is committed."""
        began = monotonic()
        try:
            self.producer.commit_transaction(max(_STEP_S, until - began))
        except _ERRORS as error:
            return _given_up(error)
        return _doubted("commit", monotonic() - began)

    def close(self) -> None:
        """End the producer. An open transaction stays open until the next fence."""
        producer, self._open = self._open, None
        if producer is not None:
            producer.purge(blocking=False)
            # The last reference ends the producer. Its own `close` would first abort the transaction, and
            # wait for the answer: the request could come after the next transaction has begun.
            del producer

    @property
    def producer(self) -> Producer:
        """The producer of librdkafka, which is open."""
        assert self._open is not None, "the producer is closed"
        return self._open

    def reported(self, error: KafkaError | None, _message: Message) -> None:
        """The report on a record."""
        if error is not None:
            self._failed.append(error)

    def _abort(self, cause: Exception, until: float) -> Failure:
        """Abort after Kafka has refused a record: nothing of the transaction is ever read."""
        began = monotonic()
        if _outcome(cause) is Outcome.FENCED:
            return _given_up(cause)
        try:
            self.producer.abort_transaction(max(_STEP_S, until - began))
        except _ERRORS as error:
            return _given_up(error)
        return _doubted("abort", monotonic() - began) or Failure(Outcome.ABORTED, _text(cause))


class BucketProducer(TransactionalProducer):
    """A producer of a bucket's partition in the state topic.

    `settings`: those of librdkafka for servers and security. `boot_ms`: reads CLOCK_BOOTTIME.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        bucket: int,
        *,
        transactional_id: str,
        boot_ms: Callable[[], int],
    ) -> None:
        self._boot_ms: Final = boot_ms
        named = f"bucket {bucket} of topic {topic!r}"
        super().__init__(settings, topic=topic, bucket=bucket, transactional_id=transactional_id, named=named)

    def commit(self, changes: Mapping[str, bytes | None], within_s: float = COMMIT_S) -> Ended:
        """Write records, and wait for the outcome. None as a value removes the key.

        What exceeds the bounds of one transaction is written in several, one after another.
        """
        assert changes, "a transaction without records would not show that the producer is not fenced"
        began_ms, until, written = self._boot_ms(), monotonic() + within_s, False
        for part in parts(changes):
            failure = self.write(part, until) or self.end(until)
            if failure is not None:
                known = failure.outcome is Outcome.ABORTED and written
                outcome = Outcome.UNKNOWN if known else failure.outcome
                return Ended(outcome, began_ms, f"bucket {self._bucket}: {failure.reason}")
            written = True
        return Ended(Outcome.COMMITTED, began_ms)

    def write(self, changes: Mapping[str, bytes | None], until: float) -> Failure | None:
        """Begin a transaction, and write its records; None: `end` may follow. `until`: of `monotonic`."""
        return self.written(partial(self._produce, changes), until)

    def _produce(self, changes: Mapping[str, bytes | None], until: float) -> None:
        for key, value in changes.items():
            self._produce_one(key.encode(), value, until)

    def _produce_one(self, key: bytes, value: bytes | None, until: float) -> None:
        while True:
            try:
                self.producer.produce(
                    self._topic, value, key, partition=self._bucket, on_delivery=self.reported
                )
            except BufferError:
                # Reports make room.
                self.producer.poll(_STEP_S)
                if monotonic() > until:
                    raise
            else:
                return


_ERRORS: Final = (KafkaException, BufferError, SystemError)
"""What calls of a producer raise. confluent-kafka raises a fatal error while it calls `reported`, which
Python reports as a SystemError whose cause is the error.
"""


def _doubted(what: str, took_s: float) -> Failure | None:
    if took_s < SURE_S:
        return None
    return Failure(
        Outcome.UNKNOWN, f"Kafka took {took_s:.1f} s to {what}, so the request may have been repeated"
    )


def _given_up(error: Exception) -> Failure:
    outcome = _outcome(error)
    if outcome is Outcome.FENCED:
        text = f"another node has fenced this one, or a transaction took too long ({_text(error)})"
        return Failure(outcome, text)
    return Failure(outcome, f"the outcome of a transaction is not known: {_text(error)}")


def _outcome(error: Exception) -> Outcome:
    reason = _reason(error)
    return Outcome.FENCED if reason is not None and reason.code() in _FENCED else Outcome.UNKNOWN


def _text(error: Exception) -> str:
    reason = _reason(error)
    return str(error) if reason is None else reason.str()


def _reason(error: BaseException) -> KafkaError | None:
    first = error.args[0] if error.args else None
    if isinstance(first, KafkaError):
        return first
    return None if error.__cause__ is None else _reason(error.__cause__)
