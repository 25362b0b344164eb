"""A link's hold on a kept place: what it was given of each partition and has not settled. Spec: Event Streams 3.2; AMQP 3.5.5.

Law: what a link is given counts as unsettled until its outcome is known, or until it is told to have gone out settled.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from amqp_streams.streams.consuming.cursors import Cursor
from amqp_streams.streams.consuming.tracker import Tracker


@dataclass(slots=True, eq=False)
class Place:
    """One link's hold on a cursor: a tracker for each partition that it reads, or has read."""

    cursor: Cursor
    trackers: dict[int, Tracker] = field(default_factory=dict)

    def follow(self, partitions: Iterable[int]) -> None:
        """The link reads these partitions from where the cursor is; those that it has been reading go on."""
        for index in partitions:
            self.trackers.setdefault(index, Tracker(self.cursor.positions[index]))

    def positions(self, looked_at: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """For each partition where whoever comes next has to begin: the lowest unsettled, or else the next that was not looked at."""
        for index, tracker in self.trackers.items():
            tracker.passed_over(looked_at.get(index, 0))
            yield index, tracker.position
