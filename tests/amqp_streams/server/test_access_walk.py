"""Every operation as every kind of user, over real frames: the required rights, and that users without rights
learn no names.

Each row of `OPERATIONS` is an operation that a peer can request, with the kinds of users that may perform it.
The lists of links and requests come from the code: a test fails if one of them is missing in the rows.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import proton
import pytest

from amqp_streams import names
from amqp_streams.policy import AccessRule
from amqp_streams.server.identity.guard import Login
from amqp_streams.streams import attach, management
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.wire.codec import decode, encode
from tests.amqp_streams.decoded import description, mapping

RULES = [
    AccessRule.model_validate(rule)
    for rule in (
        {"users": ["sender"], "logs": ["temps"], "allow": ["send"]},
        {"users": ["reader", "rival"], "logs": ["temps"], "allow": ["receive"]},
        {"users": ["member"], "logs": ["temps"], "allow": ["receive"], "consumer_groups": ["billing*"]},
        {"users": ["teller"], "logs": ["temps"], "allow": ["info"]},
        {"users": ["manager"], "logs": ["temps"], "allow": ["manage"]},
        {"users": ["group:ops"], "logs": ["temps"], "allow": ["send", "receive", "info", "manage"]},
        {"users": ["everybody"], "logs": ["*"], "allow": ["send", "receive", "info", "manage"]},
        {"users": ["*"], "logs": ["public"], "allow": ["receive"]},
    )
]
KINDS: dict[str, Login] = {
    "anonymous": Login(),
    "stranger": Login("stranger"),
    "sender": Login("sender"),
    "reader": Login("reader"),
    "rival": Login("rival"),
    "member": Login("member"),
    "teller": Login("teller"),
    "manager": Login("manager"),
    "operator": Login("olga", frozenset({"ops"})),
}
LOG, CURSOR, GROUP = names.LOG_TYPE, names.CURSOR_TYPE, names.GROUP_TYPE
CONNECTION = names.CONNECTION_TYPE
NOBODY: frozenset[str] = frozenset()
EVERYBODY = frozenset(KINDS)
SENDERS = frozenset({"sender", "operator"})
READERS = frozenset({"reader", "rival", "operator"})
MEMBERS = READERS | {"member"}
MANAGERS = frozenset({"manager", "operator"})
TELLERS = MANAGERS | {"teller"}


@dataclass
class Outcome:
    """The result of an operation. `words`: the error's text for a client without the right."""

    allowed: bool
    words: str = ""


@cache
def _furnished(*, has_rules: bool) -> MemoryStore:
    """The store of a node that has ended, with the logs and all that is kept. Attaching takes 0.1 s."""
    node = InMemoryNode({"temps": 2, "hidden": 2, "public": 1}, access=RULES if has_rules else [])
    for log in ("temps", "hidden"):
        _keep(node, log, "everybody" if log == "hidden" else "reader", "readers-container", "sub")
        user = "everybody" if log == "hidden" else "member"
        _keep(node, log, user, "members-container", "any", group="billing")
    store = node.store.reopened()
    # Neither is called any more: a copy has a node of its own.
    store.states.on_written = lambda _number, _error: None
    store.states.defer = None
    return store


def _keep(
    node: InMemoryNode, log: str, user: str, container: str, link: str, *, group: str | None = None
) -> None:
    client = EnginePair(node, container=container, login=Login(user))
    for partition in (0, 1):
        name = f"{link}{partition}" if group else link
        bound: dict[str, Any] = {"group": group, "partition": partition} if group else {}
        made = client.receiver(log, name=name, durable=True, **bound)
        node.run()
        assert made.refused is None
        if not group:
            break
    client.connection.close()
    node.run()


class Room:
    """A node with a log `temps`, in which `reader` has a cursor and `member` has a cursor in the group
    `billing`, and a peer of one kind.
    """

    def __init__(self, kind: str) -> None:
        store = copy.deepcopy(_furnished(has_rules=bool(RULES)))
        self.node = InMemoryNode(store=store, access=RULES)
        self.kind = kind
        container = "readers-container" if kind == "reader" else "its-container"
        self.peer = EnginePair(self.node, container=container, login=KINDS[kind])

    def cursor(self, log: str, group: str | None) -> str:
        """The id of that cursor."""
        found = self.node.store.logs.get(log)
        if found is None:
            return "9de4c1"
        cursors = self.node.service.node._consumers.cursors.of_log(found)
        return next(cursor.id for cursor in cursors if cursor.key.group == group)

    def ask(
        self, operation: str, type_: str, name: str = "", log: str | None = None, **body: Any
    ) -> tuple[int, str, Any]:
        """A request to `$management`: status, words, body."""

        def answers(link: Any) -> None:
            link.target.address = "answers"

        receiver = self.peer.receiver(names.MANAGEMENT, prepare=answers, credit=10)
        properties = {"operation": operation, "type": type_, "name": name}
        message = proton.Message(
            body=body | ({"log": log} if log else {}), id=1, reply_to="answers", properties=properties
        )
        self.peer.send(self.peer.sender(names.MANAGEMENT), message)
        answer = receiver.arrived[0].message
        told = mapping(answer.properties)
        return told["status-code"], told["status-description"], answer.body


