"""Addresses of listeners and clients, and which network of clients has the most members.

At a limit, a listener closes a member of the network with the most, so that one client cannot keep all others
out. Law: the time of each operation does not depend on how many networks or members exist. Pure.
"""

import ipaddress
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""Addresses that are valid for binding only, and those to connect to."""

_M = TypeVar("_M", bound=Hashable)


def network_of(host: str) -> str:
    """Return the part of an address that limits count as one client.

    An IPv4 address, or the first 64 bits of an IPv6 address, which one site usually has. A text that is not
    an address is returned as it is.
    """
    try:
        # A link-local IPv6 address has its interface after the `%`.
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    # A dual-stack listener sees IPv4 clients in this form: they must not share one /64.
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether this is an address by which a machine reaches itself. Names and other texts are not."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_this_machine(host: str) -> bool:
    """Whether a host of a URL or a listener is a loopback address, or the name of them."""
    return host == "localhost" or is_loopback(host)


def format_address(host: str, port: int) -> str:
    """Return `127.0.0.1:5672` or `[::1]:5672`, as in URLs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """Return the host by which this machine reaches a listener that is bound to `host`."""
    return EVERYWHERE.get(host, host)


class Crowds(Generic[_M]):
    """Members by network."""

    def __init__(self) -> None:
        self._members: Final[dict[str, dict[_M, None]]] = {}
        """Those of each network, the oldest first."""
        self._networks: Final[dict[_M, str]] = {}
        self._by_size: Final[dict[int, dict[str, None]]] = {}
        """The networks with this number of members, the one that has had it longest first."""
        self._most = 0

    def __len__(self) -> int:
        return len(self._networks)

    def __contains__(self, member: object) -> bool:
        return member in self._networks

    def add(self, member: _M, network: str) -> None:
        """Add a member as the youngest of its network. Ignored if it is a member."""
        if member in self._networks:
            return
        self._networks[member] = network
        members = self._members.setdefault(network, {})
        members[member] = None
        self._resize(network, len(members) - 1, len(members))

    def remove(self, member: _M) -> None:
        """Ignored if it is not a member."""
        network = self._networks.pop(member, None)
        if network is None:
            return
        members = self._members[network]
        del members[member]
        self._resize(network, len(members) + 1, len(members))
        if not members:
            del self._members[network]

    def largest(self, preferred: str | None = None) -> str | None:
        """Returns the network with the most members; None: no members. Of equal networks it is `preferred`,
        or the one that has had this number of members longest.
        """
        if not self._most:
            return None
        if preferred is not None and len(self._members.get(preferred, ())) == self._most:
            return preferred
        return next(iter(self._by_size[self._most]))

    def oldest(self, network: str) -> _M:
        """Return the oldest member of a network that has members."""
        return next(iter(self._members[network]))

    def _resize(self, network: str, before: int, after: int) -> None:
        if before:
            same = self._by_size[before]
            del same[network]
            if not same:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[network] = None
        if after > self._most or self._most not in self._by_size:
            self._most = after  # sizes change by one, so the network itself is the largest now, or nothing is
