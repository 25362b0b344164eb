"""`make soak`: produce and consume for long with bounded retention; memory and open files must stay flat.

The load is `amqp_load latency` at a fixed rate, in slices: each slice is a new pair of connections, one
producing and one consuming from the latest, every event checked. Between, the node's memory, files and disk
use are sampled and printed as a table. Exit status 0 when every event arrived and memory, files and disk
stayed within their bounds; 1 otherwise.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import load
from bench.process import Usage
from bench.server import Server, running

LOG: Final = "events"
RETENTION_BYTES: Final = 64 << 20
SEGMENT_BYTES: Final = 8 << 20
# Retention drops whole segments, and acts now and then: what may lie there at a moment.
DISK_BYTES_MAX: Final = 4 * RETENTION_BYTES
WARM_UP_SHARE: Final = 0.25
GROWTH_BYTES_MAX: Final = 8_000_000
GROWTH_FILES_MAX: Final = 8
SAMPLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The node at one moment, `events` done so far."""

    seconds: float
    events: int
    usage: Usage
    disk_bytes: int


def growth(series: Sequence[float]) -> float:
    """How much higher the end of a series is than its begin, once warm: medians of its last and first third.

    The warm-up is left out; a series too short to say anything does not grow.
    """
    warm = series[int(len(series) * WARM_UP_SHARE) :]
    third = len(warm) // 3
    return statistics.median(warm[-third:]) - statistics.median(warm[:third]) if third else 0.0


def complaints(samples: Sequence[Sample]) -> list[str]:
    """What did not stay flat, in words; empty when all did."""
    anonymous = growth([sample.usage.anonymous_bytes for sample in samples])
    files = growth([sample.usage.open_files for sample in samples])
    disk = max(sample.disk_bytes for sample in samples)
    found = []
    if anonymous > GROWTH_BYTES_MAX:
        found.append(
            f"memory grew by {anonymous / 1e6:.1f} MB after warm-up, allowed are"
            f" {GROWTH_BYTES_MAX / 1e6:.0f} MB"
        )
    if files > GROWTH_FILES_MAX:
        found.append(f"open files grew by {files:.0f} after warm-up, allowed are {GROWTH_FILES_MAX}")
    if disk > DISK_BYTES_MAX:
        found.append(
            f"the data directory reached {disk / 1e6:.0f} MB with a retention of"
            f" {RETENTION_BYTES / 1e6:.0f} MB"
        )
    return found


def soak(server: Server, events: int, slices: int, rate: int, show: Callable[[Sample], None]) -> list[Sample]:
    """Run the load to its end, sampling all the while.

    Raises:
        RuntimeError: an event was refused, lost, altered, repeated or out of order.
    """
    samples: list[Sample] = []
    began, done = time.monotonic(), 0
    for number, count in enumerate(_parts(events, slices)):
        run_id = os.getpid() * 100 + number
        options = [
            "--rate",
            str(rate),
            "--timeout",
            str(60 + 4 * count / rate),
            "--warmup",
            "0",
            *load.FROM_LATEST,
        ]
        generator = subprocess.Popen(
            load.command("latency", server.url, LOG, count=count, run_id=run_id, options=options),
            stdout=subprocess.PIPE,
            text=True,
        )
        slice_began = time.monotonic()
        while generator.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            guessed = min(count, int((time.monotonic() - slice_began) * rate))
            samples.append(
                Sample(time.monotonic() - began, done + guessed, server.usage(), _disk_bytes(server.data_dir))
            )
            show(samples[-1])
        result = load.read(generator.communicate()[0])
        if not result.ok:
            message = f"slice {number + 1}: {result.error or result.figures}"
            raise RuntimeError(message)
        done += count
        print(f"slice {number + 1}: {count:,} events, end to end ms {_spread(result)}")
    return samples


def _spread(result: load.Load) -> str:
    latency = result.figures["from_send_ms"]
    return ", ".join(f"{name} {latency[name]:g}" for name in ("p50", "p99", "max"))


def _parts(total: int, parts: int) -> Iterator[int]:
    for number in range(parts):
        yield total // parts + (1 if number < total % parts else 0)


def _disk_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # retention was faster
            continue
    return total


def _show(sample: Sample) -> None:
    usage = sample.usage
    print(
        f"{sample.seconds:8.0f} s {sample.events:12,} events   own memory {usage.anonymous_bytes / 1e6:7.1f}"
        f" MB   resident {usage.rss_bytes / 1e6:7.1f} MB   files {usage.open_files:4}   disk"
        f" {sample.disk_bytes / 1e6:7.1f} MB",
        flush=True,
    )


def main() -> int:
    """Start a node with bounded retention, run the load, judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument(
        "--rate",
        type=int,
        default=25_000,
        help="events per second asked for; more than the node takes just queues",
    )
    parser.add_argument("--slices", type=int, default=20, help="how often producer and consumer connect anew")
    parser.add_argument("--every", type=int, default=10, help="print one of so many samples")
    parser.add_argument("--work", type=Path, default=Path("/tmp/amqp-bench"))
    options = parser.parse_args()
    load.build()
    folder = options.work / "soak"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = folder / "node.toml"
    config.write_text(
        f"[logs.{LOG}]\npartitions = 1\nretention_bytes = {RETENTION_BYTES}\nsegment_bytes ="
        f" {SEGMENT_BYTES}\n"
    )
    shown = 0

    def show(sample: Sample) -> None:
        nonlocal shown
        shown += 1
        if shown % options.every == 1 or options.every == 1:
            _show(sample)

    try:
        with running(folder, logs=(), options=["--config", str(config)]) as server:
            samples = soak(server, options.messages, options.slices, options.rate, show)
    except (RuntimeError, ProcessLookupError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    _show(samples[-1])
    found = complaints(samples)
    anonymous = growth([sample.usage.anonymous_bytes for sample in samples])
    print(f"after warm-up memory grew by {anonymous / 1e6:.2f} MB: {'; '.join(found) or 'flat'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
