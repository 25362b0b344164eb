"""How many files and sockets the process may have open, and how many of them connections may take.

Law: connections never take the descriptors that the store and the probes need; anybody can connect without logging in.
"""

import resource
from typing import Final

WANTED: Final = 1 << 16
KEPT: Final = 512
"""For HTTP connections (256), the process itself and files of the store that are open for a moment."""
PER_PARTITION: Final = 2
"""Of one that is read and written."""
_NO_LIMIT: Final = 1 << 30


def raise_descriptors(wanted: int = WANTED) -> int:
    """Raise the limit of the process as far as the hard limit allows; the limit that holds then. It is never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _NO_LIMIT
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if aim <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    except (OSError, ValueError):
        return soft  # some systems allow less than the hard limit says
    return aim


def connections_possible(wanted: int, *, descriptors: int, partitions: int) -> int:
    """How many of the wanted connections there may be; with few descriptors half as many as these, however many the partitions need."""
    return min(wanted, max(descriptors // 2, descriptors - KEPT - PER_PARTITION * partitions))
