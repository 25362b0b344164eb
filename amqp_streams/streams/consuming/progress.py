"""A link's use of a cursor: the records of each partition that it got and has not settled.

Spec: ES 3.2; AMQP 3.5.5.

Law: a record that a link got is unsettled until its outcome is known, or until it was sent settled.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from amqp_streams.streams.consuming.cursors import Cursor
from amqp_streams.streams.consuming.tracker import Tracker


@dataclass(slots=True, eq=False)
class Progress:
    """One link's use of a cursor: a tracker for each partition that it reads or has read."""

    cursor: Cursor
    trackers: dict[int, Tracker] = field(default_factory=dict)

    def follow(self, partitions: Iterable[int]) -> None:
        """The link reads these partitions from the cursor's positions.

        Partitions that it already reads continue.
        """
        for index in partitions:
            self.trackers.setdefault(index, Tracker(self.cursor.positions[index]))

    def positions(self, looked_at: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """By partition, where the next reader must begin: the lowest unsettled record, or the next one."""
        for index, tracker in self.trackers.items():
            tracker.passed_over(looked_at.get(index, 0))
            yield index, tracker.position
