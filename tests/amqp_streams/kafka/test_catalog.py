"""What news of Kafka change in the logs of a node."""

from dataclasses import replace

import pytest

from amqp_streams.errors import LogDeletedError
from amqp_streams.kafka.brokers.administration import Extent, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.catalog import Catalog
from amqp_streams.kafka.hashing import partition_of_key
from amqp_streams.kafka.partition import KafkaPartition
from amqp_streams.kafka.settings import TopicSettings
from amqp_streams.kafka.topics import TopicNames
from tests.amqp_streams.kafka.test_partition import Room

TOPIC = "amqp-streams.log.temps"
SETTINGS = TopicSettings(
    partitions=2,
    replicas=3,
    in_sync_min=2,
    unclean=False,
    message_bytes=1 << 20,
    append_times=True,
    compacted=False,
    retention_ms=None,
    retention_bytes=None,
    segment_ms=60_000,
    segment_bytes=1 << 20,
)
FOUND = FoundTopic(TOPIC, "id-1", SETTINGS)
PLAIN = FoundTopic("orders", "id-9", replace(SETTINGS, append_times=False))


class Node:
    """A catalog, and what it reported."""

    def __init__(self, *, weak: bool = False) -> None:
        self.dropped: list[KafkaPartition] = []
        self.lost: list[str] = []
        self.grown: list[KafkaPartition] = []

        def make(log: str, place: Place, extent: Extent, message_bytes: int) -> KafkaPartition:
            return KafkaPartition(Room(), log, place, extent, message_bytes)

        self.catalog = Catalog(
            TopicNames(plain=frozenset({"orders"})), weak=weak, make=make, dropped=self.dropped.append
        )
        self.catalog.others.on_lost = lambda log, reason: self.lost.append(f"{log.name}: {reason}")
        self.catalog.others.on_grown = self.grown.extend  # type: ignore[assignment]  # all are of Kafka

    def look(self, *topics: FoundTopic, end: int = 0) -> None:
        extents = {place: Extent(0, end) for found in topics for place in found.places}
        self.catalog.moved(extents)
        self.catalog.compare({found.name: found for found in topics}, extents)


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_topic_of_another_node_is_a_log_with_its_events(node: Node) -> None:
    node.look(FOUND, end=7)
    log = node.catalog.logs["temps"]
    assert (log.incarnation, log.promise, log.refusal) == ("id-1", "replicated 2/3", None)
    assert [partition.end for partition in log.partitions] == [7, 7]
    assert node.catalog.places == (Place(TOPIC, 0), Place(TOPIC, 1))
    assert not node.catalog.wanted("other")


@pytest.mark.parametrize("weak", [False, True])
def test_a_log_that_is_being_copied_takes_no_events_until_the_copy_has_ended(weak: bool) -> None:
    node = Node(weak=weak)
    node.look(replace(FOUND, settings=replace(SETTINGS, append_times=False)), PLAIN)
    refusal = node.catalog.logs["temps"].refusal
    assert refusal is not None
    assert "set it to LogAppendTime, unless 'amqp-streams log copy' is copying its log" in refusal
    assert node.catalog.logs["orders"].refusal is None, "topics of other programs may have any times"
    node.look(FOUND, PLAIN)
    assert node.catalog.logs["temps"].refusal is None


def test_a_topic_that_kafkas_tools_made_is_refused_with_all_reasons(node: Node) -> None:
    made = replace(SETTINGS, append_times=False, replicas=1, in_sync_min=1)
    node.look(replace(FOUND, settings=made))
    refusal = node.catalog.logs["temps"].refusal
    assert refusal is not None
    for reason in ("message.timestamp.type", "it has 1 replicas", "min.insync.replicas is 1"):
        assert reason in refusal


def test_ends_that_moved_are_reported(node: Node) -> None:
    node.look(FOUND, end=7)
    node.look(FOUND, end=8)
    assert [(partition.index, partition.end) for partition in node.grown] == [(0, 8), (1, 8)]


