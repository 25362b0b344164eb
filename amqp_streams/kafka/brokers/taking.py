"""What a consumer of librdkafka brought: its records as columns, and what it says besides.

Hot path: nothing here does more for a record than calls of C functions in a row.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from confluent_kafka import KafkaError, Message

from amqp_streams.kafka.records.chunks import Consumed


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


class Other(NamedTuple):
    """A message that is not a record: an error, or the end of a partition."""

    place: Place
    offset: int
    error: KafkaError


class Portion(NamedTuple):
    """What was taken: the records of each partition in their order, in pieces, and the other messages."""

    runs: Sequence[tuple[Place, Consumed]]
    others: Sequence[Other]


def sorted_out(messages: Sequence[Message]) -> tuple[dict[Place, list[Message]], list[Message]]:
    """The records by partition, in their order, and the other messages: errors and ends of partitions."""
    others = [message for message in messages if message.error() is not None]
    records = [message for message in messages if message.error() is None] if others else list(messages)
    places = set(zip(map(Message.topic, records), map(Message.partition, records), strict=True))
    if len(places) == 1:
        return {place_of(records[0]): records}, others
    found: dict[Place, list[Message]] = {}
    for message in records:
        found.setdefault(place_of(message), []).append(message)
    return found, others


def place_of(message: Message) -> Place:
    """The partition that a message is about."""
    return Place(message.topic() or "", message.partition() or 0)


def is_end(error: KafkaError) -> bool:
    """Whether this is not an error but the end of a partition."""
    return error.code() == KafkaError._PARTITION_EOF


def consumed(records: Sequence[Message], *, plain: bool) -> Consumed:
    """The columns of records of one partition. `plain`: its topic belongs to other programs."""
    offsets = cast("list[int]", list(map(Message.offset, records)))
    times_ms = [time_ms for _, time_ms in map(Message.timestamp, records)]
    values = list(map(Message.value, records))
    if not plain:
        return Consumed(offsets, times_ms, values)
    headers = [cast("list[tuple[str, bytes | None]] | None", message.headers()) or () for message in records]
    return Consumed(offsets, times_ms, values, [message.key() for message in records], headers)


def size_of(records: Sequence[Message]) -> int:
    """The bytes of the values of records."""
    return sum([len(value) for value in map(Message.value, records) if value is not None])
