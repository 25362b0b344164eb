"""One target in a process of its own: inputs until the time is over.

`fuzz.campaign` starts it, watches it, and outlives its crashes.
"""

import argparse
import json
import mmap
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from fuzz.findings import PACKAGES, Finding, examine
from fuzz.kept import Kept
from fuzz.mutate import Mutator
from fuzz.target import INPUT_BYTES_MAX, Target

FINDINGS_MAX: Final = 20
"""Different ones, after which a target has enough."""
RSS_BYTES_MAX: Final = 1 << 30
"""What the inputs may add to the memory of the process."""
ADDRESS_SPACE_BYTES: Final = 6 << 30
_STATISTICS_EVERY_S: Final = 0.5
_LOOK_AT_MEMORY_EVERY: Final = 100
_MEASURE_MEMORY_EVERY: Final = 16
"""Of inputs, and each seed: measuring takes as long as the input again."""
_ATHERIS_SLACK: Final = 5.0
"""Instrumented code is slower."""


class Journal:
    """The input that is being run, in a file that outlives the process: number (8 bytes), size (8), bytes."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(16 + INPUT_BYTES_MAX))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def note(self, number: int, data: bytes) -> None:
        """This input is next."""
        self._map[: 16 + len(data)] = number.to_bytes(8) + len(data).to_bytes(8) + data

    @staticmethod
    def read(path: Path) -> tuple[int, bytes]:
        """Number and bytes of the last input."""
        content = path.read_bytes() if path.exists() else b""
        size = int.from_bytes(content[8:16])
        return int.from_bytes(content[:8]), content[16 : 16 + size]


class Runner:
    """Runs inputs, counts them, and collects what is wrong with different ones."""

    def __init__(
        self,
        target: Target,
        *,
        journal: Journal | None = None,
        told: Callable[[Finding], None] | None = None,
        slack: float = 1.0,
    ) -> None:
        self.target = target
        self.inputs = 0
        self.findings: dict[str, Finding] = {}
        self._journal = journal
        self._told = told
        self._slack = slack
        self._seeds = len(target.seeds())
        self._used_before = rss_bytes()

    def run(self, data: bytes) -> object:
        """Run one input; what it showed."""
        data = data[:INPUT_BYTES_MAX]
        self.inputs += 1
        if self._journal:
            self._journal.note(self.inputs, data)
        measured = self.inputs % _MEASURE_MEMORY_EVERY == 0 or self.inputs <= self._seeds
        shown, finding = examine(self.target, data, slack=self._slack, memory=measured)
        if (
            finding is None
            and self.inputs % _LOOK_AT_MEMORY_EVERY == 0
            and (used := rss_bytes() - self._used_before) > RSS_BYTES_MAX
        ):
            words = (
                f"{used >> 20} MiB more are in use after {self.inputs} inputs,"
                f" {RSS_BYTES_MAX >> 20} MiB are allowed"
            )
            finding = Finding(self.target.name, "memory", data, words, "memory")
        if finding is not None and finding.place not in self.findings:
            self.findings[finding.place] = finding
            if self._told:
                self._told(finding)
        return shown if finding is None else finding.place


def fuzz(
    target: Target, *, seed: int, inputs: int, wanted: Callable[[Finding], bool] = lambda _: False
) -> Runner:
    """Run so many inputs in this process with the mutator, the seeds first. Ends early with a `wanted`
    finding.
    """
    found: list[bool] = []
    runner = Runner(target, told=lambda finding: found.append(wanted(finding)))
    mutator = Mutator(seed, target.seeds(), target.words)
    stream = mutator.inputs()
    while runner.inputs < inputs and len(found) < FINDINGS_MAX and not any(found):
        data = next(stream)
        mutator.showed(data, runner.run(data))
    return runner


def rss_bytes() -> int:
    """Memory of this process that is in use."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(arguments: list[str] | None = None) -> int:
    """Run as a process; `fuzz.campaign` gives the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--engine", choices=("mutator", "atheris"), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--grow", action="store_true")
    given = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return _atheris(given) if given.engine == "atheris" else _mutator(given)


def _prepared(given: argparse.Namespace) -> tuple[Target, Runner, Callable[..., None]]:
    from fuzz.targets import load, quiet  # noqa: PLC0415  after the instrumentation, if there is one

    quiet()
    target = load(given.target)
    runner = Runner(
        target,
        journal=Journal(given.folder / f"{target.name}.current"),
        slack=_ATHERIS_SLACK if given.engine == "atheris" else 1.0,
        told=lambda finding: print(
            f"found  {finding.target}: {finding.place}\n       {finding.keep(given.folder / 'findings')}",
            flush=True,
        ),
    )
    began, began_cpu, last = time.monotonic(), cpu_s(), 0.0

    def tell(*, final: bool = False) -> None:
        nonlocal last
        if final or time.monotonic() - last > _STATISTICS_EVERY_S:
            last = time.monotonic()
            statistics = {
                "inputs": runner.inputs,
                "seconds": last - began,
                "cpu": cpu_s() - began_cpu,
                "findings": len(runner.findings),
                "rss": rss_bytes(),
            }
            path = given.folder / f"{target.name}.json"
            path.with_suffix(".new").write_text(json.dumps(statistics))
            path.with_suffix(".new").replace(path)

    return target, runner, tell


def _mutator(given: argparse.Namespace) -> int:
    target, runner, tell = _prepared(given)
    mutator = Mutator(given.seed, target.seeds(), target.words)
    kept = Kept(given.folder / "corpus" / target.name) if given.grow else None
    if kept:
        mutator.recall(kept.inputs())
    end = time.monotonic() + given.seconds
    try:
        for data in _limited(mutator.inputs(), given.inputs):
            shown = runner.run(data)
            if mutator.showed(data, shown) and kept:
                kept.keep(data, shown)
            tell()
            if time.monotonic() > end or len(runner.findings) >= FINDINGS_MAX:
                break
    finally:
        if target.close:
            target.close()
        tell(final=True)  # after the close: the processor time of a child counts when the child has ended
    return 0


def _limited(stream: Iterator[bytes], count: int) -> Iterator[bytes]:
    for number, data in enumerate(stream):
        if count and number >= count:
            return
        yield data


def _atheris(given: argparse.Namespace) -> int:
    import atheris  # noqa: PLC0415  it is not everywhere

    with atheris.instrument_imports(include=list(PACKAGES)):
        target, runner, tell = _prepared(given)

    def one(data: bytes) -> None:
        runner.run(data)
        tell()

    kept = given.folder / "corpus" / target.name
    if not given.grow:
        shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    for place, seed in enumerate(target.seeds()):
        (kept / f"seed-{place:03}").write_bytes(seed)
    words = given.folder / f"{target.name}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words if word))
    arguments: list[Any] = [
        target.name,
        f"-seed={given.seed}",
        f"-max_total_time={int(given.seconds)}",
        f"-max_len={INPUT_BYTES_MAX}",
        "-rss_limit_mb=0",
    ]
    arguments += [f"-runs={given.inputs}"] if given.inputs else []
    arguments += [
        "-verbosity=0",
        "-print_final_stats=0",
        *([f"-dict={words}"] if target.words else []),
        str(kept),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()
    return 0


def _escaped(word: bytes) -> str:
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02X}" for byte in word
    )


if __name__ == "__main__":
    sys.exit(main())
