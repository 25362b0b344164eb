"""Limits failed logins with token buckets.

One for each address, each user, and each user at an address where it has logged in before.

Laws: only failures are counted. A success resets nothing, so that knowing one password does not help to guess
others. A user who has logged in from an address before has a separate bucket there: failures of other clients
cannot lock this user out. Unknown users are counted like known ones. The tables are bounded and forget what
was used least recently. Time is an argument. Pure.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from service_parts.networks import network_of

TABLE_MAX: Final = 10_000
"""How many addresses, users, and pairs of both are remembered. Each takes about 200 bytes."""

_K = TypeVar("_K", bound=Hashable)


class Failures(Generic[_K]):
    """Counts failures by key. Allowed are `burst` failures, and one more every `interval_ms`."""

    def __init__(self, burst: int, interval_ms: int) -> None:
        self._burst: Final = burst
        self._interval_ms: Final = interval_ms
        self._table: Final[OrderedDict[_K, tuple[float, int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._table)

    def exhausted(self, key: _K, now_ms: int) -> bool:
        """Whether no further failure is allowed for this key now."""
        return self._count(key, now_ms) > self._burst - 1

    def add(self, key: _K, now_ms: int) -> None:
        """Count a failure."""
        # The count never exceeds the burst, so a user waits at most for one interval.
        count = min(float(self._burst), self._count(key, now_ms) + 1)
        self._table[key] = count, now_ms
        # The least recently used key is at the front and is forgotten first.
        self._table.move_to_end(key)
        if len(self._table) > TABLE_MAX:
            self._table.popitem(last=False)

    def _count(self, key: _K, now_ms: int) -> float:
        count, since_ms = self._table.get(key, (0.0, now_ms))
        return max(0.0, count - (now_ms - since_ms) / self._interval_ms)


class Logins:
    """The failed logins of a node, and from where users have logged in."""

    def __init__(self, *, address_burst: int, user_burst: int, interval_ms: int) -> None:
        self._addresses: Final[Failures[str]] = Failures(address_burst, interval_ms)
        self._users: Final[Failures[str]] = Failures(user_burst, interval_ms)
        self._pairs: Final[Failures[tuple[str, str]]] = Failures(user_burst, interval_ms)
        self._seen: Final[OrderedDict[tuple[str, str], None]] = OrderedDict()

    def limited(self, peer: str, user: str | None, now_ms: int) -> bool:
        """Whether a login from the address `peer` that claims to be `user` must not be checked now."""
        address = peer_network(peer)
        if user is not None and (address, user) in self._seen:
            return self._pairs.exhausted((address, user), now_ms)
        return self._addresses.exhausted(address, now_ms) or (
            user is not None and self._users.exhausted(user, now_ms)
        )

    def failed(self, peer: str, user: str | None, now_ms: int) -> None:
        """Count a failed login."""
        address = peer_network(peer)
        if user is not None and (address, user) in self._seen:
            self._pairs.add((address, user), now_ms)
            return
        self._addresses.add(address, now_ms)
        if user is not None:
            self._users.add(user, now_ms)

    def succeeded(self, peer: str, user: str) -> None:
        """Remember that this user has logged in from this address."""
        pair = peer_network(peer), user
        self._seen[pair] = None
        self._seen.move_to_end(pair)
        if len(self._seen) > TABLE_MAX:
            self._seen.popitem(last=False)


def peer_network(peer: str) -> str:
    """Return the network of a peer, which is written as `127.0.0.1:40112` or `[::1]:40112`."""
    return network_of(peer.rpartition(":")[0].strip("[]"))
