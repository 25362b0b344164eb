"""Delivery of a backlog that is nowhere but on the disk: the node restarted, the files' pages dropped from
the cache.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from bench import load
from bench.server import running


def measure(work: Path, *, count: int, size: int) -> dict[str, Any]:
    """Send, stop, drop the pages, start, receive everything from the earliest; the generator's two results.

    Raises:
        RuntimeError: a message was lost, altered or out of order, or a side failed.
    """
    folder = work / "cold-backlog"
    shutil.rmtree(folder, ignore_errors=True)
    run_id, options = os.getpid(), ["--size", str(size), "--timeout", "180"]
    with running(folder) as server:
        sent = load.run("send", server.url, "events", count=count, run_id=run_id, options=options)
    stored = drop_pages(folder)
    with running(folder) as server:
        before = server.usage()
        got = load.run(
            "recv", server.url, "events", count=count, run_id=run_id, options=[*options, *load.FROM_EARLIEST]
        )
        after = server.usage()
    shutil.rmtree(folder, ignore_errors=True)
    for side in (sent, got):
        if not side.ok:
            raise RuntimeError(side.error)
    return {
        "count": count,
        "size": size,
        "stored_bytes": stored,
        "delivered_per_second": got.messages_per_second,
        "cpu_us": (after.cpu_seconds - before.cpu_seconds) / count * 1e6,
        "rss_bytes": after.rss_bytes,
    }


def drop_pages(folder: Path) -> int:
    """Ask the system to forget the cached pages of all files below `folder`; the bytes they hold on disk."""
    total = 0
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file.fileno()).st_size
    return total
