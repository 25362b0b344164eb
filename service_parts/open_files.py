"""[io] How many files and sockets this process may have open."""

import resource
from typing import Final

OPEN_FILES_WANTED: Final = 1 << 16
_NO_LIMIT: Final = 1 << 30


def raise_open_files(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raise the limit of the process as far as the hard limit allows.

    Returns the limit that holds then. It is never lowered.
    """
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
