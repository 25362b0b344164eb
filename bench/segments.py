"""What compressed segments save and cost: `python -m bench.segments [--megabytes N] [--only TABLE]`.

Fills one log after the other with the same events, not compressed, with zstd and with LZ4, in a store in this
process. Prints the bytes on the disk, the CPU time of an event to compress it in the background, and how fast
the log is read when nothing of it is in the page cache, and again when it is. Then the time of commits,
alternately with and without compression at the same time. One run, so that the figures can be compared.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from amqp_streams.config import LogSettings
from amqp_streams.log_settings import Compression
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.ports import CommitDone
from amqp_streams.testing import ManualLoop
from bench.compression import KINDS

_COMMIT_BYTES: Final = 256 << 10
_READ_BYTES: Final = 256 << 10
_CALL_S: Final = 0.5
"""How often a node calls `compress`."""
_COMMITS: Final = 300
_PAUSE_S: Final = 0.01
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Read:
    """Of one pass: events a second, and microseconds of CPU for an event."""

    rate: float
    cpu_us: float


class _Bench:
    def __init__(self, folder: Path) -> None:
        self.loop: Final = ManualLoop()
        self.store: Final = DirectoryStore.open(folder, loop_call=self.loop.call)
        self.folder: Final = folder
        self._commits = 0
        self.store.on_commit = self._count

    def _count(self, _done: CommitDone) -> None:
        self._commits += 1

    def commit(self) -> float:
        """Commit what was appended; the seconds until it is durable."""
        began, before = time.perf_counter(), self._commits
        self.store.commit()
        self.loop.run_until(lambda: self._commits > before)
        return time.perf_counter() - began

    def log(self, name: str, compression: Compression) -> PartitionLog:
        settings = LogSettings(compression=compression, segment_bytes=32 << 20)
        partition = self.store.create(name, settings, incarnation=name).partitions[0]
        assert isinstance(partition, PartitionLog)
        return partition

    def fill(self, partition: PartitionLog, messages: Iterator[bytes], size: int) -> int:
        """Append events of `size` bytes; how many."""
        count = filled = 0
        while filled < size:
            batch: list[bytes] = []
            while sum(map(len, batch)) < _COMMIT_BYTES:
                batch += islice(messages, 256)
            partition.append(batch, bytes(len(batch)), time.time_ns() // 1_000_000)
            self.commit()
            count, filled = count + len(batch), filled + sum(map(len, batch))
        return count

    def compress(self, partition: PartitionLog) -> tuple[float, float]:
        """Compress all closed segments, as fast as a node does; seconds, and seconds of CPU."""
        began, cpu = time.perf_counter(), time.process_time()
        while any(each.stored is None for each in partition.segments.row[:-1]):
            self.store.compress()
            self.wait(_CALL_S)
        return time.perf_counter() - began, time.process_time() - cpu

    def wait(self, seconds: float) -> None:
        """Handle what threads have done for some time."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.loop.run_ready()
            time.sleep(0.001)

    def read(self, partition: PartitionLog, *, cold: bool) -> _Read:
        """Read all closed segments."""
        self.store._reading.forget(*[path for each in partition.segments.row for path in each.files])
        if cold:
            _drop([path for each in partition.segments.row for path in each.files])
        at, end = partition.start, partition.segments.active.base
        began, cpu = time.perf_counter(), time.process_time()
        while at < end:
            chunk = partition.read(at, _READ_BYTES)
            assert chunk is not None
            at = chunk.end
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        return _Read((at - partition.start) / seconds, used / (at - partition.start) * 1e6)


def _drop(paths: Sequence[Path]) -> None:
    """Remove files from the page cache."""
    for path in paths:
        if path.exists():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _messages(kind: str) -> Iterator[bytes]:
    return chain.from_iterable([event.encode() for event in KINDS[kind]()] for _ in iter(int, 1))


def tabulate(folder: Path, size: int) -> None:
    """Print a row for each kind of events and each codec."""
    print("| events | codec | bytes of an event | compress an event | read, cold | read, cached |")
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        for way in Compression:
            with tempfile.TemporaryDirectory(dir=folder) as made:
                bench = _Bench(Path(made))
                partition = bench.log("log", way)
                bench.fill(partition, _messages(kind), size)
                events = partition.segments.active.base - partition.start
                cpu = (
                    bench.compress(partition)[1] if way is not Compression.NONE and kind != "random" else 0.0
                )
                stored = sum(each.file_bytes for each in partition.segments.row[:-1])
                cold, cached = bench.read(partition, cold=True), bench.read(partition, cold=False)
                print(
                    f"| {kind} | {way} | {stored / events:,.0f} | {cpu / events * 1e6:.2f} us |"
                    f" {cold.rate / 1000:,.0f} k/s, {cold.cpu_us:.2f} us |"
                    f" {cached.rate / 1000:,.0f} k/s, {cached.cpu_us:.2f} us |",
                    flush=True,
                )
                bench.store.close()


def measure_commits(folder: Path, size: int) -> None:
    """Print the time of commits of one event each, while segments are compressed, and while they are not."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        bench = _Bench(Path(made))
        busy, small = bench.log("busy", Compression.NONE), bench.log("small", Compression.NONE)
        messages = _messages("weather, CloudEvents")
        taken: dict[Compression, list[float]] = {Compression.NONE: [], Compression.ZSTD: []}
        for number in range(2 * _ROUNDS):
            way = (Compression.NONE, Compression.ZSTD)[number % 2]
            bench.fill(busy, messages, size // _ROUNDS)
            bench.store.update("busy", busy.settings.model_copy(update={"compression": way}))
            called = 0.0
            for _ in range(_COMMITS):
                if time.perf_counter() - called > _CALL_S:
                    called = time.perf_counter()
                    bench.store.compress()
                small.append([next(messages)], bytes(1), time.time_ns() // 1_000_000)
                taken[way].append(bench.commit())
                bench.wait(_PAUSE_S)
            if way is Compression.ZSTD:
                bench.compress(busy)
        print("\n| commits of one event | p50 | p99 | longest |\n|---|---|---|---|")
        for way, name in ((Compression.NONE, "alone"), (Compression.ZSTD, "while segments are compressed")):
            hundred = statistics.quantiles(taken[way], n=100)
            print(
                f"| {name} | {hundred[49] * 1000:.2f} ms | {hundred[98] * 1000:.2f} ms |"
                f" {max(taken[way]) * 1000:.1f} ms |"
            )
        bench.store.close()


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of events in each log  [default: 256]")
    parser.add_argument("--folder", type=Path, help="where the logs are made  [default: that of the system]")
    parser.add_argument("--only", choices=("space", "commits"), help="one of the two tables")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.gettempdir())
    if arguments.only != "commits":
        tabulate(folder, arguments.megabytes << 20)
    if arguments.only != "space":
        measure_commits(folder, arguments.megabytes << 20)


if __name__ == "__main__":
    main()
