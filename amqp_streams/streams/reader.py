"""A consumer's place in the log: one cursor a partition, merged fairly, order kept within each. Spec: Event Streams 1, 4.4.

Law: the read unit is not the delivery unit. A reader holds chunks as the store gives them and hands out runs as small as the credit
that is there; it can stop at any record.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from amqp_streams.storage.ports import Chunk, Partition

READ_BYTES: Final = 128 << 10
"""Asked of the store at once: large enough to make reading cheap, small enough for thousands of readers."""
TURN_EVENTS: Final = 256
"""Events of one partition before the next gets its turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive records of one partition, all in `chunk`: from index `start`, `count` of them.

    `skipped` tells how many records retention removed before this reader came to them.
    """

    partition: Partition
    chunk: Chunk
    start: int
    count: int
    skipped: int

    @property
    def first(self) -> int:
        """Number of the first record."""
        return self.chunk.base + self.start


class _Cursor:
    __slots__ = ("after_ms", "chunk", "partition", "position")

    def __init__(self, partition: Partition, position: int, after_ms: int | None) -> None:
        self.partition = partition
        self.position = position
        self.after_ms = after_ms
        self.chunk: Chunk | None = None

    def run(self, count_max: int) -> Run | None:
        """The next records, or None when all that is durable was read."""
        while True:
            chunk = self.chunk
            if chunk is None or not chunk.base <= self.position < chunk.base + len(chunk):
                chunk = self.chunk = self.partition.read(self.position, READ_BYTES)
                if chunk is None:
                    return None
            overtaken = max(0, chunk.base - self.position)
            start = max(0, self.position - chunk.base)
            if self.after_ms is not None:
                start = bisect_right(chunk.timestamps, self.after_ms, start)
                if start == len(chunk):
                    self.position = chunk.base + start
                    continue
                self.after_ms = None  # timestamps never decrease: from here on all match
            count = min(count_max, len(chunk) - start)
            self.position = chunk.base + start + count
            return Run(self.partition, chunk, start, count, overtaken)


class Reader:
    """Reads one partition (a bound link) or several (an agnostic one)."""

    __slots__ = ("_cursors", "_ready")

    def __init__(self, positions: Iterable[tuple[Partition, int]], after_ms: int | None = None) -> None:
        self._cursors = {partition.index: _Cursor(partition, position, after_ms) for partition, position in positions}
        self._ready = deque(self._cursors.values())

    def take(self, count_max: int) -> Run | None:
        """The next run of at most `count_max` records, taking the partitions in turn; None when there is nothing more yet.

        Raises:
            CorruptionError, StorageError: from the store; the reader stays where it is.
        """
        turn = count_max if len(self._cursors) == 1 else min(count_max, TURN_EVENTS)
        while self._ready or self._look_again():
            cursor = self._ready[0]
            run = cursor.run(turn)
            if run is None:
                self._ready.popleft()
                continue
            self._ready.rotate(-1)
            return run
        return None

    def _look_again(self) -> bool:
        """A partition found empty may have got more while others were read, and nobody wakes a reader that is still reading."""
        self._ready.extend(cursor for cursor in self._cursors.values() if cursor.position < cursor.partition.end)
        return bool(self._ready)

    def wake(self, partition: Partition) -> None:
        """More records of this partition became durable."""
        cursor = self._cursors[partition.index]
        if cursor not in self._ready:
            self._ready.append(cursor)

    @property
    def caught_up(self) -> bool:
        """All that was durable when last looked has been taken."""
        return not self._ready

    @property
    def positions(self) -> dict[int, int]:
        """For each partition the number of the next record."""
        return {index: cursor.position for index, cursor in self._cursors.items()}

    def forget_chunks(self) -> None:
        """Give memory back; the next read asks the store again."""
        for cursor in self._cursors.values():
            cursor.chunk = None
