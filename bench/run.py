"""`make bench`: our node and gateway beside the products that `make peers` installs, in tables with goals.

    python -m bench.run [--parts amqp,batched,gateway] [--peers kafka,artemis,...] [--sizes 100] [--table]

Each run is kept in `bench/results/runs.json`. The tables show the latest run of each figure, so that long
comparisons can be measured in pieces; a ratio is always of one run. Exit status 0 when everything ran,
whatever the figures; 1 when something failed to run.
"""

import argparse
import datetime
import os
import platform
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import backlog, load, peers, wanted
from bench.compare import batched, figures, gateway, goals, table
from bench.compare.figures import Run, Sink, short
from bench.products.places import why_missing

RESULTS: Final = Path(__file__).parent / "results"
RUNS: Final = RESULTS / "runs.json"
PARTS: Final = ("amqp", "batched", "gateway")
INSTALLED: Final = {
    "artemis": "artemis",
    "qpid-j": "qpid-j",
    "rabbit4-stream": "rabbitmq",
    "rabbit4-quorum": "rabbitmq",
}
"""Peers of the part amqp that `make peers` installs, and the names of their folders."""
PEERS: Final = (*INSTALLED, figures.REFERENCE, "kafka", "knative")


def main() -> int:
    """Measure, keep, print."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    words: list[str] = []
    if options.forget:
        RUNS.unlink(missing_ok=True)
    if not options.table:
        load.build()
        sink, at = Sink(), machine()
        for part in options.parts:
            words += _measured(part, options, sink)
        stamp = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M")
        figures.keep(RUNS, sink.run(stamp, at, words))
    text = render(figures.read(RUNS))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.md").write_text(text)
    print(text)
    for word in words:
        print(f"not measured: {word}", file=sys.stderr)
    return 1 if words else 0


def _measured(part: str, options: argparse.Namespace, sink: Sink) -> list[str]:
    """Measure a part; what failed or is missing, in words."""
    if part == "amqp":
        return _amqp(options, sink)
    if part == "batched":
        plan = batched.Plan(
            rounds=options.rounds,
            sizes=options.sizes,
            connections=options.connections,
            windows=goals.WINDOWS,
            counts={100: options.count or 1_000_000, 1024: (options.count or 1_000_000) // 4},
            latency_count=options.latency_count,
            quiet_s=options.quiet,
            work=options.work,
        )
        return batched.measure(plan, sink, options.peers)
    made = gateway.Plan(
        rounds=options.rounds,
        events=options.events,
        paced_s=options.paced,
        triggers=(1, 1000),
        options=options.gateway_options.split(),
        work=options.work,
    )
    return gateway.measure(made, sink, options.peers)


def _amqp(options: argparse.Namespace, sink: Sink) -> list[str]:
    """One by one, all AMQP brokers in turn."""
    words = [
        f"{name}: {why}"
        for name in options.peers
        if name in INSTALLED and (why := why_missing(INSTALLED[name]))
    ]
    plan, raw = _plan(options), options.work / "runs.json"
    raw.unlink(missing_ok=True)
    if not peers.measure(plan, options.peers, raw, partitioned=not options.only_table):
        words.append("amqp: a target failed")
    for name, one in peers.read(raw).items():
        sink.version(name, one.version, one.durability)
        for figure, value in one.values.items():
            sink.add(name, figure, value)
            if "_cpu_" in figure:  # seconds for 100,000 messages
                sink.add(name, figure.replace("_cpu_", "_cpu_us_"), value * wanted.CPU_SECONDS_PER_100K_TO_US)
        sink.add(name, "count", one.count)
        if one.rss_after_bytes is not None:
            sink.add(name, "rss_after_bytes", one.rss_after_bytes)
    return words + ([] if options.only_table else _extra(plan, sink))


def _extra(plan: peers.Plan, sink: Sink) -> list[str]:
    """What only our node is asked for; what of it failed."""
    words: list[str] = []
    try:
        cold = backlog.measure(plan.work, count=plan.count, size=100)
        sink.add(figures.OURS, "cold_recv", cold["delivered_per_second"])
        sink.add(figures.OURS, "cold_recv_cpu_us", cold["cpu_us"])
    except RuntimeError as error:
        words.append(f"backlog from the disk: {error}")
    if shutil.which("strace"):
        for how, one in peers.count_syncs(plan, plan.work / "syncs.json").items():
            sink.add(figures.OURS, f"syncs_{how}", one["syncs"])
    return words


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


def machine() -> str:
    """What a reader needs to place the figures."""
    cpus = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cpu = cpus[0] if cpus else platform.machine()
    return (
        f"{os.cpu_count()} cores, {cpu}, Linux {platform.release()}, Python {platform.python_version()},"
        f" load {os.getloadavg()[0]:.1f}, speed {speed_ms()} ms"
    )


def render(runs: Sequence[Run]) -> str:
    """The tables in Markdown."""
    rows = [goals.judge(goal, runs) for goal in goals.goals()] + wanted.rows(runs)
    lines = [table.figures_tables(runs), table.goals_table(rows), table.missing_words(runs)]
    cold = figures.latest(runs, figures.OURS, "cold_recv")
    if cold is not None:
        cost = figures.latest(runs, figures.OURS, "cold_recv_cpu_us")
        lines.append(
            f"Backlog read after a restart, nothing in the page cache: {short(cold)}/s, {cost} us each."
        )
    lines += [f"Run of {run.stamp}: {run.machine}." for run in runs]
    return "\n".join([*lines, ""])


def _plan(options: argparse.Namespace) -> peers.Plan:
    return peers.Plan(
        rounds=options.rounds,
        count=options.count or 1_000_000,
        sizes=options.sizes,
        connections=options.connections,
        latency_count=options.latency_count,
        quiet_seconds=options.quiet,
        retries=options.retries,
        work=options.work,
        rabbit4_root=options.rabbit4_root,
        activemq_lib=options.activemq_lib,
    )


def _names(text: str) -> list[str]:
    return [] if text == "none" else text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", type=_names, default=list(PARTS), help=f"what is measured (default: {','.join(PARTS)})")
    add("--peers", type=_names, default=list(PEERS), help=f"or none (default: {','.join(PEERS)})")
    add("--rounds", type=int, default=3, help="each round measures every product once (default 3)")
    add("--sizes", type=_numbers, default=[100, 1024], help="bytes of a message (default 100,1024)")
    add("--connections", type=_numbers, default=[1, 4], help="default 1,4")
    add("--count", type=int, default=0, help="messages of a measurement of ours (default 1,000,000)")
    add("--events", type=int, default=40_000, help="events of a measurement of the gateway (default 40,000)")
    add("--paced", type=float, default=15.0, help="seconds of the gateway at 200 events/s (default 15)")
    add("--gateway-options", default="", help="more options of our gateway's command line, as one text")
    add("--quick", action="store_true", help="one round, 200,000 messages of 100 bytes: a look, not a result")
    add("--only-table", action="store_true", help="leave out 64 partitions, the cold backlog and the syncs")
    add("--latency-count", type=int, default=10_000, help="messages at 1,000/s (default 10,000; 0: none)")
    add("--quiet", type=float, default=15, help="seconds to wait at most for an idle machine before a step")
    add("--retries", type=int, default=2, help="repeats of a step when others used much of the CPUs")
    add("--work", type=Path, default=Path("/tmp/amqp-bench"), help="folder for data: choose the disk")
    add("--rabbit4-root", default=os.environ.get("RABBIT4_ROOT", ""), help="another root with RabbitMQ 4")
    add("--activemq-lib", default=os.environ.get("ACTIVEMQ_LIB", ""), help="folder with ActiveMQ's jars")
    add("--table", action="store_true", help="measure nothing, print the tables of earlier runs")
    add("--forget", action="store_true", help="first delete earlier runs")
    options = parser.parse_args()
    for name, known in (("parts", PARTS), ("peers", (*PEERS, *peers.PRODUCTS))):
        if unknown := sorted(set(getattr(options, name)) - set(known)):
            parser.error(f"--{name}: unknown {unknown[0]!r}; known are {', '.join(known)}")
    if options.quick:
        options.rounds, options.sizes, options.retries = 1, [100], 0
        options.count, options.events, options.paced = options.count or 200_000, 4000, 3.0
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    sys.exit(main())
