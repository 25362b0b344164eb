"""What Linux says about running processes: CPU time, memory, open files."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """One process at one moment.

    `rss_bytes` counts mapped files too, `anonymous_bytes` only what is the process' own.
    """

    cpu_seconds: float
    rss_bytes: int
    anonymous_bytes: int
    peak_rss_bytes: int
    open_files: int
    threads: int


def usage(pid: int) -> Usage:
    """Read the figures of one process.

    Raises:
        ProcessLookupError: there is no such process (any more).
    """
    folder = Path("/proc") / str(pid)
    try:
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        status = (folder / "status").read_text()
        open_files = sum(1 for _ in (folder / "fd").iterdir())
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
        rss_bytes=_kib(status, "VmRSS"),
        anonymous_bytes=_kib(status, "RssAnon"),
        peak_rss_bytes=_kib(status, "VmHWM"),
        open_files=open_files,
        threads=int(fields[17]),
    )


def written_bytes(pid: int) -> int:
    """Return how many bytes a process has made the disk write; 0: there is no such process (any more)."""
    try:
        text = (Path("/proc") / str(pid) / "io").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^write_bytes: (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used since it started."""
    with Path("/proc/stat").open() as stat:
        user, nice, system, _idle, _wait, irq, softirq, *_ = (
            int(field) for field in stat.readline().split()[1:]
        )
    return (user + nice + system + irq + softirq) / TICKS_PER_SECOND


def foreign_share(own_seconds: float, busy_before: float, began: float) -> float:
    """Share of all CPUs that others used since `began` (`time.monotonic()`), when we and ours used
    `own_seconds`.
    """
    elapsed = time.monotonic() - began
    return max(0.0, busy_seconds() - busy_before - own_seconds) / elapsed / (os.cpu_count() or 1)


def _kib(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
