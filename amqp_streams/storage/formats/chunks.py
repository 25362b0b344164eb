"""Runs of records in memory: cutting and joining them. Messages are never copied here."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from amqp_streams.storage.ports import Chunk, Formats, Mark
from amqp_streams.wire.batched.packed import Packed, join_messages

_STEP: Final = 64


@dataclass(slots=True, eq=False)
class Appends:
    """A run of records in the pieces in which they were appended.

    A run of many pieces takes milliseconds to join: the thread that writes it calls `joined` first.
    """

    base: int
    pieces: list[tuple[int, Sequence[bytes], bytes, Formats]]
    """Of each append: the timestamp, the messages, the header sizes, the message-formats."""
    marks: Sequence[Mark]
    count: int
    is_formatted: bool
    """Whether a message has a message-format that is not 0."""
    _chunk: Chunk | None = field(default=None, init=False)

    @property
    def end(self) -> int:
        """One past the number of the last record."""
        return self.base + self.count

    def joined(self) -> Chunk:
        """The run as one chunk, always the same."""
        if self._chunk is None:
            self._chunk = self._join()
            self.pieces.clear()
        return self._chunk

    def _join(self) -> Chunk:
        pieces = self.pieces
        if len(pieces) == 1:  # hot path: a batch that is a commit of its own is not copied
            stamp, messages, headers, formats = pieces[0]
            stamps = array("q", [stamp]) * len(messages)
            return Chunk(self.base, stamps, headers, messages, self.marks, formats)
        stamps = array("q")
        for stamp, messages, _, _ in pieces:
            stamps.extend(array("q", [stamp]) * len(messages))
        headers = b"".join([headers for _, _, headers, _ in pieces])
        formats = (
            join_formats([(len(messages), formats) for _, messages, _, formats in pieces])
            if self.is_formatted
            else None
        )
        together = join_messages([messages for _, messages, _, _ in pieces])
        return Chunk(self.base, stamps, headers, together, self.marks, formats)


def cut(chunk: Chunk, at: int, bytes_max: int) -> Chunk:
    """The part of `chunk` from record `at` on: at most `bytes_max` bytes, and at least one record."""
    assert chunk.base <= at < chunk.end, "the wanted record is in the chunk"
    first = chunk.index(at)
    count = count_within(chunk.messages, bytes_max, first)
    if count == len(chunk):
        return chunk
    return part(chunk, first, first + count)


def part(chunk: Chunk, first: int, last: int, marks: Sequence[Mark] = ()) -> Chunk:
    """The records from index `first` to before `last`, with these `marks`."""
    stamps, headers, messages = (
        chunk.timestamps[first:last],
        chunk.header_sizes[first:last],
        chunk.messages[first:last],
    )
    formats = formats_at(chunk.formats, slice(first, last))
    if chunk.offsets is None:
        return Chunk(chunk.base + first, stamps, headers, messages, marks, formats)
    offsets = None if chunk.adjacent(first, last) == last else chunk.offsets[first:last]
    return Chunk(chunk.offsets[first], stamps, headers, messages, marks, formats, offsets)


def formats_at(formats: Formats, wanted: slice | Sequence[int]) -> Formats:
    """The message-formats at these indices."""
    if formats is None:
        return None
    some = formats[wanted] if isinstance(wanted, slice) else array("I", map(formats.__getitem__, wanted))
    # All zeros become None, for which no later step does anything for each record.
    return some if any(some) else None


def count_within(messages: Sequence[bytes], bytes_max: int, first: int = 0) -> int:
    """How many messages from index `first` on have together at most `bytes_max` bytes; at least one.

    Examines at most about twice as many messages as it counts: a run may be read in many small pieces.
    """
    if isinstance(messages, Packed):
        return max(1, messages.within(bytes_max, first=first))
    total, count, step = 0, 0, _STEP
    while first + count < len(messages):
        ends = list(accumulate(map(len, messages[first + count : first + count + step]), initial=total))
        if ends[-1] > bytes_max:
            return max(1, count + bisect_right(ends, bytes_max) - 1)
        total, count, step = ends[-1], count + len(ends) - 1, 2 * step
    return count


def join(chunks: Sequence[Chunk]) -> Chunk:
    """Join chunks to one. Their numbers must follow each other without a gap."""
    if len(chunks) == 1:
        return chunks[0]
    timestamps = array("q")
    for chunk in chunks:
        timestamps.extend(chunk.timestamps)
    headers = b"".join([chunk.header_sizes for chunk in chunks])
    marks = [mark for chunk in chunks for mark in chunk.marks]
    messages = join_messages([chunk.messages for chunk in chunks])
    return Chunk(
        chunks[0].base,
        timestamps,
        headers,
        messages,
        marks,
        join_formats([(len(chunk), chunk.formats) for chunk in chunks]),
    )


def join_formats(runs: Sequence[tuple[int, Formats]]) -> Formats:
    """The message-formats of consecutive runs; each run is the count of its records and their formats."""
    if all(formats is None for _, formats in runs):
        return None
    joined = array("I")
    for count, formats in runs:
        joined.extend(array("I", bytes(4 * count)) if formats is None else formats)
    return joined
