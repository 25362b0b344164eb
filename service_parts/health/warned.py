"""Warnings for people who run a service, each with its remedy. Pure.

Law: a warning is a fact that the service knows now. It disappears when the fact does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NEARLY: Final = 0.8
"""The used share of a limit from which on it is nearly reached."""
DISK_SHARE: Final = 0.1
DISK_BYTES: Final = 10 << 30
"""A disk is nearly full with less than a tenth of its space free, if that is less than 10 GiB."""
EXPIRES_MS: Final = 14 * 24 * 3600 * 1000
_DAY_MS: Final = 86_400_000
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning. `code`: a word for programs. `is_error`: the service does not work as it should."""

    code: str
    text: str
    remedy: str
    is_error: bool = False


def is_nearly_full(free: int | None, size: int | None) -> bool:
    """Whether a disk is nearly full; no: the system does not say."""
    return free is not None and size is not None and free < min(DISK_SHARE * size, DISK_BYTES)


def of_descriptors(used: int | None, most: int | None) -> Iterator[Warned]:
    """Warn if the process has nearly as many open files and sockets as it may have."""
    if used is not None and most is not None and used >= NEARLY * most:
        yield Warned(
            "descriptors",
            f"{used:,} of {most:,} file descriptors are in use.",
            "raise the limit of open files of the process (LimitNOFILE of systemd, ulimit -n), and restart",
        )


def of_certificate(
    expires_ms: int | None,
    now_ms: int,
    *,
    remedy: str,
    code: str = "certificate",
    of: str = "of the TLS listeners",
) -> Iterator[Warned]:
    """Warn if a certificate expires soon. Times are in milliseconds since 1970."""
    if expires_ms is not None and expires_ms - now_ms < EXPIRES_MS:
        left = expires_ms - now_ms
        when = f"expires in {counted(left // _DAY_MS, 'day', 'days')}" if left > 0 else "has expired"
        yield Warned(code, f"The certificate {of} {when}.", remedy, is_error=left <= 0)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def space(size: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size // _MIB:,} MiB"
