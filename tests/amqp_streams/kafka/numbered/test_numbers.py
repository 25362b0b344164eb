"""Idempotent producers of two nodes with real brokers: the stores of the nodes, whose loops are the test."""

import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams import names as amqp_names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.storage.ports import LATER, CommitDone, Numbers, Reached, ReadRequest, StoredLog
from amqp_streams.storage.questions import Find, OpenProducer, Question, Refresh
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.storage.conftest import NOW, read_all

WAIT_S = 60.0


@dataclass(eq=False)
class Node:
    """A store, and what it said."""

    store: KafkaStore
    loop: ManualLoop
    done: list[CommitDone] = field(default_factory=list)
    taken: list[tuple[str, bool]] = field(default_factory=list)

    def ask(self, question: Question) -> StoredLog | None:
        ready: list[None] = []
        request = ReadRequest("node", lambda: ready.append(None))
        while (found := self.store.ask(question, request)) is LATER:
            count = len(ready)
            self.until(lambda count=count: len(ready) > count)  # type: ignore[misc]  # a default of a lambda
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        # There are calls all the time, so the loop alone would never give up.
        late = time.monotonic() + WAIT_S
        self.loop.run_until(lambda: condition() or time.monotonic() > late, timeout_s=WAIT_S)
        assert condition()

    def attach(self, producer: str = "p", home: int = 0) -> tuple[StoredLog, int]:
        """A link of a producer."""
        if "log" not in self.store.logs:
            self.ask(Find("log"))
        self.ask(OpenProducer("log", producer, home))
        return self.store.others.attached(self.store.logs["log"], producer)

    def send(self, view: StoredLog, *numbers: int, partition: int = 0, producer: str = "p") -> None:
        messages = [b"%d" % number for number in numbers]
        sequences = Numbers(producer, array("Q", numbers))
        view.partitions[partition].append(messages, bytes(len(messages)), NOW, sequences)
        self.store.commit()

    def ended(self) -> CommitDone:
        """The end of the next transaction."""
        count = len(self.done)
        self.until(lambda: len(self.done) > count)
        return self.done[-1]

    def read(self, count: int, partition: int = 0) -> list[bytes]:
        """All events of a partition, when so many can be read: a moment after they were accepted."""
        owner, until = self.store.logs["log"].partitions[partition], time.monotonic() + WAIT_S
        while len(found := read_all(owner)) < count and time.monotonic() < until:
            self.ask(Refresh("log", (partition,)))
        return found


@pytest.fixture
def nodes(kafka: Cluster) -> Iterator[Callable[..., Node]]:
    names, made = TopicNames(f"t{uuid.uuid4().hex[:12]}"), list[Node]()

    def started(**options: int) -> Node:
        connection = {"bootstrap.servers": kafka.servers, "log_level": 0}
        loop = ManualLoop()
        settings = KafkaOptions(connection, names, readers=1, **options)  # type: ignore[arg-type]  # numbers
        node = Node(KafkaStore(settings, loop_call=loop.call), loop)
        node.store.on_commit = node.done.append
        node.store.others.on_taken = partial(_note, node)
        made.append(node)
        return node

    yield started
    for name in tuple(made[0].store.logs):
        made[0].store.delete(name)
    for each in made:
        each.store.close(within_s=WAIT_S)


def _note(node: Node, _view: StoredLog, reason: str, stolen: bool) -> None:
    node.taken.append((reason, stolen))


def reached(view: StoredLog, producer: str = "p") -> list[Reached | None]:
    return [partition.producers.get(producer) for partition in view.partitions]


def test_events_and_numbers_are_stored_together_and_the_next_node_knows_them(
    nodes: Callable[..., Node],
) -> None:
    first, second = nodes(), nodes()
    first.store.create("log", LogSettings(partitions=2), incarnation="i")
    view, home = first.attach(home=1)
    assert home == 1
    assert reached(view) == [None, None]
    first.send(view, 0, 1)
    # Everything that is appended meanwhile is the next transaction.
    first.send(view, 5, partition=1)
    first.send(view, 7)
    assert reached(view) == [None, None]
    done = first.ended()
    assert (done.sequence, done.events, done.failures) == (0, 2, {})
    done = first.ended()
    assert (done.sequence, done.events, done.failures) == (1, 2, {})
    assert reached(view) == [Reached(7, 0), Reached(5, 0)]
    assert first.store.pending_bytes == 0
    # Another node takes it over, and the first one hears of it.
    theirs, home = second.attach(home=0)
    assert home == 1
    assert reached(theirs) == [Reached(7, 0), Reached(5, 0)]
    first.until(lambda: bool(first.taken))
    assert first.taken == [("producer 'p' was attached to another node", True)]
    with pytest.raises(StorageError, match="'p' is not here any more"):
        first.send(view, 8)
    second.send(theirs, 8)
    assert second.ended().failures == {}
    assert second.read(4) == [b"0", b"1", b"7", b"8"]
    assert second.read(1, partition=1) == [b"5"]


