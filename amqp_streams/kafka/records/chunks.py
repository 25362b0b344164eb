"""Chunks of the records that were consumed. Pure.

Hot path: records are columns, because a step for each record costs more than what is done with it.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.plain import Headers, PlainRecord, plain_message
from amqp_streams.storage.ports import Chunk, Formats
from amqp_streams.wire.batched.packed import Packed, join_messages


class Consumed(NamedTuple):
    """Records of one partition as Kafka gives them, in the order of their offsets; one item for each record.

    `times_ms`: see `TopicSettings.append_times`. `keys`, `headers`: of a topic of other programs; None: the
    topic is one of our own.
    """

    offsets: Sequence[int]
    times_ms: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None


def joined(parts: Sequence[Consumed]) -> Consumed:
    """Records that follow each other, of one partition, in one piece. `parts`: at least one."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts]
    packed = [each for each in values if isinstance(each, Packed)]
    keys = [part.keys for part in parts if part.keys is not None]
    headers = [part.headers for part in parts if part.headers is not None]
    return Consumed(
        list(chain.from_iterable([part.offsets for part in parts])),
        list(chain.from_iterable([part.times_ms for part in parts])),
        join_messages(packed) if len(packed) == len(values) else list(chain.from_iterable(values)),
        list(chain.from_iterable(keys)) if len(keys) == len(parts) else None,
        list(chain.from_iterable(headers)) if len(headers) == len(parts) else None,
    )


def chunk_of(records: Consumed) -> Chunk:
    """The chunk of these records: at least one, and no other in between."""
    assert records.offsets, "a chunk has records"
    messages, sizes, formats = (
        amqp.messages(records.values)
        if records.headers is None or records.keys is None
        else _plain(records.keys, records.values, records.headers)
    )
    first, last = records.offsets[0], records.offsets[-1]
    gaps = last - first >= len(records.offsets)
    offsets = array("Q", records.offsets) if gaps else None
    return Chunk(first, array("q", records.times_ms), sizes, messages, (), formats, offsets)


def _plain(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: Sequence[Headers]
) -> tuple[list[bytes], bytes, Formats]:
    """Messages and header sizes of records of other programs. All have the message-format 0."""
    records = map(PlainRecord, keys, values, headers)
    found = [plain_message(record) for record in records]
    return [message for message, _ in found], bytes([size for _, size in found]), None
