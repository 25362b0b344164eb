"""A group has finished when all of its members together have read the events that existed at the start."""

from collections.abc import Callable

import pytest

from amqp_streams.cli.membership import through
from amqp_streams.client import CursorPosition, Event, GroupInfo, LinkRefusedError, ManagementError
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


@pytest.mark.parametrize(
    ("positions", "ends", "done"),
    [
        ((), {}, True),
        ((), {"0": 0}, True),
        ((), {"0": 1}, False),
        ((CursorPosition("0", next_number=5, lag=3),), {"0": 5}, True),
        ((CursorPosition("0", next_number=4, lag=4),), {"0": 5}, False),
        ((CursorPosition("0", next_number=2, lag=0),), {"0": 5}, True),
        ((CursorPosition("0", next_number=5, lag=0), CursorPosition("1")), {"0": 5, "1": 1}, False),
        ((CursorPosition("0", next_number=5, lag=0), CursorPosition("1")), {"0": 5, "1": 0}, True),
    ],
)
def test_through_is_past_the_end_that_each_partition_had(
    positions: tuple[CursorPosition, ...], ends: dict[str, int], done: bool
) -> None:
    """Events that retention removed (a lag of 0 although the position is before the end) are not
    waited for.
    """
    assert through(positions, ends) is done


@pytest.fixture
def grouped(node: FakeNode) -> FakeNode:
    """A log of two events, and the group that reads it. The first request finds a lag of one event."""
    node.logs["temps"] = [[Event(b"a0"), Event(b"a1")], []]
    found = iter(
        [
            GroupInfo(
                "temps", "billing", positions=(CursorPosition("0", next_number=number, lag=2 - number),)
            )
            for number in (1, 2)
        ]
    )
    node.describe = lambda: next(found)
    return node


def test_a_member_reads_on_until_the_group_is_through(grouped: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--group", "billing", "--format", "body", "--timeout", "5")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "a0\na1\n", "")
    assert grouped.asked == [("describe", "temps", "billing")] * 2
    assert grouped.settled == [b"a0", b"a1"]
    assert grouped.opened[0]["settle"] == "manual"


def test_a_group_that_other_members_block_is_not_waited_for_beyond_the_timeout(
    grouped: FakeNode, run: Run
) -> None:
    grouped.describe = lambda: GroupInfo(
        "temps", "billing", positions=(CursorPosition("0", next_number=1, lag=1),)
    )
    answer = run("receive", "temps", "--group", "billing", "--format", "body", "--timeout", "0.001")
    assert (answer.exit_code, answer.stderr) == (1, "no event arrived for 0.001 s\n")


def test_a_follower_learns_which_partitions_come(grouped: FakeNode, run: Run) -> None:
    answer = run(
        "receive", "temps", "--group", "billing", "--follow", "--format", "body", "--timeout", "0.001"
    )
    assert (answer.exit_code, answer.stdout) == (0, "a0\na1\n")
    assert answer.stderr == "partition 0 was assigned to this member\nno event arrived for 0.001 s\n"
    assert grouped.asked == []


AWAY = LinkRefusedError(
    "amqp:link:detach-forced", "the node that decides about this group or cursor cannot be reached (refused)"
)


READ = (CursorPosition("0", next_number=2, lag=0),)


def unknown_group() -> GroupInfo:
    raise ManagementError(404, "log 'temps' has no consumer group 'billing'")


def not_reached() -> GroupInfo:
    return GroupInfo("temps", "billing", members_known=False, members_reason="not reached")


@pytest.mark.parametrize("describe", [unknown_group, not_reached])
def test_a_member_that_is_refused_says_why(
    grouped: FakeNode, run: Run, describe: Callable[[], GroupInfo]
) -> None:
    """Not that the group does not exist: without a member it does not exist yet."""
    grouped.refusal, grouped.describe = AWAY, describe
    answer = run("receive", "temps", "--group", "billing", "--format", "body")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "the node that decides about this group or cursor cannot be reached (refused)" in answer.stderr
    assert "no consumer group" not in answer.stderr


def test_a_member_that_others_leave_no_partition_waits_for_the_end(grouped: FakeNode, run: Run) -> None:
    """The node refuses it, and knows its members: the group goes on without it."""
    grouped.refusal = LinkRefusedError("amqp:link:detach-forced", "no partition is left")
    answer = run("receive", "temps", "--group", "billing", "--format", "body", "--timeout", "5")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", "")
    assert len(grouped.asked) == 2


def test_a_group_that_the_node_does_not_know_yet_is_asked_for_again(grouped: FakeNode, run: Run) -> None:
    found = iter([unknown_group, lambda: GroupInfo("temps", "billing", positions=READ)])

    def describe() -> GroupInfo:
        return next(found)()

    grouped.describe, grouped.joining = describe, True
    answer = run("receive", "temps", "--group", "billing", "--format", "body", "--timeout", "5")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert len(grouped.asked) == 2


def test_a_follower_that_is_refused_says_so_once_and_waits(grouped: FakeNode, run: Run) -> None:
    grouped.refusal = AWAY
    answer = run("receive", "temps", "--group", "billing", "--follow", "--format", "body", "--timeout", "0.1")
    assert answer.exit_code == 0
    assert answer.stderr.count("no partition yet: the node that decides about this group") == 1
    assert answer.stderr.endswith("no event arrived for 0.1 s\n")
