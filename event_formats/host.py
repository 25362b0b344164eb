"""The value of the HTTP header `Host`. Pure.

Spec: RFC 9110, 7.2, and RFC 3986, 3.2.2 and 3.2.3.
"""

import re
from ipaddress import AddressValueError, IPv6Address
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
