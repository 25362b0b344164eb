"""`python -m bench.reopen`: how long a data directory of some gigabytes takes to open, closed in order and
after a kill.

The store alone, without a server: what is measured is recovery. Files are dropped from the page cache before
each opening.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.ports import Partition

MESSAGE: Final = b"\x00\x53\x75\xb0" + (1024).to_bytes(4) + bytes(range(256)) * 4
SMALL: Final = b"\x00\x53\x75\xa0\x04abcd"
BATCH: Final = 500
LAST_COMMITS: Final = 200
KILLED: Final = 9


def main() -> int:
    """Fill, open, kill, open again; print a table."""
    options = _options()
    if options.then_die:
        asyncio.run(_write_and_die(options.folder))
    folder = Path(tempfile.mkdtemp(prefix="reopen-", dir=options.work))
    try:
        asyncio.run(_fill(folder / "data", options.gigabytes << 30, options.partitions))
        rows = [("closed in order", asyncio.run(_open(folder / "data")))]
        again = [sys.executable, "-m", "bench.reopen", "--then-die", "--folder", str(folder / "data")]
        assert subprocess.run(again, check=False).returncode == KILLED
        rows.append(("killed while writing", asyncio.run(_open(folder / "data"))))
        print(
            f"{options.gigabytes} GiB of 1 KiB events in {options.partitions} partitions, page cache dropped"
        )
        for what, (seconds, events, findings) in rows:
            print(f"{what:22} opened in {seconds:.2f} s, {events:,} events, {findings} findings")
    finally:
        shutil.rmtree(folder)
    return 0


async def _fill(folder: Path, size: int, partitions: int) -> None:
    store, _ = await _opened(folder)
    log = store.create("log", LogSettings(partitions=partitions), incarnation="bench")
    written = 0
    while written < size:
        for partition in log.partitions:
            partition.append([MESSAGE] * BATCH, bytes(BATCH), _now_ms())
            written += len(MESSAGE) * BATCH
        await _commit(store)
    store.close()


async def _write_and_die(folder: Path) -> None:
    store, _ = await _opened(folder)
    partitions: tuple[Partition, ...] = store.logs["log"].partitions
    for _ in range(LAST_COMMITS):
        for partition in partitions:
            partition.append([SMALL] * 100, bytes(100), _now_ms())
        await _commit(store)
    os._exit(KILLED)


def _drop_pages(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def _open(folder: Path) -> tuple[float, int, int]:
    _drop_pages(folder)
    store, seconds = await _opened(folder)
    events = sum(partition.end - partition.start for partition in store.logs["log"].partitions)
    findings = len(store.findings)
    store.close()
    return seconds, events, findings


async def _opened(folder: Path) -> tuple[DirectoryStore, float]:
    began = time.perf_counter()
    store = DirectoryStore.open(folder, loop_call=asyncio.get_running_loop().call_soon_threadsafe)
    return store, time.perf_counter() - began


async def _commit(store: DirectoryStore) -> None:
    ended = asyncio.Event()
    store.on_commit = lambda _done: ended.set()
    store.commit()
    await ended.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--work", type=Path, default=None, help="folder on the disk to measure")
    parser.add_argument("--then-die", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
