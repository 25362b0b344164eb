"""Requests about cursors and consumer groups. Spec: AMQP Management 1.0 (working draft)."""

from pathlib import Path
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams.access import Access
from amqp_streams.streams.attach import AttachRequest
from amqp_streams.streams.management import Request
from amqp_streams.wire.types import Symbol, ULong, Value
from tests.amqp_streams.node.bench import EARLIEST, NOW, Bench, attach, member


@pytest.fixture
def bench() -> Bench:
    return Bench()


def durable(link: str = "s", **options: Any) -> AttachRequest:
    return attach(consumer=True, link=link, durable=True, filters=EARLIEST, **options)


def cursor_id(bench: Bench, index: int = 0) -> str:
    return str(bench.manage("QUERY", type_=names.CURSOR_TYPE)[2][names.CURSORS][index][names.CURSOR_ID])


def on_cursor(bench: Bench, operation: str, **body: Value) -> tuple[int, str, Any]:
    return bench.manage(operation, cursor_id(bench), names.CURSOR_TYPE, log="temps", **body)


def on_group(bench: Bench, operation: str, group: str = "g", **body: Value) -> tuple[int, str, Any]:
    return bench.manage(operation, group, names.GROUP_TYPE, log="temps", **body)


# -- cursors


def test_a_cursor_is_listed_where_it_is_this_moment(bench: Bench) -> None:
    consumer = bench.consume(durable(user="ann"))
    bench.append(0, 0, 0, 1)
    bench.read(consumer)
    bench.settle(consumer, (0, 0), (0, 1))
    status, _, body = bench.manage("QUERY", type_=names.CURSOR_TYPE)
    assert status == 200
    (listed,) = body[names.CURSORS]
    assert listed == {
        "log": "temps",
        "id": listed["id"],
        "group": None,
        "container": "container",
        "link": "s",
        "user": "ann",
        "updated-ms": 0,
        "active": True,
        "partitions": [
            {
                "partition": "0",
                "offset": f"{1:016d}",
                "position-next": 2,
                "lag": 1,
                "epoch": None,
                "member": "container",
            },
            {
                "partition": "1",
                "offset": None,
                "position-next": 0,
                "lag": 1,
                "epoch": None,
                "member": "container",
            },
        ],
    }
    assert isinstance(listed["partitions"][0]["offset"], Symbol)
    bench.flush()
    bench.detach(consumer)
    status, _, read = on_cursor(bench, "READ")
    assert (status, read["active"], read["updated-ms"]) == (200, False, NOW)
    assert read["partitions"][0]["member"] is None
    assert read == bench.manage("QUERY", type_=names.CURSOR_TYPE, log="temps")[2][names.CURSORS][0]


@pytest.mark.parametrize(
    ("body", "positions"),
    [
        ({"position": "@earliest"}, [0, 0]),
        ({"position": "@latest"}, [3, 1]),
        ({"position": "@latest", "partition": "0"}, [3, 1]),
        ({"timestamp": NOW}, [1, 1]),
        ({"partition": Symbol("0"), "offset": Symbol(f"{0:016d}")}, [1, 1]),
    ],
)
def test_a_cursor_is_moved(bench: Bench, body: dict[str, Value], positions: list[int]) -> None:
    """An offset and a time name the last skipped event, as in a filter."""
    bench.append(0)
    bench.append(0, 0, now_ms=NOW + 1)
    consumer = bench.consume(durable())
    bench.append(1, now_ms=NOW)
    bench.settle(consumer, *bench.read(consumer))
    bench.detach(consumer)
    status, _, moved = on_cursor(bench, "UPDATE", **body)
    assert (status, [each["position-next"] for each in moved["partitions"]]) == (200, positions)
    bench.complete()
    bench.restart()
    again = bench.consume(durable())
    wanted = [
        (index, number) for index, first in enumerate(positions) for number in range(first, (3, 1)[index])
    ]
    assert sorted(bench.read(again)) == wanted


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "0 targets"),
        ({"position": "@latest", "timestamp": 1}, "2 targets"),
        ({"position": "somewhere"}, "@earliest"),
        ({"timestamp": "noon"}, "milliseconds"),
        ({"offset": f"{0:016d}"}, "needs a partition"),
        ({"offset": f"{9:016d}", "partition": "0"}, "no event"),
        ({"offset": "12", "partition": "0"}, "is not a valid offset"),
        ({"offset": 12, "partition": "0"}, "a symbol"),
        ({"position": "@latest", "partition": "7"}, "no partition"),
        ({"colour": "blue"}, "unknown entry"),
    ],
)
def test_a_cursor_is_moved_only_to_existing_positions(
    bench: Bench, body: dict[str, Value], words: str
) -> None:
    bench.detach(bench.consume(durable()))
    status, description, _ = on_cursor(bench, "UPDATE", **body)
    assert status == 400
    assert words in description


