"""Two processes of nodes on Kafka: the home of a group is at one of them, its members are at both."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from amqp_streams.cli.commands.receive import CONTAINER
from amqp_streams.client import Client, ManagementError, connect
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli
from tests.acceptance.kafka_nodes import LOG, PROGRAM, start

__all__ = ["start"]


class Ending(MessagingHandler):
    """A client of another make that ends a subscription: AMQP 2.6.3."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(auto_settle=False)
        self.ended = False
        self.error: object = None
        self._url, self._name = url, name

    def on_start(self, event: proton.Event) -> None:
        connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS", reconnect=False)
        receiver = connection.session()
        receiver.open()
        link = receiver.receiver(self._name)
        link.source.type = proton.Terminus.UNSPECIFIED
        link.open()

    def on_link_opened(self, event: proton.Event) -> None:
        link = event.link
        assert link is not None
        if link.remote_source.address == LOG:
            link.close()

    def on_link_closed(self, event: proton.Event) -> None:
        link = event.link
        assert link is not None
        self.ended, self.error = True, link.remote_condition
        event.container.stop()

    def on_link_error(self, event: proton.Event) -> None:
        self.on_link_closed(event)


def end_subscription(node: NodeProcess, name: str) -> None:
    ending = Ending(node.url, name)
    container = Container(ending)
    container.container_id = CONTAINER
    container.run()
    assert ending.ended
    assert ending.error is None, ending.error


StartNode = Callable[..., NodeProcess]
Follow = Callable[..., "Member"]
GROUPS = 3
MEMBERS_MAX = 24
"""Groups until one has its home at a node: half of them have, by chance."""


