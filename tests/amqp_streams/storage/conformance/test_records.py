"""Records of every store: appended, durable, read."""

import random

from amqp_streams.config import LogSettings
from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, entries, read_all


def test_appended_records_are_read_back_whole_and_in_order(hand: Hand, partition: Partition) -> None:
    messages = [b"m%d" % number * (number % 40 + 1) for number in range(500)]
    for first in range(0, 500, 25):
        hand.write(partition, *messages[first : first + 25])
    for bytes_max in (1, 100, 5000, 1 << 20):
        assert read_all(partition, 0, bytes_max) == messages


def test_reading_may_begin_at_any_position(hand: Hand, partition: Partition) -> None:
    for first in range(0, 300, 30):
        hand.write(partition, *[b"%d" % number for number in range(first, first + 30)])
    written = entries(partition)
    for at in range(partition.start, written[-1][0] + 1):
        chunk = partition.read(at, 1)
        assert chunk is not None
        wanted = next((number, message) for number, message in written if number >= at)
        assert (chunk.base, chunk.messages[0]) == wanted


def test_readers_do_not_disturb_each_other(hand: Hand, partition: Partition) -> None:
    for first in range(0, 300, 30):
        hand.write(partition, *[b"%d" % number * 20 for number in range(first, first + 30)])
    written, rng = entries(partition), random.Random(3)
    positions = [rng.randrange(partition.end) for _ in range(20)]
    for _ in range(200):
        reader = rng.randrange(20)
        chunk = partition.read(positions[reader], rng.choice((1, 100, 5000)))
        if chunk is None:
            positions[reader] = 0
            continue
        assert (chunk.base, chunk.messages[0]) == next(
            entry for entry in written if entry[0] >= positions[reader]
        )
        positions[reader] = chunk.base + 1


def test_nothing_is_readable_at_the_end_or_beyond(hand: Hand, partition: Partition) -> None:
    assert partition.read(0, 1000) is None
    hand.write(partition, b"a")
    assert partition.read(partition.end, 1000) is None
    assert partition.read(partition.end + 98, 1000) is None


def test_nothing_is_visible_before_its_commit_ended(hand: Hand, partition: Partition) -> None:
    partition.append([b"a"], b"\0", NOW)
    assert (partition.end, partition.read(0, 100), hand.store.pending_bytes) == (0, None, 1)
    hand.commit()
    assert hand.store.pending_bytes == 0
    assert partition.end > 0
    assert read_all(partition) == [b"a"]


def test_a_read_is_about_as_large_as_asked_and_never_empty(hand: Hand, partition: Partition) -> None:
    hand.write(partition, *[b"x" * 100] * 50)
    for bytes_max, count in ((1, 1), (100, 1), (250, 2), (1000, 10), (1 << 20, 50)):
        chunk = partition.read(0, bytes_max)
        assert chunk is not None
        assert len(chunk) == count


def test_header_sizes_and_timestamps_stay_with_their_records(hand: Hand, partition: Partition) -> None:
    for number in range(20):
        partition.append([b"abc", b"", b"de"], bytes([1, 0, 2]), NOW + number)
        if number % 3 == 0:
            hand.commit()
    hand.commit()
    written = entries(partition)
    for index, expected in ((4, (b"", 0, NOW + 1)), (5, (b"de", 2, NOW + 1)), (57, (b"abc", 1, NOW + 19))):
        chunk = partition.read(written[index][0], 2)
        assert chunk is not None
        assert (chunk.messages[0], chunk.header_sizes[0], chunk.timestamps[0]) == expected


def test_facts_describe_the_present_state(hand: Hand, partition: Partition) -> None:
    facts = partition.facts()
    assert (facts.start, facts.end, facts.first_timestamp_ms, facts.last_timestamp_ms, facts.failure) == (
        0,
        0,
        None,
        None,
        None,
    )
    hand.write(partition, b"a" * 10, now_ms=NOW)
    hand.write(partition, b"a" * 10, now_ms=NOW + 9)
    facts = partition.facts()
    assert (facts.start, facts.end) == (partition.start, partition.end)
    assert (facts.first_timestamp_ms, facts.last_timestamp_ms) == (NOW, NOW + 9)
    assert 20 <= facts.bytes <= 200


def test_a_message_larger_than_any_buffer_goes_through(hand: Hand) -> None:
    first, second, third = hand.store.create("big", LogSettings(partitions=3), incarnation="i").partitions
    large = bytes(range(256)) * 8192
    for partition in (first, second, third):
        partition.append([b"before", large, b"after"], bytes(3), NOW)
    hand.commit()
    assert read_all(first) == read_all(second) == read_all(third) == [b"before", large, b"after"]
