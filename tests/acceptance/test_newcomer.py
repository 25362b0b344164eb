"""What a new user does in the first five minutes, on the command line."""

import json

import pytest

from tests.acceptance.conftest import Cli, StartNode


def lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.usefixtures("real_commands")
def test_a_newcomer_sends_events_and_reads_them_back_after_a_restart(start_node: StartNode, cli: Cli) -> None:
    node = start_node()
    cli(node, "log", "create", "temps", "--partitions", "2")
    cli(node, "send", "temps", "--key", "kitchen", given="20.5\n20.7\n")
    before = lines(cli(node, "receive", "temps", "--format", "json"))
    assert [event["body"] for event in before] == ["20.5", "20.7"]
    assert {event["key"] for event in before} == {"kitchen"}
    assert node.stop() == 0
    node.start()
    cli(node, "send", "temps", "--key", "kitchen", given="21.0\n")
    after = lines(cli(node, "receive", "temps", "--format", "json"))
    assert after[:2] == before
    assert [event["offset"] for event in after] == [0, 1, 2]


def test_reading_begins_at_an_offset_or_at_a_time(start_node: StartNode, cli: Cli) -> None:
    node = start_node(log="temps:1")
    cli(node, "send", "temps", given="".join(f"{number}\n" for number in range(10)))
    cli(node, "send", "temps", given="late\n")
    events = lines(cli(node, "receive", "temps", "--format", "json"))
    assert cli(node, "receive", "temps", "--from", "7", "--format", "body").split() == ["7", "8", "9", "late"]
    assert (
        cli(node, "receive", "temps", "--from", str(events[-1]["timestamp"]), "--format", "body").split()[-1]
        == "late"
    )
    assert cli(node, "receive", "temps", "--from", "3", "--until", "5", "--format", "body").split() == [
        "3",
        "4",
    ]


def test_a_follower_sees_what_comes(start_node: StartNode, cli: Cli) -> None:
    node = start_node(log="temps:4")
    cli(node, "send", "temps", given="one\ntwo\n")
    seen = cli(node, "receive", "temps", "--follow", "--from", "earliest", "--max", "2", "--format", "body")
    assert sorted(seen.split()) == ["one", "two"]


def test_logs_are_listed_described_changed_and_deleted(start_node: StartNode, cli: Cli) -> None:
    node = start_node(log="temps:4")
    cli(node, "log", "create", "other", "--partitions", "1", "--retention", "7d")
    assert {entry["name"] for entry in json.loads(cli(node, "log", "list", "--json"))["logs"]} == {
        "temps",
        "other",
    }
    assert json.loads(cli(node, "log", "describe", "other", "--json"))["retention_ms"] == 7 * 86_400_000
    cli(node, "log", "update", "other", "--retention", "1d")
    assert json.loads(cli(node, "log", "describe", "other", "--json"))["retention_ms"] == 86_400_000
    cli(node, "log", "delete", "other", "--yes")
    assert [entry["name"] for entry in json.loads(cli(node, "log", "list", "--json"))["logs"]] == ["temps"]


def test_an_unknown_log_is_refused_saying_how_to_make_it(start_node: StartNode, cli: Cli) -> None:
    node = start_node()
    words = cli(node, "send", "nowhere", given="x\n", status=1)
    assert "log create nowhere" in words


def test_the_files_can_be_checked_and_read_without_the_node(start_node: StartNode, cli: Cli) -> None:
    node = start_node(log="temps:2")
    cli(node, "send", "temps", given="".join(f"{number}\n" for number in range(100)))
    assert node.stop() == 0
    cli(node, "verify", str(node.data_dir))
    dumped = cli(node, "dump", str(node.data_dir), "temps", "--json")
    assert sorted(int(str(event["body"])) for event in lines(dumped)) == list(range(100))
