"""Filters, subscriptions and groups as people use them: real processes, a real node, restarts included."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp_streams.cli.processes import PATIENCE_S, PROGRAM, Node, environment, serving


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests that do not end it."""
    with serving(tmp_path_factory.mktemp("kept") / "data") as running:
        yield running


def filled(node: Node, log: str, *, partitions: int = 1, count: int = 20) -> None:
    """A log with lines that are numbers from 0."""
    assert node.run("log", "create", log, "--partitions", str(partitions)).returncode == 0
    assert node.run("send", log, stdin="".join(f"{number}\n" for number in range(count))).returncode == 0


def numbers(lines: list[str]) -> list[int]:
    return [int(line) for line in lines]


def test_a_filtered_log_is_read_to_its_end_though_its_last_events_do_not_pass(node: Node) -> None:
    node.run("log", "create", "alarms", "--partitions", "2")
    node.run("send", "alarms", "--property", "kind=alarm", "--key", "a", stdin="one\ntwo\n")
    node.run("send", "alarms", "--property", "kind=note", "--key", "b", stdin="more\n" * 3000)
    assert node.lines("receive", "alarms", "--where", "kind = 'alarm'", "--format", "body") == ["one", "two"]
    assert node.lines(
        "receive", "alarms", "--where", "m.event-streams-group-key = 'a'", "--format", "body"
    ) == ["one", "two"]
    assert node.lines("receive", "alarms", "--property", "kind=alarm", "--max", "1", "--format", "body") == [
        "one"
    ]
    assert node.lines("receive", "alarms", "--property", "kind=none") == []
    refused = node.run("receive", "alarms", "--where", "kind = ")
    assert refused.returncode == 1
    assert "amqp-streams: filter where, position 8" in refused.stderr


@pytest.mark.parametrize("until", ["20", "now"])
def test_following_a_filtered_log_to_an_end_stops_when_the_log_reaches_it(node: Node, until: str) -> None:
    filled(node, f"till-{until}")
    words = ("--follow", "--from", "1", "--until", until, "--property", "kind=none", "--timeout", "20")
    done = node.run("receive", f"till-{until}", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_subscription_continues_at_its_cursor_until_it_is_moved_or_removed(node: Node) -> None:
    filled(node, "news")
    read = ("receive", "news", "--durable", "nightly", "--format", "body")
    assert numbers(node.lines(*read, "--max", "3")) == [0, 1, 2]
    assert numbers(node.lines(*read, "--max", "3")) == [3, 4, 5]
    (cursor,) = json.loads(node.run("cursor", "list", "news", "--json").stdout)["cursors"]
    assert (cursor["name"], cursor["active"], cursor["lag"]) == ("nightly", False, 14)
    assert numbers(node.lines(*read)) == list(range(6, 20))
    assert node.lines(*read) == []
    node.lines("cursor", "reset", "news", "nightly", "--to", "18", "--yes")
    assert numbers(node.lines(*read)) == [18, 19]
    node.lines("cursor", "reset", "news", cursor["id"], "--to", "-1h", "--yes")
    assert numbers(node.lines(*read)) == list(range(20))
    assert node.run("cursor", "remove", "news", "nightly", "--yes").returncode == 0
    assert json.loads(node.run("cursor", "list", "news", "--json").stdout) == {"cursors": []}
    assert numbers(node.lines(*read, "--from", "15")) == list(range(15, 20))


def test_subscriptions_of_other_containers_have_cursors_of_their_own(node: Node) -> None:
    filled(node, "shared", count=3)
    for container in ("a", "b"):
        assert len(node.lines("receive", "shared", "--durable", "x", "--container-id", container)) == 3
    ambiguous = node.run("cursor", "remove", "shared", "x", "--yes")
    assert ambiguous.returncode == 1
    assert "2 containers have a subscription 'x'" in ambiguous.stderr


def test_an_event_that_was_not_printed_comes_again(node: Node) -> None:
    """The reader of stdout has left: the events that were written to it are not processed."""
    filled(node, "torn", count=20_000)
    words = [*PROGRAM, "receive", "torn", "--durable", "d", "--format", "body"]
    reading = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=environment(AMQP_STREAMS_URL=node.url)
    )
    assert reading.stdout is not None
    with reading:
        seen = [reading.stdout.readline() for _ in range(10)]
    assert reading.returncode == 0
    rest = numbers(node.lines("receive", "torn", "--durable", "d", "--format", "body"))
    assert numbers(seen) == list(range(10))
    assert rest == list(range(rest[0], 20_000))
    assert rest[0] < 20_000 - 5000, "what the pipe did not take is not settled"


