"""The judgement of the scale suite."""

import pytest

from bench.scale.__main__ import BESIDE_S_MAX, PROBE_MS_MAX, REST_PERCENT_MAX, complaints
from bench.scale.gateway_cases import BESIDE
from bench.scale.probe import Probed
from bench.scale.report import Cost, Found, found, table


def row(*, rest: float = 0.0, probe_ms: float = 1.0, failed: int = 0, beside: float = 0.1) -> Found:
    costs = {"node": Cost(before_mb=60.0, after_mb=70.0, rest_percent=rest)}
    probed = Probed([probe_ms] * 100, failed)
    return found("a case", ready_s=1.0, events_s=2.0, costs=costs, probed=probed, notes={BESIDE: beside})


def test_a_case_within_its_bounds_has_no_complaint() -> None:
    assert complaints(row()) == []


@pytest.mark.parametrize(
    ("case", "word"),
    [
        (row(rest=REST_PERCENT_MAX + 1), "at rest"),
        (row(probe_ms=PROBE_MS_MAX + 1), "99th percentile"),
        (row(failed=1), "probes failed"),
        (row(beside=BESIDE_S_MAX + 0.1), "unrelated object"),
    ],
)
def test_a_bound_that_does_not_hold_is_named(case: Found, word: str) -> None:
    (complaint,) = complaints(case)
    assert word in complaint


def test_the_table_shows_memory_and_probes_of_each_case() -> None:
    shown = table([row()])
    assert "node 60 > 70" in shown
    assert "1 / 1 / 1" in shown
