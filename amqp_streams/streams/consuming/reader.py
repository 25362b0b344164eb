"""Reads the partitions of a consumer in turns, in order within each. Spec: Event Streams 1, 4.4, 5.2.

Laws: the read unit is not the delivery unit. A reader keeps chunks as the store returns them, and returns
runs as small as the credit; it can stop at any record. Filtering stops too: skipped stretches are reported,
so that a link whose filter rejects everything advances without delaying other links.
"""

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from amqp_streams.filters import Compiled
from amqp_streams.storage.ports import LATER, Later, Partition, ReadRequest
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.runs import (
    MERGE_READ_BYTES,
    READ_BYTES,
    TURN_EVENTS,
    PartitionCursor,
    Passed,
    Picked,
    Room,
    Run,
)

__all__ = ["LATER", "Asker", "Later", "Passed", "Picked", "Reader", "Room", "Run"]

NEAR_EVENTS: Final = 1000
"""How many events a reader has left to read at most while it counts as near the end."""
_UNKNOWN: Final = (1 << 64) - 1


class _State:
    """What a reader knows of a partition: one byte for each partition."""

    ABSENT: Final = 0
    CAUGHT_UP: Final = 1
    READY: Final = 2
    FINISHED: Final = 3
    WAITING: Final = 4
    """A read of the store is not answered."""


@dataclass(frozen=True, slots=True, eq=False)
class Asker:
    """Who can wait for reads of the store. `owner`: see `ReadRequest`. `ready`: called when one was."""

    owner: Hashable
    ready: Callable[[], None]


