"""What one case of the scale suite found, as a value, a table row and JSON."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from bench.process import usage
from bench.scale.probe import Probed

SETTLE_S: Final = 3.0
"""Before a process is watched at rest: statuses and events of what was just done are still written."""
REST_S: Final = 5.0
"""How long a process is watched at rest: its clock ticks are 10 ms, 0.2 % of that."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One process: memory before and after, in MB, and CPU at rest in percent of a core."""

    before_mb: float
    after_mb: float
    rest_percent: float


@dataclass(frozen=True, slots=True)
class Found:
    """One case. `ready_s`: until everything was Ready or attached;

    `events_s`: until every event had arrived everywhere.
    """

    case: str
    ready_s: float
    events_s: float
    costs: Mapping[str, Cost]
    probe_p50_ms: float
    probe_p99_ms: float
    probe_max_ms: float
    probe_failed: int
    notes: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)


class Meter:
    """Memory of some processes from now on, and their CPU at rest."""

    def __init__(self, pids: Mapping[str, int], rest_s: float = REST_S) -> None:
        """`rest_s`: how long they are watched; 0 leaves that out."""
        self._rest_s: Final = rest_s
        self._pids: Final = dict(pids)
        began = {name: usage(pid) for name, pid in self._pids.items()}
        self._before: Final = {name: each.rss_bytes for name, each in began.items()}
        self._cpu_before: Final = {name: each.cpu_seconds for name, each in began.items()}

    def cpu_seconds(self) -> dict[str, float]:
        """What each has used since the meter was made, as notes of a case: unlike seconds of a clock, other
        programs do not change it.
        """
        return {
            f"CPU seconds of the {name} until all was ready": usage(pid).cpu_seconds - self._cpu_before[name]
            for name, pid in self._pids.items()
        }

    def costs(self) -> dict[str, Cost]:
        """Watch them at rest: nobody should do anything meanwhile."""
        time.sleep(SETTLE_S if self._rest_s else 0.0)
        began = {name: usage(pid) for name, pid in self._pids.items()}
        clock = time.monotonic()
        time.sleep(self._rest_s)
        elapsed = time.monotonic() - clock
        ended = {name: usage(pid) for name, pid in self._pids.items()}
        return {
            name: Cost(
                before_mb=round(self._before[name] / 1e6, 1),
                after_mb=round(ended[name].rss_bytes / 1e6, 1),
                rest_percent=(
                    round(100 * (ended[name].cpu_seconds - began[name].cpu_seconds) / elapsed, 1)
                    if self._rest_s
                    else 0.0
                ),
            )
            for name in self._pids
        }


def found(
    case: str,
    *,
    ready_s: float,
    events_s: float,
    costs: Mapping[str, Cost],
    probed: Probed,
    notes: Mapping[str, float] | None = None,
) -> Found:
    """Put a case's figures together, rounded."""
    return Found(
        case=case,
        ready_s=round(ready_s, 2),
        events_s=round(events_s, 2),
        costs=costs,
        probe_p50_ms=round(probed.at(0.5), 1),
        probe_p99_ms=round(probed.at(0.99), 1),
        probe_max_ms=round(probed.at(1.0), 1),
        probe_failed=probed.failed,
        notes={name: round(value, 2) for name, value in (notes or {}).items()},
    )


_HEAD: Final = (
    f"{'case':<52} {'ready s':>8} {'events s':>9}  {'memory MB (before > after)':<38} {'CPU at rest %':<22}"
    f" {'probe ms p50/p99/max':>22}"
)


def table(rows: Iterable[Found]) -> str:
    """For people: a line for each case, and its notes below it."""
    lines = [_HEAD]
    for row in rows:
        memory = ", ".join(
            f"{name} {cost.before_mb:.0f} > {cost.after_mb:.0f}" for name, cost in row.costs.items()
        )
        rest = ", ".join(f"{name} {cost.rest_percent:.1f}" for name, cost in row.costs.items())
        probe = f"{row.probe_p50_ms:.0f} / {row.probe_p99_ms:.0f} / {row.probe_max_ms:.0f}"
        lines.append(
            f"{row.case:<52} {row.ready_s:8.1f} {row.events_s:9.1f}  {memory:<38} {rest:<22} {probe:>22}"
        )
        if row.probe_failed:
            lines.append(f"    {row.probe_failed} probes failed")
        lines += [f"    {name}: {value:g}" for name, value in row.notes.items()]
    return "\n".join(lines)
