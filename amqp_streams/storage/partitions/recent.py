"""The runs of records in memory, of all partitions together: the oldest first, each with its size.

Law: a run has an entry as long as it is in its partition's memory, unless the partition has stopped.
`bytes` is the sum of the entries.
"""

from collections import OrderedDict
from collections.abc import Iterable

from amqp_streams.storage.partitions.partition_log import PartitionLog


class Recent:
    """The entries. A partition and the number of the first record identify a run."""

    __slots__ = ("_entries", "bytes")

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[PartitionLog, int], int] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, partition: PartitionLog, base: int, size: int) -> None:
        """A run was added to memory."""
        self._entries[partition, base] = size
        self.bytes += size

    def oldest(self) -> PartitionLog | None:
        """The partition of the oldest run."""
        return next(iter(self._entries))[0] if self._entries else None

    def drop_oldest(self) -> None:
        """The partition with the oldest run dropped it."""
        _, size = self._entries.popitem(last=False)
        self.bytes -= size

    def drop(self, partition: PartitionLog, bases: Iterable[int]) -> None:
        """The partition dropped these runs."""
        for base in bases:
            self.bytes -= self._entries.pop((partition, base), 0)