def test_a_node_that_was_fenced_stores_nothing_and_refuses_what_it_has(nodes: Callable[..., Node]) -> None:
    first, second = nodes(), nodes()
    first.store.create("log", LogSettings(), incarnation="i")
    view, _ = first.attach()
    first.send(view, 0)
    assert first.ended().failures == {}
    theirs, _ = second.attach()
    # The loop of the first one was busy: it has not yet heard of the other one.
    first.send(view, 1)
    done = first.ended()
    assert list(done.failures) == [view.partitions[0]]
    assert first.taken == [("producer 'p' was attached to another node", True)]
    first.store.others.detached(view)
    second.send(theirs, 1)
    assert second.ended().failures == {}
    assert second.read(2) == [b"0", b"1"]
    # Back again: the numbers are those that are stored.
    again, _ = first.attach()
    assert reached(again) == [Reached(1, 0)]


def test_a_producer_moves_back_and_forth_faster_than_nodes_hear_of_it(nodes: Callable[..., Node]) -> None:
    first, second = nodes(), nodes()
    first.store.create("log", LogSettings(), incarnation="i")
    for number in range(6):
        node = (first, second)[number % 2]
        view, _ = node.attach()
        assert reached(view) == [Reached(number - 1, 0) if number else None]
        node.send(view, number)
        assert node.ended().failures == {}
        node.store.others.detached(view)
    assert second.read(6) == [b"%d" % number for number in range(6)]


def test_more_producers_than_the_limit_are_refused_and_those_without_links_give_way(
    nodes: Callable[..., Node],
) -> None:
    node = nodes(numbered=2, remembered=3)
    node.store.create("log", LogSettings(), incarnation="i")
    views = [node.attach(producer)[0] for producer in ("a", "b")]
    assert node.store.facts().uses["kafka_numbered"] == (2, 2)
    with pytest.raises(PeerError, match=r"kafka\.numbered") as refused:
        node.attach("c")
    assert refused.value.condition == amqp_names.RESOURCE_LIMIT_EXCEEDED
    for view in views:
        node.store.others.detached(view)
    for number in range(4):
        view, _ = node.attach(f"p{number}")
        node.store.others.detached(view)
    figures = {figure.name: figure.samples for figure in node.store.facts().figures}
    assert figures["kafka_numbered_producers"][()] <= 3
    assert figures["kafka_numbered_transactions"]["committed",] >= 6


def test_the_producers_of_a_deleted_log_end_with_it(nodes: Callable[..., Node]) -> None:
    node = nodes()
    node.store.create("log", LogSettings(), incarnation="i")
    view, _ = node.attach()
    node.store.delete("log")
    node.until(lambda: bool(node.taken))
    assert node.taken == [("log log was deleted", False)]
    with pytest.raises(StorageError):
        node.send(view, 1)
    node.store.others.detached(view)
    node.store.create("log", LogSettings(), incarnation="i")
    again, _ = node.attach()
    assert reached(again) == [None]


def test_a_topic_of_numbers_that_cannot_be_used_is_a_problem_in_words(
    nodes: Callable[..., Node], kafka: Cluster
) -> None:
    node = nodes()
    node.store.create("log", LogSettings(), incarnation="i")
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    topic = node.store.options.names.numbers
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(WAIT_S)
    node.store.administration.await_topic(topic)
    for _ in range(2):
        with pytest.raises(StorageError, match="it has 3 partitions, and must have 16"):
            node.attach()
    (words,) = node.store.facts().problems
    assert words.startswith(f"topic '{topic}' cannot have the states of idempotent producers: ")
    admin.delete_topics([topic])[topic].result(WAIT_S)
