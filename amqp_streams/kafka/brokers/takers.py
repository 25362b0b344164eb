"""[io] Two ways to take what a consumer of librdkafka brings: in Python, and compiled.

See docs/compiled-loops.md.

Law: both bring the same records, in the same order, and the same other messages.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Final, Protocol

from confluent_kafka import Consumer, TopicPartition

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.taking import (
    Other,
    Place,
    Portion,
    consumed,
    place_of,
    size_of,
    sorted_out,
)

_AT_ONCE: Final = 1000
"""How many objects are made before other threads may have the interpreter's lock."""

log = logging.getLogger("amqp_streams.kafka")


class Taker(Protocol):
    """A consumer of one partition at a time."""

    def assign(self, place: Place, at: int) -> None:
        """Consume this partition from a number on.

        Raises:
            KafkaException: the library refuses.
        """

    def seek(self, place: Place, at: int) -> None:
        """Continue at another number of the partition that is assigned. Raises like `assign`."""

    def take(self, timeout_s: float, count: int, bytes_max: int) -> Portion:
        """Wait for the first message, then take what is there: at most `count` messages.

        None more is taken when they have `bytes_max` bytes. May bring messages of an assignment before.
        """

    def extent(self, place: Place, timeout_s: float) -> tuple[int, int]:
        """Where the partition begins and ends, as its leader says. Raises like `assign`."""

    def close(self) -> None:
        """End the consumer. May be called twice."""


def taker_of(settings: Mapping[str, object], working: threading.Lock, *, plain: bool) -> Taker:
    """The fastest consumer with these settings. `working`, `plain`: see `PythonTaker`."""
    if compiled.loaded is None or plain:
        return PythonTaker(settings, working, plain=plain)
    return compiled.CompiledTaker(settings, compiled.loaded)


class PythonTaker:
    """See `Taker`. `working`: held while objects are made. `plain`: for topics of other programs."""

    def __init__(self, settings: Mapping[str, object], working: threading.Lock, *, plain: bool) -> None:
        self._consumer: Final = Consumer(dict(settings), logger=log)
        self._working: Final = working
        self._plain: Final = plain

    def assign(self, place: Place, at: int) -> None:
        """See `Taker.assign`."""
        self._consumer.assign([TopicPartition(place.topic, place.partition, at)])

    def seek(self, place: Place, at: int) -> None:
        """See `Taker.seek`."""
        self._consumer.seek(TopicPartition(place.topic, place.partition, at))

    def take(self, timeout_s: float, count: int, bytes_max: int) -> Portion:
        """See `Taker.take`."""
        # One message only: asked for many, librdkafka would wait for all of them.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return Portion((), ())
        messages = [first]
        size = size_of(messages)
        # One consumer at a time: the event loop competes with each of them for the interpreter's lock, after
        # each of its system calls.
        with self._working:
            while size < bytes_max and len(messages) < count:
                missing = (bytes_max - size) * len(messages) // max(1, size) + 1
                some = self._consumer.consume(min(missing, count - len(messages), _AT_ONCE), 0.0)
                if not some:
                    break
                messages += some
                size += size_of(some)
            found, others = sorted_out(messages)
            return Portion(
                [(place, consumed(records, plain=self._plain)) for place, records in found.items()],
                [
                    Other(place_of(message), message.offset() or 0, error)
                    for message in others
                    if (error := message.error()) is not None
                ],
            )

    def extent(self, place: Place, timeout_s: float) -> tuple[int, int]:
        """See `Taker.extent`."""
        partition = TopicPartition(place.topic, place.partition)
        start, end = self._consumer.get_watermark_offsets(partition, timeout=timeout_s)
        return start, end

    def close(self) -> None:
        """See `Taker.close`."""
        self._consumer.close()
