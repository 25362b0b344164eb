"""All targets for some time: a process each, watched; what they find, and how far they came.

Law: an input that takes its process down, or never ends, is a finding like any other, and the target goes on
behind it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fuzz.findings import Finding
from fuzz.target import Target
from fuzz.targets import load
from fuzz.worker import FINDINGS_MAX, Journal

SILENT_SECONDS_MAX: Final = 60.0
"""An input that runs longer is taken down from outside, if it used `BUSY_SECONDS_MAX` of processor time or
waits for something; one that waits for the processor only is not to blame.
"""
BUSY_SECONDS_MAX: Final = 45.0
START_SECONDS_MAX: Final = 300.0
"""Until the first input; with coverage, a busy machine takes minutes to import what is tested."""
GRACE_SECONDS: Final = 30.0
"""To end after the time is over."""
_POLL_S: Final = 0.2


@dataclass(slots=True)
class _Run:
    target: Target
    seconds: float
    seed: int
    process: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    spent: float = 0.0
    crashes: int = 0
    inputs: int = 0
    cpu: float = 0.0
    findings: int = 0
    rss: int = 0
    at: int = -1
    moved: float = 0.0
    moved_cpu: float = 0.0
    places: set[str] = field(default_factory=set)


class Campaign:
    """`folder`: where findings, corpora and statistics go.

    `inputs`: at most so many a target, 0: as many as the time allows. `grow`: begin with the corpora in
    `folder`, and add the counts to its `totals.json`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        jobs: int = 2,
        inputs: int = 0,
        engine: str = "auto",
        grow: bool = False,
    ) -> None:
        self.folder: Final = folder
        self.seed: Final = seed
        self._jobs = jobs
        self._inputs = inputs
        self._engine = engine
        self._grow = grow

    def run(self, names: Sequence[str], seconds: float) -> list[_Run]:
        """Run these targets, about so long all together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        targets = [load(name) for name in names]
        whole = sum(target.share for target in targets)
        jobs = min(self._jobs, len(targets))
        waiting = [_Run(target, seconds * jobs * target.share / whole, self.seed) for target in targets]
        waiting.sort(key=lambda run: run.seconds)  # the longest starts last but is taken first
        running: list[_Run] = []
        ended: list[_Run] = []
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(self._start(waiting.pop()))
                time.sleep(_POLL_S)
                for run in [run for run in running if self._has_ended(run)]:
                    running.remove(run)
                    ended.append(run)
                    if self._grow:
                        add_to_totals(self.folder / "totals.json", run)
                    print(_line(run), flush=True)
        finally:
            for run in running:
                if run.process is not None and run.process.poll() is None:
                    run.process.send_signal(signal.SIGINT)
                    run.process.wait(GRACE_SECONDS)
        return ended

    def _start(self, run: _Run) -> _Run:
        run.began = run.moved = time.monotonic()
        run.at = -1
        (self.folder / f"{run.target.name}.current").unlink(missing_ok=True)
        (self.folder / f"{run.target.name}.json").unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "fuzz.worker",
            run.target.name,
            "--seed",
            str(run.seed + run.crashes),
        ]
        command += [
            "--seconds",
            str(max(1.0, run.seconds - run.spent)),
            "--inputs",
            str(self._inputs),
            "--engine",
            self._engine_of(run),
            *(["--grow"] if self._grow else []),
        ]
        with (self.folder / f"{run.target.name}.words").open("ab" if run.crashes else "wb") as words:
            run.process = subprocess.Popen([*command, "--folder", str(self.folder)], stderr=words)
        return run

    def _engine_of(self, run: _Run) -> str:
        if self._engine != "auto":
            return self._engine
        return "atheris" if run.target.guided and find_spec("atheris") else "mutator"

    def _has_ended(self, run: _Run) -> bool:
        assert run.process is not None
        status = run.process.poll()
        now = time.monotonic()
        if status is None:
            number, data = Journal.read(self.folder / f"{run.target.name}.current")
            cpu, waits = _processor(run.process.pid)
            if number and run.at <= 0:
                run.began = now  # before, the process imported what it tests
            if number != run.at:
                run.at, run.moved, run.moved_cpu = number, now, cpu
            grace = GRACE_SECONDS if number else START_SECONDS_MAX
            late = now - run.began > run.seconds - run.spent + grace + run.target.seconds_max
            silent = now - run.moved > SILENT_SECONDS_MAX + run.target.seconds_max
            stuck = silent and ((waits and number > 0) or cpu - run.moved_cpu > BUSY_SECONDS_MAX)
            if not stuck and not late:
                return False
            run.process.kill()
            run.process.wait()
            status = 0
            if stuck:
                status = -signal.SIGKILL
                self._keep(run, "hang", data, "it did not come back")
        elif status != 0:
            _, data = Journal.read(self.folder / f"{run.target.name}.current")
            tail = (self.folder / f"{run.target.name}.words").read_text(errors="replace")[-4000:]
            self._keep(run, "crash", data, f"the process ended with {status}\n{tail}")
        self._count(run, now)
        if status == 0 or run.crashes >= FINDINGS_MAX or run.spent >= run.seconds or self._inputs:
            return True
        self._start(run)
        return False

    def _keep(self, run: _Run, kind: str, data: bytes, words: str) -> None:
        run.crashes += 1
        run.findings += 1
        path = Finding(run.target.name, kind, data, words, kind).keep(self.folder / "findings")
        print(f"found  {run.target.name}: {kind}\n       {path}", flush=True)

    def _count(self, run: _Run, now: float) -> None:
        run.spent += now - run.began
        path = self.folder / f"{run.target.name}.json"
        if path.exists():
            statistics = json.loads(path.read_text())
            run.inputs += statistics["inputs"]
            run.cpu += statistics["cpu"]
            run.findings += statistics["findings"]
            run.rss = max(run.rss, statistics["rss"])


def add_to_totals(path: Path, run: _Run) -> None:
    """Add the inputs, the processor seconds and the findings of a run to the totals of its target."""
    totals = json.loads(path.read_text()) if path.exists() else {}
    mine = totals.setdefault(run.target.name, {"inputs": 0, "cpu_seconds": 0.0, "findings": 0})
    mine["inputs"] += run.inputs
    mine["cpu_seconds"] = round(mine["cpu_seconds"] + run.cpu, 3)
    mine["findings"] += run.findings
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(totals, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)


def _processor(pid: int) -> tuple[float, bool]:
    """Processor time of a process, in seconds, and whether it waits for something else than a processor."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, True
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] != "R"


def _line(run: _Run) -> str:
    rate = run.inputs / run.spent if run.spent else 0
    words = (
        f"{run.target.name:12} {run.inputs:>10,} inputs in {run.spent:5.0f} s ({rate:,.0f}/s),"
        f" {run.cpu:.0f} s of processor time, {run.rss >> 20} MiB"
    )
    return f"{words}, {run.findings or 'no'} finding{'s' if run.findings != 1 else ''}"