# -- what can be asked

NOTHING_KEPT = names.NOT_FOUND
"""A cursor of another user looks like a cursor that does not exist."""


def link_outcome(link: Any) -> Outcome:
    if link.refused is None:
        return Outcome(allowed=True)
    assert link.refused in (names.UNAUTHORIZED_ACCESS, NOTHING_KEPT), link.refused
    return Outcome(allowed=False, words=link.link.remote_condition.description)


def sends(**options: Any) -> Callable[[Room, str], Outcome]:
    return lambda room, log: link_outcome(room.peer.sender(log, **options))


def reads(**options: Any) -> Callable[[Room, str], Outcome]:
    return lambda room, log: link_outcome(room.peer.receiver(log, **options))


def relays(room: Room, log: str) -> Outcome:
    relay = room.peer.sender(None)
    assert relay.refused is None
    [sent] = room.peer.send(relay, proton.Message(body=b"x", address=log))
    if sent.outcome == "accepted":
        return Outcome(allowed=True)
    assert sent.condition == names.UNAUTHORIZED_ACCESS
    return Outcome(allowed=False, words=description(sent.delivery.remote.condition))


def informs(room: Room, log: str) -> Outcome:
    return link_outcome(room.peer.receiver(log + names.INFO_SUFFIX, credit=1))


def waits(room: Room, log: str) -> Outcome:
    """Both partitions of the group have links: a member that may own one waits."""
    holder = EnginePair(room.node, login=Login("everybody"))
    for partition in (0, 1):
        holder.receiver("temps", group="billing-2", partition=partition)
    link = room.peer.receiver(log, group="billing-2")
    return Outcome(allowed=True) if link.pending else link_outcome(link)


def takes_over(room: Room, log: str) -> Outcome:
    """Resume the cursor of `reader`, under the container and link that it belongs to."""
    other = EnginePair(room.node, container="readers-container", login=KINDS[room.kind])
    return link_outcome(other.receiver(log, name="sub", durable=True))


def _no_source(link: Any) -> None:
    link.source.type = proton.Terminus.UNSPECIFIED


def looks_up_kept(room: Room, _log: str) -> Outcome:
    other = EnginePair(room.node, container="readers-container", login=KINDS[room.kind])
    return link_outcome(other.receiver(None, name="sub", prepare=_no_source))


def attaches_management(room: Room, _log: str) -> Outcome:
    return link_outcome(room.peer.sender(names.MANAGEMENT))


def attaches_replies(room: Room, _log: str) -> Outcome:
    def dynamic(link: Any) -> None:
        link.source.dynamic = True

    return link_outcome(room.peer.receiver(None, prepare=dynamic))


def asks(
    operation: str, type_: str, good: int, *, group: str | None = None, **body: Any
) -> Callable[[Room, str], Outcome]:
    """A request about one thing.

    Allowed: it is carried out, or it would be if the thing could be so changed.
    """

    def ask(room: Room, log: str) -> Outcome:
        if type_ == LOG:
            status, words, _ = room.ask(operation, type_, log, **body)
        else:
            name = "billing" if type_ == GROUP else room.cursor(log, group)
            status, words, _ = room.ask(operation, type_, name, log, **body)
        if status == good:
            return Outcome(allowed=True)
        # Who may know of the log, but not of what is kept in it, is told that there is no such thing.
        seen = KINDS[room.kind].user == "teller" and type_ != LOG and log == "temps"
        assert status == (management.NOT_FOUND if seen else management.FORBIDDEN), (status, words)
        return Outcome(allowed=False, words=words)

    return ask


def asks_extents(room: Room, log: str) -> Outcome:
    """Return a request for the extents of a log, which the body names."""
    body: dict[str, Any] = {names.EXTENT_LOGS: [log]}
    status, words, _ = room.ask(names.EXTENTS, LOG, **body)
    assert status in {200, management.FORBIDDEN}, (status, words)
    return Outcome(status == 200, words)


