"""A consumer's place in the log: one cursor a partition, merged fairly, order kept within each. Spec: Event Streams 1, 4.4, 5.2.

Laws: the read unit is not the delivery unit. A reader holds chunks as the store gives them and hands out runs as small as the credit
that is there; it can stop at any record. Filtering stops, too: a stretch that a filter passed over is told, so that a link whose filter
rejects everything moves on without holding others up.
"""

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Final

from amqp_streams.filters import Compiled
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.runs import MERGE_READ_BYTES, READ_BYTES, TURN_EVENTS, PartitionCursor, Passed, Picked, Room, Run

__all__ = ["Passed", "Picked", "Reader", "Room", "Run"]

_UNKNOWN: Final = (1 << 64) - 1


class _State:
    """Where a reader stands with a partition: one byte for each."""

    ABSENT: Final = 0
    CAUGHT_UP: Final = 1
    READY: Final = 2
    FINISHED: Final = 3


class Reader:
    """Reads one partition (a bound link) or several (an agnostic one). `read_bytes`: asked of the store at once, if not as usual.

    Of a partition that it has read to the end it knows the position only: a cursor is there while there is something to read. `held`
    bounds what all readers hold together.
    """

    __slots__ = (
        "_at_once",
        "_cursors",
        "_filters",
        "_held",
        "_latest",
        "_partitions",
        "_positions",
        "_read_bytes",
        "_ready",
        "_states",
        "followed",
    )

    def __init__(
        self,
        positions: Iterable[tuple[Partition, int]],
        filters: Compiled | None = None,
        *,
        read_bytes: int | None = None,
        held: Held | None = None,
    ) -> None:
        self.followed = False
        """`wake` reports every commit of its partitions, also while it reads, so that it need not look for new records."""
        self._filters = filters
        self._read_bytes = read_bytes
        self._held = Held() if held is None else held
        self._at_once = READ_BYTES
        self._partitions: tuple[Partition, ...] = ()
        self._positions = array("Q")
        """By the partitions' numbers, of all that it ever read: one that comes back goes on where it was."""
        self._latest = array("Q")
        """Their ends when they were first read, which `@latest` means; empty without filters."""
        self._states = bytearray()
        self._cursors: dict[int, PartitionCursor] = {}
        self._ready: deque[Partition] = deque()
        self.associate(positions)

    def associate(self, positions: Iterable[tuple[Partition, int]]) -> None:
        """Read these partitions from now on. Those that it has read go on where they are; others begin at their positions."""
        wanted = list(positions)
        known, width = len(self._positions), max((partition.index for partition, _ in wanted), default=-1) + 1
        self._positions.extend([_UNKNOWN] * (width - known))
        self._states.extend(bytes(max(0, width - known)))
        if self._filters is not None:
            self._latest.extend([0] * (width - len(self._latest)))
        before, self._states = self._states, bytearray(len(self._states))
        for partition, position in wanted:
            index = partition.index
            if self._positions[index] == _UNKNOWN:
                self._positions[index] = position
                if self._filters is not None:
                    self._latest[index] = partition.end
            self._states[index] = _State.FINISHED if before[index] == _State.FINISHED else _State.CAUGHT_UP
        self._partitions = tuple(partition for partition, _ in wanted)
        for index in [index for index in self._cursors if not self._states[index]]:
            self._close(index)
        self._at_once = self._read_bytes or (MERGE_READ_BYTES if len(self._partitions) > 1 else READ_BYTES)
        self._ready.clear()
        self._look()

    def take(self, count_max: int, now_ms: int | None = None, bytes_max: int | None = None) -> Run | Passed | None:
        """The next run of at most `count_max` records, taking the partitions in turn; None when there is nothing more yet.

        `Passed` instead of a run: filters let none of some records through, ask again. `now_ms` is what UTC() in a filter means.
        `bytes_max`: what the messages of the run may have together; one comes in any case.

        Raises:
            CorruptionError, StorageError: from the store; the reader stays where it is.
        """
        turn = count_max if len(self._partitions) == 1 else min(count_max, TURN_EVENTS)
        while self._ready or self._look_again():
            run = self._cursor(self._ready[0]).run(turn, now_ms, bytes_max)
            if self._turned(run):
                return run
        return None

    def pick(self, count_max: int, now_ms: int | None, room: Room) -> Picked | Passed | None:
        """The same for deliveries of many: the next records of one partition that are to be delivered, neighbours or not.

        `Passed` of no record: the next one has no room. For readers that never `take`. Raises what `take` raises.
        """
        while self._ready or self._look_again():
            picked = self._cursor(self._ready[0]).pick(count_max, now_ms, room)
            if self._turned(picked):
                return picked
        return None

    def _cursor(self, partition: Partition) -> PartitionCursor:
        index = partition.index
        cursor = self._cursors.get(index)
        if cursor is None:
            latest = self._latest[index] if self._latest else 0
            cursor = PartitionCursor(partition, self._positions[index], self._filters, latest=latest, held=self._held)
            cursor.read_bytes = self._at_once
            self._cursors[index] = cursor
        return cursor

    def _close(self, index: int) -> None:
        """Keep of a cursor where it is."""
        cursor = self._cursors.pop(index)
        self._positions[index] = cursor.position
        cursor.forget()

    def _turned(self, got: object) -> bool:
        """The next cursor has its turn; whether this one had something."""
        if got is None:
            index = self._ready.popleft().index
            cursor = self._cursors[index]
            self._states[index] = _State.FINISHED if cursor.finished else _State.CAUGHT_UP
            if len(self._partitions) > 1 and not cursor.missed:
                self._close(index)
            return False
        self._ready.rotate(-1)
        return True

    def _look_again(self) -> bool:
        """A partition found empty may have got more while others were read, and perhaps nobody wakes a reader that is still reading."""
        if not self.followed:
            self._look()
        return bool(self._ready)

    def _look(self) -> None:
        """See which partitions have something to read: retention may have removed all that there was."""
        for partition in self._partitions:
            if max(self.position(partition.index), partition.start) < partition.end:
                self.wake(partition)

    def wake(self, partition: Partition) -> bool:
        """More records of this partition became durable; whether it has to be looked at for them."""
        index = partition.index
        if index >= len(self._states) or self._states[index] != _State.CAUGHT_UP:
            return False
        self._states[index] = _State.READY
        self._ready.append(partition)
        return True

    @property
    def caught_up(self) -> bool:
        """All that was durable when last looked has been taken."""
        return not self._ready

    def position(self, index: int) -> int:
        """The number of the next record of one of its partitions."""
        cursor = self._cursors.get(index)
        return self._positions[index] if cursor is None else cursor.position

    @property
    def positions(self) -> dict[int, int]:
        """For each partition the number of the next record."""
        return {partition.index: self.position(partition.index) for partition in self._partitions}

    def forget_chunks(self) -> None:
        """Give memory back; the next read asks the store again."""
        for cursor in self._cursors.values():
            cursor.forget()
