"""Makes batches from a column of messages, without a step of Python for each row. Pure, except for Arrow.

A batch is one transfer with many events (docs/batched-sends.md). Arrow writes the head of each event, its
sequence number and its message into one buffer; a batch is a slice of this buffer.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import BATCH_OVERHEAD_BYTES, DATA_BINARY32, SEQUENCE_FRONT, encoded_batch

BATCH_BYTES: Final = 256 << 10
"""The most bytes of a batch. Larger batches save nothing: a transfer then costs little for each row."""
_SIZE_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_CODES: Final = {1: "B", 4: "I", 8: "Q"}
"""Type codes of `array`, by the bytes of an item."""
_SWAP: Final = sys.byteorder == "little"


@dataclass(frozen=True, slots=True)
class Alone:
    """A message that is too large for a batch, and its sequence number."""

    message: bytes
    number: int


def packed(
    messages: pa.BinaryArray, *, numbered: bool, events_max: int, bytes_max: int = BATCH_BYTES
) -> Iterator[bytes | Alone]:
    """Yield what to send for these messages, in order: batches of at most `events_max` events.

    `numbered`: the events get the sequence numbers 0, 1, … `bytes_max`: of a batch. A message that does not
    fit is returned alone; its number is not in its bytes.
    """
    count = len(messages)
    sizes = lengths(messages)
    nothing = pa.scalar(b"", pa.binary())
    front, numbers = nothing, nothing
    if numbered:
        front = pa.scalar(SEQUENCE_FRONT, pa.binary())
        numbers = as_binary(pa.array(range(count), pa.int64()))
        sizes = pc.add(sizes, pa.scalar(len(SEQUENCE_FRONT) + _NUMBER_BYTES, pa.int32()))
    sections = pc.binary_join_element_wise(
        pa.scalar(DATA_BINARY32, pa.binary()), as_binary(sizes), front, numbers, messages, nothing
    )
    wire_sizes = array("I", bytes_of(sizes))
    ends, content = (memoryview(buffer) for buffer in sections.buffers()[1:])
    ends = ends.cast("i")
    room = bytes_max - BATCH_OVERHEAD_BYTES
    start = 0
    while start < count:
        # What a batch of the events `start` to `end` needs: their sections, and their sizes once more.
        used = ends[start] + _SIZE_BYTES * start + room
        last = min(count, start + events_max)
        end = bisect_right(range(last + 1), used, lo=start, key=lambda at: ends[at] + _SIZE_BYTES * at) - 1
        if end == start:
            yield Alone(messages[start].as_py(), start)
            start += 1
        else:
            yield encoded_batch(wire_sizes[start:end], content[ends[start] : ends[end]])
            start = end


def lengths(messages: pa.BinaryArray) -> pa.Int32Array:
    """Return the number of bytes of each message."""
    return pc.binary_length(messages)


def contents(messages: pa.BinaryArray) -> memoryview:
    """Return the bytes of all messages, one after the other. They share the memory of the column."""
    _, offsets, content = messages.buffers()
    if content is None:
        return memoryview(b"")
    bounds = memoryview(offsets).cast("i")
    return memoryview(content)[bounds[messages.offset] : bounds[messages.offset + len(messages)]]


def bytes_of(numbers: pa.Array) -> bytes:
    """Return the bytes of an array of numbers, in the byte order of this machine."""
    size = numbers.type.bit_width // 8
    start = numbers.offset * size
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * size].tobytes()


def as_binary(numbers: pa.Array) -> pa.BinaryArray:
    """Return the bytes of each number, in the byte order of the wire. A null has any bytes."""
    size = numbers.type.bit_width // 8
    content = array(_CODES[size], bytes_of(numbers))
    if _SWAP:
        content.byteswap()
    made = pa.Array.from_buffers(pa.binary(size), len(numbers), [None, pa.py_buffer(content)])
    return made.cast(pa.binary())