def test_a_cursor_that_is_in_use_is_left_alone(bench: Bench) -> None:
    consumer = bench.consume(durable())
    for operation in ("UPDATE", "DELETE"):
        assert on_cursor(bench, operation, position="@latest")[0] == 409
    bench.detach(consumer)
    assert on_cursor(bench, "DELETE") == (204, "deleted", {})
    assert bench.manage("QUERY", type_=names.CURSOR_TYPE)[2] == {names.CURSORS: []}
    bench.complete()
    assert bench.store.states.items("") == []


@pytest.mark.parametrize("type_", [names.CURSOR_TYPE, names.GROUP_TYPE])
def test_unknown_objects_are_not_found(bench: Bench, type_: str) -> None:
    for operation in ("READ", "UPDATE", "DELETE"):
        assert bench.manage(operation, "nobody", type_, log="temps")[0] == 404
        assert bench.manage(operation, "nobody", type_, log="nowhere")[0] == 404
        assert bench.manage(operation, "nobody", type_)[0] == 400
    assert bench.manage("QUERY", type_=type_, log="nowhere")[0] == 404
    assert bench.manage("CREATE", "nobody", type_, log="temps")[0] == 501


# -- groups


def test_a_group_is_listed_with_its_members_epochs_and_cursor(bench: Bench) -> None:
    owner = bench.consume(member(partition=0, epoch=4, durable=True, filters=EARLIEST, container="a"))
    bench.consume(member(partition=1, container="b"))
    bench.attach(member(container="c"))
    bench.append(0, 0)
    bench.settle(owner, bench.read(owner)[0])
    status, _, body = bench.manage("QUERY", type_=names.GROUP_TYPE)
    assert status == 200
    (listed,) = body[names.GROUPS]
    cursor = bench.manage("QUERY", type_=names.CURSOR_TYPE)[2][names.CURSORS][0]
    assert (listed["name"], listed["group"], listed["log"], listed["active"], listed["waiting"]) == (
        "g",
        "g",
        "temps",
        True,
        1,
    )
    assert (listed["id"], listed["container"], listed["link"]) == (cursor["id"], None, None)
    assert listed["partitions"] == [
        {"partition": "0", "offset": f"{0:016d}", "position-next": 1, "lag": 1, "epoch": 4, "member": "a"},
        {"partition": "1", "offset": None, "position-next": None, "lag": None, "epoch": 0, "member": "b"},
    ]
    assert cursor["partitions"] == listed["partitions"][:1]
    assert isinstance(listed["partitions"][0]["epoch"], ULong)
    assert on_group(bench, "READ")[2] == listed


def test_epochs_without_a_group_do_not_create_a_group(bench: Bench) -> None:
    bench.consume(member("", partition=0, epoch=1))
    assert bench.manage("QUERY", type_=names.GROUP_TYPE)[2] == {names.GROUPS: []}
    assert on_group(bench, "READ", "")[0] == 404


