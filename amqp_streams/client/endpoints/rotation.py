"""The endpoints of a client: in which order to try them, and which of them belong together. Pure.

All times are in seconds, on any clock that does not go back.

Laws: each endpoint is in the order once. The order begins with an endpoint that is not in a pause, if there
is one; among these it is random. An endpoint that fails gets a pause, which grows with its failures in a row
and ends: so it is tried after all others, and comes back. No two connections lead to different stores.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from amqp_streams.client.endpoints.address import Address

PAUSE_S: Final = 1.0
"""The longest pause of an endpoint after its first failure; each further failure doubles it."""
PAUSE_S_MAX: Final = 30.0
STABLE_S: Final = 5.0
"""After a connection that lasted this long, the failures before it do not count."""
_DOUBLED_MAX: Final = 5


class Choice(NamedTuple):
    """An endpoint to try. `rank`: 0, or 1 for an address that is only tried after the others of its name."""

    address: Address
    rank: int = 0


@dataclass(slots=True)
class _State:
    failures: int = 0
    pause_until_s: float = 0.0
    connections: int = 0
    store: str | None = None


class Health:
    """What is known about endpoints: failures, pauses, connections, stores.

    Clients that a program has one after the other can share it. `spread` returns random numbers from 0 to 1.
    It decides the order of endpoints, and the length of each pause.
    """

    def __init__(self, spread: Callable[[], float]) -> None:
        self.spread: Final = spread
        self.states: dict[str, _State] = {}
        self.store: str | None = None


class Rotation:
    """The endpoints of one client."""

    def __init__(self, addresses: Iterable[Address], health: Health) -> None:
        self.addresses: Final = tuple(dict.fromkeys(addresses))
        assert self.addresses
        self._health: Final = health
        self.current: Address = self.addresses[0]
        """The endpoint of the newest connection; the first one if no endpoint has answered yet."""

    def order(self, choices: Sequence[Choice], now_s: float) -> list[Address]:
        """Return the endpoints in the order in which a new connection tries them.

        First those without a pause: of the lowest rank, with the fewest connections of this client, in random
        order. Then those in a pause: first the one whose pause ends first.
        """
        # What a name leads to may change: the states of addresses that it no longer has are removed.
        known = {str(choice.address) for choice in choices}
        health = self._health
        health.states = {
            key: state
            for key, state in health.states.items()
            if key in known or state.connections or state.pause_until_s > now_s
        }

        def place(choice: Choice) -> tuple[float, int, int, float]:
            state = health.states.get(str(choice.address), _UNKNOWN)
            pause_s = max(0.0, state.pause_until_s - now_s)
            return pause_s, choice.rank, state.connections, health.spread()

        return [choice.address for choice in sorted(dict.fromkeys(choices), key=place)]

    def opened(self, address: Address) -> None:
        """Record a new connection to an endpoint."""
        state = self._state(address)
        # Its failures count until the connection has lasted: an endpoint may lose each one at once.
        state.pause_until_s = 0.0
        state.connections += 1
        self.current = address

    def closed(self, address: Address) -> None:
        """Record that this client has closed a connection."""
        self._state(address).connections -= 1

    def lost(self, address: Address, lasted_s: float, now_s: float) -> None:
        """Record the loss of a connection: the node has ended, or is shutting down."""
        state = self._state(address)
        state.connections -= 1
        if lasted_s >= STABLE_S:
            state.failures = 0
        self.failed(address, now_s)

    def failed(self, address: Address, now_s: float) -> None:
        """Record that an endpoint refused a connection, or did not answer in its time."""
        state = self._state(address)
        longest_s = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(state.failures, _DOUBLED_MAX))
        state.failures += 1
        # Half of it is random, so that many clients do not come back at the same moment.
        state.pause_until_s = now_s + longest_s * (0.5 + self._health.spread() / 2)

    def claim(self, address: Address, store: str | None) -> str | None:
        """Record which store an endpoint serves. Return None, or why its connection must not be used.

        `store`: the identity in the node's open; None: the node does not tell it. The store of the first
        connection counts. If the endpoint that had it comes back with another one, its node was replaced, and
        the new store counts.
        """
        if store is None:
            return None
        health, state = self._health, self._state(address)
        expected = health.store
        alone = not any(other is not state and other.store == expected for other in health.states.values())
        if alone or expected in {None, store, state.store}:
            health.store = state.store = store
            return None
        return (
            f"its node has the logs of another store ({store}) than the other endpoints ({expected}): offsets"
            " mean other events there. List the nodes of one cluster only"
        )

    def _state(self, address: Address) -> _State:
        return self._health.states.setdefault(str(address), _State())


_UNKNOWN: Final = _State()
