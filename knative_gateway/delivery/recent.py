"""The latest successful deliveries of one subscriber: a ring of numbers, and the latest replies. Pure.

Laws: at most `RECENT_MAX` deliveries and `REPLIES_MAX` replies are held, in about `2 * 8 * RECENT_MAX` bytes
and some kilobytes. A note costs less than a microsecond: it is made for every event that is delivered.
"""

from array import array
from collections import deque
from typing import Final, NamedTuple

RECENT_MAX: Final = 64
"""Deliveries of a subscriber that are held."""
REPLIES_MAX: Final = 16
"""Replies of a subscriber that are held."""
IDENTITY_MAX: Final = 200
"""Characters of the id and of the source of a reply that are held."""
_OFFSET_BITS: Final = 53
_TOOK_BITS: Final = 16
_TOOK_MAX: Final = (1 << _TOOK_BITS) - 1
_BITS: Final = (1 << 64) - 1
_EMPTY: Final = array("Q")


class Delivered(NamedTuple):
    """A delivery that succeeded. `took_ms`: from the request to the answer, at most 65,535; None: the
    delivery had other steps than one request.
    """

    at_ms: int
    took_ms: int | None


class Reply(NamedTuple):
    """A reply that was stored or delivered, as the answer to the event at a partition and an offset."""

    partition: int
    offset: str
    at_ms: int
    id: str
    source: str


class Recent:
    """The latest successful deliveries. The oldest ones are forgotten."""

    __slots__ = ("_next", "_when", "_where", "replies")

    def __init__(self) -> None:
        # Most of thousands of Triggers may never get an event, so the rings are made with the first one.
        self._where = self._when = _EMPTY
        self._next = 0
        self.replies: Final[deque[Reply]] = deque(maxlen=REPLIES_MAX)

    def note(self, partition: int, offset: str, at_ms: int, took_ms: int | None) -> None:
        """Note a delivery that succeeded."""
        if not self._where:
            self._where, self._when = array("Q", bytes(8 * RECENT_MAX)), array("Q", bytes(8 * RECENT_MAX))
        at = self._next
        self._where[at] = _key(partition, offset)
        self._when[at] = at_ms << _TOOK_BITS | (0 if took_ms is None else min(took_ms + 1, _TOOK_MAX))
        self._next = (at + 1) % RECENT_MAX

    def replied(self, reply: Reply) -> None:
        """Note a reply that was stored or delivered."""
        self.replies.append(reply._replace(id=reply.id[:IDENTITY_MAX], source=reply.source[:IDENTITY_MAX]))

    def found(self, partition: int, offset: str) -> Delivered | None:
        """Return the latest delivery of an event; None if it is not held."""
        wanted = _key(partition, offset)
        latest = max(
            (when for where, when in zip(self._where, self._when, strict=True) if where == wanted and when),
            default=0,
        )
        took = latest & _TOOK_MAX
        return Delivered(latest >> _TOOK_BITS, took - 1 if took else None) if latest else None

    def reply_to(self, partition: int, offset: str) -> Reply | None:
        """Return the latest reply to an event; None if it is not held."""
        return next(
            (each for each in reversed(self.replies) if (each.partition, each.offset) == (partition, offset)),
            None,
        )


def _key(partition: int, offset: str) -> int:
    # Cut, so that no number of a partition makes the note of a delivery fail.
    return (partition << _OFFSET_BITS | int(offset)) & _BITS
