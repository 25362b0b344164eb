"""Measurements count the requested events, and their figures have stable names."""

import json

import pytest

from amqp_streams.client import Event
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


def test_producing_makes_the_log_and_leaves_its_events_there(node: FakeNode, run: Run) -> None:
    answer = run(
        "bench",
        "produce",
        "perf",
        "--partitions",
        "2",
        "--events",
        "1000",
        "--size",
        "1KiB",
        "--warmup",
        "100",
        "--json",
    )
    assert answer.exit_code == 0
    assert len(node.logs["perf"]) == 2
    assert sum(map(len, node.logs["perf"])) == 1100
    figures = json.loads(answer.stdout)
    assert (figures["what"], figures["refused"]) == ("produce", 0)
    assert figures["latency_samples"] > 0
    assert set(figures) == {
        "what", "events", "bytes", "seconds", "refused", "events_per_second", "megabytes_per_second",
        "latency_ms", "latency_samples",
    }  # fmt: skip
    assert list(figures["latency_ms"]) == ["p50", "p95", "p99", "p99.9", "max"]


def test_an_existing_log_is_used_unchanged(node: FakeNode, run: Run) -> None:
    assert run("bench", "produce", "temps", "--partitions", "9", "--events", "10").exit_code == 0
    assert len(node.logs["temps"]) == 2


def test_bound_producers_are_dealt_out_over_the_partitions(node: FakeNode, run: Run) -> None:
    run("bench", "produce", "temps", "--connections", "3", "--bound", "--events", "10")
    assert [opened["partition"] for opened in node.opened] == ["0", "1", "0"]
    assert sum(map(len, node.logs["temps"])) == 10


def test_consuming_counts_what_is_there(node: FakeNode, run: Run) -> None:
    node.logs["temps"] = [[Event(b"x")] * 30, [Event(b"y")] * 20]
    figures = json.loads(run("bench", "consume", "temps", "--json").stdout)
    assert (figures["what"], figures["events"]) == ("consume", 50)
    assert [opened["partition"] for opened in node.opened] == [None]


def test_consumers_share_the_partitions(node: FakeNode, run: Run) -> None:
    node.logs["temps"] = [[Event(b"x")] * 30, [Event(b"y")] * 20]
    figures = json.loads(run("bench", "consume", "temps", "--connections", "5", "--json").stdout)
    assert figures["events"] == 50
    assert [opened["partition"] for opened in node.opened] == ["0", "1"]


def test_consuming_more_than_the_log_has_is_a_usage_error(node: FakeNode, run: Run) -> None:
    answer = run("bench", "consume", "temps", "--events", "1")
    assert answer.exit_code == 2
    assert "temps has 0 events" in answer.stderr


def test_people_get_a_table(node: FakeNode, run: Run) -> None:
    head, row = run("bench", "produce", "temps", "--events", "10").stdout.splitlines()
    assert head.split()[:4] == ["EVENTS", "SECONDS", "EVENTS/S", "MB/S"]
    assert row.split()[:2] == ["produce", "10"]


@pytest.mark.parametrize(
    "words",
    [["--size", "big"], ["--events", "0"], ["--rate", "0"], ["--connections", "0"], ["--window", "0"]],
)
def test_a_usage_error_is_found_before_anything_is_sent(node: FakeNode, run: Run, words: list[str]) -> None:
    assert run("bench", "produce", "temps", *words).exit_code == 2
    assert not node.endpoints
