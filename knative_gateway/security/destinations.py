"""The destinations to which events may be delivered: a protection against server-side request forgery. Pure.

`deny` overrides `allow`. The address of the connection decides, in every notation, not only the host name. An
IPv4 address inside an IPv6 address is checked as both. Code that connects calls `refusal` with the resolved
address, and connects to exactly this address.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self
from urllib.parse import urlsplit

from knative_gateway.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DENIED: Final = (
    "169.254.0.0/16",  # link-local: metadata services of nearly every cloud, which return credentials
    "fe80::/10",
    "fd00:ec2::254/128",  # metadata over IPv6
    "100.100.100.200/32",  # the metadata service of Alibaba Cloud
    "168.63.129.16/32",  # the wire server of Azure
    "0.0.0.0/8",  # connects to this machine, although it is not a loopback address
    "::/128",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "ff00::/8",
    "metadata.google.internal",
)
"""The default of `deny`. A list in the settings replaces it."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
# RFC 8215: the prefix of a network's own NAT64 is within this one, and has 48, 56, 64 or 96 bits.
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
# RFC 4291, 2.5.5.1: deprecated, and understood by some systems.
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")
_SCHEMES: Final = frozenset(("http", "https"))


@dataclass(frozen=True, slots=True)
class Destinations:
    """Rules for networks (CIDR or single addresses) and host names (`*` stands for any characters); see
    `parse`.

    Without allowed names and networks, everything that is not denied is allowed.
    """

    allowed_networks: Sequence[Network] = ()
    allowed_hosts: Sequence[str] = ()
    denied_networks: Sequence[Network] = ()
    denied_hosts: Sequence[str] = ()

    @classmethod
    def parse(cls, *, allow: Iterable[str] = (), deny: Iterable[str] = DENIED) -> Self:
        """Read the rules from the settings.

        Raises:
            ConfigError: an entry is neither a network nor a host name.
        """
        allowed_networks, allowed_hosts = _split(allow)
        denied_networks, denied_hosts = _split(deny)
        return cls(allowed_networks, allowed_hosts, denied_networks, denied_hosts)

    def refusal(self, host: str, address: str) -> str | None:
        """Return why connections to `address` are refused; None if they are allowed. `host`: the name of the
        address.
        """
        name = _canonical(host)
        found = _spellings(address)
        if any(fnmatchcase(name, pattern) for pattern in self.denied_hosts):
            return f"host {host} is denied"
        # Each notation counts: a denied IPv4 address must not be reachable through its form in IPv6.
        if any(each in network for network in self.denied_networks for each in found):
            return f"{host} has the address {address}, which is denied"
        if not self.allowed_networks and not self.allowed_hosts:
            return None
        if any(fnmatchcase(name, pattern) for pattern in self.allowed_hosts):
            return None
        # The inner IPv4 address decides, if the address has one: it is where packets may be delivered to.
        if all(any(each in network for network in self.allowed_networks) for each in found[1:] or found):
            return None
        return f"{host} with the address {address} is not allowed"

    def refusal_of_url(self, url: str) -> str | None:
        """Return why a URL cannot be a destination, without its address; None if the address decides."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            return f"{url!r} is not a URL: {error}"
        if parts.scheme not in _SCHEMES:
            return f"{url!r} is not an http or https URL"
        if not host:
            return f"{url!r} has no host"
        if any(fnmatchcase(_canonical(host), pattern) for pattern in self.denied_hosts):
            return f"host {host} is denied"
        # The resolver of the system would read it as an address, after the rules have seen a name.
        if _numeric(host) and not literal(host):
            return f"{host} is an IPv4 address in an obsolete notation"
        return self.refusal(host, host) if literal(host) else None

    def refusal_of_address(self, address: str) -> str | None:
        """Return why connections to this address are refused, without its name; None if the name decides."""
        if not literal(address):
            return f"{address!r} is not an IP address"
        found = _spellings(address)
        denied = any(each in network for network in self.denied_networks for each in found)
        return f"{address} is denied" if denied else None


def literal(host: str) -> bool:
    """Return whether a host is an IP address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _numeric(host: str) -> bool:
    """Return whether system calls read a host as an IPv4 address in another notation (2130706433, 127.1)."""
    return host.replace(".", "").isdigit()


def _spellings(address: str) -> Sequence[Address]:
    """Return the address, and the IPv4 addresses inside it to which packets may be delivered."""
    outer = ip_address(address.partition("%")[0])
    if isinstance(outer, IPv4Address):
        return (outer,)
    inner = outer.ipv4_mapped or outer.sixtofour
    if outer in _NAT64_LOCAL:
        return (outer, *_local_nat64(int(outer)))
    if inner is None and (outer in _NAT64 or (outer in _IPV4_COMPATIBLE and int(outer) > 1)):
        inner = IPv4Address(int(outer) & 0xFFFF_FFFF)
    if inner is None and outer.teredo is not None:
        inner = outer.teredo[1]
    return (outer,) if inner is None else (outer, inner)


def _local_nat64(address: int) -> Sequence[IPv4Address]:
    """Return the IPv4 address for each possible length of the prefix, without addresses in 0.0.0.0/8.

    Bits 64 to 71 are not a part of the IPv4 address (RFC 6052, 2.2).
    """
    without_u = (address >> 64 << 56) | (address & ((1 << 56) - 1))
    shifted = [without_u >> shift & 0xFFFF_FFFF for shift in (40, 32, 24)]
    found = {number for number in (*shifted, address & 0xFFFF_FFFF) if number >> 24}
    return [IPv4Address(number) for number in sorted(found)]


def _split(entries: Iterable[str]) -> tuple[Sequence[Network], Sequence[str]]:
    networks: list[Network] = []
    hosts: list[str] = []
    for entry in entries:
        text = entry.strip()
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            if not text or "/" in text or ":" in text or any(letter.isspace() for letter in text):
                raise ConfigError(
                    f"{entry!r} is not a network (10.0.0.0/8), an address or a host name (*.example.com)"
                ) from None
            hosts.append(_canonical(text))
    return tuple(networks), tuple(hosts)


def _canonical(host: str) -> str:
    """Return a host name in lower case, without the dot of the root."""
    return host.lower().rstrip(".")
