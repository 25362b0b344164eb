"""How many of the process's open files and sockets connections may use. Pure.

Law: connections never use the descriptors that the store and the probes need, because clients can connect
without a login.
"""

from typing import Final

KEPT: Final = 512
"""For HTTP connections (256), the process itself, and files of the store that are open briefly."""
PER_PARTITION: Final = 2
"""Of one that is read and written."""


def connections_possible(wanted: int, *, descriptors: int, partitions: int) -> int:
    """How many of the wanted connections there may be; with few descriptors half as many as these, however
    many the partitions need.
    """
    return min(wanted, max(descriptors // 2, descriptors - KEPT - PER_PARTITION * partitions))
