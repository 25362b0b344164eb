"""What the connections of a listener share, and which of them closes when there is one too many."""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from knative_gateway.http.backlog import Backlog
from knative_gateway.http.exchange import Exchange, Handler, Shared
from knative_gateway.http.holding import Holder, Holdings
from knative_gateway.http.unread import UnreadAnswers
from service_parts.networks import Crowds

UNREAD_BYTES_MAX: Final = 256 << 20


class Member(Holder, Protocol):
    """A connection. `network`: the client's IPv4 address, or the /64 network of its IPv6 address."""

    def abort(self) -> None:
        """Close at once."""


M = TypeVar("M", bound=Member)


class Service(Shared, Generic[M]):
    """State that the connections of a listener share. `clock` returns seconds."""

    def __init__(
        self,
        handler: Callable[[Exchange], Handler],
        clock: Callable[[], float],
        backlog: Backlog,
        *,
        connections_max: int,
        held_max: int,
        unread_max: int = UNREAD_BYTES_MAX,
    ) -> None:
        """What all connections may hold together: `held_max` bytes of unanswered requests, and `unread_max`
        bytes of answers that their clients do not read.
        """
        super().__init__()
        self.handler: Final = handler
        self.clock: Final = clock
        self.backlog: Final = backlog
        self.connections_max: Final = connections_max
        self.connections: Final[set[M]] = set()
        self.holdings: Final = Holdings[M](held_max)
        self.unread: Final = UnreadAnswers(unread_max)
        self._waiting: Final[Crowds[M]] = Crowds()
        """Connections without a request that is being answered, as they were at the last `make_room`."""
        self._changed: Final[dict[M, bool]] = {}
        """Whether each connection that changed since then waits. In the order in which they began to wait."""

    # Two changes for each request, so that they must be cheap: `make_room` carries them out.
    def waits(self, connection: M) -> None:
        """This connection has no request that is being answered."""
        self._changed.pop(connection, None)
        self._changed[connection] = True

    def works(self, connection: M) -> None:
        """It has one."""
        self._changed[connection] = False

    def leave(self, connection: M) -> None:
        """It has ended."""
        self._changed.pop(connection, None)
        self._waiting.remove(connection)

    def make_room(self, new: M) -> None:
        """Close one connection, because there is one too many.

        That is the connection that waits longest, of the network with the most that wait: so a client that
        opens connections and sends nothing keeps no other client out. If none waits, `new` is closed.
        """
        waiting = self._waiting
        for connection, waits in self._changed.items():
            waiting.remove(connection)
            if waits:
                waiting.add(connection, connection.network)
        self._changed.clear()
        largest = waiting.largest()
        chosen = new if largest is None else waiting.oldest(largest)
        # The transport reports only later that the connection has ended. Until then it must not be chosen a
        # second time.
        self.leave(chosen)
        chosen.abort()