class Member:
    """A consumer in a group, whose output is in a file."""

    def __init__(self, node: NodeProcess, file: Path, group: str) -> None:
        self._file = file
        with file.open("w") as printed:
            self.process = subprocess.Popen(
                [PROGRAM, "receive", LOG, "--follow", "--json", "--group", group, "--from", "earliest"],
                env={**node.environment(), "AMQP_STREAMS_URL": node.url},
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    @property
    def events(self) -> list[tuple[int, int]]:
        """Partition and offset of each."""
        lines = [line for line in self._file.read_text().splitlines() if line.startswith("{")]
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # not written whole yet
                event = json.loads(line)
                found.append((int(event["partition"]), event["offset"]))
        return found


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    started: list[Member] = []

    def make(node: NodeProcess, group: str) -> Member:
        started.append(Member(node, tmp_path / f"member{len(started)}", group))
        return started[-1]

    yield make
    for each in started:
        each.process.kill()
        each.process.wait()


def secret(folder: Path, letter: str) -> Path:
    path = folder / f"secret-{letter}"
    path.touch(mode=0o600)
    path.write_text(letter * 40 + "\n")
    return path


def options(file: Path) -> tuple[str, ...]:
    return "--node-listen", "127.0.0.1:0", "--node-secret-file", str(file)


def await_that(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def send(node: NodeProcess, cli: Cli, count: int) -> None:
    """Send so many events to each partition."""
    for partition in ("0", "1"):
        cli(node, "send", LOG, "--partition", partition, given="x\n" * count)


def test_members_at_two_nodes_share_the_partitions_and_one_takes_over_when_the_other_node_is_killed(
    start: StartNode, cli: Cli, follow: Follow, tmp_path: Path
) -> None:
    file = secret(tmp_path, "s")
    one, two = start("one", *options(file)), start("two", *options(file))
    groups = [f"g{number}" for number in range(GROUPS)]
    pairs = [(follow(one, group), follow(two, group)) for group in groups]
    # Partitions move until each member has one, whichever node is the home.
    sent = 0
    while not all(first.events and second.events for first, second in pairs):
        assert sent < 100, "a member has no partition"
        send(one, cli, 1)
        sent += 1
    await_that(lambda: all({*first.events, *second.events} == every(0, sent) for first, second in pairs))
    assert "node_reached" in one.words + two.words
    one.kill()
    send(two, cli, 5)
    await_that(lambda: all(every(sent, sent + 5) <= set(second.events) for _, second in pairs), 90)


def every(start: int, end: int) -> set[tuple[int, int]]:
    """The events with these offsets, in both partitions."""
    return {(partition, offset) for partition in (0, 1) for offset in range(start, end)}


def test_a_node_with_another_secret_says_why_its_links_wait_and_the_others_go_on(
    start: StartNode, cli: Cli, follow: Follow, tmp_path: Path
) -> None:
    good, bad = start("good", *options(secret(tmp_path, "s"))), start("bad", *options(secret(tmp_path, "t")))
    send(good, cli, 1)
    numbers = iter(range(MEMBERS_MAX))

    def is_refused() -> bool:
        return "different secrets" in bad.words and "different secrets" in good.words

    while not is_refused():
        follow(bad, f"b{next(numbers)}")
        time.sleep(1)
    lines = [line for line in bad.words.splitlines() if "different secrets" in line]
    assert len([line for line in lines if "node_not_reached" in line]) == 1, lines
    assert "tttt" not in bad.words + good.words
    assert "ssss" not in bad.words + good.words
    # Groups whose home is at the good node itself are served there.
    members = [follow(good, f"g{next(numbers)}")]
    while not any(member.events for member in members):
        members.append(follow(good, f"g{next(numbers)}"))
        time.sleep(1)


def has_no_groups(node: NodeProcess, cli: Cli) -> bool:
    return "g" not in cli(node, "group", "list", LOG).partition("UPDATED")[2]


def test_each_node_moves_and_removes_groups_and_ends_subscriptions_wherever_their_homes_are(
    start: StartNode, cli: Cli, tmp_path: Path
) -> None:
    file = secret(tmp_path, "s")
    one, two = start("one", *options(file)), start("two", *options(file))
    send(one, cli, 3)
    groups = [f"g{number}" for number in range(4)]
    for group in groups:
        cli(one, "receive", LOG, "--group", group, "--max", "6")
    await_that(lambda: all("0 members" in cli(one, "group", "describe", LOG, each) for each in groups))
    for node in (one, two):
        for group in groups:
            moved = json.loads(cli(node, "group", "reset", LOG, group, "--to", "earliest", "--yes", "--json"))
            assert [each["lag"] for each in moved["partitions"]] == [3, 3], (node.folder, group)
            cli(node, "group", "reset", LOG, group, "--to", "latest", "--yes")
    for number, group in enumerate(groups):
        cli((one, two)[number % 2], "group", "remove", LOG, group, "--yes")
    for node in (one, two):
        await_that(partial(has_no_groups, node, cli))
    # A client that has read at one node ends its subscriptions at the other, at once.
    for number in range(4):
        cli(one, "receive", LOG, "--durable", f"d{number}", "--max", "1")
        end_subscription(two, f"d{number}")
    for node in (one, two):
        assert cli(node, "cursor", "list", LOG).count("\n") == 1, "only the line with the names of columns"


async def move_when_possible(client: Client, group: str) -> None:
    """The home hears a moment later that the links have ended."""
    while True:
        try:
            await client.management.reset_group(LOG, group, "earliest")
        except ManagementError as error:
            if error.status != 409:
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_home_that_stands_still_is_named_and_its_groups_can_be_changed_when_it_goes_on(
    start: StartNode, cli: Cli, tmp_path: Path
) -> None:
    file = secret(tmp_path, "s")
    one, two = start("one", *options(file)), start("two", *options(file))
    send(one, cli, 1)
    groups = [f"g{number}" for number in range(8)]
    async with connect(one.url) as client:
        for group in groups:
            async with client.group_consumer(LOG, group) as member:
                await member.receive(1)
        (address,) = re.findall(r"listening_for_nodes .*advertised=(\S+)", two.words)

        async def remove(group: str) -> ManagementError | None:
            try:
                await client.management.delete_group(LOG, group, timeout=30)
            except ManagementError as error:
                return error
            return None

        async with asyncio.timeout(60):
            for group in groups:
                await move_when_possible(client, group)
        os.kill(two.pid, signal.SIGSTOP)
        answers = await asyncio.gather(*map(remove, groups))
        os.kill(two.pid, signal.SIGCONT)
        failed = [error for error in answers if error is not None]
        for error in failed:
            assert error.status in {503, 504}, error
            assert address in error.description
        # Whether the changes were made or not, a later request is answered by the home of then.
        async with asyncio.timeout(60):
            for group in groups:
                while (again := await remove(group)) is not None and again.status != 404:
                    assert again.status in {503, 504}, again
