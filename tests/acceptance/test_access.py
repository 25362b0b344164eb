"""Rules, quotas and redirects of a running node, and their reload: real clients that log in, real signals."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from amqp_streams import names
from amqp_streams.client import Event, LinkError, LinkRefusedError
from amqp_streams.client.blocking import Client, connect
from amqp_streams.server.identity.users import UsersFile
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli, StartNode
from tests.amqp_streams.decoded import items

PATIENCE_S = 60.0
ALICE_SENDS = """
[[access]]
users = ["alice"]
logs = ["temps"]
allow = ["send"]
"""
BOB_READS = """
[[access]]
users = ["bob"]
logs = ["temps"]
allow = ["receive", "info"]
"""


class Site:
    """A node with a configuration that the test writes, and the users alice and bob."""

    def __init__(self, start: StartNode, cli: Cli, folder: Path, rules: str) -> None:
        self.config, self.users = folder / "node.toml", folder / "users"
        self._cli = cli
        # With few rounds: it is the node that hashes each password that it checks.
        users = UsersFile.load(
            self.users,
            hasher=PasswordHasher(time_cost=1, memory_cost=8, parallelism=1),
            scram_iterations=4096,
        )
        for user in ("alice", "bob"):
            users.add(user, "s3cret")
        self.write(rules)
        self.node: NodeProcess = start("--config", str(self.config), "--anonymous", "never", log="temps:2")

    def remove(self, name: str) -> None:
        """Remove a user from the file."""
        self._cli(self.node, "user", "remove", name, "--users", str(self.users))

    def write(self, rules: str) -> None:
        self.config.write_text(f'users = "{self.users}"\n{rules}')

    def reload(self, rules: str, *, until: str = "reloaded ") -> None:
        """Write another configuration, and wait until the node has logged the line once more."""
        self.write(rules)
        before = self.node.words.count(until)
        os.kill(self.node.pid, signal.SIGHUP)
        wait_for(lambda: self.node.words.count(until) > before)

    def client(self, user: str) -> Client:
        return connect(self.node.url, user=user, password="s3cret")


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def refusal(does: Callable[[], object]) -> str:
    with pytest.raises(LinkRefusedError) as refused:
        does()
    return refused.value.condition


def sends(client: Client, log: str = "temps") -> None:
    with client.producer(log) as producer:
        producer.send(Event("x"))


def test_rules_apply_to_logged_in_users_and_change_under_links_that_stay(
    start_node: StartNode, cli: Cli, tmp_path: Path
) -> None:
    site = Site(start_node, cli, tmp_path, ALICE_SENDS)
    with site.client("alice") as alice, site.client("bob") as bob:
        producer = alice.producer(
            "temps"
        ).__enter__()  # its link is closed by the node: leaving would say so once more
        producer.send(Event("before"))
        assert refusal(lambda: alice.info("temps")) == names.UNAUTHORIZED_ACCESS
        assert refusal(lambda: bob.info("temps")) == names.UNAUTHORIZED_ACCESS
        assert refusal(lambda: bob.info("unknown")) == names.UNAUTHORIZED_ACCESS
        site.reload(ALICE_SENDS + BOB_READS)
        producer.send(Event("after"))
        assert "link_revoked" not in site.node.words
        site.reload(BOB_READS)
        wait_for(lambda: "link_revoked" in site.node.words)
        with pytest.raises(LinkError, match="user 'alice' has no right 'send' on 'temps'"):
            producer.send(Event("too late"))
        assert refusal(lambda: sends(alice)) == names.UNAUTHORIZED_ACCESS
        assert sum(partition.event_count or 0 for partition in bob.info("temps").partitions) == 2


def test_a_broken_configuration_changes_nothing_and_says_what_and_where(
    start_node: StartNode, cli: Cli, tmp_path: Path
) -> None:
    site = Site(start_node, cli, tmp_path, ALICE_SENDS)
    site.reload(ALICE_SENDS.replace("send", "sendd"), until="settings_not_reloaded")
    assert f"access.0.allow.0 ({site.config}): must be 'send'" in site.node.words
    with site.client("alice") as alice:
        sends(alice)
    site.reload(ALICE_SENDS + "[limits]\ncredit = 5\n", until="restart_needed")
    assert "limits.credit" in site.node.words


def test_a_removed_user_is_disconnected(start_node: StartNode, cli: Cli, tmp_path: Path) -> None:
    site = Site(start_node, cli, tmp_path, ALICE_SENDS)
    with site.client("alice") as alice, site.client("bob"):
        sends(alice)
        site.remove("bob")
        site.reload(ALICE_SENDS)
        wait_for(lambda: "user_removed" in site.node.words)
        sends(alice)
    assert site.node.words.count("user_removed") == 1


def test_a_quota_holds_a_producer_back_and_loses_nothing(
    start_node: StartNode, cli: Cli, tmp_path: Path
) -> None:
    """The producer uses one second's allowance at once and sends the remaining events at the rate. It sends
    them one by one: how much credit is left for larger transfers depends on the sizes of those before. So
    three seconds' worth of events takes two seconds, or a little more.
    """
    site = Site(start_node, cli, tmp_path, '[quotas.alice]\nbytes_in = "300kB"\nlinks = 2\n')
    with site.client("alice") as alice, alice.producer("temps") as producer:
        began = time.monotonic()
        for _ in range(900):
            producer.send(Event(b"x" * 1000))
        took = time.monotonic() - began
        assert sum(partition.event_count or 0 for partition in alice.info("temps").partitions) == 900
        with alice.producer("temps"):
            assert refusal(lambda: alice.info("temps")) == names.RESOURCE_LIMIT_EXCEEDED
    assert took > 1.9


def test_partitions_elsewhere_are_reported_with_their_container(
    start_node: StartNode, cli: Cli, tmp_path: Path
) -> None:
    site = Site(start_node, cli, tmp_path, "")
    site.reload(
        '[[redirect]]\nlog = "temps"\npartitions = [1]\nhost = "127.0.0.1"\nport = 9\ncontainer = "other"\n'
    )
    with site.client("alice") as alice:
        with alice.producer("temps") as producer:
            for _ in range(4):
                producer.send(Event("x"))
        told = alice.info("temps")
        assert [partition.event_count for partition in told.partitions] == [4, 0]
        here, there = items(told.details["partitions"])
        assert there["owner"] == {"network-host": "127.0.0.1", "port": 9, "container-id": "other"}
        assert "owner" not in here