def test_a_group_that_is_in_use_is_left_alone(bench: Bench) -> None:
    links = [
        bench.consume(member(partition=0, epoch=3, durable=True)),
        bench.attach(member(partition=1, epoch=2)),
    ]
    for link in links:
        assert on_group(bench, "DELETE")[0] == 409
        assert on_group(bench, "UPDATE", position="@earliest")[0] == 409
        bench.detach(link)
    bench.complete()
    assert on_group(bench, "UPDATE", position="@earliest")[0] == 200
    assert on_group(bench, "DELETE") == (204, "deleted", {})
    assert on_group(bench, "READ")[0] == 404
    bench.complete()
    assert bench.store.states.items("") == []
    assert bench.consume(member(partition=0)).epoch == 0


def test_a_group_without_a_cursor_has_none_to_move(bench: Bench) -> None:
    bench.detach(bench.consume(member(partition=0, epoch=3)))
    status, description, _ = on_group(bench, "UPDATE", position="@earliest")
    assert status == 409
    assert "durable" in description
    assert on_group(bench, "DELETE")[0] == 204


def test_every_entry_is_documented_in_the_manual(bench: Bench) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "management.md").read_text()
    bench.consume(member(partition=0, durable=True))
    for type_, plural in ((names.CURSOR_TYPE, names.CURSORS), (names.GROUP_TYPE, names.GROUPS)):
        (listed,) = bench.manage("QUERY", type_=type_)[2][plural]
        for entry in (type_, *listed, *listed[names.INFO_PARTITIONS][0]):
            assert f"`{entry}`" in manual, entry
        assert f'"{plural}"' in manual


# -- who may


def rule(user: str, *rights: Right, **options: Any) -> AccessRule:
    return AccessRule(users=(user,), logs=("temps",), allow=rights, **options)


def test_unauthenticated_clients_do_not_learn_what_is_kept(bench: Bench) -> None:
    bench.detach(bench.consume(durable(user="ann")))
    bench.detach(bench.consume(member(partition=0, durable=True, user="ann")))
    names_ = [cursor_id(bench, index) for index in range(2)]
    bench.node.access = Access(
        [rule("boss", Right.MANAGE), rule("ann", Right.RECEIVE), rule("bob", Right.RECEIVE)]
    )

    def as_(
        user: str, operation: str, name: str = "", type_: str = names.CURSOR_TYPE, log: str = "temps"
    ) -> tuple[int, Any]:
        body: dict[Value, Value] = {"position": "@latest"} if operation == "UPDATE" else {}
        answer = bench.node.manage(Request(operation, type_, name, body, "me", 1, log=log), user)
        return answer.status, answer.body

    def listed(user: str, log: str = "temps") -> int:
        return len(as_(user, "QUERY", log=log)[1][names.CURSORS])

    assert (listed("boss"), listed("ann"), listed("ann", "")) == (2, 2, 2)
    assert listed("bob", "") == 0
    for operation in ("READ", "UPDATE", "DELETE", "QUERY"):
        there, missing = as_("bob", operation, names_[1]), as_("bob", operation, names_[1], log="nowhere")
        assert there[0] == missing[0] == 403, "the same, whether there is something or not"
        assert (
            as_("eve", operation, "g", names.GROUP_TYPE)[0]
            == as_("eve", operation, "g", names.GROUP_TYPE, "nowhere")[0]
            == 403
        )
    assert as_("ann", "READ", "g", names.GROUP_TYPE)[0] == 200
    assert as_("ann", "DELETE", "g", names.GROUP_TYPE)[0] == 403, (
        "a group's cursor is not one member's to take away"
    )
    assert as_("ann", "UPDATE", names_[0])[0] == 403, "nor is it under its cursor's name"
    assert as_("ann", "UPDATE", names_[1])[0] == 200
    assert as_("boss", "DELETE", names_[1])[0] == 204
    assert as_("boss", "DELETE", "g", names.GROUP_TYPE)[0] == 204
