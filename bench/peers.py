"""Run our node and the installed peers in turn with `bench.amqp.run_peers`, and read what it found."""

import json
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.compare.figures import OURS
from bench.server import executable

OURS_PARTITIONED: Final = "amqp-streams-64"
PARTITIONED: Final = 64
PRODUCTS: Final = (
    "rabbit4-stream",
    "rabbit4-quorum",
    "rabbit4-classic",
    "rabbit-stream",
    "rabbit-quorum",
    "rabbit-classic",
    "activemq",
)
# On the disk before it is accepted *and* before a reader sees it. (rabbit-classic and activemq sync, but show
# a message before that.)
SYNCS_BEFORE_VISIBLE: Final = frozenset({"rabbit4-quorum", "rabbit-quorum"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured and how long:

    `rounds` times all targets in turn, `count` messages a measurement of ours.
    """

    rounds: int
    count: int
    sizes: Sequence[int]
    connections: Sequence[int]
    latency_count: int
    quiet_seconds: float
    retries: int
    work: Path
    rabbit4_root: str
    activemq_lib: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The medians of one target over the rounds, named as `run_peers.py` names them."""

    name: str
    version: str
    durability: str
    count: int
    values: Mapping[str, float]
    rss_after_bytes: float | None

    def get(self, name: str) -> float | None:
        """The figure, or None when it was not measured."""
        return self.values.get(name)


def measure(plan: Plan, peers: Sequence[str], results: Path, *, partitioned: bool = True) -> bool:
    """Measure ours beside `peers` and leave everything in the file `results`; whether each run went as it
    should.

    `partitioned`: also a log of 64 partitions.

    Raises:
        RuntimeError: nothing was measured at all.
    """
    known = _runner("--list", *_places(plan), capture=True).split()
    chosen = [name for name in peers if name in known]
    arguments = [
        "--only",
        ",".join(chosen) or "none",
        "--rounds",
        str(plan.rounds),
        "--latency-count",
        str(plan.latency_count),
    ]
    arguments += [
        "--sizes",
        ",".join(map(str, plan.sizes)),
        "--connections",
        ",".join(map(str, plan.connections)),
    ]
    arguments += [
        "--quiet",
        str(plan.quiet_seconds),
        "--retries",
        str(plan.retries),
        "--json",
        str(results),
        *_places(plan),
    ]
    arguments += [
        "--target",
        _target(OURS, 1, plan.count),
    ]
    if partitioned:
        arguments += ["--target", _target(OURS_PARTITIONED, PARTITIONED, plan.count)]
    status = _run_to_its_end(arguments)
    if not results.exists():
        message = f"run_peers.py ended with {status} and without results"
        raise RuntimeError(message)
    return status == 0


def count_syncs(plan: Plan, results: Path) -> dict[str, Any]:
    """How often ours calls fdatasync for 100 messages sent one by one and for 10,000 in flight (needs
    strace).
    """
    arguments = [
        "--only",
        "none",
        "--rounds",
        "1",
        "--sizes",
        "100",
        "--connections",
        "1",
        "--count",
        "1000",
        "--latency-count",
        "0",
    ]
    arguments += ["--quiet", "0", "--retries", "0", "--syncs", "--json", str(results), *_places(plan)]
    _runner(*arguments, "--target", _target(OURS, 1, 1000), capture=True)
    counted = json.loads(results.read_text())["targets"][OURS]["rounds"][0].get("syncs", {})
    return dict(counted)


def read(results: Path) -> dict[str, Figures]:
    """The figures of every target in a file that `measure` wrote; what failed in every round is left out."""
    found: dict[str, Figures] = {}
    for name, target in json.loads(results.read_text())["targets"].items():
        values = {key: statistics.median(series) for key, series in target["figures"].items() if series}
        if values:
            found[name] = Figures(
                name,
                target["version"],
                target["durability"],
                target["count"],
                values,
                _rss_after(target["rounds"]),
            )
    return found


def _rss_after(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Resident memory after the first backlog was written and read."""
    firsts = [cells[0] for cells in (one.get("cells") for one in rounds) if cells]
    seen = [
        cell["recv"]["rss_after"] for cell in firsts if cell.get("recv") and cell["recv"].get("rss_after")
    ]
    return statistics.median(seen) if seen else None


def _target(name: str, partitions: int, count: int) -> str:
    command = (
        f"{shlex.quote(executable())} serve --data-dir {{dir}}/data --listen 127.0.0.1:{{port}} --log"
        f" events:{partitions}"
    )
    order = "" if partitions == 1 else "send=--by-partition,recv=--by-partition,"
    note = "note=group commit; accepted after fdatasync,"
    options = f"kind=stream,durable=1,count={count},{order}{note}cmd={command}"
    return f"{name}=amqp://127.0.0.1:{{port}},events,{options}"


def _places(plan: Plan) -> list[str]:
    places = ["--work", str(plan.work), "--python", sys.executable]
    if plan.rabbit4_root:
        places += ["--rabbit4-root", plan.rabbit4_root]
    if plan.activemq_lib:
        places += ["--activemq-lib", plan.activemq_lib]
    return places


def _run_to_its_end(arguments: Sequence[str]) -> int:
    """Run it; when we are to end, let it stop the brokers that it started first."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.amqp.run_peers", *arguments], start_new_session=True
    ) as runner:
        try:
            return runner.wait()
        except BaseException:
            runner.send_signal(signal.SIGINT)
            runner.wait()
            raise


def _runner(*arguments: str, capture: bool) -> str:
    command = [sys.executable, "-m", "bench.amqp.run_peers", *arguments]
    return (
        subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE if capture else None).stdout
        or ""
    )
