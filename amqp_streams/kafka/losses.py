"""Finds partitions that lost records, after looks at Kafka and answers of new leaders.

All methods are called on the event loop's thread.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.comparing import Mark
from amqp_streams.kafka.brokers.jobs import Job, Jobs
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.epochs import Marks
from amqp_streams.storage.ports import LATER, ReadRequest

Compare = Callable[[Mapping[Place, Mark]], Mapping[Place, int | None]]


class Losses:
    """`compare`: see `Comparer`. `on_lost`: the records of a partition from a number on are lost."""

    def __init__(self, jobs: Jobs, compare: Compare, on_lost: Callable[[Place, int], None]) -> None:
        self._jobs: Final = jobs
        self._compare: Final = compare
        self._on_lost: Final = on_lost
        self._marks: Final = Marks()
        self._request: Final = ReadRequest("losses", self._answered)
        self.fell: Final = self._marks.fell
        self.forget: Final = self._marks.forget

    def looked(
        self, extents: Mapping[Place, Extent], known: Mapping[Place, int], written: Mapping[Place, int]
    ) -> None:
        """Take in a look at Kafka: see `Marks.look`."""
        elected = self._marks.look(extents, known, written)
        # One comparison at a time: the others are elected at the next look as well.
        if elected and self._request.pending is None:
            job = Job(partial(self._compare, elected), partial(self._compared, elected))
            assert self._jobs.answer(self._request, None, lambda: job) is LATER, "it waits in a thread"

    def _compared(self, marks: Mapping[Place, Mark], found: Mapping[Place, int | None]) -> None:
        for place, first in found.items():
            lost = self._marks.compared(place, marks[place], first)
            if lost is not None:
                self._on_lost(place, lost)

    def _answered(self) -> None:
        # After an error, too: the next look begins again.
        self._request.pending = None
