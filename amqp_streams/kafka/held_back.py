"""Partitions that cannot be read to their ends, because a transaction in them has not ended. Pure.

That is usual for moments. A transaction of an idempotent producer ends within seconds, whatever dies: Kafka
ends it after its timeout (10 s). One that does not is a fault that people must end: see docs/kafka.md.
"""

import logging
from collections.abc import Mapping
from typing import Final

from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.taking import Place

HELD_BACK_S: Final = 60.0
"""A transaction that has not ended for so long is named."""

log = logging.getLogger("amqp_streams.kafka")


class HeldBack:
    """What looks at Kafka have found. `count`: the partitions that have been held back for `HELD_BACK_S`."""

    def __init__(self) -> None:
        self.count = 0
        self._since: Final[dict[Place, tuple[int, float]]] = {}
        """By partition: where it cannot be read on, and since when, as far as it is known."""
        self._named: Final[set[Place]] = set()

    def looked(self, extents: Mapping[Place, Extent], written: Mapping[Place, int], now_s: float) -> None:
        """Take in a look. `written`: the ends including what is held back, of those that were asked."""
        for place in list(self._since):
            # Another partition may have its name, or it is away.
            if place not in extents or extents[place].end != self._since[place][0]:
                self._ended(place)
        for place, end in written.items():
            if place in extents and extents[place].end < end:
                self._since.setdefault(place, (extents[place].end, now_s))
            else:
                self._ended(place)
        long = {place for place, (_, since_s) in self._since.items() if now_s - since_s >= HELD_BACK_S}
        self.count = len(long)
        for place in sorted(long - self._named):
            at, since_s = self._since[place]
            where = (place.topic, place.partition, at, now_s - since_s)
            log.warning("kafka_held_back topic=%s partition=%d offset=%d seconds=%.0f", *where)
            self._named.add(place)

    def _ended(self, place: Place) -> None:
        self._since.pop(place, None)
        if place in self._named:
            self._named.discard(place)
            log.info("kafka_held_back_no_more topic=%s partition=%d", place.topic, place.partition)
