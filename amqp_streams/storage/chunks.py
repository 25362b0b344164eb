"""Runs of records in memory: cutting and joining them. No copy of a message is ever made here."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain

from amqp_streams.storage.ports import Chunk


def cut(chunk: Chunk, at: int, bytes_max: int) -> Chunk:
    """The part of `chunk` from record number `at` on that is at most `bytes_max` bytes, but at least one record."""
    assert chunk.base <= at < chunk.base + len(chunk), "the record wanted is in the chunk"
    first = at - chunk.base
    messages = chunk.messages[first:] if first else chunk.messages
    count = count_within(messages, bytes_max)
    if count == len(chunk):
        return chunk
    last = first + count
    return Chunk(at, chunk.timestamps[first:last], chunk.header_sizes[first:last], messages[:count])


def count_within(messages: Sequence[bytes], bytes_max: int) -> int:
    """How many of the messages, from the first, have at most `bytes_max` bytes together; at least one."""
    ends = list(accumulate(map(len, messages)))
    return len(ends) if ends[-1] <= bytes_max else max(1, bisect_right(ends, bytes_max))


def join(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk of several that follow each other without a gap."""
    if len(chunks) == 1:
        return chunks[0]
    timestamps = array("q")
    for chunk in chunks:
        timestamps.extend(chunk.timestamps)
    headers = b"".join([chunk.header_sizes for chunk in chunks])
    return Chunk(chunks[0].base, timestamps, headers, list(chain.from_iterable([chunk.messages for chunk in chunks])))
