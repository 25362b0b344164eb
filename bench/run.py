"""`make bench`: our node beside whatever peers are installed, one table of ratios, which wanted figures are
met.

Exit status 0 when everything ran, whatever the figures; 1 when something failed to run.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench import backlog, load, peers
from bench.wanted import AT_LEAST, Verdict, short, verdicts

RESULTS: Final = Path(__file__).parent / "results"
USUAL_RABBIT4_ROOT: Final = Path("/opt/rabbit4-root")
COLUMNS: Final = (
    *AT_LEAST,
    "latency_p50",
    "latency_p99",
    "ack_p99",
    "send_cpu_100x1",
    "recv_cpu_100x1",
    "rss_idle_MB",
    "rss_peak_MB",
    "foreign_cpu",
)


def main() -> int:
    """Measure, judge, print, keep."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    load.build()
    RESULTS.mkdir(exist_ok=True)
    stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    raw = RESULTS / f"{stamp}-runs.json"
    plan = _plan(options)
    chosen = [] if options.peers == "none" else options.peers.split(",")
    before = machine()
    complete = peers.measure(plan, chosen, raw)
    figures = peers.read(raw)
    extra, failures = _extra(plan, options)
    judged = verdicts(figures)
    report = {
        "date": stamp,
        "machine": {"before": before, "after": machine()},
        "figures": {name: asdict(one) for name, one in figures.items()},
        "verdicts": [asdict(verdict) for verdict in judged],
        **extra,
    }
    (RESULTS / f"{stamp}.json").write_text(json.dumps(report, indent=1))
    text = render(figures, judged, extra)
    (RESULTS / "latest.md").write_text(text)
    print(text)
    for failure in failures:
        print(f"failed to run: {failure}", file=sys.stderr)
    return 0 if complete and not failures else 1


def speed_ms(repeats: int = 9) -> float:
    """How long this machine takes now for a fixed piece of Python: virtual machines change their speed by the
    hour.
    """
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        sum(range(1_000_000))
        taken.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(taken), 2)


def machine() -> dict[str, Any]:
    """What a reader needs to place the figures."""
    cpus = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpus": os.cpu_count(),
        "cpu": cpus[0] if cpus else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "speed_ms": speed_ms(),
    }


def render(figures: Mapping[str, peers.Figures], judged: Sequence[Verdict], extra: Mapping[str, Any]) -> str:
    """The tables in Markdown."""
    lines = ["", "| target | messages | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name, one in figures.items():
        cells = ["-" if (value := one.get(column)) is None else short(value) for column in COLUMNS]
        lines.append(f"| {name} {one.version} | {short(one.count)} | " + " | ".join(cells) + " |")
    lines += ["", "| what | ours | beside | wanted | got | met |", "|---|---|---|---|---|---|"]
    words = {True: "yes", False: "NO", None: "not measured"}
    lines += [
        f"| {row.what} | {row.ours} | {row.against} | {row.wanted} | {row.got} | {words[row.met]} |"
        for row in judged
    ]
    met = sum(row.met is True for row in judged)
    lines += [
        "",
        f"{met} of {len(judged)} wanted figures met, {sum(row.met is None for row in judged)} not measured.",
    ]
    if cold := extra.get("cold_backlog"):
        rate, cost = short(cold["delivered_per_second"]), cold["cpu_us"]
        lines.append(
            f"Backlog of {cold['count']:,} read after a restart with nothing in the page cache: {rate}/s,"
            f" {cost:.2f} us of CPU each."
        )
    if syncs := extra.get("syncs"):
        lines.append(
            "Sync calls: "
            + ", ".join(f"{one['syncs']} for {one['accepted']} sent {how}" for how, one in syncs.items())
            + "."
        )
    return "\n".join([*lines, ""])


def _extra(plan: peers.Plan, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What only ours is asked for, and what of it failed."""
    found: dict[str, Any] = {}
    failures: list[str] = []
    if options.only_table:
        return found, failures
    try:
        found["cold_backlog"] = backlog.measure(plan.work, count=plan.count, size=100)
    except RuntimeError as error:
        failures.append(f"backlog from the disk: {error}")
    if shutil.which("strace"):
        found["syncs"] = peers.count_syncs(plan, plan.work / "syncs.json")
    return found, failures


def _plan(options: argparse.Namespace) -> peers.Plan:
    root = options.rabbit4_root or (str(USUAL_RABBIT4_ROOT) if USUAL_RABBIT4_ROOT.is_dir() else "")
    return peers.Plan(
        rounds=1 if options.quick else options.rounds,
        count=options.count or (200_000 if options.quick else 1_000_000),
        sizes=(100,) if options.quick else (100, 1024),
        connections=(1, 4),
        latency_count=options.latency_count,
        quiet_seconds=options.quiet,
        retries=0 if options.quick else options.retries,
        work=options.work,
        rabbit4_root=root,
        activemq_lib=options.activemq_lib,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    every = ",".join([*peers.PRODUCTS, peers.REFERENCE])
    parser.add_argument(
        "--peers",
        default=every,
        help="comma-separated, or none; what is not installed is left out (default: all)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="each round measures every target once (default 3)"
    )
    parser.add_argument(
        "--count", type=int, default=0, help="messages per measurement of ours (default 1,000,000)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, 200,000 messages of 100 bytes, no repeats: a look, not a result",
    )
    parser.add_argument(
        "--only-table",
        action="store_true",
        help="leave out the backlog after a restart and the count of syncs",
    )
    parser.add_argument(
        "--latency-count", type=int, default=10_000, help="messages of the latency measurement, at 1,000/s"
    )
    parser.add_argument(
        "--quiet", type=float, default=15, help="seconds to wait at most for an idle machine before each step"
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=2,
        help="how often a step is repeated when others used much of the CPUs",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("/tmp/amqp-bench"),
        help="folder for the brokers' data: choose the disk",
    )
    parser.add_argument(
        "--rabbit4-root",
        default=os.environ.get("RABBIT4_ROOT", ""),
        help="root of a file system with RabbitMQ 4",
    )
    parser.add_argument(
        "--activemq-lib", default=os.environ.get("ACTIVEMQ_LIB", ""), help="folder with ActiveMQ's jars"
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    sys.exit(main())
