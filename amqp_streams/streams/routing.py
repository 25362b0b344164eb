"""Which partition an event goes to. Spec: Event Streams 4.2, 4.6.6, 4.6.7.

Law: a group key is always sent to the same partition while the number of partitions is unchanged. Other
programs may compute the hash, so it must not change: CRC-32 (IEEE, as in zlib) of the key's UTF-8, modulo the
partitions.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition of events with this group key. Spec: 4.6.7."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partition_count


def partition_index(name: str, partition_count: int) -> int | None:
    """The partition with this name; None if it does not exist.

    Names are opaque to peers; ours are the numbers 0 to count - 1 without leading zeros.
    """
    # Longer texts are not partitions, and must not become large numbers.
    if not (name.isascii() and name.isdecimal()) or (len(name) > 1 and name[0] == "0") or len(name) > 4:
        return None
    index = int(name)
    return index if index < partition_count else None


SPREAD_MAX: Final = 16
"""The most partitions that share one large batch: each piece costs some work in its partition."""


RUN_MIN: Final = 32
"""About the fewest events of a run; a smaller batch is one run."""


class RoundRobin:
    """Assigns events without a hint to the partitions in turns.

    All links of a log share one object, so that links with one event each also spread.

    Usually each partition in turn gets one event. If the batch has more than SPREAD_MAX events, and the log
    more than SPREAD_MAX partitions, the batch is split into at most SPREAD_MAX runs of adjacent events, of
    about RUN_MIN events or more, one for each of the next partitions. The next batch continues with the
    partitions after those. So the cost of an event does not grow with the number of partitions.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def deal(self, count: int, partitions: Sequence[int]) -> list[tuple[int, slice]]:
        """Split a batch of `count` events: the slice of each partition that gets any."""
        width = len(partitions)
        first = self._next % width
        if min(width, count) > SPREAD_MAX:
            # Runs of the same size: a short last one would always reach the same partitions.
            run = -(-count // max(1, min(SPREAD_MAX, count // RUN_MIN)))
            shares = [slice(start, min(start + run, count)) for start in range(0, count, run)]
            self._next = (first + len(shares)) % width
        else:
            # A slice with a step: no list of indices is made.
            shares = [slice(turn, count, width) for turn in range(min(width, count))]
            self._next = (first + count) % width
        return [(partitions[(first + turn) % width], share) for turn, share in enumerate(shares)]
