"""A copy has each record once and in order, wherever it was ended, and nothing that is not in the log."""

import signal
import subprocess
import sys
import time
import uuid
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, StorageError
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.copying.copying import CopiedPartition, Copier
from amqp_streams.kafka.copying.source import Source
from amqp_streams.kafka.settings import while_copied
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.storage import inspect
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import ManualLoop
from amqp_streams.wire.keys import key_section
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.storage.conftest import NOW, Hand, open_real

PROGRAM = Path(sys.executable).with_name("amqp-streams")
SETTINGS = LogSettings(partitions=2, segment_bytes=1 << 20, retention_ms=315_360_000_000)
BODY = b"\x00\x53\x75\xa0\x04%04d"
MANY = 45_000

Record = tuple[int, bytes, int, int]
"""Time, message, size of the header, message-format."""


def filled(path: Path, *, batches: int, size: int, settings: LogSettings = SETTINGS) -> Path:
    """A directory with the log `temps`: so many batches of this size in each partition."""
    hand = open_real(path)
    log = hand.store.logs.get("temps") or hand.store.create("temps", settings, incarnation="i")
    for number in range(batches):
        for partition in log.partitions:
            messages = [BODY % ((partition.end + index) % 10_000) for index in range(size)]
            partition.append(messages, bytes(size), NOW + number)
        hand.commit()
    hand.store.close()
    return path


@pytest.fixture
def names() -> TopicNames:
    """Names of topics that no other test has."""
    return TopicNames(f"t{uuid.uuid4().hex[:12]}")


def copier(cluster: Cluster, names: TopicNames, path: Path, *, skip_damaged: bool = False) -> Copier:
    source = Source(path, "temps", skip_damaged=skip_damaged)
    connection = {"bootstrap.servers": cluster.servers, "log_level": 0}
    return Copier(source, names.of_log("temps"), connection, replicas=3, message_bytes=1 << 20)


def unfinished(made: Copier) -> Copier:
    """A copy that leaves the topic as one does that was ended before its last step."""
    made._administration.alter = lambda found, configuration: found  # type: ignore[method-assign]
    return made


@pytest.fixture
def node(kafka: Cluster, names: TopicNames) -> Iterator[Hand]:
    """The store of a node, which is opened when it is used first."""
    hands: list[Hand] = []

    class Later:
        def __getattr__(self, name: str) -> object:
            if not hands:
                loop = ManualLoop()
                connection = {"bootstrap.servers": kafka.servers, "log_level": 0}
                store = KafkaStore(KafkaOptions(connection, names, readers=2), loop_call=loop.call)
                hands.append(Hand(store, loop))
            return getattr(hands[0], name)

    yield Later()  # type: ignore[misc]  # it has all of a hand
    for hand in hands:
        hand.store.close()


def in_kafka(partition: Partition) -> list[tuple[int, Record]]:
    """Offset and record of everything that a node reads."""
    found, at = [], partition.start
    while (chunk := partition.read(at, 1 << 20)) is not None:
        found += [
            (
                chunk.number(index),
                (
                    chunk.timestamps[index],
                    chunk.messages[index],
                    chunk.header_sizes[index],
                    0 if chunk.formats is None else chunk.formats[index],
                ),
            )
            for index in range(len(chunk))
        ]
        at = chunk.end
    return found


def in_directory(path: Path, partition: int) -> list[tuple[int, Record]]:
    return [
        (each.number, (each.timestamp_ms, each.message, each.header_bytes, each.message_format))
        for each in inspect.dump(path, "temps", partition=partition)
    ]


def same(path: Path, node: Hand, copied: list[CopiedPartition]) -> None:
    """Everything of the log is in Kafka, and nothing else; the runs say where."""
    for each, partition in zip(copied, node.store.logs["temps"].partitions, strict=True):
        old, new = in_directory(path, each.index), in_kafka(partition)
        assert [record for _, record in new] == [record for _, record in old]
        assert [each.runs.new_of(number, -1) for number, _ in old] == [number for number, _ in new]


