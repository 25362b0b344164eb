"""What an arrangement on disk costs: one sync per segment, everything through the journal, or the hybrid that
the store uses.

    python bench/storage_layouts.py [--dir DIR] [--seconds S]

The same code does all three; only the thresholds differ. Commits of a given size follow each other, spread
evenly over the partitions, 100-byte messages, `sync = always`. Printed: events/s, the median and 99th
percentile of a commit, and the loop thread's CPU per event.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore, Tuning
from amqp_streams.storage.ports import CommitDone

MESSAGE_BYTES = 100
BASE = Tuning()
LAYOUTS = {
    "one sync per segment": replace(BASE, direct_partitions_max=1024, direct_bytes_min=0),
    "journal for all": replace(BASE, direct_partitions_max=0, direct_large_bytes=1 << 40),
    "hybrid": BASE,
}


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    events_per_s: float
    median_ms: float
    p99_ms: float
    loop_us: float


async def measure(
    folder: Path, tuning: Tuning, *, partitions: int, commit_bytes: int, seconds: float
) -> Result:
    """Commit after commit for some seconds."""
    loop = asyncio.get_running_loop()
    store = DirectoryStore.open(folder, loop_call=loop.call_soon_threadsafe, tuning=tuning)
    log = store.create("bench", LogSettings(partitions=partitions), incarnation="bench")
    count = max(1, commit_bytes // MESSAGE_BYTES // partitions)
    messages, headers = [os.urandom(MESSAGE_BYTES) for _ in range(count)], bytes(count)
    times: list[float] = []
    events = 0
    finished = asyncio.Event()
    until = time.perf_counter() + seconds

    def push() -> None:
        now_ms = int(time.time() * 1000)
        for partition in log.partitions:
            partition.append(messages, headers, now_ms)
        store.commit()

    def ended(done: CommitDone) -> None:
        nonlocal events
        assert not done.failures, done.failures
        times.append(done.seconds)
        events += done.events
        if time.perf_counter() < until:
            push()
        else:
            finished.set()

    store.on_commit = ended
    began, cpu = time.perf_counter(), time.thread_time()
    push()
    await finished.wait()
    elapsed, cpu = time.perf_counter() - began, time.thread_time() - cpu
    store.close()
    times.sort()
    return Result(
        events / elapsed,
        times[len(times) // 2] * 1e3,
        times[int(len(times) * 0.99)] * 1e3,
        cpu / events * 1e6,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, help="where to write (default: the system's temporary folder)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line (default: 2)")
    arguments = parser.parse_args()
    print("| partitions | commit | layout | events/s | median ms | p99 ms | loop CPU us/event |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for partitions in (1, 4, 64):
        for kib in (64, 512):
            for name, tuning in LAYOUTS.items():
                folder = Path(tempfile.mkdtemp(prefix="storage-layouts-", dir=arguments.dir))
                try:
                    one = uvloop.run(
                        measure(
                            folder,
                            tuning,
                            partitions=partitions,
                            commit_bytes=kib << 10,
                            seconds=arguments.seconds,
                        )
                    )
                finally:
                    shutil.rmtree(folder)
                figures = (
                    f"{one.events_per_s / 1e3:.0f} k | {one.median_ms:.2f} | {one.p99_ms:.2f} |"
                    f" {one.loop_us:.2f}"
                )
                print(f"| {partitions} | {kib} KiB | {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
