"""Names under which a web page of another site cannot reach a gateway of this machine. Pure.

A page can let its own name point to a loopback address (DNS rebinding). The browser then lets it read the
answers, and its requests have this name in the Host header.
"""

from ipaddress import ip_address
from typing import Final

# A cluster has its names for itself, and nobody can register a name without a dot.
_OURS: Final = (".localhost", ".svc", ".svc.cluster.local")


def is_out_of_reach(host: bytes) -> bool:
    """Return whether no web page can have this `Host`: an address, or a name that no site has.

    `host`: the value of the header, which is valid (`event_formats.host.is_host`).
    """
    text = host.strip(b" \t").decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    name = name.partition("%25")[0].removesuffix(".")
    if "." not in name or name.endswith(_OURS):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
