"""How many of the process's file descriptors connections may use. Pure.

Law: connections never use the descriptors that the store and the probes need, because clients can connect
without a login.
"""

from typing import Final

KEPT: Final = 512
"""Descriptors for HTTP connections (256), the process itself, and files that the store opens briefly."""
PER_PARTITION: Final = 2
"""Descriptors of one partition that is read and written."""


def connections_possible(wanted: int, *, descriptors: int, partitions: int) -> int:
    """Return the limit on connections: `wanted`, or what the descriptors allow.

    With many partitions it is at least half of the descriptors.
    """
    return min(wanted, max(descriptors // 2, descriptors - KEPT - PER_PARTITION * partitions))
