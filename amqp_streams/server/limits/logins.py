"""How often a login may fail: token buckets for addresses, for users, and for users at addresses where they
have been.

Laws: only failures cost; a success gives nothing back, so that who knows one password cannot go on guessing
others. A user who has logged in from an address before is judged there by what it does there, not by what
strangers try in its name or neighbours from its address. Unknown users are counted like known ones. The
tables are bounded; what was used longest ago goes first. Time is an argument. Pure.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

TABLE_MAX: Final = 10_000
"""Addresses, users, and pairs of both, that are remembered; each some 200 bytes."""

_K = TypeVar("_K", bound=Hashable)


class Failures(Generic[_K]):
    """Failures by key: `burst` of them, and one more every `interval_ms`."""

    def __init__(self, burst: int, interval_ms: int) -> None:
        self._burst: Final = burst
        self._interval_ms: Final = interval_ms
        self._table: Final[OrderedDict[_K, tuple[float, int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._table)

    def exhausted(self, key: _K, now_ms: int) -> bool:
        """Whether no more may fail just now."""
        return self._count(key, now_ms) > self._burst - 1

    def add(self, key: _K, now_ms: int) -> None:
        """One more failed."""
        count = min(float(self._burst), self._count(key, now_ms) + 1)
        self._table[key] = count, now_ms
        self._table.move_to_end(key)
        if len(self._table) > TABLE_MAX:
            self._table.popitem(last=False)

    def _count(self, key: _K, now_ms: int) -> float:
        count, since_ms = self._table.get(key, (0.0, now_ms))
        return max(0.0, count - (now_ms - since_ms) / self._interval_ms)


class Logins:
    """The memory of failed logins of a node."""

    def __init__(self, *, address_burst: int, user_burst: int, interval_ms: int) -> None:
        self._addresses: Final[Failures[str]] = Failures(address_burst, interval_ms)
        self._users: Final[Failures[str]] = Failures(user_burst, interval_ms)
        self._pairs: Final[Failures[tuple[str, str]]] = Failures(user_burst, interval_ms)
        self._seen: Final[OrderedDict[tuple[str, str], None]] = OrderedDict()

    def limited(self, peer: str, user: str | None, now_ms: int) -> bool:
        """Whether a login from there, by whoever says to be `user`, is not to be looked at now."""
        address = network_of(peer)
        if user is not None and (address, user) in self._seen:
            return self._pairs.exhausted((address, user), now_ms)
        return self._addresses.exhausted(address, now_ms) or (
            user is not None and self._users.exhausted(user, now_ms)
        )

    def failed(self, peer: str, user: str | None, now_ms: int) -> None:
        """A login failed."""
        address = network_of(peer)
        if user is not None and (address, user) in self._seen:
            self._pairs.add((address, user), now_ms)
            return
        self._addresses.add(address, now_ms)
        if user is not None:
            self._users.add(user, now_ms)

    def succeeded(self, peer: str, user: str) -> None:
        """A login was good."""
        pair = network_of(peer), user
        self._seen[pair] = None
        self._seen.move_to_end(pair)
        if len(self._seen) > TABLE_MAX:
            self._seen.popitem(last=False)


def network_of(peer: str) -> str:
    """Who counts as one, of `127.0.0.1:40112` or `[::1]:40112`: an IPv4 address, or the 64 bits of an IPv6
    one that a site is given.
    """
    host = peer.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