def lists(type_: str, key: str, *, own: bool | None = None) -> Callable[[Room, str], Outcome]:
    """Check what a list shows. `own`: it contains the cursor of `reader`; otherwise that of the group."""

    def ask(room: Room, log: str) -> Outcome:
        status, words, body = room.ask("QUERY", type_)
        assert status == 200, words
        if type_ == LOG:
            return Outcome(allowed=log in [entry["name"] for entry in body[key]])
        entries = [
            entry
            for entry in body[key]
            if entry["log"] == log and (own is None or (entry["group"] is None) == own)
        ]
        return Outcome(allowed=bool(entries))

    return ask


def lists_of(type_: str, key: str) -> Callable[[Room, str], Outcome]:
    """The same of one log, by its name."""

    def ask(room: Room, log: str) -> Outcome:
        status, words, body = room.ask("QUERY", type_, log=log)
        return Outcome(status == 200 and bool(body[key]), words)

    return ask


def asks_about_another(operation: str) -> Callable[[Room, str], Outcome]:
    """A request about the connection of another user."""

    def ask(room: Room, _log: str) -> Outcome:
        other = EnginePair(room.node, login=Login("everybody"))
        found = room.node.service.node.manage(
            management.Request("QUERY", names.CONNECTION_TYPE, "", {"search": "everybody"}, None, None),
            "everybody",
        )
        answer: Any = decode(encode(found.body))[0]
        (one,) = answer[names.CONNECTIONS]
        if operation == "QUERY":
            status, words, body = room.ask("QUERY", names.CONNECTION_TYPE, search=one["name"])
            return Outcome(bool(body[names.CONNECTIONS]), words)
        status, words, _ = room.ask(operation, names.CONNECTION_TYPE, one["name"])
        assert status in {200, 204, management.FORBIDDEN}, (status, words)
        assert (other.connection.remote_condition is None) is (status != 204)
        return Outcome(status < 300, words)

    return ask


def asks_about_the_node(room: Room, _log: str) -> Outcome:
    status, words, _ = room.ask("READ", names.NODE_TYPE)
    assert status in {200, management.FORBIDDEN}, (status, words)
    return Outcome(status == 200, words)


