"""The figures of comparisons: what runs measured, kept in a file, so that a run can measure a part.

A run is the unit of comparison: ratios are formed only from figures of one run, because the machine's speed
changes from run to run. The table shows the latest run of each figure.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

OURS: Final = "amqp-streams"
REFERENCE: Final = "queue-broker-log"
"""The smallest C broker on the same Proton engine, one sync a loop turn."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run measured: figures by product and name, medians of the rounds."""

    stamp: str
    machine: str
    values: Mapping[str, Mapping[str, float]]
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    def get(self, product: str, figure: str) -> float | None:
        """A figure, or None if this run did not measure it."""
        return self.values.get(product, {}).get(figure)


class Sink:
    """Collects the values of a run."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = {}
        self._versions: dict[str, str] = {}
        self.durability: dict[str, str] = {}

    def add(self, product: str, figure: str, value: float) -> None:
        """One more value of a figure."""
        self._values.setdefault(product, {}).setdefault(figure, []).append(value)

    def version(self, product: str, version: str, durability: str = "") -> None:
        """What was measured."""
        self._versions[product] = version
        self.durability[product] = durability

    def run(self, stamp: str, machine: str, missing: Sequence[str]) -> Run:
        """The medians of what was collected."""
        values = {
            product: {name: statistics.median(several) for name, several in figures.items()}
            for product, figures in self._values.items()
        }
        return Run(stamp, machine, values, dict(self._versions), tuple(missing))


def latest(runs: Sequence[Run], product: str, figure: str) -> float | None:
    """A figure of the latest run that measured it."""
    found = [value for run in runs if (value := run.get(product, figure)) is not None]
    return found[-1] if found else None


def read(file: Path) -> list[Run]:
    """The runs that a file keeps, oldest first."""
    if not file.is_file():
        return []
    return [Run(**one) for one in json.loads(file.read_text())]


def keep(file: Path, run: Run) -> None:
    """Add a run to the file."""
    runs = [*read(file), run]
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps([_plain(one) for one in runs], indent=1))
    part.replace(file)


def _plain(run: Run) -> dict[str, Any]:
    return {
        "stamp": run.stamp,
        "machine": run.machine,
        "values": {product: dict(figures) for product, figures in run.values.items()},
        "versions": dict(run.versions),
        "missing": list(run.missing),
    }


def short(value: float) -> str:
    """Three digits as people read them: 1.23M, 456k, 7.8k, 9.10."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    return f"{value:.3g}"
