"""Where the node's time goes: py-spy on a running node while the generator sends to it or receives from it.

`python -m bench.profile send` (or `recv`). Needs py-spy (`pip install py-spy`) and the right to trace a child
of ours: root, or `kernel.yama.ptrace_scope` 0. Prints the functions by their own samples and by all samples
below them, C functions included.
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import load
from bench.server import Server, running

LOG: Final = "events"
SAMPLES_PER_SECOND: Final = 500
EVERYWHERE: Final = 0.95
# Where the node's two threads wait for work: py-spy takes that for work when it happens in C.
WAITING: Final = frozenset(
    {
        "ThreadExecutor._run (storage/disk/work.py)",
        "Runner.run (asyncio/runners.py)",
        "epoll_pwait (libc.so.6)",
    }
)


@dataclass(frozen=True, slots=True)
class Costs:
    """Samples by function: `own` at the top of the stack, `below` anywhere in it;

    `waiting` are in none of the others.
    """

    total: int
    waiting: int
    own: Mapping[str, int]
    below: Mapping[str, int]


def count(stacks: Iterable[str]) -> Costs:
    """Sum up py-spy's raw lines, `frame;frame;…;frame SAMPLES`, outermost frame first."""
    own: collections.Counter[str] = collections.Counter()
    below: collections.Counter[str] = collections.Counter()
    waiting = 0
    for line in stacks:
        stack, _, samples = line.rpartition(" ")
        frames = [_name(frame) for frame in stack.split(";")]
        if frames[-1] in WAITING:
            waiting += int(samples)
            continue
        own[frames[-1]] += int(samples)
        for frame in set(frames):
            below[frame] += int(samples)
    return Costs(sum(own.values()), waiting, own, below)


def render(costs: Costs, rows: int) -> str:
    """Two tables, the dearest first; the second names Python functions only, less the loop and the command
    that are below everything.
    """
    lines = [f"{costs.total} samples at work, {costs.waiting} waiting"]
    telling = {
        name: samples
        for name, samples in costs.below.items()
        if ".py)" in name and samples < EVERYWHERE * costs.total
    }
    for title, counted in (("own", costs.own), ("with all below", telling)):
        lines.append(f"\n{title:>16}  function")
        dearest = sorted(counted.items(), key=lambda item: -item[1])[:rows]
        lines += [f"{100 * samples / costs.total:15.1f}%  {name}" for name, samples in dearest]
    return "\n".join(lines)


def record(
    server: Server, generator: Sequence[str], seconds: float, output: Path, *, native: bool
) -> load.Load:
    """Run the generator against a node and sample the node meanwhile; raw stacks go to `output`."""
    spy = [
        "py-spy",
        "record",
        "--pid",
        str(server.process.pid),
        "--duration",
        str(int(seconds)),
        "--rate",
        str(SAMPLES_PER_SECOND),
    ]
    spy += ["--format", "raw", "--output", str(output), "--threads", *(["--native"] if native else [])]
    with subprocess.Popen(generator, stdout=subprocess.PIPE, text=True) as running_load:
        subprocess.run(spy, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return load.read(running_load.communicate()[0])


def _name(frame: str) -> str:
    found = re.match(r"(.+?) \((.+?)(?::\d+)?\)$", frame)
    return f"{found[1]} ({'/'.join(Path(found[2]).parts[-2:])})" if found else frame


def main() -> int:
    """Start a node, load it, sample it, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("what", choices=("send", "recv"))
    parser.add_argument("--count", type=int, default=3_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument(
        "--python-only",
        action="store_true",
        help="leave out C functions: lighter, and their time counts for the caller",
    )
    parser.add_argument("--work", type=Path, default=Path("/tmp/amqp-bench"))
    options = parser.parse_args()
    if shutil.which("py-spy") is None:
        print("needs py-spy on the path: pip install py-spy", file=sys.stderr)
        return 1
    load.build()
    folder = options.work / "profile"
    shutil.rmtree(folder, ignore_errors=True)
    run_id, more = (
        os.getpid(),
        [
            "--size",
            str(options.size),
            "--timeout",
            "180",
            *(["--by-partition"] if options.partitions > 1 else []),
        ],
    )
    output = options.work / f"profile-{options.what}.txt"
    with running(folder, logs=[f"{LOG}:{options.partitions}"]) as server:
        writing = [*more, "--connections", str(options.connections)]
        if options.what == "recv":
            load.run("send", server.url, LOG, count=options.count, run_id=run_id, options=writing)
            writing = [*more, *load.FROM_EARLIEST]
        command = load.command(
            options.what, server.url, LOG, count=options.count, run_id=run_id, options=writing
        )
        done = record(server, command, options.seconds, output, native=not options.python_only)
    print(f"{done.messages_per_second:,.0f} messages/s while sampled; raw stacks for a flame graph: {output}")
    if not done.ok:
        print(done.error, file=sys.stderr)
    print(render(count(output.read_text().splitlines()), options.rows))
    return 0 if done.ok else 1


if __name__ == "__main__":
    sys.exit(main())
