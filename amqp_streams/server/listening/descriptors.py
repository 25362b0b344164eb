"""How many of the process's open files and sockets connections may take. Pure.

Law: connections never take the descriptors that the store and the probes need; anybody can connect without logging in.
"""

from typing import Final

KEPT: Final = 512
"""For HTTP connections (256), the process itself and files of the store that are open for a moment."""
PER_PARTITION: Final = 2
"""Of one that is read and written."""


def connections_possible(wanted: int, *, descriptors: int, partitions: int) -> int:
    """How many of the wanted connections there may be; with few descriptors half as many as these, however many the partitions need."""
    return min(wanted, max(descriptors // 2, descriptors - KEPT - PER_PARTITION * partitions))
