"""[io] Whether the disk has space for more. Law: ask the system rarely, refuse before the disk is full.

The store recovers by itself when space is free again.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from amqp_streams.errors import DiskFullError
from amqp_streams.storage.disk.files import Files

# While the disk is full, every refused append would ask the system.
_ASK_AGAIN_MS: Final = 200
# Other programs fill the disk as well: ask again at least after this many bytes.
_ADMIT_BYTES_MAX: Final = 256 << 20
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of the operating system that mean "no space"."""


class Space:
    """The free space of one data directory. `on_free` is called when space is available again."""

    def __init__(self, files: Files, root: Path, *, reserve_bytes: int, on_free: Callable[[], None]) -> None:
        self._files: Final = files
        self._root: Final = root
        self.reserve_bytes: Final = reserve_bytes
        self._on_free: Final = on_free
        self._left = 0
        self._asked_ms = 0
        self.full = False

    def admit(self, size: int, now_ms: int) -> None:
        """Account for `size` more bytes.

        Raises:
            DiskFullError: less space is free than the reserve.
        """
        self._left -= size
        if self._left >= 0 and not self.full:
            return
        # abs: the clock may have stepped back.
        if not self.full or abs(now_ms - self._asked_ms) >= _ASK_AGAIN_MS:
            self.ask(now_ms)
        if self.full:
            raise self.error()

    def ask(self, now_ms: int) -> None:
        """Ask the operating system for the free space now."""
        self._asked_ms = now_ms
        free = self._files.free_bytes(self._root) - self.reserve_bytes
        was_full, self.full = self.full, free < 0
        # Half, because other programs use the disk as well.
        self._left = min(free // 2, _ADMIT_BYTES_MAX)
        if was_full and not self.full:
            self._on_free()

    def ran_out(self, now_ms: int) -> None:
        """A write failed for lack of space."""
        self.full, self._asked_ms = True, now_ms

    def error(self) -> DiskFullError:
        """The error for producers."""
        return DiskFullError(
            f"the disk that holds {self._root} is full: the node accepts events again when space is free"
        )
