"""Cursors: the requests to `$management` and their answers."""

import pytest

from amqp_streams.client import (
    EARLIEST,
    LATEST,
    AfterOffset,
    AfterTime,
    CursorInfo,
    CursorPosition,
    GroupInfo,
    GroupList,
    Start,
    connect,
)
from amqp_streams.client.management.cursors import cursor_info, group_info, lag_of, listed, reset_body
from amqp_streams.wire.codec import Symbol, Timestamp, ULong
from tests.amqp_streams.client.conftest import MemoryNode
from tests.amqp_streams.client.management.test_requests import URL, answering

POSITIONS = [
    {
        "partition": Symbol("0"),
        "offset": Symbol("0000000000000041"),
        "position-next": 42,
        "lag": 8,
        "epoch": ULong(3),
        "member": "m1",
    },
    {
        "partition": Symbol("1"),
        "offset": None,
        "position-next": None,
        "lag": None,
        "epoch": ULong(0),
        "member": None,
    },
]
CURSOR: dict[str, object] = {
    "log": "temps", "id": "9de4", "group": None, "container": "c", "link": "nightly", "user": "alice",
    "active": True, "updated-ms": 5,
    "partitions": POSITIONS,
}  # fmt: skip
GROUP: dict[str, object] = {
    "log": "temps",
    "name": "billing",
    "active": True,
    "waiting": 2,
    "updated-ms": None,
    "partitions": POSITIONS,
}
READ = (CursorPosition("0", 41, 42, 8, 3, "m1"), CursorPosition("1", epoch=0))


def test_entries_are_read_and_what_is_unknown_is_kept() -> None:
    assert cursor_info(CURSOR) == CursorInfo(
        "temps", "9de4", None, "c", "nightly", "alice", active=True, updated_ms=5, positions=READ
    )
    assert cursor_info(CURSOR | {"more": 1}).details["more"] == 1
    group = group_info(GROUP)
    assert group == GroupInfo("temps", "billing", active=True, waiting=2, positions=READ)
    assert group.members == ("m1",)


def test_an_entry_of_another_shape_says_nothing() -> None:
    assert cursor_info({"id": "x", "active": 1, "updated-ms": "now", "partitions": [3]}) == CursorInfo(
        "None", "x"
    )
    assert listed({"cursors": "none"}, "cursors") == []


def test_lag_is_that_of_the_partitions_where_it_is_known() -> None:
    assert lag_of(READ) == 8
    assert lag_of((CursorPosition("0", lag=1), CursorPosition("1", lag=2))) == 3
    assert lag_of((CursorPosition("0"),)) is None


@pytest.mark.parametrize(
    ("to", "partition", "body"),
    [
        (EARLIEST, None, {"position": "@earliest"}),
        (LATEST, "1", {"position": "@latest", "partition": "1"}),
        (AfterOffset(41), "0", {"offset": Symbol("0000000000000041"), "partition": "0"}),
        (AfterTime(7), None, {"timestamp": Timestamp(7)}),
    ],
)
def test_the_start_of_a_reset_is_written_as_in_a_filter(
    to: Start, partition: str | None, body: dict[str, object]
) -> None:
    assert reset_body(to, partition) == body


def test_members_are_known_unless_the_node_says_that_they_are_not() -> None:
    assert group_info(GROUP).members_known
    unknown = {"members-known": False, "members-reason": "the home does not answer"}
    for info in (group_info(GROUP | unknown), cursor_info(CURSOR | unknown)):
        assert (info.members_known, info.members_reason) == (False, "the home does not answer")


async def test_a_list_says_why_groups_may_be_missing(node: MemoryNode) -> None:
    answering(node, 200, {"groups": [GROUP], "incomplete": ["no node decides"]})
    async with connect(URL) as client:
        found = await client.management.query_groups()
        assert found == GroupList((group_info(GROUP),), ("no node decides",))


async def test_requests_say_their_type_and_their_log(node: MemoryNode) -> None:
    requests = answering(node, 200, {"cursors": [CURSOR], "groups": [GROUP], **CURSOR, "name": "billing"})
    async with connect(URL) as client:
        management = client.management
        assert await management.list_cursors() == [cursor_info(CURSOR)]
        assert await management.list_groups("temps") == [group_info(GROUP)]
        assert (await management.describe_cursor("temps", "9de4")).link == "nightly"
        assert (await management.describe_group("temps", "billing")).name == "billing"
        assert (await management.reset_cursor("temps", "9de4", EARLIEST)).id == "9de4"
        assert (
            await management.reset_group("temps", "billing", AfterTime(7), partition="1")
        ).name == "billing"
        await management.delete_cursor("temps", "9de4")
        await management.delete_group("temps", "billing")
    asked = [
        tuple(request.properties.get(name) for name in ("operation", "type", "name", "log"))
        for request in requests
    ]
    cursor, group = "event-cursor", "event-consumer-group"
    assert asked == [
        ("QUERY", cursor, None, None),
        ("QUERY", group, None, "temps"),
        *[
            (operation, *about)
            for operation in ("READ", "UPDATE", "DELETE")
            for about in ((cursor, "9de4", "temps"), (group, "billing", "temps"))
        ],
    ]
    assert [request.body for request in requests[4:6]] == [
        {"position": "@earliest"},
        {"timestamp": Timestamp(7), "partition": "1"},
    ]
