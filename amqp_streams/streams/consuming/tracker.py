"""What one link has been given of one partition and not settled yet. Spec: AMQP 2.6.12, 3.4; Event Streams 3.2.

Laws: the position is the number of the lowest unsettled record, or of the next one when all is settled, so it never passes what is not
done; settlements come in any order; no more ranges are kept than deliveries are unsettled.
"""

from bisect import bisect_right
from typing import Final


class Tracker:
    """Unsettled records as ranges. Settling the lowest of all, as consumers mostly do, takes one step."""

    __slots__ = ("_ends", "_starts", "next")

    def __init__(self, position: int) -> None:
        self.next = position
        """Number of the first record that is neither sent nor passed over."""
        self._starts: Final[list[int]] = []
        self._ends: Final[list[int]] = []

    @property
    def position(self) -> int:
        """Where whoever comes next has to begin."""
        return self._starts[0] if self._starts else self.next

    @property
    def unsettled(self) -> int:
        """How many records are sent and not settled."""
        return sum(self._ends) - sum(self._starts)

    def sent(self, first: int, count: int) -> None:
        """These records went out unsettled. Those between `next` and `first`, if any, are passed over."""
        assert first >= self.next, "records go out in the order of the log; a redelivery never ceased to be unsettled"
        self.next = first + count
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = self.next
        else:
            self._starts.append(first)
            self._ends.append(self.next)

    def passed_over(self, position: int) -> None:
        """All before `position` that was not sent need not be: filters let none of it through, it was sent settled, or is removed."""
        self.next = max(self.next, position)

    def settled(self, first: int, count: int = 1) -> None:
        """These records are done with: accepted, rejected, or gone from the log. What is not unsettled makes no difference."""
        starts, ends = self._starts, self._ends
        after = first + count
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
