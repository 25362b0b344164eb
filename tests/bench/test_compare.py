"""The goals of the comparison with other products, its tables, and the file of its runs."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.compare import figures, goals, table
from bench.compare.batched import cpu_name
from bench.compare.figures import OURS, REFERENCE, Run, Sink
from bench.compare.goals import Goal


def run(missing: tuple[str, ...] = (), **values: Mapping[str, float]) -> Run:
    named = {{"ours": OURS, "broker": REFERENCE}.get(name, name): found for name, found in values.items()}
    return Run("now", "a machine", named, {}, missing)


def test_a_sink_gives_the_medians_of_its_values() -> None:
    sink = Sink()
    for value in (3.0, 1.0, 200.0):
        sink.add("kafka", "send", value)
    sink.version("kafka", "4.3.1")
    made = sink.run("now", "a machine", ["artemis: not installed"])
    assert made.get("kafka", "send") == 3.0
    assert made.get("kafka", "recv") is None
    assert made.versions == {"kafka": "4.3.1"}


def test_runs_come_back_from_their_file_in_order(tmp_path: Path) -> None:
    file = tmp_path / "results" / "runs.json"
    assert figures.read(file) == []
    runs = [run(ours={"a": 1.0}), run(ours={"a": 2.0}, missing=("kafka: no",))]
    for one in runs:
        figures.keep(file, one)
    read = figures.read(file)
    assert [one.values for one in read] == [one.values for one in runs]
    assert list(read[1].missing) == ["kafka: no"]
    assert figures.latest(read, OURS, "a") == 2.0
    assert figures.latest(read, OURS, "b") is None


@pytest.mark.parametrize(
    ("goal", "mine", "other", "got", "reached"),
    [
        (Goal("w", "f", 2.0, "kafka", "f"), 200.0, 100.0, "2.00x", True),
        (Goal("w", "f", 2.0, "kafka", "f"), 199.0, 100.0, "1.99x", False),
        (Goal("w", "f", 1.3, "kafka", "f", least=False), 1.3, 1.0, "1.30x", True),
        (Goal("w", "f", 1.3, "kafka", "f", least=False), 1.4, 1.0, "1.40x", False),
        (Goal("w", "f", 0.5, "kafka", "f", least=False, more=True), 3.0, 2.5, "+0.50", True),
        (Goal("w", "f", 0.5, "kafka", "f", least=False, more=True), 3.25, 2.5, "+0.75", False),
    ],
)
def test_a_goal_compares_two_figures_of_one_run(
    goal: Goal, mine: float, other: float, got: str, reached: bool
) -> None:
    row = goals.judge(goal, [run(ours={"f": mine}, kafka={"f": other})])
    assert (row.got, row.reached) == (got, reached)


@pytest.mark.parametrize(("rate", "reached"), [(10_000.0, True), (9_999.0, False)])
def test_a_goal_without_a_product_is_a_number(rate: float, reached: bool) -> None:
    row = goals.judge(Goal("w", "f", 10_000.0), [run(ours={"f": rate})])
    assert (row.wanted, row.reached) == (">= 10k", reached)


def test_figures_of_different_runs_are_not_compared() -> None:
    goal = Goal("w", "f", 2.0, "kafka", "f")
    assert goals.judge(goal, [run(ours={"f": 9.0}), run(kafka={"f": 1.0})]).reached is None


def test_the_latest_run_with_both_figures_counts() -> None:
    goal = Goal("w", "f", 2.0, "kafka", "f")
    both = [run(ours={"f": one}, kafka={"f": 1.0}) for one in (3.0, 1.0)]
    assert goals.judge(goal, [*both, run(ours={"f": 5.0})]).got == "1.00x"


def test_goals_name_each_figure_once() -> None:
    words = [goal.what for goal in goals.goals()]
    assert len(words) == len(set(words))


def test_goals_and_tables_name_the_same_figures() -> None:
    shown = {key for _, rows in table.TABLES for key, _ in rows}
    judged = {goal.ours for goal in goals.goals() if not goal.ours.startswith("spark")}
    assert judged <= shown | {"send_cpu_us_1024x1", "recv_cpu_us_1024x1"}


@pytest.mark.parametrize(
    ("figure", "name"),
    [
        ("send_100x1", "send_cpu_us_100x1"),
        ("recv_1024x4", "recv_cpu_us_1024x4"),
        ("batched_recv_100x1", "batched_recv_100x1_cpu_us"),
        ("batched_send_100x1_w1000", "batched_send_100x1_w1000_cpu_us"),
    ],
)
def test_a_rate_has_a_figure_for_its_cpu_time(figure: str, name: str) -> None:
    assert cpu_name(figure) == name


def test_the_tables_show_what_was_measured_and_ours_first() -> None:
    text = table.figures_tables([run(kafka={"latency_p99": 7.0}, ours={"latency_p99": 2.0})])
    assert "| figure | amqp-streams | kafka |" in text
    assert "| p99 ms | 2 | 7 |" in text
    assert "p50" not in text, "a figure without a value has no row"


def test_the_table_of_goals_counts_what_is_reached() -> None:
    goal = Goal("w", "f", 2.0, "kafka", "f")
    made = [goals.judge(goal, runs) for runs in ([run(ours={"f": 2.0}, kafka={"f": 1.0})], [])]
    text = table.goals_table(made)
    assert "| w | 2 | kafka 1 | >= 2x | 2.00x | yes |" in text
    assert "| w | - | kafka | >= 2x | - | not measured |" in text
    assert "1 of 2 goals reached, 1 not measured." in text


def test_a_missing_product_is_named_until_it_is_measured() -> None:
    runs = [run(missing=("kafka: not installed: make peers",))]
    assert "Not measured: kafka: not installed: make peers" in table.missing_words(runs)
    assert table.missing_words([*runs, run(kafka={"f": 1.0})]) == ""