TO = {"position": "@earliest"}
LONGER_RETENTION: dict[str, Any] = {"retention-ms": 60_000}
OPERATIONS: dict[str, tuple[object, Callable[[Room, str], Outcome], frozenset[str]]] = {
    "send": (attach.Producing, sends(), SENDERS),
    "send to a partition": (attach.Producing, sends(partition=1), SENDERS),
    "relay": (attach.Relaying, relays, SENDERS),
    "read": (attach.Consuming, reads(credit=1, filters=filter_of("@earliest")), READERS),
    "read a partition": (attach.Consuming, reads(partition=1), READERS),
    "read in a group": (attach.Consuming, reads(group="billing-2"), MEMBERS),
    "read in another group": (attach.Consuming, reads(group="audit"), READERS),
    "claim a partition of a group": (
        attach.Consuming,
        reads(group="billing-2", partition=0, epoch=5),
        MEMBERS,
    ),
    "read in a group that keeps its cursor": (
        attach.Consuming,
        reads(group="billing"),
        frozenset({"member"}),
    ),
    "claim a partition of such a group": (
        attach.Consuming,
        reads(group="billing", partition=0, epoch=5),
        frozenset({"member"}),
    ),
    "share the cursor of a group": (
        attach.Consuming,
        reads(group="billing", durable=True, name="share"),
        frozenset({"member"}),
    ),
    "keep a cursor": (attach.Consuming, reads(durable=True, name="own"), READERS),
    "resume the cursor of a reader": (attach.Consuming, takes_over, frozenset({"reader"})),
    "wait in a group": (attach.Pending, waits, MEMBERS),
    "look up what is kept for a reader": (attach.Kept, looks_up_kept, frozenset({"reader"})),
    "ask for information": (attach.Informing, informs, frozenset({"teller", "operator"})),
    "attach for requests": (attach.Managing, attaches_management, EVERYBODY),
    "attach for answers": (attach.Replying, attaches_replies, EVERYBODY),
    "create a log": ((LOG, "CREATE"), asks("CREATE", LOG, management.CONFLICT), MANAGERS),
    "describe a log": ((LOG, "READ"), asks("READ", LOG, 200), TELLERS),
    "ask where a log begins": ((LOG, names.EXTENTS), asks_extents, TELLERS),
    "see a log listed": ((LOG, "QUERY"), lists(LOG, "logs"), TELLERS),
    "change a log": ((LOG, "UPDATE"), asks("UPDATE", LOG, 200, **LONGER_RETENTION), MANAGERS),
    "delete a log": ((LOG, "DELETE"), asks("DELETE", LOG, 204), MANAGERS),
    "see a reader's cursor listed": (
        (CURSOR, "QUERY"),
        lists(CURSOR, "cursors", own=True),
        MANAGERS | {"reader"},
    ),
    "see the cursors of the log": (
        (CURSOR, "QUERY"),
        lists_of(CURSOR, "cursors"),
        MANAGERS | {"reader", "member"},
    ),
    "see the groups of the log": ((GROUP, "QUERY"), lists_of(GROUP, "groups"), MANAGERS | MEMBERS),
    "see a group's cursor listed": (
        (CURSOR, "QUERY"),
        lists(CURSOR, "cursors", own=False),
        MANAGERS | {"member"},
    ),
    "describe a reader's cursor": ((CURSOR, "READ"), asks("READ", CURSOR, 200), MANAGERS | {"reader"}),
    "describe a group's cursor": (
        (CURSOR, "READ"),
        asks("READ", CURSOR, 200, group="billing"),
        MANAGERS | {"member"},
    ),
    "move a reader's cursor": ((CURSOR, "UPDATE"), asks("UPDATE", CURSOR, 200, **TO), MANAGERS | {"reader"}),
    "move a group's cursor": (
        (CURSOR, "UPDATE"),
        asks("UPDATE", CURSOR, 200, group="billing", **TO),
        MANAGERS,
    ),
    "remove a reader's cursor": ((CURSOR, "DELETE"), asks("DELETE", CURSOR, 204), MANAGERS | {"reader"}),
    "remove a group's cursor": ((CURSOR, "DELETE"), asks("DELETE", CURSOR, 204, group="billing"), MANAGERS),
    "see a group listed": ((GROUP, "QUERY"), lists(GROUP, "groups"), MANAGERS | MEMBERS),
    "describe a group": ((GROUP, "READ"), asks("READ", GROUP, 200), MANAGERS | MEMBERS),
    "move a group": ((GROUP, "UPDATE"), asks("UPDATE", GROUP, 200, **TO), MANAGERS),
    # Nobody here has the right to manage all logs: `administration/test_connections.py` has such a user.
    "see a connection of another": ((CONNECTION, "QUERY"), asks_about_another("QUERY"), NOBODY),
    "describe a connection of another": ((CONNECTION, "READ"), asks_about_another("READ"), NOBODY),
    "close a connection of another": ((CONNECTION, "DELETE"), asks_about_another("DELETE"), NOBODY),
    "describe the node": ((names.NODE_TYPE, "READ"), asks_about_the_node, NOBODY),
    "remove a group": ((GROUP, "DELETE"), asks("DELETE", GROUP, 204), MANAGERS),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_needs_its_right(operation: str) -> None:
    _, ask, who = OPERATIONS[operation]
    allowed = {kind for kind in KINDS if ask(Room(kind), "temps").allowed}
    assert allowed == who


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_user_learns_whether_a_log_of_others_exists(operation: str) -> None:
    """A refusal is the same for an existing log, with everything in it, and for a log that never existed."""
    _, ask, who = OPERATIONS[operation]
    for kind in sorted(EVERYBODY if who != EVERYBODY else NOBODY):
        there, not_there = ask(Room(kind), "hidden"), ask(Room(kind), "unknown")
        if operation == "look up what is kept for a reader":  # it names no log
            continue
        assert not there.allowed
        assert not not_there.allowed
        assert there.words.replace("hidden", "unknown") == not_there.words


def test_every_kind_of_link_and_every_request_is_in_the_table() -> None:
    requests = {
        (type_, name) for type_, known in Room("reader").node.service.node.types.items() for name in known
    }
    links = {*get_args(attach.Grant), attach.Pending}
    assert {covered for covered, _, _ in OPERATIONS.values()} == requests | links


def test_without_rules_every_user_may_do_everything_except_take_what_others_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(__name__ + ".RULES", [])
    for operation, (_, ask, kept) in OPERATIONS.items():
        owner = next((who for who in ("reader", "member") if kept == {who}), None)
        assert ask(Room(owner or "stranger"), "temps").allowed, operation
        if owner:
            assert not ask(Room("stranger"), "temps").allowed, operation


def test_an_unknown_operation_or_type_tells_an_unauthenticated_client_nothing_of_logs() -> None:
    for operation, type_ in (("DESTROY", LOG), ("READ", "event-broker"), ("CREATE", CURSOR)):
        status, words, _ = Room("stranger").ask(operation, type_, "temps", "temps")
        assert status == management.NOT_IMPLEMENTED
        assert "temps" not in words
