"""[io] Whether there is space for more. Law: asks the system rarely, refuses before the disk is full, and heals by itself."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from amqp_streams.errors import DiskFullError
from amqp_streams.storage.disk.files import Files

_ASK_AGAIN_MS: Final = 200
_ADMIT_BYTES_MAX: Final = 256 << 20
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when there is no space."""


class Space:
    """One for a data directory. `on_free` is called when there is space again."""

    def __init__(self, files: Files, root: Path, *, reserve_bytes: int, on_free: Callable[[], None]) -> None:
        self._files: Final = files
        self._root: Final = root
        self._reserve_bytes: Final = reserve_bytes
        self._on_free: Final = on_free
        self._left = 0
        self._asked_ms = 0
        self.full = False

    def admit(self, size: int, now_ms: int) -> None:
        """Let `size` more bytes in.

        Raises:
            DiskFullError: there is less space than the reserve.
        """
        self._left -= size
        if self._left >= 0 and not self.full:
            return
        if not self.full or abs(now_ms - self._asked_ms) >= _ASK_AGAIN_MS:
            self.ask(now_ms)
        if self.full:
            raise self.error()

    def ask(self, now_ms: int) -> None:
        """Look at the disk now."""
        self._asked_ms = now_ms
        free = self._files.free_bytes(self._root) - self._reserve_bytes
        was_full, self.full = self.full, free < 0
        self._left = min(free // 2, _ADMIT_BYTES_MAX)
        if was_full and not self.full:
            self._on_free()

    def ran_out(self, now_ms: int) -> None:
        """A write failed for lack of space."""
        self.full, self._asked_ms = True, now_ms

    def error(self) -> DiskFullError:
        """What to tell a producer."""
        return DiskFullError(f"the disk that holds {self._root} is full: events are taken again when there is space")
