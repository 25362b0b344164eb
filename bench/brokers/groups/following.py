"""[io] Reads the state topic while nodes write it, so that no state is compacted before it was read."""

import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.topics import TopicNames
from bench.brokers.groups.traces import StateRecord

_POLL_S: Final = 0.2
_COUNT: Final = 500


class StateReader:
    """Reads all partitions of the topic, in a thread. `servers`: not through a proxy.

    Times of the records are those of CLOCK_BOOTTIME: the brokers are on this machine.
    """

    def __init__(self, servers: str, prefix: str) -> None:
        self.records: Final[list[StateRecord]] = []
        self._stop: Final = threading.Event()
        settings: dict[str, Any] = {**CONSUMING, "bootstrap.servers": servers, "log_level": 0}
        self._consumer: Final = Consumer(settings)
        topic = TopicNames(prefix).state
        self._consumer.assign([TopicPartition(topic, bucket, 0) for bucket in range(BUCKETS)])
        self._thread: Final = threading.Thread(target=self._run, name="states", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def positions(self) -> dict[str, dict[int, int]]:
        """The last positions of each cursor, by the key of `StateRecord.cursor`."""
        found: dict[str, dict[int, int]] = {}
        for record in list(self.records):
            if record.cursor is not None:
                found[record.cursor] = dict(record.positions)
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(_COUNT, _POLL_S)
            # The difference of the clocks changes a little when NTP corrects one of them.
            offset_us = (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1000
            for message in messages:
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    continue
                _, at_ms = message.timestamp()
                # Until the end of its millisecond: a time that is too late accuses nobody.
                at_us = (at_ms + 1) * 1000 - offset_us
                state = None if value is None else bytes(value)
                self.records.append(StateRecord.of(message.partition() or 0, at_us, _bytes(key), state))


def _bytes(key: object) -> bytes:
    return key if isinstance(key, bytes) else b""
