"""[io] Folders in memory, for tests that make thousands of files and test nothing about disks.

On ext4, a file that is made soon after thousands were deleted takes many times as long as usual. Half of the
CPU of a build of the distributions was this.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_SHARED: Final = Path("/dev/shm")
_FREE_BYTES: Final = 2 << 30
"""Containers may have only 64 MiB there."""


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """An empty folder in memory, where the machine has such a file system with enough room; else
    `otherwise`.
    """
    if not os.access(_SHARED, os.W_OK) or shutil.disk_usage(_SHARED).free < _FREE_BYTES:
        yield otherwise
        return
    with TemporaryDirectory(prefix="tests-", dir=_SHARED, ignore_cleanup_errors=True) as made:
        yield Path(made)
