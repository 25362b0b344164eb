"""[io] The limit of open files and sockets of this process."""

import resource
from typing import Final

OPEN_FILES_WANTED: Final = 1 << 16
_NO_LIMIT: Final = 1 << 30
"""Returned if the process has no limit, so that callers can compute with a number."""


def raise_open_files(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raise the limit to `wanted`, as far as the hard limit allows. It is never lowered.

    Returns the limit that is now in force.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _NO_LIMIT
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # Never lowered: the operator may have given more on purpose.
    if aim <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    except (OSError, ValueError):
        return soft  # some systems allow less than the hard limit says
    return aim