def test_a_copy_has_the_same_messages_and_times_and_is_a_log_like_others(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    path = filled(tmp_path / "data", batches=3, size=50)
    hand = open_real(path)
    partition = hand.store.logs["temps"].partitions[0]
    message = key_section("kitchen") + BODY % 1
    partition.append(
        [message, b"\x00\x53\x70\x45" + BODY % 2, b"any"], b"\x00\x04\x02", NOW, None, array("I", [0, 0, 9])
    )
    hand.commit()
    hand.store.close()
    copied = copier(kafka, names, path).copy()
    assert [(each.start, each.end, each.found, each.appended) for each in copied] == [
        (0, 153, 0, 153),
        (0, 150, 0, 150),
    ]
    same(path, node, copied)
    log = node.store.logs["temps"]
    assert (log.refusal, log.settings.retention_ms, log.promise) == (None, 315_360_000_000, "replicated 2/3")
    node.write(log.partitions[0], BODY % 5)
    assert in_kafka(log.partitions[0])[-1][1][1] == BODY % 5
    assert in_kafka(log.partitions[0])[-1][1][0] > NOW, "the time of the broker"
    # Once more: it is complete, and what nodes have added does not disturb.
    again = copier(kafka, names, path).copy()
    assert [(each.found, each.appended) for each in again] == [(153, 0), (150, 0)]
    assert [list(each.runs) for each in again] == [list(each.runs) for each in copied]
    reader = Consumer({"bootstrap.servers": kafka.servers, "group.id": "none", "log_level": 0})
    reader.assign([TopicPartition(names.of_log("temps"), 0, copied[0].runs.new_of(150, -1))])
    [record] = reader.consume(1, 60)
    assert record.key() == b"kitchen"
    reader.close()


def test_a_copy_that_was_killed_continues_and_nothing_is_there_twice(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    path, topic = filled(tmp_path / "data", batches=MANY // 1000, size=1000), names.of_log("temps")
    command = [str(PROGRAM), "log", "copy", str(path), "temps", "--kafka-servers", kafka.servers]
    command += ["--kafka-prefix", names.prefix, "--map", str(tmp_path / "map.json")]
    watcher = Consumer({"bootstrap.servers": kafka.servers, "group.id": "none", "log_level": 0})

    def records() -> int:
        try:
            ends = [watcher.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1] for p in (0, 1)]
        except KafkaException:
            # The topic does not exist yet.
            return 0
        return sum(ends)

    for point in (1, 3000, 15_000, 40_000, 70_000):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and records() < point:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    watcher.close()
    copied = copier(kafka, names, path).copy()
    assert 0 < sum(each.found for each in copied) < 2 * MANY, "something was there, and something was not"
    same(path, node, copied)


def test_an_earlier_copy_that_still_runs_can_add_nothing(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    """For example one on a machine that was stopped for some time, or whose requests were on their way."""
    path = filled(tmp_path / "data", batches=1, size=10)
    first = copier(kafka, names, path)
    zombie, topic = first._producer(), names.of_log("temps")
    first._administration.create(topic, 2, 3, while_copied(first._configuration()))
    zombie.begin_transaction()
    zombie.produce(topic, b"late", partition=0)
    zombie.flush(60)
    copied = copier(kafka, names, path).copy()
    with pytest.raises(KafkaException):
        zombie.commit_transaction(60)
    same(path, node, copied)


def test_while_a_log_is_copied_nodes_show_it_and_refuse_producers(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    settings = LogSettings(partitions=2, segment_bytes=64 << 10)
    path = filled(tmp_path / "data", batches=20, size=1000, settings=settings)
    after = damage_a_batch(path)
    with pytest.raises(CorruptionError):
        copier(kafka, names, path).copy()
    log = node.store.logs["temps"]
    assert log.refusal is not None
    assert "unless 'amqp-streams log copy' is copying its log" in log.refusal
    copied = copier(kafka, names, path, skip_damaged=True).copy()
    node.loop.run_until(lambda: node.store.logs["temps"].refusal is None, timeout_s=60)
    assert copied[0].runs.count < copied[1].runs.count == 20_000
    assert copied[0].runs.new_of(0, -1) == copied[0].runs.new_of(after, -1) == 0, "the next that exists"


def damage_a_batch(path: Path) -> int:
    """Damage the first batch of partition 0; returns the number after it."""
    segment = min(path.glob("logs/temps/0/*.log"))
    content = bytearray(segment.read_bytes())
    content[content.index(BODY % 50)] ^= 1
    segment.write_bytes(content)
    return 1000


def test_what_retention_removed_is_not_there_and_offsets_begin_anew(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    settings = LogSettings(partitions=2, segment_bytes=64 << 10, retention_bytes=1 << 20)
    path = filled(tmp_path / "data", batches=150, size=1000, settings=settings)
    hand = open_real(path)
    hand.store.apply_retention(NOW)
    hand.store.close()
    # With the last step, Kafka would begin to remove records by the settings of the log.
    copied = unfinished(copier(kafka, names, path)).copy()
    assert all(each.start > 0 for each in copied)
    assert [each.extent.start for each in copied] == [0, 0]
    same(path, node, copied)
    for each in copied:
        assert each.runs.new_of(each.start, -1) == each.runs.new_of(0, -1) == 0


def test_a_log_that_grew_after_the_copy_was_ended_is_continued(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    path = filled(tmp_path / "data", batches=1, size=10)
    made = copier(kafka, names, path)
    unfinished(made).copy()
    filled(path, batches=2, size=5)
    copied = copier(kafka, names, path).copy()
    assert [(each.found, each.appended) for each in copied] == [(10, 10), (10, 10)]
    same(path, node, copied)


def test_a_topic_with_other_records_is_refused_and_not_changed(
    kafka: Cluster, names: TopicNames, tmp_path: Path, node: Hand
) -> None:
    path, topic = filled(tmp_path / "data", batches=1, size=10), names.of_log("temps")
    log = node.store.create("temps", LogSettings(partitions=2), incarnation="")
    with pytest.raises(StorageError, match="exists and is not a copy of the log: record 0 of partition 0"):
        copier(kafka, names, path).copy()
    node.write(log.partitions[0], BODY % 7)
    with pytest.raises(StorageError, match="the record at offset 0 is not record 0 of the log"):
        copier(kafka, names, path).copy()
    assert [record[1] for _, record in in_kafka(log.partitions[0])] == [BODY % 7]
    made = copier(kafka, names, path)
    found = made.look()
    assert found is not None
    made._administration.delete(found)
    made._administration.create(topic, 3, 3, {"message.timestamp.type": "CreateTime"})
    with pytest.raises(StorageError, match="exists with 3 partitions, but the log has 2"):
        made.copy()


def test_records_behind_those_of_the_log_are_refused(
    kafka: Cluster, names: TopicNames, tmp_path: Path
) -> None:
    path, topic = filled(tmp_path / "data", batches=1, size=10), names.of_log("temps")
    made = copier(kafka, names, path)
    unfinished(made).copy()
    other = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    other.produce(topic, b"of another program", partition=1)
    assert other.flush(60) == 0
    with pytest.raises(StorageError, match="has records that the log does not have, from offset 11 on"):
        copier(kafka, names, path).copy()


def test_a_partition_without_records_has_no_runs() -> None:
    empty = CopiedPartition(0, extent=Extent(3, 3))
    assert (empty.runs.count, empty.runs.new_of(5, empty.extent.end)) == (0, 3)
