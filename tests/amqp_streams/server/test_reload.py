"""Changed settings take effect, allowed connections are not disturbed, and an invalid file changes
nothing.
"""

from pathlib import Path
from typing import Any, cast

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from amqp_streams import names
from amqp_streams.config import Limits, Listener, LogSettings, NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.policy import AccessRule, Quota, Redirect, Right
from amqp_streams.server.identity.guard import Guard, Login
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.reload import (
    Reloaded,
    reload_certificates,
    reload_parts,
    reload_settings,
    reload_users,
    warn_if_open,
)
from amqp_streams.streams.access import Access, Identity
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.wire.types import Symbol
from service_parts.settings.choices import AnonymousAccess
from service_parts.settings.differences import differences
from tests.amqp_streams.decoded import condition_info, description
from tests.properties import examples


def rule(users: str, logs: str, allow: str, **more: object) -> AccessRule:
    return AccessRule.model_validate(
        {"users": users.split(), "logs": logs.split(), "allow": allow.split(), **more}
    )


class Bench:
    """A node in memory whose configuration the test writes."""

    def __init__(self, **settings: Any) -> None:
        self.node = InMemoryNode({"temps": 4, "other": 1}, **settings)
        self.guard = Guard(self.node.settings, self.node.service, executor=cast("Any", None))

    def pair(self, user: str | None, *groups: str, mechanism: str = "PLAIN") -> EnginePair:
        return EnginePair(
            self.node, login=Login(user, frozenset(groups), mechanism=None if user is None else mechanism)
        )

    def reload(self, **changes: Any) -> list[Any]:
        """The log lines of a reload that changes these settings."""
        new = NodeSettings.model_validate(dict(self.node.service.settings) | changes)
        with capture_logs() as lines:
            reload_settings(self.node.service, self.guard, lambda: new)
            self.node.run()
        return cast("list[Any]", lines)


def closed(client: EnginePair) -> tuple[str, str] | None:
    found = client.connection.remote_condition
    return None if found is None else (found.name, description(found))


# -- rules


def test_links_that_stay_allowed_notice_nothing_and_the_others_are_closed() -> None:
    bench = Bench()
    alice, bob = bench.pair("alice"), bench.pair("bob")
    stays = alice.sender("temps"), alice.receiver("temps", credit=10), bob.receiver("other/$info")
    goes = (
        bob.sender("temps"),
        bob.receiver("temps", credit=10),
        alice.receiver("other/$info"),
        bob.sender("other"),
    )
    lines = bench.reload(access=[rule("alice", "temps", "send receive"), rule("bob", "other", "info")])
    assert [link.refused for link in stays] == [None] * 3
    assert [link.refused for link in goes] == [names.UNAUTHORIZED_ACCESS] * 4
    assert [line["user"] for line in lines if line["event"] == "link_revoked"].count("bob") == 3
    [sent] = alice.send(stays[0], proton.Message(body=b"x"))
    bench.node.run()
    assert sent.outcome == "accepted"
    assert [arrived.body for arrived in stays[1].arrived] == [b"x"]
    assert bob.receiver("temps").refused == names.UNAUTHORIZED_ACCESS
    assert description(goes[0].link.remote_condition) == "user 'bob' has no right 'send' on 'temps'"


def test_a_relay_stays_and_its_next_message_is_checked_again() -> None:
    bench = Bench()
    alice = bench.pair("alice")
    relay = alice.sender(None)
    assert alice.send(relay, proton.Message(address="temps"))[0].outcome == "accepted"
    bench.reload(access=[rule("alice", "other", "send")])
    [refused, sent] = alice.send(relay, proton.Message(address="temps"), proton.Message(address="other"))
    assert (refused.outcome, refused.condition, sent.outcome) == (
        "rejected",
        names.UNAUTHORIZED_ACCESS,
        "accepted",
    )


def test_a_group_that_is_not_allowed_any_more_is_left_and_waiting_callers_are_notified() -> None:
    bench = Bench()
    alice, bob = bench.pair("alice"), bench.pair("bob")
    owner = alice.receiver("other", group="g")
    waiting, second = bob.receiver("other", group="g"), bench.pair("carol").receiver("other", group="g")
    assert owner.refused is None
    assert waiting.pending
    bench.reload(access=[rule("carol", "other", "receive", consumer_groups=["g"])])
    assert owner.refused == waiting.refused == names.UNAUTHORIZED_ACCESS
    assert not second.pending
    assert second.refused is None


