"""The disk during an attack: what a sync of one small record takes, without the product.

An event is accepted after a sync, so a pause of the disk makes the round trips of the neighbour longer, with
and without an attack. A folder in memory (`TMPDIR=/dev/shm make attack`) has no such pauses.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, Self

DISK: Final = "disk"
"""The kind of the neighbour's measurements with the syncs."""
RATIO_MAX: Final = 1.5
NOISE_MS: Final = 5.0
"""A p99 that rises by less is not called slower: one pause of the scheduler is as long."""
_RECORD: Final = b"x" * 512
_OWN_BYTES: Final = 1 << 20


class Syncs:
    """Appends records to a file of its own, and syncs it after each. Use it with `with`."""

    def __init__(self, folder: Path) -> None:
        self._file: Final = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  __exit__ closes it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    async def one(self) -> None:
        """Append a record and wait for its sync."""
        await asyncio.to_thread(self._sync)

    def _sync(self) -> None:
        self._file.write(_RECORD)
        os.fdatasync(self._file.fileno())


class HasP99(Protocol):
    """Measurements of one kind."""

    @property
    def p99(self) -> float:
        """In milliseconds."""


def is_slower(earlier_ms: float, later_ms: float) -> bool:
    """Whether a p99 is more than `RATIO_MAX` times an earlier one."""
    return later_ms > RATIO_MAX * earlier_ms and later_ms > earlier_ms + NOISE_MS


def has_paused(before: Mapping[str, HasP99], during: Mapping[str, HasP99], *, writes: bool) -> bool:
    """Whether the disk was slower in one of the two measurements, so that they cannot be compared.

    `writes`: the attack makes the product write, so a slower disk may be its effect, and counts.
    """
    if DISK not in before or DISK not in during or writes:
        return False
    earlier, later = before[DISK].p99, during[DISK].p99
    return is_slower(earlier, later) or is_slower(later, earlier)


def writes_more(before_bytes: float, before_s: float, during_bytes: float, during_s: float) -> bool:
    """Whether the product wrote more than twice as much in each second of an attack, and a megabyte."""
    return during_bytes > 2 * before_bytes / before_s * during_s + _OWN_BYTES
