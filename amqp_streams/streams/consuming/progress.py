"""The progress of a link on a cursor: which records of each partition it has received and not settled.

Spec: Event Streams 3.2; AMQP 3.5.5.

Law: a record that was sent unsettled stays unsettled until its outcome is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from amqp_streams.streams.consuming.cursors import Cursor
from amqp_streams.streams.consuming.tracker import Tracker


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of one link: a tracker for each partition that it reads or has read."""

    cursor: Cursor
    trackers: dict[int, Tracker] = field(default_factory=dict)

    def follow(self, partitions: Iterable[int]) -> None:
        """The link reads these partitions from the cursor's positions.

        Partitions that it already reads continue.
        """
        for index in partitions:
            self.trackers.setdefault(index, Tracker(self.cursor.positions[index]))

    def positions(self, examined: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """By partition, the position to store: the lowest unsettled record, or the next record to read.

        `examined`: by partition, the position of the link's reader. Records below it that were not sent were
        skipped by filters, so the cursor can pass them.
        """
        for index, tracker in self.trackers.items():
            # Before the position is read: records that no filter passed have no settlement to wait for.
            tracker.skipped(examined.get(index, 0))
            yield index, tracker.position
