"""What the units of a run cost, as `--costs` prints at its end: CPU, and the time that no test used."""

import os
from collections.abc import Iterable, Mapping, Sequence
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from time import monotonic
from typing import Final, NamedTuple

_SHOWN: Final = 40


class Moment(NamedTuple):
    """The time, and the CPU that a process has used. All in seconds."""

    time: float
    own: float
    children: float
    """Of processes that have ended and that the process waited for."""


class Cost(NamedTuple):
    """What one test took, with its setup and teardown and with the fixtures that began or ended with it."""

    fork: int
    began: Moment
    ended: Moment

    @property
    def own(self) -> float:
        """CPU of the fork."""
        return self.ended.own - self.began.own

    @property
    def children(self) -> float:
        """CPU of processes that ended during the test."""
        return self.ended.children - self.began.children

    @property
    def wall(self) -> float:
        """How long the test took."""
        return self.ended.time - self.began.time


def now() -> Moment:
    """What this process has used."""
    own, children = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return Moment(monotonic(), own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime)


def table(costs: Mapping[str, Sequence[Cost]], began: float) -> Iterable[str]:
    """The dearest units, then what all took, and when each fork ended.

    `costs` are those of the tests of each unit. `began`: when the run began, by the monotonic clock.
    """
    total = {name: sum(cost.own + cost.children for cost in of) for name, of in costs.items()}
    yield "    own children     wall  tests  unit (seconds of CPU; of its children; seconds)"
    for name in sorted(total, key=lambda name: -total[name])[:_SHOWN]:
        of = costs[name]
        own, children, wall = (
            sum(parts) for parts in zip(*((c.own, c.children, c.wall) for c in of), strict=True)
        )
        yield f"{own:7.1f} {children:8.1f} {wall:8.1f} {len(of):6}  {name}"
    every = [cost for of in costs.values() for cost in of]
    own, children = sum(cost.own for cost in every), sum(cost.children for cost in every)
    yield f"{own:7.1f} {children:8.1f}  all tests, on {os.cpu_count()} cores"
    for fork in sorted({cost.fork for cost in every}):
        ended = max(cost.ended.time for cost in every if cost.fork == fork)
        yield f"fork {fork} ended after {ended - began:.1f} s"
