"""The node applies the rules: which users may attach, the answers, and which links stay when rules change."""

from itertools import count

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError
from amqp_streams.node import Node
from amqp_streams.node.permits import revoked
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams.access import Access, Identity
from amqp_streams.streams.attach import AttachRequest, Grant, Managing, Pending, Relaying, Replying
from amqp_streams.streams.management import FORBIDDEN, Request
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.types import Symbol, Value
from tests.amqp_streams.decoded import mapping

GROUP: dict[str, Value] = {names.CONSUMER_GROUP: "billing"}
BOUND: dict[str, Value] = {names.PARTITION: Symbol("0")}


def access(*rules: tuple[str, str, str]) -> Access:
    """Rules as (users, logs, allow), words separated by blanks."""
    made = [
        {"users": users.split(), "logs": logs.split(), "allow": allow.split()} for users, logs, allow in rules
    ]
    return Access([AccessRule.model_validate(rule) for rule in made])


def node(rules: Access, *, auto_create: int = 0) -> Node:
    ids = count()
    made = Node(
        MemoryStore(),
        sync="always",
        new_id=lambda: f"id{next(ids)}",
        auto_create_partitions=auto_create,
        access=rules,
    )
    for name in ("temps", "other"):
        made.create(name, LogSettings())
    return made


def request(
    address: str | None, *, consumer: bool = False, user: str | None = "alice", **options: object
) -> AttachRequest:
    return AttachRequest("link", "container", consumer=consumer, address=address, user=user, **options)  # type: ignore[arg-type]


def attached(here: Node, asked: AttachRequest) -> Grant:
    grant = here.attach(asked, 0)
    assert not isinstance(grant, Pending)
    return grant


def refusal(here: Node, asked: AttachRequest) -> PeerError:
    with pytest.raises(PeerError) as refused:
        here.attach(asked, 0)
    return refused.value


@pytest.mark.parametrize(
    ("right", "address", "consumer"),
    [("send", "temps", False), ("receive", "temps", True), ("info", "temps/$info", True)],
)
def test_an_attach_needs_its_right_and_no_other(right: str, address: str, consumer: bool) -> None:
    others = " ".join(other.value for other in Right if other.value != right)
    here = node(access(("alice", "temps", right), ("bob", "temps", others)))
    here.attach(request(address, consumer=consumer), 0)
    error = refusal(here, request(address, consumer=consumer, user="bob"))
    assert error.condition == names.UNAUTHORIZED_ACCESS
    assert error.description == f"user 'bob' has no right {right!r} on 'temps'"
    assert (
        refusal(here, request(address, consumer=consumer, user=None)).condition == names.UNAUTHORIZED_ACCESS
    )


@pytest.mark.parametrize(("suffix", "consumer"), [("", False), ("", True), ("/$info", True)])
def test_an_unauthenticated_client_does_not_learn_which_logs_exist(suffix: str, consumer: bool) -> None:
    here = node(access(("alice", "temps", "send receive info manage")))
    known = refusal(here, request("other" + suffix, consumer=consumer))
    unknown = refusal(here, request("hidden" + suffix, consumer=consumer))
    assert known.condition == unknown.condition == names.UNAUTHORIZED_ACCESS
    assert known.description.replace("other", "hidden") == unknown.description
    bound = refusal(here, request("other", consumer=True, properties={names.PARTITION: Symbol("99")}))
    assert bound.condition == names.UNAUTHORIZED_ACCESS


def test_a_user_who_may_use_a_name_learns_that_the_log_does_not_exist() -> None:
    here = node(access(("alice", "*", "send")))
    assert refusal(here, request("missing")).condition == names.NOT_FOUND


def test_a_group_is_asked_about() -> None:
    rule = AccessRule(users=("alice",), logs=("temps",), allow=(Right.RECEIVE,), consumer_groups=("audit",))
    here = node(Access([rule]))
    error = refusal(here, request("temps", consumer=True, properties=GROUP | BOUND))
    assert error.condition == names.UNAUTHORIZED_ACCESS
    assert "in consumer group 'billing'" in error.description
    assert refusal(here, request("temps", consumer=True)).condition == names.UNAUTHORIZED_ACCESS


