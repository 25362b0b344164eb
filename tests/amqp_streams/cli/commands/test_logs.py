"""Logs are created, listed, described, changed and deleted. Nothing is deleted without a confirmation."""

import json
from types import SimpleNamespace

import pytest

from amqp_streams.client import Event
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode

RATES = ("EVENTS/S", "OUT/S", "CONSUMERS", "GROUPS")


def test_a_log_is_made_with_what_people_write(node: FakeNode, run: Run) -> None:
    words = [
        "--partitions",
        "4",
        "--retention",
        "7d",
        "--retention-bytes",
        "10GiB",
        "--segment-bytes",
        "64MiB",
        "--segment-age",
        "1h",
    ]
    answer = run("log", "create", "more", *words, "--json")
    assert answer.exit_code == 0
    assert len(node.logs["more"]) == 4
    assert node.settings["more"] == {
        "retention-ms": 604_800_000,
        "retention-bytes": 10 << 30,
        "segment-bytes": 64 << 20,
        "segment-ms": 3_600_000,
    }
    assert json.loads(answer.stdout)["retention_ms"] == 604_800_000


def test_a_log_that_is_there_already_is_a_failure(node: FakeNode, run: Run) -> None:
    answer = run("log", "create", "temps")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "already exists" in answer.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a/b"], "not a valid log name"),
        (["more", "--partitions", "0"], "--partitions"),
        (["more", "--partitions", "5000"], "--partitions"),
        (["more", "--retention", "7"], "ms, s, m, h, d, w"),
        (["more", "--retention-bytes", "much"], "GiB"),
        ([], "NAME"),
    ],
)
def test_a_value_that_is_not_valid_is_a_usage_error_before_a_server_is_asked(
    node: FakeNode, run: Run, words: list[str], complaint: str
) -> None:
    answer = run("log", "create", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not node.endpoints


def test_rates_are_of_two_looks(node: FakeNode, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        assert seconds == 1.0
        node.logs["temps"][0] += [Event(b"x")] * 30
        node.logs["young"] = [[Event(b"x")]]
        node.uses["temps"] = (48, 2, 1)

    node.uses["temps"] = (8, 3, 1)
    monkeypatch.setattr("amqp_streams.cli.commands.logs.asyncio", SimpleNamespace(sleep=sleep))
    ticks = iter([10.0, 12.0])
    monkeypatch.setattr("amqp_streams.cli.commands.logs.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = json.loads(run("log", "list", "--rates", "--json").stdout)["logs"]
    assert {one["name"]: one["events_per_second"] for one in found} == {"temps": 15.0, "young": None}
    assert {one["name"]: one["events_out_per_second"] for one in found} == {"temps": 20.0, "young": None}


def test_the_rates_are_a_column(node: FakeNode, run: Run) -> None:
    lines = [line.split() for line in run("log", "list", "--rates").stdout.splitlines()]
    assert lines[0] == ["LOG", "PARTITIONS", "EVENTS", "BYTES", *RATES, "KEPT"]
    assert lines[1][-5:] == ["0.00", "-", "-", "-", "forever"]
    # Consumers and groups need the right `manage`.
    node.uses["temps"] = (8, None, None)
    assert run("log", "list", "--rates").stdout.split()[-5:] == ["0.00", "0.00", "-", "-", "forever"]
    node.uses["temps"] = (8, 3, 1)
    assert run("log", "list", "--rates").stdout.split()[-5:] == ["0.00", "0.00", "3", "1", "forever"]


def test_all_logs_are_listed(node: FakeNode, run: Run) -> None:
    node.logs["a"] = [[Event(b"x")] * 3]
    node.uses["a"] = (9, 2, 1)
    node.settings["a"] = {"retention-ms": 604_800_000, "retention-bytes": 1 << 20}
    assert [line.split() for line in run("log", "list").stdout.splitlines()] == [
        ["LOG", "PARTITIONS", "EVENTS", "BYTES", "KEPT"],
        ["a", "1", "3", "300", "B", "7d,", "1.0", "MiB", "a", "partition"],
        ["temps", "2", "0", "0", "B", "forever"],
    ]
    assert json.loads(run("log", "list", "--json").stdout)["logs"][0] == {
        "name": "a", "partitions": 1, "events": 3, "bytes": 300, "events_out": 9, "consumers": 2,
        "groups": 1, "retention_ms": 604_800_000,
        "retention_bytes": 1 << 20,
    }  # fmt: skip


def test_the_figures_of_many_logs_are_asked_for_in_parts(node: FakeNode, run: Run) -> None:
    """The node answers a request in one turn of its loop, so a request has at most 1,024 partitions."""
    node.logs |= {f"log-{number}": [[] for _ in range(600)] for number in range(3)}
    assert len(run("log", "list").stdout.splitlines()) == 5
    assert [asked[1:] for asked in node.asked] == [("log-0",), ("log-1",), ("log-2", "temps")]


def test_a_log_is_described(node: FakeNode, run: Run) -> None:
    shown = run("log", "describe", "temps").stdout.splitlines()
    assert shown[0] == "temps"
    assert {"  partitions:       2", "  retention:        no limit", "  consumer groups:  none"} <= set(shown)
    found = json.loads(run("log", "describe", "temps", "--json").stdout)
    assert (found["log"], len(found["partitions"]), found["groups"], found["cursors"]) == ("temps", 2, [], [])
    assert run("log", "describe", "nope").exit_code == 1


def test_only_what_is_given_is_changed_and_none_takes_a_bound_away(node: FakeNode, run: Run) -> None:
    node.settings["temps"] = {"retention-ms": 5000, "segment-bytes": 1 << 20}
    assert run("log", "update", "temps", "--retention", "none", "--retention-bytes", "1GiB").exit_code == 0
    assert node.settings["temps"] == {
        "retention-ms": None,
        "retention-bytes": 1 << 30,
        "segment-bytes": 1 << 20,
    }


def test_changing_nothing_is_a_usage_error(node: FakeNode, run: Run) -> None:
    answer = run("log", "update", "temps")
    assert answer.exit_code == 2
    assert "--retention" in answer.stderr


def test_the_number_of_partitions_cannot_be_changed(node: FakeNode, run: Run) -> None:
    assert run("log", "update", "temps", "--partitions", "9").exit_code == 2


def test_a_log_is_deleted_when_the_answer_is_yes(node: FakeNode, run: Run) -> None:
    answer = run("log", "delete", "temps", stdin="y\n")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert node.logs == {}


@pytest.mark.parametrize("stdin", ["n\n", "\n", ""])
def test_a_log_is_not_deleted_for_any_other_answer(node: FakeNode, run: Run, stdin: str) -> None:
    answer = run("log", "delete", "temps", stdin=stdin)
    assert answer.exit_code == 1
    assert answer.stderr.endswith("nothing was deleted\n")
    assert "temps" in node.logs


def test_a_log_is_deleted_without_a_question_if_the_flag_says_so(node: FakeNode, run: Run) -> None:
    assert run("log", "delete", "temps", "--yes").exit_code == 0
    assert node.logs == {}
    assert run("log", "delete", "temps", "--yes").exit_code == 1
