"""Whether a new leader of a partition lacks records that the one before it had. Pure.

Each election of a leader gives it an *epoch* that is greater than those before. After a clean election the
new leader has every record in front of the end that the one before it reported. After an unclean one, it may
have fewer, and gives the numbers of the others to new records.

Laws: what a leader of an earlier epoch says counts nothing, because it may not know its successor. The end
that a leader reported is compared with each later leader, until one has answered.
"""

from collections.abc import Mapping
from typing import Final

from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.comparing import Mark
from amqp_streams.kafka.brokers.taking import Place


class Marks:
    """The mark of each partition."""

    def __init__(self) -> None:
        self._marks: Final[dict[Place, Mark]] = {}
        self._next: Final[dict[Place, Mark]] = {}
        """Of new leaders, until the marks of those before them are compared."""
        self._fallen: Final[set[Place]] = set()

    def look(
        self, extents: Mapping[Place, Extent], known: Mapping[Place, int], written: Mapping[Place, int]
    ) -> dict[Place, Mark]:
        """Take in what leaders say; returns the marks to compare with the leaders of now.

        `known`: the ends that were known before the leaders were asked. Only these partitions count.
        `written`: the ends including what a transaction holds back, of partitions that cannot be read up to
        the end that was known.
        """
        elected = {}
        for place, extent in extents.items():
            if place not in known:
                continue
            mark = self._marks.setdefault(place, Mark(extent.end, extent.epoch))
            if extent.epoch == mark.epoch:
                self._marks[place] = Mark(max(mark.end, extent.end), mark.epoch)
            elif extent.epoch > mark.epoch:
                elected[place] = mark
                self._next[place] = Mark(extent.end, extent.epoch)
                if written.get(place, extent.end) < known[place]:
                    self._fallen.add(place)
        return elected

    def fell(self, place: Place) -> None:
        """A new record got a number that an earlier one had: the next comparison finds a loss."""
        self._fallen.add(place)

    def compared(self, place: Place, mark: Mark, first: int | None) -> int | None:
        """A mark was compared: the number of the first lost record; None if nothing is lost.

        `first`: from which number on the leader of now lacks records in front of the mark. Of records behind
        the mark it is not known which are lost, so all count.
        """
        # The topic is another one now, or the comparison was made before.
        if self._marks.get(place) is not mark:
            return None
        self._marks[place] = self._next.pop(place)
        fallen = place in self._fallen
        self._fallen.discard(place)
        return mark.end if first is None and fallen else first

    def forget(self, place: Place) -> None:
        """The topic is gone, or its loss is known: the next look gives another mark."""
        self._marks.pop(place, None)
        self._next.pop(place, None)
        self._fallen.discard(place)
