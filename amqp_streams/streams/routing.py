"""Which partition an event goes to. Spec: Event Streams 4.2, 4.6.6, 4.6.7.

Law: a group key goes to the same partition until the number of partitions changes. The hash is part of the outside contract, so that
other programs can compute it: CRC-32 (IEEE, as in zlib) of the key's UTF-8 bytes, modulo the number of partitions.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition that events with this group key go to. Spec: 4.6.7."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partition_count


def partition_index(name: str, partition_count: int) -> int | None:
    """The partition that a peer calls `name`; None if there is none.

    Identifiers are opaque to peers; ours are the numbers 0 to count - 1 without leading zeros.
    """
    if not (name.isascii() and name.isdecimal()) or (len(name) > 1 and name[0] == "0") or len(name) > 4:
        return None
    index = int(name)
    return index if index < partition_count else None


SPREAD_MAX: Final = 16
"""Partitions that share one batch. A batch cut into ever smaller pieces costs each piece a partition's bookkeeping."""


class RoundRobin:
    """Deals events without a hint to the partitions in turn, going on where the last batch ended. The links of a log share one.

    One each, as long as a batch has no more events than there are partitions, or the log has at most SPREAD_MAX of them. A larger batch
    on a log with more is dealt in SPREAD_MAX runs of neighbours, and the next batch to the partitions after those.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def deal(self, count: int, partitions: Sequence[int]) -> list[tuple[int, slice]]:
        """Split a batch of `count` events: for each partition that gets any, the slice of the batch that is its share."""
        width = len(partitions)
        first = self._next % width
        if width > SPREAD_MAX and count > width:
            run = -(-count // SPREAD_MAX)
            shares = [slice(start, min(start + run, count)) for start in range(0, count, run)]
            self._next = (first + len(shares)) % width
        else:
            shares = [slice(turn, count, width) for turn in range(min(width, count))]
            self._next = (first + count) % width
        return [(partitions[(first + turn) % width], share) for turn, share in enumerate(shares)]
