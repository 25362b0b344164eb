"""[io] The transactional producer of an idempotent producer: events and their numbers in one transaction."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaException

from amqp_streams.kafka.numbered.batches import Batch, Share
from amqp_streams.kafka.records.plain import PlainRecord
from amqp_streams.kafka.sharing.producing import COMMIT_S, Ended, Outcome, TransactionalProducer

SENDING: Final[Mapping[str, object]] = {
    # `limits.pending_bytes` bounds what waits, so librdkafka need not. Its queue would be full in the middle
    # of a batch.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_000_000,
    "linger.ms": 0,
}
"""Settings besides those of each transactional producer."""
_FENCED: Final = "fenced by a newer instance"

log = logging.getLogger("amqp_streams.kafka.numbered")
# librdkafka calls it fatal that another node has a producer now, which any client may cause.
log.addFilter(lambda record: _FENCED not in record.getMessage())


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """What is written: a record of the topic of numbers, and the events of a batch in the topic of the log.

    `value`: None: the key is removed.
    """

    key: str
    value: bytes | None
    log_topic: str = ""
    batch: Batch | None = None


class EventProducer(TransactionalProducer):
    """`topic`: that of the numbers, and `bucket` the partition of the producer in it."""

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        topic: str,
        bucket: int,
        transactional_id: str,
        named: str,
    ) -> None:
        super().__init__(
            {**SENDING, **settings},
            topic=topic,
            bucket=bucket,
            transactional_id=transactional_id,
            named=named,
            logger=log,
        )

    def commit(self, asked: Transaction, within_s: float = COMMIT_S) -> Ended:
        """Write events and numbers, and wait for the outcome."""
        until = monotonic() + within_s
        failure = self.written(partial(self._produce, asked), until) or self.end(until)
        return Ended(Outcome.COMMITTED, 0) if failure is None else Ended(failure.outcome, 0, failure.reason)

    def _produce(self, asked: Transaction, _until: float) -> None:
        for share in () if asked.batch is None else asked.batch.shares:
            if isinstance(share.values[0], PlainRecord):
                self._produce_plain(asked.log_topic, share)
            else:
                self._produce_values(asked.log_topic, share)
        key = asked.key.encode()
        self.producer.produce(
            self._topic, asked.value, key, partition=self._bucket, on_delivery=self.reported
        )

    def _produce_values(self, topic: str, share: Share) -> None:
        messages: list[dict[str, Any]] = [
            {"value": value} if key is None else {"value": value, "key": key}
            for value, key in zip(share.values, share.keys, strict=True)
        ]
        taken = self.producer.produce_batch(
            topic, messages, partition=share.partition, on_delivery=self.reported
        )
        if taken < len(messages):
            errors = [each["_error"] for each in messages if "_error" in each]
            raise KafkaException(errors[0])

    def _produce_plain(self, topic: str, share: Share) -> None:
        for record in share.values:
            assert isinstance(record, PlainRecord)
            self.producer.produce(
                topic,
                record.value,
                record.key,
                partition=share.partition,
                headers=list(record.headers),
                on_delivery=self.reported,
            )
