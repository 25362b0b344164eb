"""Rules give exactly the named rights to exactly the named users."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams.access import DECISIONS_MAX, EVERYTHING, Access, Identity

ALICE, BOB, NOBODY = Identity("alice"), Identity("bob"), Identity()


def rule(users: str, logs: str, allow: str, consumer_groups: str | None = None) -> AccessRule:
    fields: dict[str, object] = {"users": users.split(), "logs": logs.split(), "allow": allow.split()}
    if consumer_groups is not None:
        fields["consumer_groups"] = consumer_groups.split()
    return AccessRule.model_validate(fields)


@pytest.mark.parametrize("right", Right)
def test_without_rules_everybody_may_do_everything(right: Right) -> None:
    assert Access().open
    for identity in (ALICE, NOBODY):
        assert Access().allows(identity, right, "temps", "billing")
    assert EVERYTHING.allows(right, "temps")
    assert EVERYTHING.sees("temps")


@pytest.mark.parametrize("right", Right)
def test_with_rules_what_none_of_them_allows_is_refused(right: Right) -> None:
    access = Access([rule("alice", "temps", right.value)])
    assert not access.open
    assert access.allows(ALICE, right, "temps")
    assert not access.allows(ALICE, right, "temps2")
    assert not access.allows(BOB, right, "temps")
    assert not access.allows(NOBODY, right, "temps")
    assert not any(access.allows(ALICE, other, "temps") for other in Right if other is not right)


@pytest.mark.parametrize(
    ("users", "allowed"),
    [
        ("alice", {"alice"}),
        ("*", {"alice", "bob"}),
        ("anonymous", {None}),
        ("* anonymous", {"alice", "bob", None}),
        ("group:ops", {"alice"}),
        ("group:none", set()),
        ("group:ops bob", {"alice", "bob"}),
    ],
)
def test_a_rule_applies_to_the_users_that_it_names(users: str, allowed: set[str | None]) -> None:
    access = Access([rule(users, "temps", "send")], {"ops": ["alice", "carol"]})
    assert {
        user for user in ("alice", "bob", None) if access.allows(Identity(user), Right.SEND, "temps")
    } == allowed


def test_groups_that_credentials_name_count_like_configured_ones() -> None:
    access = Access([rule("group:ops", "temps", "send")], {"ops": ["alice"]})
    assert access.allows(Identity("bob", frozenset({"ops"})), Right.SEND, "temps")
    assert not access.allows(Identity("bob", frozenset({"dev"})), Right.SEND, "temps")
    assert access.allows(Identity("alice", frozenset({"dev"})), Right.SEND, "temps")


@pytest.mark.parametrize("user", ["*", "anonymous", "group:ops"])
def test_a_user_named_like_a_word_of_the_rules_gains_nothing(user: str) -> None:
    """Names also come from certificates and tokens. A user does not become a group by having the group's
    name.
    """
    access = Access([rule("anonymous group:ops", "temps", "send"), rule("*", "open", "send")])
    assert not access.allows(Identity(user), Right.SEND, "temps")
    assert access.allows(Identity(user), Right.SEND, "open")


@given(
    st.lists(st.text("ab.*?[]!", min_size=1, max_size=6), min_size=1, max_size=3),
    st.text("ab.\n[", max_size=6),
)
def test_patterns_match_as_those_of_file_names_do(patterns: list[str], log: str) -> None:
    access = Access([AccessRule(users=("*",), logs=tuple(patterns), allow=(Right.SEND,))])
    assert access.allows(ALICE, Right.SEND, log) == any(fnmatchcase(log, pattern) for pattern in patterns)


def test_groups_of_a_rule_narrow_reading() -> None:
    access = Access(
        [rule("alice", "temps", "receive info", "billing* audit"), rule("bob", "temps", "receive")]
    )
    for group, allowed in {
        "billing": True,
        "billing-2": True,
        "audit": True,
        "audits": False,
        "Billing": False,
        "": False,
        None: False,
    }.items():
        assert access.allows(ALICE, Right.RECEIVE, "temps", group) is allowed
        assert access.allows(BOB, Right.RECEIVE, "temps", group)
    assert access.allows(ALICE, Right.INFO, "temps")


def test_rules_add_up() -> None:
    access = Access(
        [rule("alice", "temps", "send"), rule("*", "t*", "receive", "g"), rule("group:ops", "*", "manage")],
        {"ops": ["alice"]},
    )
    alice = access.of(ALICE)
    assert [right for right in Right if alice.allows(right, "temps", "g")] == [
        Right.SEND,
        Right.RECEIVE,
        Right.MANAGE,
    ]
    assert [right for right in Right if alice.allows(right, "x", "g")] == [Right.MANAGE]
    assert [right for right in Right if access.of(BOB).allows(right, "temps", "g")] == [Right.RECEIVE]


def test_a_refusal_names_the_right_the_log_and_the_group() -> None:
    access = Access([rule("*", "x", "send")])
    with pytest.raises(PeerError) as refused:
        access.of(ALICE).require(Right.RECEIVE, "temps", "billing")
    assert refused.value.condition == names.UNAUTHORIZED_ACCESS
    assert (
        refused.value.description
        == "user 'alice' has no right 'receive' on 'temps' in consumer group 'billing'"
    )
    assert (
        access.of(NOBODY).refusal(Right.SEND, "x").description
        == "an anonymous connection has no right 'send' on 'x'"
    )
    access.of(ALICE).require(Right.SEND, "x")


def test_a_log_is_visible_to_users_with_a_right_on_it() -> None:
    access = Access(
        [rule("alice", "a", "info"), rule("alice", "b", "manage"), rule("alice", "c", "send receive")]
    )
    assert [log for log in "abcd" if access.of(ALICE).sees(log)] == ["a", "b"]


OWN, OTHERS = "alice", "bob"


@pytest.mark.parametrize(
    ("rights", "group", "owner", "sees", "changes"),
    [
        ("receive", None, OWN, True, True),
        ("receive", None, OTHERS, False, False),
        ("receive", None, None, False, False),
        ("receive", "g", OWN, True, False),
        ("receive", "g", OTHERS, False, False),
        ("info send", None, OWN, False, False),
        ("manage", None, OTHERS, True, True),
        ("manage", "g", OTHERS, True, True),
        ("manage", None, OWN, True, True),
    ],
)
def test_cursors_are_their_users_own_and_those_of_managers(
    rights: str, group: str | None, owner: str | None, sees: bool, changes: bool
) -> None:
    alice = Access([rule("alice", "temps", rights)]).of(ALICE)
    assert alice.sees_cursor("temps", group, owner) is sees
    assert alice.changes_cursor("temps", group, owner) is changes
    assert not alice.sees_cursor("other", group, owner)
    assert not alice.changes_cursor("other", group, owner)


def test_groups_are_visible_to_users_who_may_receive_in_them() -> None:
    access = Access([rule("alice", "temps", "receive", "billing"), rule("bob", "temps", "manage")])
    assert access.of(ALICE).sees_group("temps", "billing")
    assert not access.of(ALICE).sees_group("temps", "audit")
    assert access.of(BOB).sees_group("temps", "audit")


def test_remembered_decisions_are_bounded_and_right() -> None:
    """Peers choose the names, so a cache without a limit would let them fill the memory."""
    access = Access([rule("alice", "a*", "send")])
    alice = access.of(ALICE)
    assert all(alice.allows(Right.SEND, f"a{number}") for number in range(DECISIONS_MAX + 10))
    assert not alice.allows(Right.SEND, "b")
    assert len(alice._decisions) <= DECISIONS_MAX
    assert access.of(ALICE) is alice
    for number in range(DECISIONS_MAX + 10):
        access.of(Identity(f"user{number}"))
    assert len(access._known) <= DECISIONS_MAX
