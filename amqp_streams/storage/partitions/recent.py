"""The sizes of the runs of records that all partitions keep in memory, in the order in which they were added.

The records themselves are in each partition's `tail`. This list exists so that the store can limit the sum of
their bytes and drop the oldest run first, whichever partition it belongs to.

Law: a run is listed exactly as long as it is in the tail of its partition, except after the partition has
stopped. `bytes` is the sum of the sizes.
"""

from collections import OrderedDict
from collections.abc import Iterable

from amqp_streams.storage.partitions.partition_log import PartitionLog


class Recent:
    """The list of runs. A partition and the number of the first record identify a run."""

    __slots__ = ("_entries", "bytes")

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[PartitionLog, int], int] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, partition: PartitionLog, base: int, size: int) -> None:
        """A run of `size` bytes that begins with record `base` was added to the partition's tail."""
        self._entries[partition, base] = size
        self.bytes += size

    def oldest(self) -> PartitionLog | None:
        """The partition of the oldest run; None if the list is empty."""
        return next(iter(self._entries))[0] if self._entries else None

    def drop_oldest(self) -> None:
        """Record that the partition has dropped its oldest run."""
        _, size = self._entries.popitem(last=False)
        self.bytes -= size

    def drop(self, partition: PartitionLog, bases: Iterable[int]) -> None:
        """The partition dropped these runs. Runs that are not listed are ignored."""
        for base in bases:
            self.bytes -= self._entries.pop((partition, base), 0)