def test_a_groups_members_share_its_partitions_and_the_group_its_cursor(node: Node) -> None:
    filled(node, "bills", partitions=4)
    read = ("receive", "bills", "--group", "billing", "--format", "body")
    assert sorted(numbers(node.lines(*read))) == list(range(20))
    assert node.lines(*read) == []
    node.run("send", "bills", stdin="20\n21\n22\n23\n")
    assert node.run("group", "list", "bills").stdout.splitlines()[1].split()[:5] == [
        "bills",
        "billing",
        "0",
        "0",
        "4",
    ]
    assert sorted(numbers(node.lines(*read))) == [20, 21, 22, 23]
    described = json.loads(node.run("group", "describe", "bills", "billing", "--json").stdout)
    assert [(one["partition"], one["next"], one["lag"], one["owner"]) for one in described["partitions"]] == [
        (f"{partition}", 6, 0, None) for partition in range(4)
    ]
    node.lines("group", "reset", "bills", "billing", "--to", "earliest", "--partition", "2", "--yes")
    assert len(node.lines(*read)) == 6
    of_one = node.run("group", "reset", "bills", "billing", "--to", "3")
    assert (of_one.returncode, "name the partition with --partition, one of 0, 1, 2, 3" in of_one.stderr) == (
        2,
        True,
    )
    assert node.run("group", "remove", "bills", "billing", "--yes").returncode == 0
    assert node.run("group", "describe", "bills", "billing").returncode == 1
    assert len(node.lines(*read)) == 24


def test_a_group_is_through_with_what_its_filter_keeps_back(node: Node) -> None:
    filled(node, "some", partitions=2)
    read = ("receive", "some", "--group", "g", "--format", "body")
    assert node.lines(*read, "--where", "kind = 'none'", "--timeout", "20") == []
    assert node.lines(*read) == []
    assert json.loads(node.run("group", "describe", "some", "g", "--json").stdout)["lag"] == 0


def test_a_group_with_members_is_left_alone_and_shows_them(node: Node) -> None:
    filled(node, "busy", partitions=2, count=2)
    words = [*PROGRAM, "receive", "busy", "--group", "g", "--follow", "--format", "body"]
    following = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(AMQP_STREAMS_URL=node.url),
    )
    assert following.stdout is not None
    assert following.stderr is not None
    with following:
        assert sorted(following.stdout.readline() for _ in range(2)) == ["0\n", "1\n"]
        described = json.loads(node.run("group", "describe", "busy", "g", "--json").stdout)
        (member,) = described["members"]
        assert [one["owner"] for one in described["partitions"]] == [member] * 2
        for words in (["reset", "busy", "g", "--to", "earliest", "--yes"], ["remove", "busy", "g", "--yes"]):
            refused = node.run("group", *words)
            assert (refused.returncode, refused.stderr[:15]) == (1, "amqp-streams: g")
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 130
        assert sorted(following.stderr.read().splitlines()) == [
            "partition 0 was assigned to this member",
            "partition 1 was assigned to this member",
        ]


def test_an_older_epoch_is_refused_and_cursors_and_epochs_outlive_the_node(tmp_path: Path) -> None:
    mine = ("receive", "temps", "--group", "g", "--partition", "0", "--format", "body")
    with serving(tmp_path / "data", "--log", "temps") as node:
        node.run("send", "temps", stdin="0\n1\n2\n3\n")
        assert numbers(node.lines(*mine, "--epoch", "7", "--max", "2")) == [0, 1]
        assert numbers(
            node.lines("receive", "temps", "--durable", "d", "--format", "body", "--max", "3")
        ) == [0, 1, 2]
        node.stop(signal.SIGKILL)
    with serving(tmp_path / "data") as node:
        older = node.run(*mine, "--epoch", "6")
        assert older.returncode == 1
        assert "its epoch is 7" in older.stderr
        # What was settled within groups.cursor_flush of the kill may come again.
        assert numbers(node.lines(*mine, "--epoch", "7"))[-2:] == [2, 3]
        assert numbers(node.lines("receive", "temps", "--durable", "d", "--format", "body"))[-1:] == [3]
        assert node.stop() == 0
    with serving(tmp_path / "data") as node:
        assert (
            json.loads(node.run("group", "describe", "temps", "g", "--json").stdout)["partitions"][0]["epoch"]
            == 7
        )
        assert node.lines(*mine) == []
        assert node.stop() == 0
