"""How many bytes of unanswered requests the connections of a listener hold, and which requests end if there
are too many. Pure.

Law: at the limit, the requests of the network that holds the most end, the oldest first. So a client that
begins large requests and does not complete them takes the room of no other client, and not for long.
"""

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final, Generic, Protocol, TypeVar

SHED_PART: Final = 8
"""At the limit, this part of it is freed at once: the choice takes time for each connection."""


class Holder(Hashable, Protocol):
    """A connection. `network`: see `Member`. `held`: its bytes. `held_since`: since when it holds any."""

    network: str
    held: int
    held_since: float

    def shed(self) -> None:
        """Refuse the request that is arriving."""


M = TypeVar("M", bound=Holder)


class Holdings(Generic[M]):
    """The bytes of all connections. `bytes_max`: their limit. `shed_count`: requests that were refused."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.shed_count = 0
        self._bytes_max: Final = bytes_max
        self._arriving: Final[dict[M, None]] = {}

    def note(self, holder: M, change: int, *, arrives: bool) -> None:
        """Note that a connection holds more or fewer bytes than before.

        `arrives`: it holds a request that is not complete, or that waits for the answers to earlier ones.
        """
        self.bytes += change
        if arrives:
            self._arriving[holder] = None
        else:
            self._arriving.pop(holder, None)
        if change > 0 and self.bytes > self._bytes_max:
            too_many = self.bytes - self._bytes_max + self._bytes_max // SHED_PART
            for each in chosen(self._arriving, too_many):
                self._arriving.pop(each, None)
                self.shed_count += 1
                each.shed()


def chosen(holders: Iterable[M], bytes_min: int) -> list[M]:
    """Return connections that hold at least `bytes_min` together, or all that hold anything.

    Each is the one that holds its bytes longest, of the network that then holds the most.
    """
    by_network: dict[str, deque[M]] = {}
    for holder in sorted(holders, key=lambda each: each.held_since):
        if holder.held:
            by_network.setdefault(holder.network, deque()).append(holder)
    most = [(-sum(each.held for each in members), network) for network, members in by_network.items()]
    heapq.heapify(most)
    found: list[M] = []
    freed = 0
    while most and freed < bytes_min:
        negative, network = heapq.heappop(most)
        oldest = by_network[network].popleft()
        found.append(oldest)
        freed += oldest.held
        if by_network[network]:
            heapq.heappush(most, (negative + oldest.held, network))
    return found
