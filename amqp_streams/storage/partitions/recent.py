"""Which runs of records are in memory, of all partitions together: the oldest first, each with what it costs.

Law: an entry is here as long as its run is in its partition's memory, unless the partition has stopped; `bytes` is the sum of the entries.
"""

from collections import OrderedDict
from collections.abc import Iterable

from amqp_streams.storage.partitions.partition_log import PartitionLog


class Recent:
    """The entries. A run is named by its partition and the number of its first record."""

    __slots__ = ("_entries", "bytes")

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[PartitionLog, int], int] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, partition: PartitionLog, base: int, size: int) -> None:
        """A run came into memory."""
        self._entries[partition, base] = size
        self.bytes += size

    def oldest(self) -> PartitionLog | None:
        """The partition of the oldest run."""
        return next(iter(self._entries))[0] if self._entries else None

    def drop_oldest(self) -> None:
        """Its partition let go of the oldest run."""
        _, size = self._entries.popitem(last=False)
        self.bytes -= size

    def drop(self, partition: PartitionLog, bases: Iterable[int]) -> None:
        """The partition let go of these runs."""
        for base in bases:
            self.bytes -= self._entries.pop((partition, base), 0)
