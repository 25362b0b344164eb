"""Refusals and changes are logged for operators, and do not fill their log."""

from typing import Any

import proton
from structlog.testing import capture_logs

from amqp_streams import names
from amqp_streams.policy import AccessRule
from amqp_streams.server.identity.guard import Login
from amqp_streams.server.observing.audit import LINES_MAX, WINDOW_MS, Audit
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from amqp_streams.wire.types import Value
from service_parts.health.changes import Changes
from tests.amqp_streams.server.test_access_walk import Room


def test_refusals_are_reported_up_to_a_number_and_counted_beyond() -> None:
    now = [0]
    audit = Audit(lambda: now[0], Changes(lambda: 0))
    with capture_logs() as lines:
        for _ in range(LINES_MAX + 5):
            audit.refused("alice", "no right")
        now[0] += WINDOW_MS
        audit.refused(None, "again")
        audit.refused(None, "and again")
    assert len(lines) == LINES_MAX + 2
    assert lines[0] == {
        "event": "access_refused",
        "log_level": "warning",
        "user": "alice",
        "reason": "no right",
        "left_out": 0,
    }
    assert [(line["user"], line["left_out"]) for line in lines[LINES_MAX:]] == [("", 5), ("", 0)]
    assert audit.refused_count == LINES_MAX + 7


def test_filters_that_are_refused_are_reported_without_filling_the_log_either() -> None:
    client = EnginePair(InMemoryNode({"temps": 1}), login=Login("alice"))
    with capture_logs() as lines:
        for _ in range(LINES_MAX + 5):
            client.receiver("temps", filters={"f": proton.Described(proton.symbol("amqp:sql-filter"), "a =")})
    told = [line for line in lines if line["event"] == "filter_refused"]
    assert len(told) == LINES_MAX
    assert {**told[0], "log_level": "warning", "user": "alice", "left_out": 0} == told[0]
    assert told[0]["reason"].startswith("filter f, position 4: the text ends")


def test_changes_are_logged_and_look_ups_are_not() -> None:
    audit = Audit(lambda: 0, Changes(lambda: 0))
    with capture_logs() as lines:
        for operation, status in (
            ("CREATE", 201),
            ("READ", 200),
            ("QUERY", 200),
            (names.EXTENTS, 200),
            ("DELETE", 404),
            ("DELETE", 403),
        ):
            audit.managed(
                "alice", Request(operation, names.LOG_TYPE, "temps", {}, None, None), Answer(status, "words")
            )
    assert [(line["event"], line.get("operation")) for line in lines] == [
        ("managed", "CREATE"),
        ("access_refused", None),
    ]
    assert {**lines[0], "log_level": "info"} == {
        "event": "managed",
        "log_level": "info",
        "user": "alice",
        "operation": "CREATE",
        "type": "event-log",
        "name": "temps",
        "status": 201,
    }


def refused(lines: list[Any]) -> list[tuple[str, str]]:
    return [(line["user"], line["reason"]) for line in lines if line["event"] == "access_refused"]


def test_a_refused_link_message_or_request_is_logged_with_its_user() -> None:
    rule = AccessRule.model_validate({"users": ["bob"], "logs": ["*"], "allow": ["send"]})
    node = InMemoryNode({"temps": 1}, access=[rule])
    alice, nobody = EnginePair(node, login=Login("alice")), EnginePair(node)
    with capture_logs() as lines:
        alice.receiver("temps")
        nobody.send(nobody.sender(None), proton.Message(address="temps"))
        Room("stranger").ask("DELETE", names.LOG_TYPE, "temps")
    assert refused(lines) == [
        ("alice", "user 'alice' has no right 'receive' on 'temps'"),
        ("", "an anonymous connection has no right 'send' on 'temps'"),
        ("stranger", "user 'stranger' has no right 'manage' on 'temps'"),
    ]
    assert finish(node.service.status()).access_refused == 2


def test_a_change_says_what_was_asked_and_what_was_before() -> None:
    room = Room("manager")
    with capture_logs() as lines:
        body: dict[str, Any] = {"retention-ms": 5000}
        assert room.ask("UPDATE", names.LOG_TYPE, "temps", **body)[0] == 200
    line = next(line for line in lines if line["event"] == "managed")
    assert (line["asked"], line["retention-ms"]) == ("retention-ms 5000", "None → 5000")
    change = room.node.service.audit.changes.latest()[0]
    assert (change.what, change.name) == ("UPDATE", "temps")
    assert change.details["retention-ms"] == "None → 5000"


def test_the_names_and_values_of_a_request_cannot_make_a_line_of_another_kind_or_size() -> None:
    audit = Audit(lambda: 0, Changes(lambda: 0))
    hostile: dict[Value, Value] = {
        "event": "x",
        "user": "root",
        "no": None,
        "more": ["x"] * 1000,
        "k" * 500: "v" * 500,
    }
    hostile |= {f"n{number}": number for number in range(50)}
    with capture_logs() as lines:
        audit.managed("eve", Request("UPDATE", "t", "temps", hostile, None, None), Answer(200, "words"))
    (line,) = lines
    assert (line["event"], line["user"], line["status"]) == ("managed", "eve", 200)
    assert line["asked"].startswith("event x, user root, no null, more …, k")
    assert len(line["asked"]) < 1000
    assert sum(map(len, audit.changes.latest()[0].details.values())) < 1000