def test_a_log_is_gone_when_two_looks_agree(node: Node) -> None:
    node.look(FOUND)
    partition = node.catalog.logs["temps"].partitions[0]
    node.look()
    node.look(FOUND)
    node.look()
    assert "temps" in node.catalog.logs
    node.look()
    assert node.catalog.logs == {}
    assert node.lost == ["temps: log 'temps' was deleted"]
    assert node.dropped[0] is partition
    with pytest.raises(LogDeletedError):
        partition.append([b"x"], bytes(1), 0)
    # A broker that is behind the others shows it again.
    node.look(FOUND)
    assert node.catalog.logs == {}


@pytest.mark.parametrize(
    "other", [replace(FOUND, id="id-2"), replace(FOUND, settings=replace(SETTINGS, partitions=3))]
)
def test_a_topic_that_is_another_one_is_another_log(node: Node, other: FoundTopic) -> None:
    node.look(FOUND)
    before = node.catalog.logs["temps"]
    node.look(other)
    assert node.catalog.logs["temps"] is before
    node.look(other)
    after = node.catalog.logs["temps"]
    assert (after.incarnation, len(after.partitions)) == (other.id, other.settings.partitions)
    assert len(node.lost) == 1
    assert set(node.dropped) == set(before.partitions)


def test_settings_that_changed_elsewhere_change_the_log_and_not_its_partitions(node: Node) -> None:
    node.look(FOUND)
    before = node.catalog.logs["temps"]
    node.look(replace(FOUND, settings=replace(SETTINGS, in_sync_min=1, retention_ms=5000)))
    after = node.catalog.logs["temps"]
    assert after.settings.retention_ms == 5000
    assert after.refusal is not None
    assert "min.insync.replicas is 1" in after.refusal
    assert after.promise == "replicated 1/3"
    assert after.partitions is before.partitions
    assert node.lost == []


def test_weak_topics_are_allowed_if_the_operator_says_so() -> None:
    node = Node(weak=True)
    node.look(replace(FOUND, settings=replace(SETTINGS, replicas=1)))
    log = node.catalog.logs["temps"]
    assert (log.refusal, log.promise) == (None, "replicated 1/1")


def test_a_plain_topic_is_a_foreign_log() -> None:
    node = Node()
    node.look(FOUND, PLAIN)
    log = node.catalog.logs["orders"]
    assert log.promise == "replicated 2/3; times of producers"
    assert log.foreign is not None
    assert log.foreign.partition_of_key("kitchen", 3) == partition_of_key(b"kitchen", 3)
    assert node.catalog.logs["temps"].foreign is None


def test_a_log_that_this_node_made_may_have_been_found_before(node: Node) -> None:
    node.look(FOUND)
    log = node.catalog.logs["temps"]
    assert node.catalog.known(FOUND, {}) is log
    assert node.catalog.known(replace(FOUND, id="id-2"), {}) is not log
    assert len(node.lost) == 1


def test_an_end_from_before_a_loss_says_nothing() -> None:
    """A slow look may have asked before the loss was found: it would be found again, with new records."""
    node = Node()
    node.catalog.add(FOUND, {Place(TOPIC, 0): Extent(0, 7), Place(TOPIC, 1): Extent(0, 7)})
    known = node.catalog.ends_now([Place(TOPIC, 0), Place(TOPIC, 1)])
    node.catalog.partitions[Place(TOPIC, 0)].truncate(3)
    assert node.catalog.current(known) == {Place(TOPIC, 1): 7}


def test_only_partitions_that_are_still_in_a_log_count() -> None:
    node = Node()
    node.catalog.add(FOUND, {Place(TOPIC, 0): Extent(0, 7)})
    known = node.catalog.ends_now([Place(TOPIC, 0), Place(TOPIC, 1), Place("other", 0)])
    assert node.catalog.current(known) == {Place(TOPIC, 0): 7, Place(TOPIC, 1): 0}
    node.catalog.known(replace(FOUND, id="id-2"), {})
    assert node.catalog.current(known) == {}
