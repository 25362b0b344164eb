"""The node describes itself to users that administer it: the same truth as `/readyz`, in steps."""

from typing import Any, cast

import proton
import pytest
from structlog.testing import capture_logs

from amqp_streams import __version__
from amqp_streams.config import Limits
from amqp_streams.errors import StorageError
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.policy import Quota
from amqp_streams.server.administration.health import PARTITIONS_A_STEP, ROWS_A_STEP, HealthRequests
from amqp_streams.server.administration.warnings import NAMED_MAX
from amqp_streams.server.identity.guard import Guard, Login
from amqp_streams.server.reload import Reloaded, note_certificates, note_reload, reload_parts, reload_settings
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from service_parts.settings.in_force import SettingsInForce
from service_parts.settings.showing import InForce
from tests.amqp_streams.server.administration.asking import ask, body_of, rule
from tests.amqp_streams.server.peers import Authority


def read(node: InMemoryNode, *parts: str, user: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"parts": list(parts)} if parts else {}
    found: dict[str, Any] = body_of(ask(node, "node", "READ", user=user, **body))
    return found


def codes(node: InMemoryNode) -> list[str]:
    return [each["code"] for each in read(node, "warnings")["warnings"]]


def test_figures_are_those_of_the_node() -> None:
    node = InMemoryNode({"temps": 3})
    client = EnginePair(node)
    client.send(client.sender("temps"), proton.Message(body=b"x"))
    client.receiver("temps")
    node.advance(5000)
    found = read(node)
    assert found["version"] == __version__
    assert (found["ready"], found["not-ready"]) == (False, "the node accepts no events now")
    assert found["now-ms"] - found["started-ms"] == 5000
    assert (found["logs"], found["producers"], found["consumers"]) == (1, 1, 1)
    assert found["limits"]["partitions"] == {"used": 3, "limit": 10_000}
    assert found["limits"]["connections"] == {"used": 1, "limit": 10_000}
    assert found["recent-commits"] == 1
    assert found["memory-bytes"] > 0
    assert found["descriptors"]["used"] > 0
    assert found["home-buckets"] is None
    node.service.about.home_buckets = 5, 16
    assert read(node)["home-buckets"] == {"used": 5, "limit": 16}


def test_readiness_is_that_of_the_probe() -> None:
    node = InMemoryNode()
    service = node.service
    service.ready = True
    assert (read(node)["ready"], service.not_ready()) == (True, None)
    service.regular._failing["retention"] = "a reason"
    found = read(node)
    assert found["not-ready"] == service.not_ready()
    assert "a reason" in found["not-ready"]
    assert codes(node)[0] == "not-ready"
    service.regular._failing.clear()
    service.stopping = True
    assert read(node)["not-ready"] == "the node is stopping"


def test_a_part_can_be_asked_for_alone() -> None:
    node = InMemoryNode()
    assert read(node, "changes") == {"changes": []}
    assert read(node, "settings") == {"settings": []}
    assert read(node, "warnings").keys() == {"warnings"}
    for parts in ([], ["colour"], "figures", [7]):
        answer = ask(node, "node", "READ", parts=parts)
        assert answer.status == 400
        assert "rights, figures, warnings, settings, changes" in answer.description


def test_only_administrators_see_the_node() -> None:
    node = InMemoryNode(
        {"temps": 1}, access=(rule("alice", "temps", "manage info"), rule("admin", "*", "manage"))
    )
    assert read(node, user="admin")["version"]
    assert read(node, "rights", user="admin") == {"administers": True}
    for user in ("alice", "bob", None):
        assert read(node, "rights", user=user) == {"administers": False}
        assert ask(node, "node", "READ", user=user, parts=["rights", "changes"]).status == 403
        who = "an anonymous connection" if user is None else f"user {user!r}"
        refused = Answer(403, f"{who} has no right 'manage' on '*'")
        assert ask(node, "node", "READ", user=user) == refused


def test_every_user_may_learn_its_rights_on_a_log_also_on_one_that_it_may_not_see() -> None:
    """It would learn them by refusals otherwise, which look like an attack."""
    node = InMemoryNode(
        {"temps": 1}, access=(rule("alice", "temps", "send info"), rule("admin", "*", "manage"))
    )

    def on(log: str, user: str | None) -> set[str]:
        answer = body_of(ask(node, "node", "READ", user=user, parts=["rights"], log=log))
        return set(answer["log-rights"])

    assert on("temps", "alice") == {"send", "info"}
    assert on("temps", "admin") == on("new", "admin") == {"manage"}
    assert on("secret", "alice") == on("temps", None) == set()
    with capture_logs() as lines:
        on("secret", "bob")
    assert not lines


# -- warnings


def test_a_stopped_partition_and_a_skewed_log_are_found() -> None:
    node = InMemoryNode({"temps": 2, "uneven": 8})
    node.service.ready = True
    assert codes(node) == []
    for _ in range(11):
        node.append("uneven", *[b"x"] * 1000, partition=3)
    assert codes(node) == ["skew"]
    partition = node.store.logs["temps"].partitions[1]
    cast("Any", partition).failure = StorageError("I/O error")
    assert codes(node) == ["partition-stopped", "skew"]


