"""Runs of events of one partition, as the node sends them, and runs in the size of record batches. Pure."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Run:
    """Events in the order of the log: offsets ('Q'), timestamps in ms ('q'), messages.

    All have the same length, at least 1.
    """

    offsets: "array[int]"
    timestamps_ms: "array[int]"
    messages: list[bytes]


def sized(runs: Iterable[Run], rows_max: int, bytes_max: int) -> Iterator[Run]:
    """Yield the same events in runs of at most `rows_max` rows and `bytes_max` bytes.

    Small runs are combined.

    A single event that is larger than `bytes_max` is a run of its own.
    """
    offsets, times, messages = array("Q"), array("q"), list[bytes]()
    size = 0
    for run in runs:
        offsets += run.offsets
        times += run.timestamps_ms
        messages += run.messages
        size += sum(map(len, run.messages))
        if len(messages) < rows_max and size < bytes_max:
            continue
        at = 0
        while size >= bytes_max or len(messages) - at >= rows_max:
            ends = list(accumulate(map(len, messages[at : at + rows_max])))
            count = max(1, bisect_right(ends, bytes_max))
            yield Run(offsets[at : at + count], times[at : at + count], messages[at : at + count])
            size -= ends[count - 1]
            at += count
            if at == len(messages):
                break
        offsets, times, messages = offsets[at:], times[at:], messages[at:]
    if messages:
        yield Run(offsets, times, messages)
