"""Groups, epochs and durable subscriptions on Kafka: what outlives the node, and the absence of brokers."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.products.kafka_cluster import Cluster
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli
from tests.acceptance.kafka_nodes import LOG, PROGRAM, start

__all__ = ["start"]

StartNode = Callable[..., NodeProcess]


@pytest.fixture
def homed(start: StartNode, tmp_path: Path) -> StartNode:
    """Starts nodes that offer groups and cursors."""
    secret = tmp_path / "secret"
    secret.write_text(f"{'s' * 40}\n")
    secret.chmod(0o600)

    def started(folder: str, *options: str) -> NodeProcess:
        where = ("--node-listen", "127.0.0.1:0", "--node-secret-file", str(secret))
        return start(folder, *where, *options)

    return started


class Following:
    """A `receive --follow`. Its output is in files."""

    def __init__(self, node: NodeProcess, folder: Path, *options: str) -> None:
        folder.mkdir()
        self._printed, self._said = folder / "printed", folder / "said"
        with self._printed.open("w") as printed, self._said.open("w") as said:
            self.process = subprocess.Popen(
                [PROGRAM, "receive", LOG, "--follow", "--json", *options],
                env={**node.environment(), "AMQP_STREAMS_URL": node.url},
                stdout=printed,
                stderr=said,
            )

    @property
    def offsets(self) -> list[int]:
        """Of the events that it has printed."""
        lines = self._printed.read_text().splitlines(keepends=True)
        return [int(json.loads(line)["offset"]) for line in lines if line.endswith("\n")]

    @property
    def said(self) -> str:
        """What it has written for people."""
        return self._said.read_text()

    def await_count(self, count: int) -> None:
        """Wait until it has printed so many events."""
        await_that(lambda: len(self.offsets) >= count, f"{count} events: {self.said}")


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Following]]:
    """Starts `receive --follow`."""
    started: list[Following] = []

    def make(node: NodeProcess, *options: str) -> Following:
        started.append(Following(node, tmp_path / f"follow{len(started)}", *options))
        return started[-1]

    yield make
    for each in started:
        each.process.kill()
        each.process.wait()


def await_that(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.05)


def send(node: NodeProcess, cli: Cli, first: int, end: int) -> None:
    cli(node, "send", LOG, "--key", "k", given="".join(f"{number}\n" for number in range(first, end)))


def received(node: NodeProcess, cli: Cli, *options: str) -> list[int]:
    printed = cli(node, "receive", LOG, "--format", "body", *options)
    return [int(each) for each in printed.split() if each.isdigit()]


def test_groups_and_subscriptions_continue_after_each_kind_of_end(homed: StartNode, cli: Cli) -> None:
    node = homed("first")
    send(node, cli, 0, 40)
    for name, options in (("group", ("--group", "g")), ("subscription", ("--durable", "d"))):
        assert received(node, cli, *options, "--max", "10") == list(range(10)), name
    assert node.stop() == 0
    node = homed("second")
    for options in (("--group", "g"), ("--durable", "d")):
        assert received(node, cli, *options, "--max", "10") == list(range(10, 20))
    # The last positions of a link are written at once when it ends.
    time.sleep(1)
    node.kill()
    node = homed("third")
    for options in (("--group", "g"), ("--durable", "d")):
        assert received(node, cli, *options, "--max", "10") == list(range(20, 30))
    assert "member" in cli(node, "group", "describe", LOG, "g")
    assert LOG in cli(node, "group", "list", LOG)
    cli(node, "group", "reset", LOG, "g", "--to", "earliest", "--yes")
    assert received(node, cli, "--group", "g", "--max", "10") == list(range(10))
    # The home hears a moment later that the links have ended.
    await_that(lambda: "0 members" in cli(node, "group", "describe", LOG, "g"), "the end of the members")
    cli(node, "group", "remove", LOG, "g", "--yes")
    assert "no consumer group 'g'" in cli(node, "group", "describe", LOG, "g", status=1)


def test_one_claimant_owns_a_partition_and_a_greater_epoch_takes_it_over(
    homed: StartNode, cli: Cli, follow: Callable[..., Following]
) -> None:
    node = homed("node")
    send(node, cli, 0, 5)
    partition = 0 if node_has(node, cli, 0) else 1
    claimed = ("--group", "g", "--partition", str(partition), "--from", "earliest")
    old = follow(node, *claimed, "--epoch", "3")
    old.await_count(5)
    assert "is not greater" in cli(node, "receive", LOG, *claimed, "--epoch", "3", status=1)
    new = follow(node, *claimed, "--epoch", "4")
    assert old.process.wait(60) != 0
    assert "taken over with epoch 4" in old.said
    send(node, cli, 5, 8)
    new.await_count(3)
    assert len(old.offsets) == 5
    node.kill()
    node = homed("next")
    assert "is lower than a previous one" in cli(node, "receive", LOG, *claimed, "--epoch", "3", status=1)


def node_has(node: NodeProcess, cli: Cli, partition: int) -> bool:
    """Whether the events with the key are in this partition."""
    return bool(received(node, cli, "--partition", str(partition)))


def test_two_nodes_share_groups_and_one_goes_on_when_the_other_is_killed(
    homed: StartNode, cli: Cli, follow: Callable[..., Following]
) -> None:
    one, two = homed("one"), homed("two")
    # Several groups: their homes are spread over the nodes.
    groups = [f"g{number}" for number in range(4)]
    send(one, cli, 0, 20)
    for group in groups:
        assert received(one, cli, "--group", group, "--max", "5") == list(range(5))
        assert received(two, cli, "--group", group, "--max", "5") == list(range(5, 10))
    for node in (one, two):
        await_groups(node, cli, groups)
    members = [follow(one, "--group", group) for group in groups]
    for member in members:
        member.await_count(10)
    # A log that one node has just made: the home of the group may not know it yet.
    cli(one, "log", "create", "fresh", "--partitions", "2")
    cli(two, "send", "fresh", given="x\n")
    assert received_of(two, cli, "fresh", "--group", "g", "--max", "1") == ["x"]
    two.kill()
    send(one, cli, 20, 30)
    for member in members:
        member.await_count(20)
        assert member.offsets == list(range(10, 30)), "each event once, in order"
        assert member.process.poll() is None
    assert one.stop() == 0


def await_groups(node: NodeProcess, cli: Cli, groups: list[str]) -> None:
    """Wait until a node lists these groups: it follows what the other one writes."""

    def lists_all() -> bool:
        listed = cli(node, "group", "list", LOG)
        return all(group in listed for group in groups)

    await_that(lists_all, "a list with all groups")


def test_each_node_shows_the_members_of_all_groups_and_says_whose_it_does_not_know(
    homed: StartNode, cli: Cli, follow: Callable[..., Following]
) -> None:
    one, two = homed("one"), homed("two")
    groups = [f"g{number}" for number in range(6)]
    for number, group in enumerate(groups):
        follow((one, two)[number % 2], "--group", group)
    await_that(lambda: len(owned(two, cli)) == len(groups), "all groups at each node")
    await_that(lambda: owned(one, cli) == owned(two, cli), "equal lists")
    for node in (one, two):
        described = json.loads(cli(node, "group", "describe", LOG, "g0", "--json"))
        assert described["members_known"] is True
        assert [each["owner"] for each in described["partitions"]].count(None) < 2
    two.kill()
    # An answer each time, and the truth again when the buckets have new homes.
    listed = [json.loads(cli(one, "group", "list", LOG, "--json")) for _ in range(3)]
    for group in (group for each in listed for group in each["groups"]):
        assert group["members_known"] or "the home" in group["members_reason"] or "no node" in str(group)
    await_that(lambda: set(owned(one, cli)) == set(groups[::2]), "the members at the node that is left", 120)
    assert one.stop() == 0


def owned(node: NodeProcess, cli: Cli) -> dict[str, list[object]]:
    """The owners of all groups with members, as a node lists them; empty: it does not know all of them."""
    listed = json.loads(cli(node, "group", "list", LOG, "--json"))
    if listed["incomplete"] or not all(group["members_known"] for group in listed["groups"]):
        return {}
    owners = {
        group["group"]: [(each["owner"], each["epoch"]) for each in group["partitions"]]
        for group in listed["groups"]
        if group["members"]
    }
    return dict(owners)


def received_of(node: NodeProcess, cli: Cli, log: str, *options: str) -> list[str]:
    return cli(node, "receive", log, "--format", "body", "--from", "earliest", *options).split()[:1]


def test_links_pause_while_kafka_is_away_and_lose_nothing(
    kafka: Cluster, homed: StartNode, cli: Cli, follow: Callable[..., Following]
) -> None:
    node = homed("node")
    send(node, cli, 0, 10)
    member = follow(node, "--group", "g", "--from", "earliest")
    member.await_count(10)
    for seconds in (1.5, 6.0):  # less than the lease, and more than the lease
        for broker in kafka.brokers:
            broker.signal(signal.SIGSTOP)
        time.sleep(seconds)
        for broker in kafka.brokers:
            broker.signal(signal.SIGCONT)
        before = len(member.offsets)
        send(node, cli, before, before + 10)
        member.await_count(before + 10)
    assert member.offsets == list(range(30)), "each event once, in order"
    assert member.process.poll() is None
