"""Homes on real brokers: two nodes in this process, each with a loop of its own that the test runs."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from amqp_streams.config import GroupSettings, Limits
from amqp_streams.homes.bucket import Phase, Reply
from amqp_streams.homes.home import Home
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Report
from amqp_streams.homes.records import HomeRecord
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.sharing.producing import BucketProducer, Outcome
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.server.homes.home_shell import TICK_S, HomeShell
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests import hanging

BUCKETS = 2


def boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Node:
    """A node with a shell, and what the shell said."""

    def __init__(
        self, name: str, options: KafkaOptions, administration: Administration, topic: FoundTopic
    ) -> None:
        self.loop = ManualLoop()
        self.homes: dict[int, list[HomeRecord]] = {}
        self.replies: list[Reply] = []
        self.left = 0
        home = Home(
            name, name, lambda _incarnation: None, settings=GroupSettings(), limits=Limits(), times=Times()
        )
        self.shell = HomeShell(
            home,
            options,
            administration,
            topic,
            loop_call=self.loop.call,
            boot_ms=boot_ms,
            wall_ms=lambda: int(time.time() * 1000),
            on_reply=self.replies.append,
            on_home=lambda bucket, record: self.homes.setdefault(bucket, []).append(record),
            on_left=self._gone,
        )

    def _gone(self) -> None:
        self.left += 1

    @property
    def serves(self) -> set[int]:
        return {number for number, each in self.shell.home.buckets.items() if each.phase is Phase.SERVING}


class Nodes:
    """Starts nodes on one topic, and runs their loops."""

    def __init__(self, servers: str) -> None:
        self.names = TopicNames(f"t{uuid.uuid4().hex[:12]}")
        self.options = KafkaOptions({"bootstrap.servers": servers, "log_level": 0}, self.names)
        self.administration = Administration(self.options.connection)
        self.topic = find_or_create(self.administration, self.names.state, BUCKETS, replicas=3, weak=False)
        self.nodes: list[Node] = []

    def start(self) -> Node:
        self.nodes.append(Node(f"n.{len(self.nodes)}", self.options, self.administration, self.topic))
        return self.nodes[-1]

    def producer(self, bucket: int) -> BucketProducer:
        """A producer of a bucket, as another node has it."""
        return BucketProducer(
            self.options.connection,
            self.names.state,
            bucket,
            transactional_id=f"{self.names.prefix}.bucket.{bucket}",
            boot_ms=boot_ms,
        )

    def await_that(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until, [node.shell.problems for node in self.nodes]
            for node in self.nodes:
                node.loop.run_ready()
                node.shell.tick()
            time.sleep(TICK_S / 5)

    def close(self) -> None:
        ended = [node.shell.close(60) for node in self.nodes]
        assert all(ended)
        assert not any(node.shell.threads for node in self.nodes)
        self.administration.delete(self.topic)


@pytest.fixture
def nodes(kafka: Cluster) -> Iterator[Nodes]:
    made = Nodes(kafka.servers)
    yield made
    made.close()


def test_buckets_move_in_order_from_node_to_node(nodes: Nodes) -> None:
    one = nodes.start()
    nodes.await_that(lambda: one.serves == {0, 1})
    assert one.shell.problems == ()
    assert one.shell.threads == BUCKETS
    nodes.await_that(
        lambda: (
            {number: [each.term for each in seen] for number, seen in one.homes.items()} == {0: [1], 1: [1]}
        )
    )
    two = nodes.start()
    nodes.await_that(lambda: len(two.serves) == 1 and len(one.serves) == 1)
    (moved,) = two.serves
    # The first home has said that it let go, so the second one did not wait for its lease.
    nodes.await_that(lambda: [each.term for each in one.homes[moved]] == [1, 1, 2])
    assert [each.let_go for each in one.homes[moved]] == [False, True, False]
    assert one.homes[moved][-1].node == "n.1"
    assert one.shell.threads == 1
    one.shell.stop()
    nodes.await_that(lambda: two.serves == {0, 1} and one.left == 1)
    assert not one.shell.home.buckets
    assert one.shell.threads == 0


def test_a_home_ends_a_hanging_transaction_of_its_bucket(kafka: Cluster, nodes: Nodes) -> None:
    with hanging.unverified(kafka):
        place = Place(nodes.names.state, 0)
        hanging.hang(kafka, f"{nodes.names.prefix}.bucket.0", {place: (b"cursor", b"1")})
    node = nodes.start()
    nodes.await_that(lambda: node.serves == {0, 1})
    # It may have been committed, and answered.
    assert node.shell.states(0)["cursor"] == b"1"


def test_a_home_answers_reports_while_its_lease_is_in_force(nodes: Nodes) -> None:
    node = nodes.start()
    nodes.await_that(lambda: node.serves == {0, 1})
    numbers = iter(range(1, 1000))

    def answered() -> bool:
        # A home without reports does not renew its lease. With one, it does.
        node.shell.report(Report("peer.1", 0, 1, next(numbers), ()))
        return any(reply.answer.processed and reply.answer.remaining_ms > 0 for reply in node.replies)

    nodes.await_that(answered)
    assert all(reply.node == "peer.1" for reply in node.replies)


def test_a_home_that_is_deposed_fences_again_with_a_greater_term(nodes: Nodes) -> None:
    node = nodes.start()
    nodes.await_that(lambda: node.serves == {0, 1})
    # As another node does that believes that it is the home of the bucket.
    other = nodes.producer(0)
    other.fence(60)
    numbers = iter(range(1, 10_000))

    def renewed() -> bool:
        term = node.shell.home.buckets[0].record.term
        node.shell.report(Report("peer.1", 0, term, next(numbers), ()))
        return node.serves == {0, 1} and term > 1

    nodes.await_that(renewed)
    assert [each.term for each in node.homes[0]][-1] == 2
    assert node.homes[1][-1].term == 1
    other.close()


def test_a_bucket_that_a_later_version_wrote_costs_itself_only_and_is_logged_once(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    later = nodes.producer(0)
    later.fence(60)
    assert later.commit({"home": b'{"v":99}'}, 60).outcome is Outcome.COMMITTED
    node = nodes.start()
    nodes.await_that(lambda: node.serves == {1})
    attempt = node.shell.home.buckets[0].attempt
    nodes.await_that(lambda: node.shell.home.buckets[0].attempt > attempt + 3)
    assert node.serves <= {1}
    waits = [each for each in caplog.messages if each.startswith("home_waits")]
    assert len(waits) == 1
    assert "start the version that wrote it" in waits[0]
    assert len([each for each in caplog.messages if each.startswith("home_unreadable")]) == 1
    later.close()


def test_a_home_whose_states_were_lost_loads_them_again(nodes: Nodes) -> None:
    node = nodes.start()
    nodes.await_that(lambda: node.serves == {0, 1})
    attempt = node.shell.home.buckets[0].attempt
    nodes.administration.delete(nodes.topic)
    nodes.topic = find_or_create(nodes.administration, nodes.names.state, BUCKETS, replicas=3, weak=False)
    nodes.await_that(lambda: node.shell.home.buckets[0].attempt > attempt and node.serves == {0, 1})
    assert node.homes[0][-1].term > 1
