"""The value of the HTTP header `Host`. Pure.

Spec: RFC 9110, 7.2, and RFC 3986, 3.2.2 and 3.2.3.
"""

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final

_HOST: Final = re.compile(
    rb"""
    (?: \[ (?: (?P<address>[0-9A-Fa-f:.]+) (?:%25[\w.~%-]+)?
             | [Vv][0-9A-Fa-f]+ \. [\w.~!$&'()*+,;=:-]+ ) \]
      | (?: [\w.~!$&'()*+,;=-] | %[0-9A-Fa-f]{2} )* )
    (?: :[0-9]* )?
    """,
    re.VERBOSE,
)
"""A name, an IPv4 address or an IPv6 address in brackets, and a port. The name may be empty: clients send an
empty value for a target without a host.
"""
# A cluster has its names for itself, and a name without a dot cannot be registered.
_OURS: Final = (".localhost", ".svc", ".svc.cluster.local")


def is_host(value: bytes) -> bool:
    """Return whether a `Host` header may have this value."""
    found = _HOST.fullmatch(value.strip(b" \t"))
    if found is None:
        return False
    address = found["address"]
    if address is None:
        return True
    try:
        IPv6Address(address.decode())
    except AddressValueError:
        return False
    return True


def is_out_of_reach(value: bytes) -> bool:
    """Return whether no web page can have this `Host`: an address, or a name that no site has.

    A page can let its own name point to a loopback address (DNS rebinding). The browser then lets it read the
    answers, and its requests have this name in the header. `value`: a valid one, see `is_host`.
    """
    text = value.strip(b" \t").decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    name = name.partition("%25")[0].removesuffix(".")
    if "." not in name or name.endswith(_OURS):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
