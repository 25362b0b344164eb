"""`group`: consumer groups are listed, described, moved and removed."""

import json
from dataclasses import replace

import pytest

from amqp_streams.client import AfterTime, CursorPosition, GroupInfo
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import NOW_MS, FakeNode

BILLING = GroupInfo(
    "temps",
    "billing",
    active=True,
    waiting=2,
    updated_ms=NOW_MS,
    positions=(CursorPosition("0", 41, 42, 1200, 3, "m1"), CursorPosition("1", None, None, None, 0, None)),
)


@pytest.fixture
def grouped(node: FakeNode) -> FakeNode:
    """One group of `temps`, one of another log."""
    node.groups = [BILLING, GroupInfo("other", "idle")]
    return node


def test_groups_are_listed_of_one_log_or_of_all(grouped: FakeNode, run: Run) -> None:
    lines = run("group", "list").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["LOG", "GROUP", "MEMBERS", "WAITING", "LAG", "UPDATED"],
        ["temps", "billing", "1", "2", "1,200", "2026-11-21T06:30:00.000Z"],
        ["other", "idle", "0", "-", "-", "-"],
    ]
    assert len(run("group", "list", "temps").stdout.splitlines()) == 2
    assert [one["group"] for one in json.loads(run("group", "list", "--json").stdout)["groups"]] == [
        "billing",
        "idle",
    ]


def test_members_that_are_not_known_are_not_shown_as_none(grouped: FakeNode, run: Run) -> None:
    """A home on Kafka did not answer: the reason goes to stderr, once for all groups that have it."""
    reason = "the home b:1 is not reached: Connect call failed"
    silent = replace(BILLING, members_known=False, members_reason=reason)
    grouped.groups = [replace(silent, name=f"g{number}") for number in range(10)]
    grouped.incomplete = ("no node decides about it at the moment",)
    listed = run("group", "list")
    assert listed.stdout.splitlines()[1].split() == [
        "temps", "g0", "-", "-", "1,200", "2026-11-21T06:30:00.000Z",
    ]  # fmt: skip
    assert listed.stderr.splitlines() == [
        f"the members of g0, g1, g2, g3, g4, g5, g6, g7 and 2 more are not known: {reason}",
        "groups without a position and an epoch may be missing: no node decides about it at the moment",
    ]
    given = json.loads(run("group", "list", "--json").stdout)
    assert given["incomplete"] == list(grouped.incomplete)
    assert (given["groups"][0]["members_known"], given["groups"][0]["members_reason"]) == (False, reason)
    described = run("group", "describe", "temps", "g0")
    assert described.stdout.splitlines()[0].startswith("g0 of temps: members not known, 2 attaches waiting;")
    assert described.stderr == f"the members of g0 are not known: {reason}\n"


def test_a_group_is_described_partition_by_partition(grouped: FakeNode, run: Run) -> None:
    lines = run("group", "describe", "temps", "billing").stdout.splitlines()
    assert lines[0] == "billing of temps: 1 members, 2 attaches waiting; 1,200 events to come"
    assert [line.split() for line in lines[1:]] == [
        ["PARTITION", "OFFSET", "LAG", "EPOCH", "OWNER"],
        ["0", "41", "1,200", "3", "m1"],
        ["1", "-", "-", "0", "-"],
    ]
    assert (
        run("group", "describe", "other", "idle").stdout.splitlines()[0]
        == "idle of other: 0 members; - events to come"
    )


def test_the_names_of_the_json_are_stable(grouped: FakeNode, run: Run) -> None:
    assert json.loads(run("group", "describe", "temps", "billing", "--json").stdout) == {
        "log": "temps", "group": "billing", "members": ["m1"], "waiting": 2, "active": True,
        "members_known": True, "members_reason": None,
        "updated": "2026-11-21T06:30:00.000Z",
        "lag": 1200,
        "partitions": [
            {"partition": "0", "offset": 41, "next": 42, "lag": 1200, "epoch": 3, "owner": "m1"},
            {"partition": "1", "offset": None, "next": None, "lag": None, "epoch": 0, "owner": None},
        ],
    }  # fmt: skip


def test_a_group_is_moved_as_a_reader_would_begin(grouped: FakeNode, run: Run) -> None:
    answer = run("group", "reset", "temps", "billing", "--to", "2026-11-21T06:30", "--yes", "--json")
    assert json.loads(answer.stdout)["group"] == "billing"
    assert grouped.asked[1] == ("reset", "temps", "billing", AfterTime(NOW_MS - 1), None)


def test_a_group_that_is_misspelt_leads_to_the_one_that_was_meant(grouped: FakeNode, run: Run) -> None:
    assert (
        run("group", "describe", "temps", "biling").stderr
        == "amqp-streams: log 'temps' has no consumer group 'biling'; did you mean 'billing'?\n"
    )


def test_an_offset_needs_a_partition_if_the_log_has_several(grouped: FakeNode, run: Run) -> None:
    answer = run("group", "reset", "temps", "billing", "--to", "42")
    assert (answer.exit_code, "name the partition with --partition, one of 0, 1" in answer.stderr) == (
        2,
        True,
    )
    assert all(asked[0] != "reset" for asked in grouped.asked)


def test_a_group_is_removed_when_the_answer_is_yes(grouped: FakeNode, run: Run) -> None:
    answer = run("group", "remove", "temps", "billing", stdin="n\n")
    assert (answer.exit_code, answer.stderr) == (
        1,
        "Remove group billing of temps with its position and its epochs? [y/N] nothing was removed\n",
    )
    assert grouped.asked == []
    assert run("group", "remove", "temps", "billing", "--yes").stderr == "billing was removed\n"
    assert grouped.asked[-1] == ("delete", "temps", "billing")


def test_a_missing_object_is_a_failure_with_a_message(grouped: FakeNode, run: Run) -> None:
    for words in (["describe"], ["reset", "--to", "earliest"], ["remove", "--yes"]):
        answer = run("group", words[0], "temps", "nope", *words[1:])
        assert (answer.exit_code, answer.stderr) == (
            1,
            "amqp-streams: log 'temps' has no consumer group 'nope'; see 'amqp-streams group list temps'\n",
        )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["reset", "temps", "billing"], "--to"),
        (["reset", "temps", "b", "--to", "soon"], "'--to'"),
        (["describe", "temps"], "GROUP"),
    ],
)
def test_a_usage_error_is_found_before_a_server_is_asked(
    grouped: FakeNode, run: Run, words: list[str], complaint: str
) -> None:
    answer = run("group", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not grouped.endpoints
