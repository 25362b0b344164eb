"""Which of the reads that wait for Kafka is next, and which consumer makes it. Pure.

A consumer has one position. A read elsewhere (a *jump*) waits for a broker, a read of what follows does not.

Laws:
1. Owners, for example connections, get fair shares of bytes, whatever the number of their reads. Of two
   owners that always wait, one never gets more than `AHEAD_BYTES` and two reads more than the other.
2. Within these bounds, a consumer reads what is nearest after its position. Otherwise it makes the read of
   the owner that got the least.
3. An owner that begins to wait has no claim on what it did not ask for earlier. What it got from memory,
   without a read, counts, but of all that it got too much at most `DEBT_BYTES`: it must not wait for long.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final, NamedTuple

from amqp_streams.storage.ports import ReadRequest

AHEAD_BYTES: Final = 1 << 20
"""How much more an owner may have got than the owner that got the least, and still be served before it."""
DEBT_BYTES: Final = 8 << 20
"""How much more than the owner that got the least an owner may have got when it begins to wait."""
SKIP_BYTES: Final = 1 << 20
"""How much a consumer reads over instead of a jump: about what librdkafka has read ahead already."""
_LOOKS: Final = 8
"""How many reads near a consumer are examined for one whose owner may be served."""
_IDLE_OWNERS: Final = 1024
"""Of how many owners without a read that waits it is known what they got, in addition to the others."""


@dataclass(slots=True, eq=False)
class Wanted:
    """A read that waits: of the records of a partition from the number `at` on."""

    request: ReadRequest
    place: Hashable
    at: int
    number: int = field(default=0, init=False)
    """In which order the reads began to wait."""

    @property
    def owner(self) -> Hashable:
        """Who shares with the others."""
        return self.request.owner


class Position(NamedTuple):
    """Where a consumer continues without a jump. `skip`: how many numbers it may read over."""

    place: Hashable
    next: int
    skip: int


class Turns:
    """The reads that wait."""

    def __init__(self) -> None:
        self._owners: Final[dict[Hashable, dict[Wanted, None]]] = {}
        """The reads of each owner that waits, in the order in which they began to wait."""
        self._got: Final[dict[Hashable, int]] = {}
        """What each owner got, in bytes, on a scale that begins with the first owner."""
        self._paid: Final[dict[Hashable, int]] = {}
        """What of this is for records that the owner has not taken yet."""
        self._order: Final[list[tuple[int, int, Hashable]]] = []
        """A heap of the owners that wait by what they got. May have old entries, with other numbers."""
        self._entries: Final[dict[Hashable, int]] = {}
        """The number of the entry of each owner that waits."""
        self._least = 0
        """What the owner had got that had the least at the last choice. It never falls."""
        self._places: Final[dict[Hashable, list[Wanted]]] = {}
        """The reads of each partition by their numbers."""
        self._numbers: Final = count(1)
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, wanted: Wanted) -> None:
        """Let a read wait."""
        owner, wanted.number = wanted.owner, next(self._numbers)
        if owner not in self._owners:
            self._owners[owner] = {}
            self._got[owner] = min(self._what(owner), self._least + DEBT_BYTES)
            self._entries[owner] = wanted.number
            heappush(self._order, (self._got[owner], wanted.number, owner))
        self._owners[owner][wanted] = None
        insort(self._places.setdefault(wanted.place, []), wanted, key=_key)
        self._waiting += 1

    def drop(self, wanted: Wanted) -> None:
        """Remove a read that waits, if it does."""
        if wanted not in self._owners.get(wanted.owner, ()):
            return
        self._leave(wanted)
        some = self._places[wanted.place]
        del some[bisect_left(some, _key(wanted), key=_key)]
        if not some:
            del self._places[wanted.place]
        self._forget_idle()

    def covered(self, place: Hashable, start: int, end: int, count_max: int) -> list[Wanted]:
        """Remove and return the reads with numbers from `start` to before `end`, at most so many."""
        some = self._places.get(place, [])
        first = bisect_left(some, (start, 0), key=_key)
        last = min(bisect_left(some, (end, 0), key=_key), first + count_max)
        found = some[first:last]
        # At once: each removal from a long list moves what is after it.
        del some[first:last]
        if not some:
            self._places.pop(place, None)
        for wanted in found:
            self._leave(wanted)
        self._forget_idle()
        return found

    def choose(self, positions: Sequence[Position | None]) -> tuple[int, Wanted, int] | None:
        """Remove the next read. Returns the index of a position, the read, and where its consumer begins.

        `positions`: of the consumers that are free, at least one. None: it has none.
        """
        owner = self._owner_with_least()
        if owner is None:
            return None
        least = self._got[owner]
        self._least = max(self._least, least)
        for index, position in enumerate(positions):
            if position is not None and (near := self._near(position, least + AHEAD_BYTES)) is not None:
                self.drop(near)
                return index, near, position.next
        wanted = next(iter(self._owners[owner]))
        self.drop(wanted)
        return 0, wanted, wanted.at

    def brought(self, owner: Hashable, size: int) -> None:
        """So many bytes are read for an owner. Negative: fewer than were noted."""
        self._got[owner] = self._what(owner) + size
        self._paid[owner] = max(0, self._paid.get(owner, 0) + size)

    def took(self, owner: Hashable, size: int) -> None:
        """An owner took so many bytes, read for it or for another one."""
        paid = self._paid.pop(owner, 0)
        if paid > size:
            self._paid[owner] = paid - size
        self._got[owner] = self._what(owner) + max(0, size - paid)
        self._forget_idle()

    def _leave(self, wanted: Wanted) -> None:
        reads = self._owners[wanted.owner]
        del reads[wanted]
        if not reads:
            del self._owners[wanted.owner], self._entries[wanted.owner]
        self._waiting -= 1

    def _what(self, owner: Hashable) -> int:
        return max(self._got.get(owner, 0), self._least)

    def _owner_with_least(self) -> Hashable | None:
        while self._order:
            got, number, owner = self._order[0]
            if self._entries.get(owner) != number:
                heappop(self._order)
            elif got != self._got[owner]:
                heapreplace(self._order, (self._got[owner], number, owner))
            else:
                return owner
        return None

    def _near(self, position: Position, most: int) -> Wanted | None:
        """The read nearest after a position whose owner has got at most so much."""
        some = self._places.get(position.place)
        if some is None:
            return None
        first = bisect_left(some, (position.next, 0), key=_key)
        for wanted in some[first : first + _LOOKS]:
            if wanted.at - position.next > position.skip:
                return None
            if self._got[wanted.owner] <= most:
                return wanted
        return None

    def _forget_idle(self) -> None:
        """Bound what is kept of owners that do not wait."""
        if len(self._got) > _IDLE_OWNERS + 2 * len(self._owners):
            for owner in [owner for owner in self._got if owner not in self._owners]:
                del self._got[owner]
                self._paid.pop(owner, None)
        if len(self._order) > _IDLE_OWNERS + 2 * len(self._owners):
            self._order[:] = [(self._got[owner], number, owner) for owner, number in self._entries.items()]
            heapify(self._order)


def _key(wanted: Wanted) -> tuple[int, int]:
    return wanted.at, wanted.number
