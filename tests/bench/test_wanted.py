"""The verdicts over a run's figures."""

from typing import Any

import pytest

from bench import wanted
from bench.compare.figures import OURS, Run, short
from bench.peers import OURS_PARTITIONED, Figures
from bench.wanted import MILLION, Verdict, verdicts


def figures(
    name: str, *, count: int = MILLION, rss_after_bytes: float | None = None, **values: float
) -> Figures:
    return Figures(name, "1.0", "", count, values, rss_after_bytes)


def judged(*several: Figures) -> dict[str, Verdict]:
    return {verdict.what: verdict for verdict in verdicts({one.name: one for one in several})}


@pytest.mark.parametrize(("ours", "met"), [(300_000.0, True), (299_999.0, False)])
def test_accepted_messages_are_judged_against_the_fastest_product(ours: float, met: bool) -> None:
    rows = judged(
        figures(OURS, send_100x1=ours),
        figures("rabbit4-quorum", send_100x1=50_000.0),
        figures("rabbit4-stream", send_100x1=100_000.0),
        figures("queue-broker-log", send_100x1=700_000.0),
    )
    row = rows["accepted/s, 100 B, 1 connection"]
    assert row.met is met
    assert row.against == "rabbit4-stream 100k"


@pytest.mark.parametrize(("ours", "met"), [(0.6, True), (0.61, False)])
def test_latency_is_judged_against_the_best_peer_that_syncs_before_a_reader_sees_the_message(
    ours: float, met: bool
) -> None:
    rows = judged(
        figures(OURS, latency_p99=ours),
        figures("rabbit4-stream", latency_p99=0.3),
        figures("rabbit4-quorum", latency_p99=0.6),
        figures("rabbit-quorum", latency_p99=0.8),
    )
    assert rows["p99 end to end at 1,000/s, ms"].met is met


@pytest.mark.parametrize(("per_100k", "met"), [(0.35, True), (0.36, False)])
def test_cpu_is_judged_in_microseconds_a_message(per_100k: float, met: bool) -> None:
    row = judged(figures(OURS, send_cpu_100x1=per_100k))["server CPU per accepted message, 100 B"]
    assert row.met is met
    assert row.got == f"{per_100k * 10:.2f} us"


@pytest.mark.parametrize(
    ("rss", "count", "met"), [(149e6, MILLION, True), (150e6, MILLION, False), (1e6, MILLION - 1, None)]
)
def test_memory_counts_only_after_a_million_messages(rss: float, count: int, met: bool | None) -> None:
    rows = verdicts({OURS: figures(OURS, count=count, rss_after_bytes=rss)})
    assert next(row for row in rows if row.what.startswith("resident memory")).met is met


@pytest.mark.parametrize(
    ("many", "met"),
    [
        ({"send_100x1": 75.0, "latency_p99": 1.5}, (True, True)),
        ({"send_100x1": 74.0, "latency_p99": 1.6}, (False, False)),
    ],
)
def test_many_partitions_are_judged_against_one(many: dict[str, Any], met: tuple[bool, bool]) -> None:
    rows = judged(figures(OURS, send_100x1=100.0, latency_p99=1.0), figures(OURS_PARTITIONED, **many))
    assert (
        rows["64 partitions: accepted/s, 1 connection"].met,
        rows["64 partitions: p99 end to end"].met,
    ) == met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {row.met for row in verdicts({})} == {None}


@pytest.mark.parametrize(
    ("value", "text"), [(1_234_567.0, "1.23M"), (456_400.0, "456k"), (45_640.0, "45.6k"), (0.354, "0.354")]
)
def test_numbers_are_shown_with_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_each_verdict_is_of_the_latest_run_that_has_its_figures() -> None:
    def run(rate: float, product: str) -> Run:
        return Run("", "", {OURS: {"send_100x1": rate}, product: {"send_100x1": 100.0}})

    found = wanted.rows([run(900.0, "rabbit4-stream"), run(300.0, "rabbit4-stream"), run(1.0, "artemis")])
    row = next(row for row in found if row.what == "accepted/s, 100 B, 1 connection")
    assert (row.ours, row.got, row.reached) == ("300", "3.00x", True)


def test_a_run_with_a_million_messages_judges_the_memory() -> None:
    values = {OURS: {"count": float(MILLION), "rss_after_bytes": 100e6}}
    found = wanted.rows([Run("", "", values)])
    assert next(row for row in found if row.what.startswith("resident memory")).reached is True
