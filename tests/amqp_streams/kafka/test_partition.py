"""A partition of a topic, with a store that notes what it is asked."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.fetching import OvertakenError, Place
from amqp_streams.kafka.partition import KafkaPartition, Lost
from amqp_streams.kafka.records.plain import PlainRecord
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest
from amqp_streams.wire.keys import key_section


class Room:
    """Notes what is sent; a fetch fails as the test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[Any], list[bytes | None], int]] = []
        self.fetched: list[int] = []
        self.removed_below = 0
        self.found: int | Later = LATER

    def send(self, _partition: Any, values: Sequence[Any], keys: Sequence[bytes | None], size: int) -> None:
        self.sent.append((list(values), list(keys), size))

    def fetch(self, _partition: Any, at: int, _bytes: int, _request: ReadRequest | None) -> Chunk | None:
        self.fetched.append(at)
        if at < self.removed_below:
            raise OvertakenError(self.removed_below)
        return None

    def first_after(self, _partition: Any, _after_ms: int, _request: Any) -> Any:
        return self.found

    def follow(self, partition: Any) -> None:
        """Nothing to note."""


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def partition(room: Room) -> KafkaPartition:
    return KafkaPartition(room, "log", Place("t", 2), Extent(5, 20), 100)


def test_the_key_of_a_record_is_the_group_key(room: Room, partition: KafkaPartition) -> None:
    messages = [key_section("k") + b"\x00\x53\x75\xa0\x01x", b"\x00\x53\x75\xa0\x01x", b"not AMQP"]
    partition.append(messages, bytes(3), 0)
    assert room.sent == [(messages, [b"k", None, None], sum(map(len, messages)))]


def test_an_event_larger_than_the_topic_allows_is_refused(room: Room, partition: KafkaPartition) -> None:
    with pytest.raises(StorageError, match=r"101 bytes is larger .* max\.message\.bytes"):
        partition.append([b"x" * 101], bytes(1), 0)
    assert room.sent == []


def test_an_event_of_a_plain_topic_is_a_record_with_key_and_headers(room: Room) -> None:
    partition = KafkaPartition(room, "log", Place("t", 2), Extent(5, 20), 100, plain=True)
    message = key_section("k") + b"\x00\x53\x75\xa0\x01x"
    partition.append([message], bytes(1), 0)
    assert room.sent == [([PlainRecord(b"k", b"x", [])], [None], len(message))]
    with pytest.raises(StorageError, match="message-formats other than 0"):
        partition.append([message], bytes(1), 0, None, array("I", [7]))


def test_a_read_that_retention_overtook_continues_at_the_earliest(
    room: Room, partition: KafkaPartition
) -> None:
    room.removed_below = 9
    assert partition.read(0, 100) is None
    assert (room.fetched, partition.start, partition.end) == ([5, 9], 9, 20)
    room.removed_below = 30
    assert partition.read(9, 100) is None
    assert (partition.start, partition.end) == (30, 30)


def test_news_of_kafka_never_move_start_and_end_back(partition: KafkaPartition) -> None:
    assert partition.move(Extent(3, 19)) is False
    assert (partition.start, partition.end) == (5, 20)
    assert partition.move(Extent(7, 21)) is True
    assert (partition.start, partition.end) == (7, 21)
    assert partition.move(Extent(40, 10)) is False
    assert (partition.start, partition.end) == (40, 40)


def test_a_partition_of_a_lost_log_gives_and_takes_nothing(room: Room, partition: KafkaPartition) -> None:
    partition.lose("log 'log' was deleted")
    with pytest.raises(LogDeletedError, match="was deleted"):
        partition.append([b"x"], bytes(1), 0)
    with pytest.raises(LogDeletedError, match="was deleted"):
        partition.read(5, 100)
    assert partition.facts().failure == "log 'log' was deleted"
    assert (room.sent, room.fetched) == ([], [])


def test_a_time_is_sought_within_what_is_retained(room: Room, partition: KafkaPartition) -> None:
    request = ReadRequest("o", lambda: None)
    assert partition.seek_timestamp(1, request) is LATER
    room.found = 3
    assert partition.seek_timestamp(1, request) == 5
    room.found = 11
    assert partition.seek_timestamp(1) == 11


def test_after_a_loss_the_end_falls_and_positions_of_lost_records_have_a_reason(
    partition: KafkaPartition,
) -> None:
    assert partition.truncate(20) is None
    assert partition.gone(21) is None
    assert partition.truncate(12) == Lost(12, 20)
    assert (partition.start, partition.end) == (5, 12)
    assert "partition 2 of topic 't' ends at 12: Kafka lost the events from 12 on" in str(partition.gone(13))
    assert partition.gone(12) is partition.gone(21) is None
    assert partition.move(Extent(5, 15))
    assert partition.gone(15) is None
    assert "ends at 15" in str(partition.gone(20))
    assert partition.truncate(3) == Lost(3, 15)
    assert (partition.start, partition.end) == (3, 3)


def test_batches_of_this_node_get_growing_numbers_unless_records_were_lost(partition: KafkaPartition) -> None:
    assert partition.accepted(3)
    assert partition.accepted(9)
    assert not partition.accepted(9)
    assert partition.accepted(10)
    assert not partition.accepted(4)
    partition.truncate(2)
    assert partition.accepted(2)
