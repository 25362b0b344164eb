"""[io] Asks new leaders whether they have the records that the leaders before them had.

librdkafka asks the leader where an epoch ended (KIP-320) before it reads from a position that has an epoch.
It tells the answer only if records are missing, as the text of an error.
"""

import logging
import re
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import Place, is_end, place_of

WAIT_S: Final = 10.0
"""How long new leaders may take to answer. Those that have not are asked again at the next look."""
_STEP_S: Final = 0.2
_TRUNCATED: Final = re.compile(r"(?:log truncation detected|No epoch found).*broker end offset is (-?\d+)")

log = logging.getLogger("amqp_streams.kafka")


class Mark(NamedTuple):
    """The leader of this epoch had all records in front of `end`."""

    end: int
    epoch: int


def first_lost(error: KafkaError) -> int | None:
    """The number of the first record that a leader lacks; None if the error is another one."""
    found = _TRUNCATED.search(error.str())
    # -1: the leader has no record of this epoch or an earlier one.
    return None if found is None else max(0, int(found[1]))


class Comparer:
    """Asks with a consumer of its own, because elections are rare."""

    def __init__(self, settings: Mapping[str, object], *, wait_s: float = WAIT_S) -> None:
        # One record is enough to know that the leader has the position.
        small = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
        self._settings: Final = {**CONSUMING, **small, **settings}
        self._wait_s: Final = wait_s
        self._stopping: Final = threading.Event()

    def stop(self) -> None:
        """End what waits for an answer."""
        self._stopping.set()

    def compare(self, marks: Mapping[Place, Mark]) -> dict[Place, int | None]:
        """By partition that answered, the number of the first record in front of the mark that is lost.

        None: the leader has them all. Waits for Kafka, so it is called in a thread.
        """
        left, found = dict(marks), dict[Place, int | None]()
        consumer = Consumer(dict(self._settings), logger=log)
        try:
            consumer.assign(
                [
                    TopicPartition(place.topic, place.partition, mark.end, leader_epoch=mark.epoch)
                    for place, mark in left.items()
                ]
            )
            until = monotonic() + self._wait_s
            while left and monotonic() < until and not self._stopping.is_set():
                message = consumer.poll(_STEP_S)
                if message is None or (place := place_of(message)) not in left or not _answers(message):
                    continue
                error = message.error()
                found[place] = None if error is None else first_lost(error)
                del left[place]
                consumer.incremental_unassign([TopicPartition(place.topic, place.partition)])
        except KafkaException as error:
            text = f"new leaders cannot be asked: {error}"
            raise StorageError(text) from error
        finally:
            consumer.close()
        return found


def _answers(message: Message) -> bool:
    """Whether the leader has answered: with a record, its end, or that it lacks the position."""
    error = message.error()
    return error is None or is_end(error) or error.code() in _MISSING


_MISSING: Final = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
}
