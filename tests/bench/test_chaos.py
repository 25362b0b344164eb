"""A short run of `make chaos`, on real brokers, with nodes and consumers as processes, breaks no promise."""

import asyncio
from pathlib import Path

import pytest

from bench.brokers import chaos
from bench.brokers.chaos import Plan
from bench.products import kafka_cluster

pytestmark = [
    pytest.mark.heavy,
    # `make chaos` runs it: half a minute, and 43 s of CPU.
    pytest.mark.slow,
    pytest.mark.skipif(bool(kafka_cluster.why_not()), reason=kafka_cluster.why_not() or "Kafka runs here"),
]
PLAN = Plan(
    seconds=8.0,
    seed=3,
    writers=2,
    idempotent=1,
    groups=1,
    calm_s=3.0,
    handovers=0,
    hold_s=(0.5, 4.0),
    pause_s=(0.2, 2.0),
)


def test_disturbances_of_all_kinds_break_no_promise(tmp_path: Path) -> None:
    outcome = asyncio.run(chaos.run(PLAN, tmp_path))
    assert outcome.violations == ()
    assert outcome.disturbances
    groups = outcome.groups
    assert min(outcome.verdict.accepted, groups.grants, groups.deliveries, groups.settled, groups.states) > 0
    assert "writes of two owners" in chaos.table(outcome)