class Reader:
    """Reads one partition (a bound link) or several (an agnostic one).

    `read_bytes`: size of a read, if not the default.

    Of a partition without new records it keeps only the position: it has a cursor only for partitions with
    records to read. `held` bounds the chunks of all readers together.
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
        "asker",
        "followed",
        "looked",
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
        """`wake`: the caller reports new records before each read, so the reader need not look for them."""
        self.looked = 0
        """For the caller: what it has reported so far."""
        self.asker: Asker | None = None
        """None: reads wait for the disk."""
        self._filters = filters
        self._read_bytes = read_bytes
        self._held = Held() if held is None else held
        self._at_once = READ_BYTES
        self._partitions: tuple[Partition, ...] = ()
        self._positions = array("Q")
        """By partition number, also of earlier ones: a partition that returns continues there."""
        self._latest = array("Q")
        """By partition, its end when it was first read, which `@latest` means; empty without filters."""
        self._states = bytearray()
        self._cursors: dict[int, PartitionCursor] = {}
        self._ready: deque[Partition] = deque()
        self.associate(positions)

    def associate(self, positions: Iterable[tuple[Partition, int]]) -> None:
        """Read these partitions from now on.

        Known ones continue where they are; others begin at their positions.
        """
        wanted = list(positions)
        known, width = len(self._positions), max((partition.index for partition, _ in wanted), default=-1) + 1
        self._positions.extend([_UNKNOWN] * (width - known))
        self._states.extend(bytes(max(0, width - known)))
        if self._filters is not None:
            self._latest.extend([0] * (width - len(self._latest)))
        # Absent unless named below: a partition that left keeps its position but is not read.
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

    def take(
        self, count_max: int, now_ms: int | None = None, bytes_max: int | None = None
    ) -> Run | Passed | Later | None:
        """The next run of at most `count_max` records, from the partitions in turns.

        None if all durable records were read. `LATER` if `asker.ready` will be called before more can be
        read, except of partitions that get new records.

        Returns `Passed` if filters skipped records: call again. `now_ms`: the value of UTC() in filters.
        `bytes_max`: the most bytes of the run's messages; the run has at least one message.

        Raises:
            CorruptionError, StorageError: from the store; the reader keeps its position.
        """
        # A bound link has no other partition to wait for.
        turn = count_max if len(self._partitions) == 1 else min(count_max, TURN_EVENTS)
        while self._ready or self._look_again():
            run = self._cursor(self._ready[0]).run(turn, now_ms, bytes_max)
            if run is LATER:
                self._await(self._ready.popleft())
            elif self._turned(run):
                return run
        return LATER if self._waiting else None

    def pick(self, count_max: int, now_ms: int | None, room: Room) -> Picked | Passed | Later | None:
        """Like `take`, for batched deliveries: the next matching records of one partition, adjacent or not.

        `Passed(0)`: the next record does not fit into `room`. A reader uses either `take` or `pick`, never
        both. Raises like `take`.
        """
        while self._ready or self._look_again():
            picked = self._cursor(self._ready[0]).pick(count_max, now_ms, room)
            if picked is LATER:
                self._await(self._ready.popleft())
            elif self._turned(picked):
                return picked
        return LATER if self._waiting else None

    @property
    def _waiting(self) -> bool:
        return _State.WAITING in self._states

    def _await(self, partition: Partition) -> None:
        self._states[partition.index] = _State.WAITING

    def _answered(self, partition: Partition) -> None:
        """A read of this partition is answered."""
        if self._states[partition.index] == _State.WAITING:
            self._states[partition.index] = _State.READY
            self._ready.append(partition)
        if self.asker is not None:
            self.asker.ready()

    def _cursor(self, partition: Partition) -> PartitionCursor:
        index = partition.index
        cursor = self._cursors.get(index)
        if cursor is None:
            latest = self._latest[index] if self._latest else 0
            asker = self.asker
            request = None if asker is None else ReadRequest(asker.owner, partial(self._answered, partition))
            cursor = PartitionCursor(
                partition,
                self._positions[index],
                self._filters,
                latest=latest,
                held=self._held,
                request=request,
            )
            cursor.read_bytes = self._at_once
            self._cursors[index] = cursor
        return cursor

    def _close(self, index: int) -> None:
        """Drop a cursor; keep its position."""
        cursor = self._cursors.pop(index)
        self._positions[index] = cursor.position
        cursor.forget()

    def _turned(self, got: object) -> bool:
        """Advance to the next partition if it is its turn; returns whether this one had something."""
        if got is None:
            index = self._ready.popleft().index
            cursor = self._cursors[index]
            self._states[index] = _State.FINISHED if cursor.finished else _State.CAUGHT_UP
            # Records that retention removed are not reported yet: the cursor must stay until the next run.
            if len(self._partitions) > 1 and not cursor.missed:
                self._close(index)
            return False
        self._ready.rotate(-1)
        return True

    def _look_again(self) -> bool:
        """Check empty partitions again: a busy reader may not have been woken for new records."""
        if not self.followed:
            self._look()
        return bool(self._ready)

    def _look(self) -> None:
        """Find the partitions with records to read. Retention may have removed all records of a partition."""
        positions, cursors = self._positions, self._cursors  # a wide log has a thousand partitions
        for partition in self._partitions:
            cursor = cursors.get(partition.index)
            position = positions[partition.index] if cursor is None else cursor.position
            if position < (end := partition.end) and partition.start < end:
                self.wake(partition)

    def wake(self, partition: Partition) -> None:
        """More records of this partition became durable."""
        index = partition.index
        # A partition that is ready is in the queue already, and a finished one has nothing for this reader.
        if index < len(self._states) and self._states[index] == _State.CAUGHT_UP:
            self._states[index] = _State.READY
            self._ready.append(partition)

    @property
    def near_end(self) -> bool:
        """Whether few records are left to read. Looks at one partition only."""
        if not self._ready:
            return True
        partition = self._ready[0]
        return len(self._ready) == 1 and partition.end - self.position(partition.index) <= NEAR_EVENTS

    @property
    def caught_up(self) -> bool:
        """Whether it has taken all records that were durable at the last look."""
        return not self._ready

    def position(self, index: int) -> int:
        """The number of the next record of a partition."""
        cursor = self._cursors.get(index)
        return self._positions[index] if cursor is None else cursor.position

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the number of the next record."""
        return {partition.index: self.position(partition.index) for partition in self._partitions}

    def passed(self, positions: Mapping[int, int]) -> list[tuple[int, int]]:
        """The partitions of which this reader is above these positions, and where it is."""
        states, cursors, wanted = self._states, self._cursors, positions.get
        # One comprehension: most partitions of a wide log do not move.
        found = [
            (index, position)
            for index, position in enumerate(self._positions)
            if position > wanted(index, position) and states[index] and index not in cursors
        ]
        for index, cursor in cursors.items():
            if (position := cursor.position) > wanted(index, position):
                found.append((index, position))
        return found

    def release(self) -> None:
        """Drop all chunks and `asker`: the link has ended, and nothing is read any more.

        Without references in a circle, the memory is free at once, and not when garbage is collected.
        """
        self.asker = None
        for index in list(self._cursors):
            self._close(index)

    def forget_chunks(self) -> None:
        """Drop all chunks; the next read asks the store again."""
        for cursor in self._cursors.values():
            cursor.forget()
