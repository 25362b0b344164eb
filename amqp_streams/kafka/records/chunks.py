"""Chunks of the records that were consumed from a topic of our own. Pure."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from amqp_streams.kafka.records import amqp
from amqp_streams.storage.ports import Chunk


class Consumed(NamedTuple):
    """A record as Kafka gives it. `time_ms`: see `TopicSettings.append_times`."""

    offset: int
    time_ms: int
    value: bytes | None


def chunk_of(records: Sequence[Consumed]) -> Chunk:
    """The chunk of these records: at least one, in the order of their offsets, and no other in between."""
    assert records, "a chunk has records"
    messages, sizes, formats = amqp.messages([record.value for record in records])
    offsets = array("Q", [record.offset for record in records])
    times = array("q", [record.time_ms for record in records])
    gaps = offsets[-1] - offsets[0] >= len(offsets)
    return Chunk(offsets[0], times, sizes, messages, (), formats, offsets if gaps else None)
