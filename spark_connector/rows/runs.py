"""Runs of events of one partition, as the node sends them, and runs in the size of record batches. Pure."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Run:
    """Events in the order of the log: offsets ('Q'), timestamps in ms ('q'), messages.

    All have the same length, at least 1.
    """

    offsets: "array[int]"
    timestamps_ms: "array[int]"
    messages: pa.BinaryArray


def sized(runs: Iterable[Run], rows_max: int, bytes_max: int) -> Iterator[Run]:
    """Yield the same events in runs of at most `rows_max` rows and `bytes_max` bytes.

    Small runs are combined.

    A single event that is larger than `bytes_max` is a run of its own.
    """
    offsets, times, messages = array("Q"), array("q"), list[pa.BinaryArray]()
    size = 0
    for run in runs:
        offsets += run.offsets
        times += run.timestamps_ms
        messages.append(run.messages)
        size += bytes_in(run.messages)
        if len(offsets) < rows_max and size < bytes_max:
            continue
        whole = pa.concat_arrays(messages)
        at = 0
        while size >= bytes_max or len(offsets) - at >= rows_max:
            part = whole[at : at + rows_max]
            count = max(1, fitting(part, bytes_max))
            part = part[:count]
            yield Run(offsets[at : at + count], times[at : at + count], part)
            size -= bytes_in(part)
            at += count
            if at == len(offsets):
                break
        offsets, times, messages = offsets[at:], times[at:], [whole[at:]]
    if offsets:
        yield Run(offsets, times, pa.concat_arrays(messages))


def bytes_in(messages: pa.BinaryArray) -> int:
    """Return the number of bytes of all messages."""
    bounds = memoryview(messages.buffers()[1]).cast("i")
    size: int = bounds[messages.offset + len(messages)] - bounds[messages.offset]
    return size


def fitting(messages: pa.BinaryArray, bytes_max: int) -> int:
    """Return how many of the first messages have at most `bytes_max` bytes together."""
    if bytes_in(messages) <= bytes_max:
        return len(messages)
    totals = pc.cumulative_sum(pc.binary_length(messages).cast(pa.int64()))
    found: int = pc.index(pc.greater(totals, bytes_max), True).as_py()
    return found
