"""The suite that every store passes (docs/stores.md), on topics that exist: nodes do not make or change them.

The records of such topics are those of Kafka clients, so each message of the suite is in a data section.
`PLAIN_EXCEPTIONS` has the tests that do not hold. They run as well: one that passes fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.config import LogSettings
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.partition import KafkaPartition
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.log_settings import log_name
from amqp_streams.storage.ports import (
    Chunk,
    CommitDone,
    Formats,
    Later,
    Numbers,
    Partition,
    ReadRequest,
    StoredLog,
)
from amqp_streams.storage.questions import Create, Find, Question, Refresh
from amqp_streams.testing import ManualLoop
from amqp_streams.wire.layout import DATA_BINARY32
from bench.products.kafka_cluster import Cluster
from tests import borrowed
from tests.amqp_streams.storage import conformance
from tests.amqp_streams.storage.conftest import Hand
from tests.kafka_spec.exceptions import PLAIN_EXCEPTIONS, PLAIN_SAMPLE, RETENTION

HEAD_BYTES = len(DATA_BINARY32) + 4
NAMES = frozenset({"log", "two", "many", "three", "big", "short", "twin", "a.b-c_1"})
"""The logs of the suite."""
SUITE = {
    name: test for module in borrowed.modules(conformance) for name, test in borrowed.cases(module).items()
}


class DataPartition(KafkaPartition):
    """The messages of the suite are bytes: here each is the payload of a data section."""

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> None:
        """See `Partition.append`."""
        sections = [b"".join((DATA_BINARY32, len(each).to_bytes(4), each)) for each in messages]
        super().append(sections, header_sizes, now_ms, numbers, formats)

    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Any:
        """See `Partition.read`."""
        chunk = super().read(at, bytes_max, request)
        if not isinstance(chunk, Chunk):
            return chunk
        return replace(chunk, messages=[bytes(each)[_head(each) :] for each in chunk.messages])


def _head(message: bytes) -> int:
    return HEAD_BYTES if message.startswith(DATA_BINARY32) else len(DATA_BINARY32) + 1


class PlainHand(Hand):
    """Events of such a topic can be read a moment after they were accepted: a transaction may hold them."""

    def commit(self) -> CommitDone | None:
        """See `Hand.commit`. What was stored can be read afterwards."""
        done = super().commit()
        for name in tuple(self.store.logs):
            self.ask(Refresh(name, ()))
        return done


class PlainStore(KafkaStore):
    """A store of topics that exist: what creates one here is a Kafka client."""

    def __init__(self, options: KafkaOptions, loop: ManualLoop, admin: AdminClient) -> None:
        self.admin = admin
        self._made: Final[set[str]] = set()
        super().__init__(options, loop_call=loop.call)

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """See `Store.create`."""
        self._make(name, settings)
        found = self._jobs.wait(self._asking.finding(name))
        assert found is not None
        return found

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`."""
        if isinstance(question, Create) and request.pending is None:
            self._make(question.name, question.settings)
        return super().ask(Find(question.name) if isinstance(question, Create) else question, request)

    def _make(self, name: str, settings: LogSettings) -> None:
        if log_name(name) in self.logs or name in self._made:
            message = f"log {name} exists"
            raise ValueError(message)
        config = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
        topic = NewTopic(name, settings.partitions, 3, config=config | {"max.message.bytes": f"{17 << 20}"})
        # The topic of the test before may not be gone yet.
        while True:
            try:
                self.admin.create_topics([topic])[name].result(60)
            except KafkaException as error:
                if "exists" not in str(error):
                    raise
            else:
                self._made.add(name)
                # A leader may not know of the topic yet.
                self.administration._await_topic(
                    name, lambda found: found is not None and self.administration._led(found)
                )
                return

    def _partition(self, log: str, place: Place, extent: Extent, message_bytes: int) -> KafkaPartition:
        partition = DataPartition(self, log, place, extent, message_bytes, plain=True)
        self._sending[partition.sending] = partition
        return partition


@pytest.fixture
def hand(kafka: Cluster) -> Iterator[Hand]:
    """A hand for a store whose topics are those of Kafka clients."""
    connection: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.servers, "log_level": 0}
    admin = AdminClient(connection)
    loop = ManualLoop()
    store = PlainStore(KafkaOptions(connection, TopicNames(plain=NAMES), readers=2), loop, admin)
    hand = PlainHand(store, loop)
    yield hand
    made = list(store.logs)
    store.close()
    for deleted in cast("Mapping[str, Any]", admin.delete_topics(made) if made else {}).values():
        deleted.result(60)


@pytest.fixture
def partition(hand: Hand) -> Partition:
    """The one partition of a new log."""
    return hand.store.create("log", LogSettings(), incarnation="i").partitions[0]


@pytest.fixture(autouse=True)
def _expected(request: pytest.FixtureRequest) -> None:
    reason = PLAIN_EXCEPTIONS.get(request.node.originalname)
    if reason is not None:
        # Whether Kafka has removed records when a test looks depends on the speed of the machine.
        request.applymarker(pytest.mark.xfail(strict=True, run=reason != RETENTION, reason=reason))


globals().update(SUITE)


def test_the_tables_name_tests_of_the_suite() -> None:
    assert PLAIN_EXCEPTIONS.keys() | PLAIN_SAMPLE <= SUITE.keys()
