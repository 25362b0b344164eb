"""Chunks of the records that were consumed. Pure."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.plain import Headers, PlainRecord, plain_message
from amqp_streams.storage.ports import Chunk, Formats


class Consumed(NamedTuple):
    """A record as Kafka gives it. `time_ms`: see `TopicSettings.append_times`."""

    offset: int
    time_ms: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    """Of a record that other programs may have written; None: of a record in a topic of our own."""


def chunk_of(records: Sequence[Consumed]) -> Chunk:
    """The chunk of these records: at least one, in the order of their offsets, and no other in between."""
    assert records, "a chunk has records"
    messages, sizes, formats = (
        amqp.messages([record.value for record in records])
        if records[0].headers is None
        else _plain([(record.key, record.value, record.headers or ()) for record in records])
    )
    offsets = array("Q", [record.offset for record in records])
    times = array("q", [record.time_ms for record in records])
    gaps = offsets[-1] - offsets[0] >= len(offsets)
    return Chunk(offsets[0], times, sizes, messages, (), formats, offsets if gaps else None)


def _plain(
    records: Sequence[tuple[bytes | None, bytes | None, Headers]],
) -> tuple[list[bytes], bytes, Formats]:
    """Messages and header sizes of records of other programs. All have the message-format 0."""
    found = [plain_message(PlainRecord(*record)) for record in records]
    return [message for message, _ in found], bytes([size for _, size in found]), None
