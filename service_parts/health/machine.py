"""[io] What the operating system says about the process and its disk.

Law: a figure that the system does not report is None: it never fails an answer.
"""

import os
import resource
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service_parts.certificate_expiry import expires_at

NAMES_A_STEP: Final = 500
"""How many open files a step counts: this takes about half a millisecond."""
_FILES: Final = Path("/proc/self/fd")
_MEMORY: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of the data directory."""

    free_bytes: int
    size_bytes: int


def disk(folder: Path | None) -> Disk | None:
    """The space of the file system; None: no folder is given, or the system does not say."""
    if folder is None:
        return None
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def memory_bytes() -> int | None:
    """The resident memory of the process."""
    try:
        return int(_MEMORY.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def open_files() -> Generator[None, None, int | None]:
    """How many descriptors of files and sockets the process has, counted in steps."""
    count = 0
    with suppress(OSError):
        for count in _numbered(_FILES):
            if count % NAMES_A_STEP == 0:
                yield
    return count or None


def open_files_now() -> int | None:
    """Return the same at once. With thousands of files this takes milliseconds: for a thread of its own."""
    with suppress(OSError):
        return sum(1 for _ in _numbered(_FILES)) or None
    return None


def open_files_max() -> int | None:
    """How many it may have; None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def certificate_expires_ms(file: Path | None) -> int | None:
    """When the first certificate of a PEM file expires, since 1970; None: no file, or it cannot be read."""
    seconds = None if file is None else expires_at(file)
    return None if seconds is None else round(seconds * 1000)


def _numbered(folder: Path) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for count, _ in enumerate(entries, 1):
            yield count
