"""[io] The limit of open files and sockets of this process."""

import fcntl
import os
import resource
from contextlib import suppress
from typing import Final

OPEN_FILES_WANTED: Final = 1 << 16
_NO_LIMIT: Final = 1 << 30
"""Returned if the process has no limit, so that callers can compute with a number."""


def raise_open_files(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raise the limit to `wanted`, as far as the hard limit allows. It is never lowered.

    Returns the limit that is now in force. The system has room for `wanted` open files then.
    """
    limit = _raised(wanted)
    if wanted:
        _reserve(min(limit, wanted))
    return limit


def _raised(wanted: int) -> int:
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


def _reserve(files: int) -> None:
    """Make the system's table of the open files of this process large enough for so many: 8 bytes for each.

    Linux doubles the table when it is full. If the process has several threads, the thread that opens a file
    then waits until all CPUs have left the old table: 7 to 50 ms at 256, 512, 1,024 and so on. That thread is
    the event loop, which accepts connections.
    """
    with suppress(OSError):  # the table grows later
        known = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(known, fcntl.F_DUPFD_CLOEXEC, max(files - 1, known)))
        finally:
            os.close(known)