def test_logs_are_created_on_demand_for_users_with_the_right_manage() -> None:
    here = node(access(("alice", "new*", "send"), ("bob", "new*", "send manage")), auto_create=1)
    error = refusal(here, request("new"))
    assert error.condition == names.UNAUTHORIZED_ACCESS
    assert "and it cannot be created: user 'alice' has no right 'manage' on 'new'" in error.description
    here.attach(request("new", user="bob"), 0)
    here.attach(request("new"), 0)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (request(None), Relaying),
        (request(names.MANAGEMENT), Managing),
        (request(None, consumer=True, dynamic=True), Replying),
    ],
)
def test_links_with_checks_for_each_message_attach_for_every_user(
    asked: AttachRequest, kind: type[Grant]
) -> None:
    assert isinstance(attached(node(access(("bob", "x", "send"))), asked), kind)


# -- requests


def asked_to(operation: str, name: str = "temps", body: dict[Value, Value] | None = None) -> Request:
    return Request(operation, names.LOG_TYPE, name, body or {}, "me", 1)


@pytest.mark.parametrize(
    ("operation", "allowed"), [("CREATE", 409), ("READ", 200), ("UPDATE", 200), ("DELETE", 204)]
)
def test_requests_about_logs_need_manage(operation: str, allowed: int) -> None:
    here = node(access(("alice", "*", "manage"), ("bob", "temps", "send receive")))
    for name in ("temps", "hidden"):
        answer = here.manage(asked_to(operation, name), "bob")
        assert answer.status == FORBIDDEN
        assert "'bob' has no right" in answer.description
        assert name in answer.description
    assert here.manage(asked_to(operation), "alice").status == allowed


def test_reading_about_a_log_needs_info_or_manage_and_lists_show_what_may_be_read() -> None:
    here = node(
        access(("alice", "temps", "info"), ("group:ops", "*", "manage"), ("bob", "*", "send receive"))
    )
    assert here.manage(asked_to("READ"), "alice").status == 200
    assert here.manage(asked_to("READ", "other"), "alice").status == FORBIDDEN
    shown = {}
    for user, groups in (("alice", ()), ("carol", ("ops",)), ("bob", ()), (None, ())):
        answer = here.manage(asked_to("QUERY", ""), user, frozenset(groups))
        body = mapping(decode(encode(answer.body))[0])
        shown[user] = [log["name"] for log in body["logs"]]
    assert shown == {"alice": ["temps"], "carol": ["other", "temps"], "bob": [], None: []}


# -- rules that change


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        (request("temps"), "send"),
        (request("temps", consumer=True), "receive"),
        (request("temps/$info", consumer=True), "info"),
    ],
)
def test_a_link_stays_while_its_right_does(asked: AttachRequest, right: str) -> None:
    here = node(Access())
    grant = attached(here, asked)
    others = " ".join(other.value for other in Right if other.value != right)
    assert revoked(access(("alice", "te*", right)).of(asked.identity), grant) is None
    error = revoked(access(("alice", "temps", others)).of(asked.identity), grant)
    assert error is not None
    assert error.condition == names.UNAUTHORIZED_ACCESS


def test_a_relay_checks_rights_again_when_rules_change() -> None:
    here = node(Access())
    relay = attached(here, request(None))
    assert isinstance(relay, Relaying)
    message = b"\x00\x53\x73\xc0\x0b\x03\x40\x40\xa1\x05temps" + b"\x00\x53\x77\xa1\x01x"
    assert not here.receive(relay, [message], 1).refused
    assert revoked(access(("alice", "other", "send")).of(Identity("alice")), relay) is None
    [(_, reason)] = here.receive(relay, [message], 1).refused
    assert isinstance(reason, PeerError)
    assert reason.condition == names.UNAUTHORIZED_ACCESS


@pytest.mark.parametrize("asked", [request(names.MANAGEMENT), request(None, consumer=True, dynamic=True)])
def test_links_for_requests_stay_whatever_the_rules(asked: AttachRequest) -> None:
    here = node(Access())
    assert revoked(access(("bob", "x", "send")).of(asked.identity), attached(here, asked)) is None
