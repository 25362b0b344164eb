"""Nodes as members of a Kafka group with real brokers: assigned, asked for buckets, expelled, gone."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.kafka.brokers.administration import FoundTopic
from amqp_streams.kafka.sharing.member import Member, Request
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.kafka.sharing.conftest import connection
from tests.preloaded.launching import IN_A_FORK

ALL = frozenset(range(BUCKETS))
PROCESS = (
    IN_A_FORK
    + """
import sys
from amqp_streams.kafka.sharing.member import Member
def say(*words):
    print(*words, flush=True)
servers, topic, group = sys.argv[1:]
Member(
    {"bootstrap.servers": servers, "log_level": 0}, topic, group=group,
    loop_call=lambda function, *arguments: function(*arguments),
    on_assigned=lambda owned: say("assigned", len(owned)),
    on_revoking=lambda request: (say("revoking", len(request.buckets)), request.give_back()),
    on_lost=lambda: say("lost"), on_left=lambda: say("left"),
)
sys.stdin.read()
"""
)
"""A node that says what its member hears, until its standard input ends."""


class Joined:
    """A member whose loop is the test."""

    def __init__(
        self, servers: str, topic: str, group: str, *, give_back_s: float = 60.0, **settings: object
    ) -> None:
        self.loop = ManualLoop()
        self.owned: frozenset[int] = frozenset()
        self.requests: list[Request] = []
        self.lost = 0
        self.left = 0
        self.member = Member(
            connection(servers) | settings,
            topic,
            group=group,
            loop_call=self.loop.call,
            on_assigned=self._assigned,
            on_revoking=self.requests.append,
            on_lost=self._expelled,
            on_left=self._ended,
            give_back_s=give_back_s,
        )

    def _assigned(self, owned: frozenset[int]) -> None:
        self.owned = owned

    def _expelled(self) -> None:
        self.lost += 1
        self.owned = frozenset()

    def _ended(self) -> None:
        self.left += 1


def await_that(condition: Callable[[], bool], *members: Joined) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, [each.member.problem for each in members]
        for each in members:
            each.loop.run_ready()
        time.sleep(0.01)


@pytest.fixture
def join(
    kafka: Cluster, topic: FoundTopic, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Joined]]:
    """Join the group of this test."""
    joined: list[Joined] = []

    def one(**options: Any) -> Joined:
        joined.append(Joined(kafka.servers, topic.name, f"{topic.name}.{request.node.name}", **options))
        return joined[-1]

    yield one
    for each in joined:
        each.member.leave()
        for asked in each.requests:
            asked.give_back()
    assert all(each.member.join(60) for each in joined)


def test_buckets_move_only_after_they_were_given_back(join: Callable[..., Joined]) -> None:
    one = join()
    await_that(lambda: one.owned == ALL, one)
    two = join()
    await_that(lambda: bool(one.requests), one, two)
    (asked,) = one.requests
    assert len(asked.buckets) == BUCKETS // 2
    # Longer than a few heartbeats: nothing moves meanwhile.
    until = time.monotonic() + 1
    await_that(lambda: time.monotonic() > until, one, two)
    assert not two.owned
    asked.give_back()
    await_that(lambda: two.owned == asked.buckets, one, two)
    assert not one.lost + two.lost


def test_a_member_that_leaves_hands_its_buckets_over_at_once(join: Callable[..., Joined]) -> None:
    """The session timeout, which is minutes here, is not waited for."""
    patient = {"session.timeout.ms": 600_000, "max.poll.interval.ms": 600_000}
    one = join(**patient)
    await_that(lambda: one.owned == ALL, one)
    two = join(**patient)
    await_that(lambda: bool(one.requests), one, two)
    one.requests[0].give_back()
    await_that(lambda: len(two.owned) == BUCKETS // 2, one, two)
    one.member.leave()
    await_that(lambda: two.owned == ALL and one.left == 1, one, two)
    assert len(one.requests) == 1


def test_a_node_whose_loop_is_stuck_does_not_keep_its_buckets(join: Callable[..., Joined]) -> None:
    one = join(give_back_s=0.2)
    await_that(lambda: one.owned == ALL, one)
    two = join()
    # The loop of the first one does not run.
    await_that(lambda: len(two.owned) == BUCKETS // 2, two)


def test_a_stopped_member_hears_that_it_was_expelled_when_it_continues(
    kafka: Cluster, topic: FoundTopic, join: Callable[..., Joined]
) -> None:
    group = f"{topic.name}.test_a_stopped_member_hears_that_it_was_expelled_when_it_continues"
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, kafka.servers, topic.name, group],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == f"assigned {BUCKETS}\n"
    other = join()
    assert process.stdout.readline() == f"revoking {BUCKETS // 2}\n"
    await_that(lambda: len(other.owned) == BUCKETS // 2, other)
    process.send_signal(signal.SIGSTOP)
    try:
        await_that(lambda: other.owned == ALL, other)
    finally:
        process.send_signal(signal.SIGCONT)
    lines = iter(process.stdout.readline, "")
    assert "lost\n" in lines
    # It joins again by itself.
    await_that(lambda: bool(other.requests), other)
    other.requests[-1].give_back()
    assert f"assigned {BUCKETS // 2}\n" in lines
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


def test_why_a_node_is_not_a_member_is_said_in_words() -> None:
    one = Joined("127.0.0.1:1", "t", "g")
    await_that(lambda: "down" in one.member.problem, one)
    one.member.leave()
    await_that(lambda: one.left == 1, one)
    assert one.member.join(60)