def test_groups_of_users_may_change() -> None:
    bench = Bench(access=[rule("group:ops", "temps", "send")], user_groups={"ops": ["alice"]})
    alice, bob = bench.pair("alice").sender("temps"), bench.pair("bob", "ops").sender("temps")
    bench.reload(user_groups={"ops": ["carol"]})
    assert (alice.refused, bob.refused) == (names.UNAUTHORIZED_ACCESS, None)
    assert bench.pair("carol").sender("temps").refused is None


def test_removed_rules_leave_everything_open_and_this_is_logged_if_others_can_connect() -> None:
    bench = Bench(access=[rule("alice", "temps", "send")])
    bench.node.service.settings = bench.node.settings.model_copy(
        update={"listen": (Listener(host="0.0.0.0", port=5672),)}
    )
    lines = bench.reload(access=[])
    assert bench.pair(None).sender("temps").refused is None
    assert [line["event"] for line in lines] == ["no_access_rules"]


@pytest.mark.parametrize(
    ("host", "warned"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
@pytest.mark.parametrize("listener", ["listen", "admin_listen"])
def test_a_node_that_unauthenticated_clients_reach_reports_that_it_has_no_rules(
    tmp_path: Path, host: str, warned: bool, listener: str
) -> None:
    where = Listener(host=host, port=0)
    settings = NodeSettings.model_validate(
        {"data_dir": tmp_path, listener: [where] if listener == "listen" else where}
    )
    with capture_logs() as lines:
        warn_if_open(settings)
        warn_if_open(settings.model_copy(update={"access": (rule("*", "*", "send"),)}))
    assert [line["event"] for line in lines] == ["no_access_rules"] * warned


_RULES = st.lists(
    st.builds(
        rule,
        st.sampled_from(["alice", "bob", "*", "group:ops", "anonymous"]),
        st.sampled_from(["temps", "other", "t*", "*"]),
        st.sampled_from(["send", "receive", "info", "send receive", "manage"]),
    ),
    max_size=3,
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(_RULES, min_size=1, max_size=4))
def test_a_link_is_there_as_long_as_every_set_of_rules_since_its_attach_allows_it(
    history: list[list[AccessRule]],
) -> None:
    """A link also ends when a later set of rules forbids it, independent of earlier rules: each request to
    the node is checked with the current rules.
    """
    bench = Bench(user_groups={"ops": ["bob"]})
    asked = [
        (user, right, log, made)
        for user in ("alice", "bob", None)
        for log in ("temps", "other")
        for right, made in (
            ("send", bench.pair(user).sender(log)),
            ("receive", bench.pair(user).receiver(log)),
        )
    ]
    open_links = set(range(len(asked)))
    for rules in history:
        bench.reload(access=rules)
        access = Access(rules, {"ops": ["bob"]})
        allowed = [access.allows(Identity(user), Right(right), log) for user, right, log, _ in asked]
        open_links = {index for index in open_links if allowed[index]}
        assert {index for index, (_, _, _, link) in enumerate(asked) if link.refused is None} == open_links


# -- quotas


def test_quotas_apply_to_connected_users() -> None:
    bench = Bench(block_bytes=16 << 10)
    alice = bench.pair("alice")
    sender = alice.sender("temps")
    alice.send(sender, proton.Message(body=b"x" * 10_000))
    bench.reload(quotas={"alice": Quota(links=1, bytes_in=10_000)})
    assert alice.receiver("temps").refused == names.RESOURCE_LIMIT_EXCEEDED
    for _ in range(40):
        sender.send(proton.Message(body=b"x" * 10_000))
    bench.node.run()
    bench.node.advance(5000)
    stored = sum(partition.end for partition in bench.node.store.logs["temps"].partitions)
    assert stored < 15
    bench.reload(quotas={})
    bench.node.advance(1000)
    assert sum(partition.end for partition in bench.node.store.logs["temps"].partitions) == 41
    assert alice.receiver("temps").refused is None


# -- redirects


def test_partitions_that_moved_take_their_links_along() -> None:
    bench = Bench()
    alice = bench.pair("alice")
    bound = [alice.receiver("temps", partition=index, credit=10) for index in range(4)]
    sender, bound_sender = alice.sender("temps"), alice.sender("temps", partition=2)
    agnostic = alice.receiver("temps", credit=10)
    bench.reload(redirects=[Redirect(log="temps", partitions=(2, 3), host="b.example", port=5673)])
    assert [link.refused for link in bound] == [None, None, names.LINK_REDIRECT, names.LINK_REDIRECT]
    assert condition_info(bound[2].link) == {
        "hostname": "b.example",
        "network-host": "b.example",
        "port": 5673,
        "address": "temps",
        "partition": "2",
    }
    assert (sender.refused, bound_sender.refused, agnostic.refused) == (None, names.LINK_REDIRECT, None)
    alice.send(sender, *(proton.Message(body=bytes([index])) for index in range(8)))
    assert {arrived.annotations[names.SOURCE_PARTITION] for arrived in agnostic.arrived} == {"0", "1"}
    announced = [arrived.annotations.get(names.ASSOCIATED_PARTITIONS) for arrived in agnostic.arrived]
    assert announced[0] is not None
    assert list(announced[0].elements) == [Symbol("0"), Symbol("1")]
    assert announced[1:] == [None] * 7


def test_partitions_that_came_back_are_read_again_by_readers_of_the_whole_log() -> None:
    bench = Bench(redirects=[Redirect(log="temps", partitions=(0, 1, 2), host="b.example", port=5673)])
    alice = bench.pair("alice")
    agnostic = alice.receiver("temps", credit=100, filters=filter_of("@earliest"))
    sender = alice.sender("temps")
    alice.send(sender, proton.Message(body=b"a"))
    bench.reload(redirects=[])
    alice.send(sender, *(proton.Message(body=bytes([index])) for index in range(8)))
    assert {arrived.annotations[names.SOURCE_PARTITION] for arrived in agnostic.arrived} == {
        "0",
        "1",
        "2",
        "3",
    }
    told = [
        list(each.elements)
        for arrived in agnostic.arrived
        if (each := arrived.annotations.get(names.ASSOCIATED_PARTITIONS))
    ]
    assert told == [["3"], ["0", "1", "2", "3"]]


def test_a_log_that_moved_away_whole_sends_everybody_there() -> None:
    bench = Bench()
    alice = bench.pair("alice")
    links = alice.receiver("temps"), alice.sender("temps"), alice.receiver("temps", group="g")
    bench.reload(redirects=[Redirect(log="t*", host="b.example", port=5673)])
    assert [link.refused for link in links] == [names.LINK_REDIRECT] * 3
    assert alice.receiver("temps").refused == alice.sender("tests").refused == names.LINK_REDIRECT
    assert alice.receiver("temps/$info").refused is None
    [relayed] = alice.send(alice.sender(None), proton.Message(address="tests"))
    assert relayed.condition == names.LINK_REDIRECT
    assert "b.example:5673" in description(relayed.delivery.remote.condition)


def test_an_unauthenticated_client_does_not_learn_where_a_log_is() -> None:
    bench = Bench(
        redirects=[Redirect(log="t*", host="b.example", port=5673)], access=[rule("alice", "temps", "send")]
    )
    alice, bob = bench.pair("alice"), bench.pair("bob")
    assert alice.sender("temps").refused == names.LINK_REDIRECT
    assert bob.sender("temps").refused == bob.receiver("tests").refused == names.UNAUTHORIZED_ACCESS
    [relayed] = bob.send(bob.sender(None), proton.Message(address="tests"))
    assert relayed.condition == names.UNAUTHORIZED_ACCESS


# -- who is in


def test_removed_users_are_disconnected_and_the_others_are_not(tmp_path: Path) -> None:
    users = UsersFile.load(tmp_path / "users.json")
    for user in ("alice", "bob"):
        users.add(user, "secret")
    bench = Bench()
    alice, bob, scram = bench.pair("alice"), bench.pair("bob"), bench.pair("alice", mechanism="SCRAM-SHA-256")
    certificate, nobody = bench.pair("alice", mechanism="EXTERNAL"), bench.pair(None)
    assert reload_users(bench.node.service, users) is Reloaded.UNCHANGED
    UsersFile.load(tmp_path / "users.json").remove("alice")
    assert reload_users(bench.node.service, users) is Reloaded.CHANGED
    bench.node.run()
    assert closed(alice) == closed(scram) == (names.CONNECTION_FORCED, "this user was removed")
    assert closed(bob) == closed(certificate) == closed(nobody) is None


def test_a_broken_users_file_closes_no_connection(tmp_path: Path) -> None:
    users = UsersFile.load(tmp_path / "users.json")
    users.add("alice", "secret")
    bench = Bench()
    alice = bench.pair("alice")
    (tmp_path / "users.json").write_text("{")
    with capture_logs() as lines:
        assert reload_users(bench.node.service, users) is Reloaded.FAILED
    [line] = lines
    assert (line["event"], line["log_level"]) == ("users_not_reloaded", "error")
    assert "users.json" in line["reason"]
    assert closed(alice) is None


def test_a_missing_users_file_closes_no_connection(tmp_path: Path) -> None:
    """The file may be replaced at this moment, or its mount may be missing for a short time."""
    users = UsersFile.load(tmp_path / "users.json")
    users.add("alice", "secret")
    bench = Bench()
    alice = bench.pair("alice")
    (tmp_path / "users.json").unlink()
    with capture_logs() as lines:
        assert reload_users(bench.node.service, users) is Reloaded.FAILED
    [line] = lines
    assert "users.json is missing" in line["reason"]
    assert closed(alice) is None
    assert users.called("alice") == "alice"


def test_each_part_is_reloaded_independently_of_the_others() -> None:
    def broken() -> Reloaded:
        raise RecursionError

    with capture_logs() as lines:
        reload_parts({"settings": broken, "users": lambda: Reloaded.CHANGED})
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("reload_failed", "error"),
        ("reload_incomplete", "error"),
    ]
    assert (lines[1]["settings"], lines[1]["users"]) == ("failed", "changed")
    with capture_logs() as lines:
        reload_parts({"settings": lambda: Reloaded.UNCHANGED, "users": lambda: Reloaded.NONE})
    assert [(line["event"], line["log_level"]) for line in lines] == [("reloaded", "info")]


def test_anonymous_connections_are_closed_when_anonymous_is_no_longer_allowed() -> None:
    bench = Bench()
    alice, nobody = bench.pair("alice"), bench.pair(None)
    bench.reload(anonymous=AnonymousAccess.ALWAYS)
    assert closed(nobody) is None
    bench.reload(anonymous=AnonymousAccess.NEVER)
    found = closed(nobody)
    assert found is not None
    assert found[0] == names.CONNECTION_FORCED
    assert closed(alice) is None


# -- what does not take effect


def test_a_broken_configuration_changes_nothing_and_is_named() -> None:
    bench = Bench(access=[rule("alice", "temps", "send")])
    alice = bench.pair("alice").sender("temps")

    def broken() -> NodeSettings:
        message = "access.0.allow.0 (node.toml): must be 'send', 'receive', 'info' or 'manage' (got 'sendd')"
        raise ConfigError(message)

    before = bench.node.service.settings
    with capture_logs() as lines:
        assert reload_settings(bench.node.service, bench.guard, broken) is Reloaded.FAILED
    [line] = lines
    assert (line["event"], line["log_level"]) == ("settings_not_reloaded", "error")
    assert "access.0.allow.0 (node.toml)" in line["reason"]
    assert bench.node.service.settings is before
    assert alice.refused is None


def test_settings_that_need_a_restart_are_named_and_not_applied() -> None:
    bench = Bench()
    lines = bench.reload(
        limits=Limits(credit=5),
        container_id="new",
        quotas={"alice": Quota(links=1)},
        logs={"more": LogSettings()},
    )
    assert [line for line in lines if line["event"] == "restart_needed"] == [
        {"event": "restart_needed", "log_level": "warning", "settings": "container_id, limits.credit, logs"}
    ]
    settings = bench.node.service.settings
    assert (settings.limits.credit, settings.container_id) == (2000, "amqp-streams")
    assert settings.quotas == {"alice": Quota(links=1)}


def test_nothing_changed_is_nothing_done() -> None:
    bench = Bench()
    access = bench.node.service.node.access
    assert bench.reload() == []
    assert bench.node.service.node.access is access
    assert list(differences(bench.node.settings, bench.node.settings)) == []
    assert reload_certificates(None) is Reloaded.NONE
