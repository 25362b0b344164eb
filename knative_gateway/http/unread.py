"""How many bytes of answers the connections of a listener hold because their clients do not read. Pure.

Law: at the limit, connections of the network that holds the most end, the one first whose client has not read
for longest. The answer that exceeds the limit itself is sent: it may be larger than the limit.
"""

from collections.abc import Callable
from typing import Final

from knative_gateway.http.holding import SHED_PART, chosen


class Unread:
    """The bytes that one client has not read. `shed`: closes its connection at once."""

    __slots__ = ("held", "held_since", "network", "shed")

    def __init__(self, network: str, held: int, held_since: float, shed: Callable[[], None]) -> None:
        self.network = network
        self.held = held
        self.held_since = held_since
        self.shed = shed


class UnreadAnswers:
    """The bytes of all connections. `bytes_max`: their limit. `cut_count`: connections that were closed."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.cut_count = 0
        self._bytes_max: Final = bytes_max
        self._every: Final[dict[Unread, None]] = {}

    def add(self, new: Unread) -> Unread:
        """A client does not read. Returns `new`."""
        self.bytes += new.held
        if self.bytes > self._bytes_max:
            for each in chosen(self._every, self.bytes - self._bytes_max + self._bytes_max // SHED_PART):
                self.remove(each)
                self.cut_count += 1
                each.shed()
        self._every[new] = None
        return new

    def remove(self, one: Unread | None) -> None:
        """It reads again, or its connection has ended. Ignored if it was removed already."""
        if one is not None and one in self._every:
            del self._every[one]
            self.bytes -= one.held
