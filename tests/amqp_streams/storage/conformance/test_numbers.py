"""Numbers of idempotent producers in every store."""

from array import array

from amqp_streams.storage.ports import Numbers, Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, read_all
from tests.amqp_streams.storage.test_numbered_store import put, reached


def test_numbers_are_known_when_their_events_are_durable_and_not_before(
    hand: Hand, partition: Partition
) -> None:
    hand.store.allow_numbers()
    partition.append([b"a", b"b"], bytes(2), NOW, Numbers("p", array("Q", [3, 9])))
    partition.append([b"c"], bytes(1), NOW)
    assert reached(partition) == {}
    hand.commit()
    assert reached(partition) == {"p": 9}
    assert partition.producers["p"].at_ms == NOW
    assert read_all(partition) == [b"a", b"b", b"c"]


def test_the_latest_writer_is_last_and_the_forgotten_ones_are_removed(
    hand: Hand, partition: Partition
) -> None:
    for producer in "abca":
        put(hand, partition, producer, len(read_all(partition)), b"x")
    assert list(partition.producers) == ["b", "c", "a"]
    put(hand, partition, "d", 0, b"x", gone=("b", "a"))
    assert list(partition.producers) == ["c", "d"]
