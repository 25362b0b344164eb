"""The unsettled records of one link and partition. Spec: AMQP 2.6.12, 3.4; Event Streams 3.2.

Laws: the position is the lowest unsettled record, or the next one if all are settled: it never skips an
unsettled record. Settlements may come in any order. Ranges are bounded by the number of unsettled deliveries.
"""

from bisect import bisect_right
from typing import Final


class Tracker:
    """Unsettled records as ranges. Settling the lowest one, the usual case, takes one step."""

    __slots__ = ("_ends", "_starts", "next")

    def __init__(self, position: int) -> None:
        self.next = position
        """The number of the first record that is neither sent nor skipped."""
        self._starts: Final[list[int]] = []
        self._ends: Final[list[int]] = []

    @property
    def position(self) -> int:
        """Where the next reader must begin."""
        return self._starts[0] if self._starts else self.next

    @property
    def unsettled(self) -> int:
        """The number of records that are sent and not settled."""
        return sum(self._ends) - sum(self._starts)

    def sent(self, first: int, count: int) -> None:
        """These records were sent unsettled. Records between `next` and `first` are skipped."""
        assert first >= self.next, (
            "records are sent in log order; a redelivered record never ceased to be unsettled"
        )
        self.next = first + count
        # Adjacent ranges become one, so that a link that settles in order has one range.
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = self.next
        else:
            self._starts.append(first)
            self._ends.append(self.next)

    def skipped(self, position: int) -> None:
        """Unsent records below `position` were skipped: filtered out, sent settled, or removed."""
        self.next = max(self.next, position)

    def settled(self, first: int, count: int = 1) -> None:
        """Record that records are final: accepted, rejected, or removed from the log.

        Records that are already settled are ignored.
        """
        starts, ends = self._starts, self._ends
        after = first + count
        # Hot path: a client settles its oldest delivery.
        if starts and starts[0] == first and after < ends[0]:
            starts[0] = after
        else:
            self._settle(first, after)

    def _settle(self, first: int, after: int) -> None:
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, first)
        high = low
        while high < len(starts) and starts[high] < after:
            high += 1
        if low == high:
            return
        left = [(starts[low], first)] if starts[low] < first else []
        if ends[high - 1] > after:
            left.append((after, ends[high - 1]))
        starts[low:high] = [start for start, _ in left]
        ends[low:high] = [end for _, end in left]
