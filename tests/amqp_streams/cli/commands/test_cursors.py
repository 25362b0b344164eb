"""`cursor`: cursors are listed, found by id or name, moved and removed."""

import json

import pytest

from amqp_streams.client import EARLIEST, LATEST, AfterOffset, AfterTime, CursorInfo, CursorPosition
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import NOW_MS, FakeNode

NIGHTLY = CursorInfo(
    "temps",
    "9de4",
    container="reports",
    link="nightly",
    user="alice",
    active=True,
    updated_ms=NOW_MS,
    positions=(CursorPosition("0", 41, 42, 1000), CursorPosition("1", lag=2)),
)
BILLING = CursorInfo("temps", "f69d", group="billing", positions=(CursorPosition("0", 1, 2, 0, 3, "m1"),))
OTHER = CursorInfo("other", "1234", container="c", link="nightly")


@pytest.fixture
def kept(node: FakeNode) -> FakeNode:
    """Two cursors in `temps`, one in `other`."""
    node.logs["other"] = [[]]
    node.cursors = [NIGHTLY, BILLING, OTHER]
    return node


def test_cursors_are_listed_of_one_log_or_of_all(kept: FakeNode, run: Run) -> None:
    lines = run("cursor", "list", "temps").stdout.splitlines()
    assert lines[0].split() == [
        "LOG",
        "CURSOR",
        "NAME",
        "CONTAINER",
        "GROUP",
        "USER",
        "ACTIVE",
        "LAG",
        "UPDATED",
    ]
    assert lines[1].split() == [
        "temps",
        "9de4",
        "nightly",
        "reports",
        "-",
        "alice",
        "yes",
        "1,002",
        "2026-11-21T06:30:00.000Z",
    ]
    assert lines[2].split() == ["temps", "f69d", "-", "-", "billing", "-", "no", "0", "-"]
    assert len(lines) == 3
    assert len(run("cursor", "list").stdout.splitlines()) == 4
    assert run("cursor", "list", "nope").exit_code == 1


def test_the_names_of_the_json_are_stable(kept: FakeNode, run: Run) -> None:
    first, second = json.loads(run("cursor", "list", "temps", "--json").stdout)["cursors"]
    assert first == {
        "log": "temps", "id": "9de4", "group": None, "container": "reports", "name": "nightly",
        "user": "alice", "active": True, "members_known": True, "members_reason": None,
        "updated": "2026-11-21T06:30:00.000Z", "lag": 1002,
        "partitions": [
            {"partition": "0", "offset": 41, "next": 42, "lag": 1000, "epoch": None, "owner": None},
            {"partition": "1", "offset": None, "next": None, "lag": 2, "epoch": None, "owner": None},
        ],
    }  # fmt: skip
    assert (second["group"], second["partitions"][0]["owner"], second["partitions"][0]["epoch"]) == (
        "billing",
        "m1",
        3,
    )


@pytest.mark.parametrize(
    ("words", "to"),
    [
        (["earliest"], EARLIEST),
        (["latest"], LATEST),
        (["42"], AfterOffset(41)),
        (["0"], EARLIEST),
        (["2026-11-21T06:30:00Z"], AfterTime(NOW_MS - 1)),
    ],
)
@pytest.mark.parametrize("name", ["9de4", "nightly"])
def test_a_cursor_is_moved_as_a_reader_would_begin(
    kept: FakeNode, run: Run, words: list[str], to: object, name: str
) -> None:
    answer = run("cursor", "reset", "temps", name, "--to", *words, "--partition", "0", "--yes")
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[0].split() == ["PARTITION", "OFFSET", "LAG", "EPOCH", "OWNER"]
    assert kept.asked == [("reset", "temps", "9de4", to, "0")]
    assert (
        json.loads(
            run(
                "cursor", "reset", "temps", name, "--to", *words, "--partition", "0", "--yes", "--json"
            ).stdout
        )["id"]
        == "9de4"
    )


def test_a_cursor_is_shown_before_it_is_moved_and_moved_when_the_answer_is_yes(
    kept: FakeNode, run: Run
) -> None:
    answer = run("cursor", "reset", "temps", "nightly", "--to", "earliest", stdin="n\n")
    assert answer.exit_code == 1
    assert "nightly of temps reads next: 0:" in answer.stderr
    assert answer.stderr.endswith("Move it to earliest? [y/N] nothing was moved\n")
    assert kept.asked == []
    assert run("cursor", "reset", "temps", "nightly", "--to", "earliest", stdin="y\n").exit_code == 0
    assert [asked[0] for asked in kept.asked] == ["reset"]


def test_a_name_that_no_user_or_two_users_have_is_not_guessed(kept: FakeNode, run: Run) -> None:
    answer = run("cursor", "remove", "temps", "nope")  # before the question
    assert (answer.exit_code, answer.stderr) == (
        1,
        "amqp-streams: log 'temps' has no cursor 'nope': see 'amqp-streams cursor list temps'\n",
    )
    kept.cursors.append(CursorInfo("temps", "aaaa", container="elsewhere", link="nightly"))
    answer = run("cursor", "remove", "temps", "nightly", "--yes")
    assert (answer.exit_code, answer.stderr) == (
        1,
        "amqp-streams: 2 containers have a subscription 'nightly': use a cursor id, 9de4, aaaa\n",
    )
    assert kept.asked == []


def test_a_cursor_is_removed_when_the_answer_is_yes(kept: FakeNode, run: Run) -> None:
    answer = run("cursor", "remove", "temps", "nightly", stdin="yes\n")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr == "Remove cursor nightly of temps with its position? [y/N] nightly was removed\n"
    assert run("cursor", "remove", "temps", "f69d", "--yes").exit_code == 0
    assert kept.asked == [("delete", "temps", "9de4"), ("delete", "temps", "f69d")]


@pytest.mark.parametrize("stdin", ["n\n", ""])
def test_a_cursor_is_not_removed_for_any_other_answer(kept: FakeNode, run: Run, stdin: str) -> None:
    answer = run("cursor", "remove", "temps", "nightly", stdin=stdin)
    assert answer.exit_code == 1
    assert answer.stderr.endswith("nothing was removed\n")
    assert kept.asked == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["reset", "temps", "nightly"], "--to"),
        (["reset", "temps", "nightly", "--to", "yesterday"], "'--to'"),
        (["reset", "temps"], "CURSOR"),
        (["remove"], "ADDRESS"),
    ],
)
def test_a_usage_error_is_found_before_a_server_is_asked(
    kept: FakeNode, run: Run, words: list[str], complaint: str
) -> None:
    answer = run("cursor", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not kept.endpoints


def test_an_address_may_name_its_node(kept: FakeNode, run: Run) -> None:
    assert run("cursor", "list", "amqp://elsewhere:5000/temps").exit_code == 0
    assert kept.endpoints[0].url == "amqp://elsewhere:5000"
