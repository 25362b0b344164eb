"""The progress of a link on a cursor: which records of each partition it has received and not settled.

Spec: Event Streams 3.2; AMQP 3.5.5.

Law: a record that was sent unsettled stays unsettled until its outcome is known.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from amqp_streams.streams.consuming.cursors import Cursor
from amqp_streams.streams.consuming.tracker import Tracker


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of one link.

    `trackers`: of the partitions of which it has received records. Most partitions of a wide log have none:
    with a tracker for each, the links of a node would have millions of objects.
    """

    cursor: Cursor
    trackers: dict[int, Tracker] = field(default_factory=dict)

    def sent(self, index: int, first: int, count: int) -> None:
        """These records of a partition were sent unsettled."""
        tracker = self.trackers.get(index)
        if tracker is None:
            tracker = self.trackers[index] = Tracker(self.cursor.positions[index])
        tracker.sent(first, count)

    def settled(self, index: int, first: int, count: int = 1) -> None:
        """Records of a partition are final."""
        tracker = self.trackers.get(index)
        if tracker is not None:
            tracker.settled(first, count)

    def moved(self, examined: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """By partition, the position to store: the lowest unsettled record, or the next record to read.

        `examined`: see `Reader.passed`. Records below these positions that were not sent were skipped by
        filters, so the cursor can pass them. A partition may be missing if its position is still the stored
        one.
        """
        for index, position in examined:
            tracker = self.trackers.get(index)
            if tracker is None:
                yield index, position
            else:
                # Before its position is read: records that no filter passed have no settlement to wait for.
                tracker.skipped(position)
        for index, tracker in self.trackers.items():
            yield index, tracker.position

    def advance(self, examined: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Move the cursor, which no other link has, and return its positions. `examined`: as above."""
        positions = self.cursor.positions
        for index, position in self.moved(examined):
            positions[index] = max(position, positions[index])
        return dict(positions)
