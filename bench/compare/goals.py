"""The goals of the comparison, and whether figures reach them. Pure: figures in, verdicts out.

A goal compares two figures of one run, or one figure with a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.compare.figures import OURS, REFERENCE, Run, short

KAFKA: Final = "kafka"
KNATIVE: Final = "knative"
SPARK_KAFKA: Final = "spark-kafka"
WINDOWS: Final = (1000, 10000)
"""Events in flight of a connection that sends batches."""
RATE_GOAL: Final = 10_000.0
LATENCY_MS_GOAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Goal:
    """Ours in relation to another figure: at least (`least`) or at most `bound`.

    `product` and `figure` name the other figure. Without a product, `bound` is a number that ours itself has
    to reach. `more`: ours may exceed the other figure by `bound`; the ratio plays no part.
    """

    what: str
    ours: str
    bound: float
    product: str = ""
    figure: str = ""
    least: bool = True
    more: bool = False

    @property
    def wanted(self) -> str:
        """The goal in words."""
        sign = ">=" if self.least else "<="
        if self.more:
            return f"{sign} + {self.bound:g}"
        return f"{sign} {short(self.bound)}" if not self.product else f"{sign} {self.bound:g}x"


@dataclass(frozen=True, slots=True)
class Row:
    """A goal and what was measured. `reached` is None if the figures were not measured in one run."""

    what: str
    ours: str
    beside: str
    wanted: str
    got: str
    reached: bool | None


def goals() -> list[Goal]:
    """All goals, in the order of the table."""
    rows: list[Goal] = []
    for size, name, factor in ((100, "100 B", 2.0), (1024, "1 KiB", 1.5)):
        for connections in (1, 4):
            for window in WINDOWS:
                key = f"batched_send_{size}x{connections}_w{window}"
                what = f"accepted/s in batches, {name}, {connections} conn., {window:,} in flight"
                rows.append(Goal(what, key, factor, KAFKA, key))
    for way, words in (("send", "accepted/s"), ("recv", "delivered/s")):
        for size, name in ((100, "100 B"), (1024, "1 KiB")):
            for connections in (1, 4):
                of = f"{connections} conn." if way == "send" else f"backlog of {connections} writers"
                key = f"{way}_{size}x{connections}"
                rows.append(Goal(f"{words} one by one, {name}, {of}", key, 0.7, REFERENCE, key))
    for size, name in ((100, "100 B"), (1024, "1 KiB")):
        for connections in (1, 4):
            key = f"batched_recv_{size}x{connections}"
            what = f"delivered/s in batches, {name}, {connections} conn."
            rows.append(Goal(what, key, 1.0, KAFKA, key))
    rows.append(
        Goal("p99 one by one at 1,000/s, ms", "latency_p99", 1.3, REFERENCE, "latency_p99", least=False)
    )
    for way, bound in (("send", 1.6), ("recv", 2.5)):
        for size, name in ((100, "100 B"), (1024, "1 KiB")):
            key = f"{way}_cpu_us_{size}x1"
            what = f"CPU us a message one by one, {'in' if way == 'send' else 'out'}, {name}"
            rows.append(Goal(what, key, bound, REFERENCE, key, least=False))
    for way, suffix in (("send", f"_w{WINDOWS[-1]}"), ("recv", "")):
        for size, name in ((100, "100 B"), (1024, "1 KiB")):
            ours, other = f"batched_{way}_{size}x1{suffix}_cpu_us", f"{way}_cpu_us_{size}x1"
            what = f"CPU us a message in batches / one by one, {'in' if way == 'send' else 'out'}, {name}"
            rows.append(Goal(what, ours, 0.5, REFERENCE, other, least=False))
    return rows + _gateway() + _spark()


def _gateway() -> list[Goal]:
    return [
        Goal("gateway, 1 Trigger, events/s", "gateway_1", RATE_GOAL),
        Goal("gateway, 1,000 Triggers, events/s", "gateway_1000", 0.8, OURS, "gateway_1"),
        Goal(
            "gateway, p50 at 200/s, ms",
            "gateway_p50",
            LATENCY_MS_GOAL,
            KNATIVE,
            "gateway_p50",
            least=False,
            more=True,
        ),
    ]


def _spark() -> list[Goal]:
    return [
        Goal("Spark, rows/s read", "spark_read", 2.0, SPARK_KAFKA, "spark_read"),
        Goal("Spark, rows/s written", "spark_write", 1.5, SPARK_KAFKA, "spark_write"),
    ]


def judge(goal: Goal, runs: Sequence[Run]) -> Row:
    """The verdict of the latest run that has both figures."""
    for run in reversed(runs):
        mine = run.get(OURS, goal.ours)
        other = run.get(goal.product, goal.figure) if goal.product else None
        if mine is None or (goal.product and not other):
            continue
        value = mine if not goal.product else mine - other if goal.more else mine / other  # type: ignore[operator]  # a product has a figure here
        reached = value >= goal.bound if goal.least else value <= goal.bound
        name = "one Trigger" if goal.product == OURS else goal.product
        beside = f"{name} {short(other)}" if other is not None else ""
        got = f"{value:+.2f}" if goal.more else f"{value:.2f}x" if goal.product else short(value)
        return Row(goal.what, short(mine), beside, goal.wanted, got, reached)
    return Row(goal.what, "-", goal.product, goal.wanted, "-", None)
