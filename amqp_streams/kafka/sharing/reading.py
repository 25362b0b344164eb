"""[io] Reads the state topic from its beginning and then its new records: one consumer, and a thread.

Law: what is brought of a bucket is in the order of the partition. If the partition must be read again from
its beginning, what is brought says so (`Brought.again`) before the first record of it.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import is_end

READING: Final[Mapping[str, object]] = {
    **CONSUMING,
    # How long an empty answer takes, which shows that the end of a partition is reached.
    "fetch.wait.max.ms": 50,
    # A topic that is created again must be seen, and new leaders found.
    "topic.metadata.refresh.interval.ms": 5000,
}
RECORDS: Final = 500
"""The most records that the event loop takes at once: less than a millisecond."""
_AHEAD: Final = 4
_POLL_S: Final = 0.2
_LEADERS_S: Final = 2.0
_AGAIN_S: Final = 1.0
_GONE: Final = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
}

log = logging.getLogger("amqp_streams.kafka")


class Brought(NamedTuple):
    """Records of a bucket. `position`: the number after them.

    `again`: why its partition begins again here; empty: it continues.
    """

    bucket: int
    changes: list[tuple[str, bytes | None]]
    position: int
    again: str = ""


class StateReader:
    """The thread. `on_portion` is called on the event loop's thread, and calls `taken`.

    `on_portion` gets the reading to which the portion belongs: each call of `restart` begins another one.
    `on_ended`: the thread ended with an error.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        buckets: int,
        *,
        loop_call: Callable[..., object],
        on_portion: Callable[[int, Sequence[Brought]], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self.reading = 0
        self._settings: Final = {**READING, **settings}
        self._topic: Final = topic
        self._buckets: Final = buckets
        self._loop_call: Final = loop_call
        self._on_portion: Final = on_portion
        self._on_ended: Final = on_ended
        self._again: Final[deque[int]] = deque()
        self._stopping = threading.Event()
        self._room: Final = threading.Semaphore(_AHEAD)
        self._said = ""
        self._thread: Final = threading.Thread(target=self._run, name="kafka-states", daemon=True)
        self._thread.start()

    def taken(self) -> None:
        """The event loop has taken a portion."""
        self._room.release()

    def again(self, bucket: int) -> None:
        """Read the partition of a bucket again from its beginning."""
        self._again.append(bucket)

    def restart(self) -> None:
        """Read all partitions again with a new consumer: the topic is another one."""
        self.reading += 1

    def close(self) -> None:
        """End the thread and the consumer."""
        self._stopping.set()
        self._room.release()
        self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                consumer = Consumer(dict(self._settings), logger=log)
                try:
                    self._read_all(consumer, self.reading)
                finally:
                    consumer.close()
        except Exception as error:
            log.exception("kafka_states_ended")
            self._loop_call(self._on_ended, f"the thread that follows the state topic ended: {error}")

    def _read_all(self, consumer: Consumer, reading: int) -> None:
        with contextlib.suppress(KafkaException):
            # Otherwise librdkafka asks for the beginnings before it knows the leaders, and again after 0.5 s.
            consumer.list_topics(self._topic, _LEADERS_S)
        consumer.assign([self._from_beginning(bucket) for bucket in range(self._buckets)])
        while not self._stopping.is_set() and reading == self.reading:
            brought = [
                self._begin_again(consumer, self._again.popleft(), "") for _ in range(len(self._again))
            ]
            try:
                # One record only: asked for many, librdkafka would wait for all of them.
                message = consumer.poll(_POLL_S)
                messages = [] if message is None else [message, *consumer.consume(RECORDS - 1, 0.0)]
            except KafkaException as error:
                self._say(str(error))
                sleep(_AGAIN_S)
                continue
            found, others = sorted_out(messages)
            brought += found
            for message in others:
                brought += self._act(consumer, message)
            if brought:
                self._room.acquire()
                self._loop_call(self._on_portion, reading, brought)

    def _act(self, consumer: Consumer, message: Message) -> list[Brought]:
        """What a message that is not a record brings."""
        error, bucket = message.error(), message.partition()
        assert error is not None
        if error.code() in _GONE and bucket is not None and bucket >= 0:
            return [self._begin_again(consumer, bucket, error.str())]
        self._say(error.str())
        return []

    def _begin_again(self, consumer: Consumer, bucket: int, why: str) -> Brought:
        consumer.incremental_unassign([self._from_beginning(bucket)])
        consumer.incremental_assign([self._from_beginning(bucket)])
        return Brought(bucket, [], 0, why or "it was asked for")

    def _from_beginning(self, bucket: int) -> TopicPartition:
        return TopicPartition(self._topic, bucket, OFFSET_BEGINNING)

    def _say(self, words: str) -> None:
        """Log a problem once, and not at each repetition."""
        if words != self._said:
            self._said = words
            log.warning("kafka_states_failed topic=%s reason=%s", self._topic, words)


def sorted_out(messages: Sequence[Message]) -> tuple[list[Brought], list[Message]]:
    """What consumed messages bring of each bucket, and the messages that are errors.

    A record whose key is not UTF-8, or that has no key, was not written by a node. It is skipped.
    """
    found: dict[int, Brought] = {}
    others = []
    for message in messages:
        error = message.error()
        if error is not None and not is_end(error):
            others.append(message)
            continue
        bucket, offset = message.partition() or 0, message.offset() or 0
        before = found.get(bucket) or Brought(bucket, [], 0)
        if error is None and (key := _text(message.key())) is not None:
            value = message.value()
            before.changes.append((key, None if value is None else bytes(value)))
        # The end of a partition is the number of the next record.
        position = offset if error is not None else offset + 1
        found[bucket] = before._replace(position=max(before.position, position))
    return list(found.values()), others


def _text(key: str | bytes | None) -> str | None:
    if not key:
        return None
    try:
        return key if isinstance(key, str) else key.decode()
    except UnicodeDecodeError:
        return None