def test_a_quota_that_holds_links_back_is_shown_until_it_does_not() -> None:
    node = InMemoryNode({"temps": 1}, quotas={"alice": Quota(bytes_in=1000)})
    node.service.ready = True
    client = EnginePair(node, login=Login("alice"))
    sender = client.sender("temps")
    client.send(sender, proton.Message(body=b"x" * 900))
    client.send(sender, proton.Message(body=b"x" * 900))
    (warning,) = read(node, "warnings")["warnings"]
    assert warning["code"] == "quota"
    assert "alice (bytes_in)" in warning["text"]
    node.advance(60_000)
    assert codes(node) == []


def test_of_many_stopped_partitions_and_waiting_users_a_few_are_kept() -> None:
    users = [f"user-{number}" for number in range(NAMED_MAX + 2)]
    node = InMemoryNode({"temps": NAMED_MAX + 2}, quotas={user: Quota(bytes_in=1000) for user in users})
    for user in users:
        client = EnginePair(node, login=Login(user))
        sender = client.sender("temps")
        for _ in range(2):
            client.send(sender, proton.Message(body=b"x" * 900))
    for partition in node.store.logs["temps"].partitions:
        cast("Any", partition).failure = StorageError("I/O error")
    counted = finish(HealthRequests(node.service)._counted())
    assert (len(list(counted.throttled)), counted.throttled.count) == (NAMED_MAX, NAMED_MAX + 2)
    assert counted.throttled_links == NAMED_MAX + 2
    assert (len(list(counted.stopped)), counted.stopped.count) == (NAMED_MAX, NAMED_MAX + 2)


def test_a_limit_that_is_nearly_reached_is_shown() -> None:
    node = InMemoryNode({"temps": 8}, limits=Limits(partitions=10))
    node.service.ready = True
    assert codes(node) == ["limit-partitions"]


# -- changes and settings


def test_changes_have_who_when_and_what_and_reads_are_none() -> None:
    node = InMemoryNode({"temps": 1})
    ask(node, "event-log", "READ", "temps", user="alice")
    client = EnginePair(node)

    def answers(link: Any) -> None:
        link.target.address = "answers"

    client.receiver("$management", credit=10, prepare=answers)
    properties = {"operation": "CREATE", "type": "event-log", "name": "orders"}
    message = proton.Message(body={}, id=1, reply_to="answers", properties=properties)
    client.send(client.sender("$management"), message)
    node.run()
    (change,) = read(node, "changes")["changes"]
    assert change == {
        "at-ms": node.clock(),
        "user": None,
        "what": "CREATE",
        "type": "event-log",
        "name": "orders",
        "details": {},
    }


def test_a_reload_is_a_change_and_its_failures_are_warnings() -> None:
    node = InMemoryNode()
    service = node.service
    service.ready = True
    guard = Guard(node.settings, service, executor=cast("Any", None))
    rows = [InForce("sync", "always", "default")]
    service.about.settings = SettingsInForce(lambda: rows, ["quotas"])
    new = node.settings.model_copy(
        update={"quotas": {"alice": Quota(links=1)}, "shutdown_delay_ms": 7, "container_id": "other"}
    )
    rows = [InForce("quotas.alice.links", 1, "node.toml"), InForce("sync", "never", "node.toml")]

    def fails() -> Reloaded:
        return Reloaded.FAILED

    results = reload_parts({"settings": lambda: reload_settings(service, guard, lambda: new), "users": fails})
    note_reload(service, results, None)
    assert codes(node) == ["reload", "restart"]
    found = read(node)
    assert [(each["name"], each["value"]) for each in found["settings"]] == [
        ("sync", "always"),
        ("quotas.alice.links", 1),
    ]
    (change,) = found["changes"]
    assert (change["what"], change["details"]) == ("RELOAD", {"settings": "changed", "users": "failed"})
    assert any("container_id" in each["text"] for each in found["warnings"])


def test_the_certificate_for_other_nodes_and_homes_that_are_not_reached_are_shown(
    authority: Authority,
) -> None:
    node = InMemoryNode()
    files, service = authority.issue("peer"), node.service
    service.ready = True
    peering = PeeringSettings.model_validate(
        {"listen": "127.0.0.1:0", "certificate": files.certificate, "key": files.key, "ca": authority.ca}
    )
    service.settings = node.settings.model_copy(update={"node": peering})
    note_certificates(service, None)
    expires_ms = service.about.node_certificate_expires_ms
    assert expires_ms is not None
    assert service.about.certificate_expires_ms is None
    assert codes(node) == []
    # The clock of the node in memory is far behind.
    service.about.node_certificate_expires_ms = service.now_ms()
    service.about.homes = ("the node at a:1 is not reached: refused",)
    assert codes(node) == ["node-certificate", "homes"]


# -- many


def test_a_node_with_much_of_everything_is_described_in_steps() -> None:
    node = InMemoryNode({"wide": 4 * PARTITIONS_A_STEP})
    for number in range(3 * ROWS_A_STEP):
        node.service.audit.changes.add("alice", "CREATE", "event-log", f"log-{number}")
    rows = [InForce(f"logs.l{number}.partitions", 1, "node.toml") for number in range(4 * ROWS_A_STEP)]
    node.service.about.settings = SettingsInForce(lambda: rows, ())
    steps = node.service.node.managing(Request("READ", "node", "", {}, None, None))
    assert sum(1 for _ in steps) >= 4 + 3 + 4


@pytest.mark.parametrize("operation", ["QUERY", "DELETE", "UPDATE", "CREATE"])
def test_the_node_cannot_be_changed(operation: str) -> None:
    assert ask(InMemoryNode(), "node", operation).status == 501
