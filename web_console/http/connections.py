"""[io] The connections of browsers: clients that send or read nothing do not keep others out.

Laws: a connection ends if its client leaves the console waiting for `WAIT_S`: without a request, within the
head of one, or with unread bytes. If there are too many, the one that waits longest ends, of the network that
has most of them. A request that is being answered never ends for others.
"""

from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from service_parts.networks import network_of

WAIT_S: Final = 30.0


class Connection(H11Protocol):
    """A connection of uvicorn. It has no limits of its own, except between two requests."""

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, and end another one if there are too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._state: tuple[object, ...] = (None, -1)
        self.network = network_of(self.client[0]) if self.client else ""
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def look(self, now: float) -> None:
        """End the connection if its client is late. To be called about once a second."""
        state = self.cycle, self._unread() if self._is_answering() else -1
        if state != self._state:
            self._state, self._since = state, now
        elif self.waits and now - self._since > WAIT_S:
            self.transport.abort()

    @property
    def waits(self) -> bool:
        """Whether it is the turn of the client."""
        return not self._is_answering() or self.cycle.more_body or self._unread() > 0

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def _make_room(self) -> None:
        waiting = [each for each in self.connections if isinstance(each, Connection) and each.waits]
        others = [each for each in waiting if each is not self]
        if not others:
            return  # uvicorn answers 503
        crowds = Counter(each.network for each in others)
        most = max(crowds.values())
        oldest = min((each for each in others if crowds[each.network] == most), key=_since)
        # Its end is reported later, and the next connection must not count it.
        self.connections.discard(oldest)
        oldest.transport.abort()


def _since(connection: Connection) -> float:
    return connection._since
