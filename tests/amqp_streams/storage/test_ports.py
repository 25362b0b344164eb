"""The contract of every store, tested with each of them: in memory, on files in memory, and on the disk with
threads.
"""

import random

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, read_all


def test_appended_records_are_read_back_whole_and_in_order(hand: Hand, partition: Partition) -> None:
    messages = [b"m%d" % number * (number % 40 + 1) for number in range(500)]
    for first in range(0, 500, 25):
        assert hand.write(partition, *messages[first : first + 25]) == first
    for bytes_max in (1, 100, 5000, 1 << 20):
        assert read_all(partition, 0, bytes_max) == messages


def test_reading_may_begin_at_any_record(hand: Hand, partition: Partition) -> None:
    messages = [b"%d" % number for number in range(300)]
    for first in range(0, 300, 30):
        hand.write(partition, *messages[first : first + 30])
    for at in range(300):
        chunk = partition.read(at, 1)
        assert chunk is not None
        assert (chunk.base, chunk.messages[0]) == (at, messages[at])


def test_nothing_is_readable_at_the_end_or_beyond(hand: Hand, partition: Partition) -> None:
    assert partition.read(0, 1000) is None
    hand.write(partition, b"a")
    assert partition.read(1, 1000) is None
    assert partition.read(99, 1000) is None


def test_nothing_is_visible_before_its_commit_ended(hand: Hand, partition: Partition) -> None:
    partition.append([b"a"], b"\0", NOW)
    assert (partition.end, partition.read(0, 100), hand.store.pending_bytes) == (0, None, 1)
    hand.commit()
    assert (partition.end, hand.store.pending_bytes) == (1, 0)


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
    chunk = partition.read(4, 1)
    assert chunk is not None
    assert (chunk.messages[0], chunk.header_sizes[0], chunk.timestamps[0]) == (b"", 0, NOW + 1)
    chunk = partition.read(5, 2)
    assert chunk is not None
    assert (chunk.messages[0], chunk.header_sizes[0], chunk.timestamps[0]) == (b"de", 2, NOW + 1)


def test_timestamps_never_decrease_though_the_clock_does(hand: Hand, partition: Partition) -> None:
    for now_ms in (NOW, NOW - 5000, NOW + 7, NOW + 6):
        hand.write(partition, b"a", now_ms=now_ms)
    stamps = []
    for at in range(4):
        chunk = partition.read(at, 1)
        assert chunk is not None
        stamps.append(chunk.timestamps[0])
    assert stamps == [NOW, NOW, NOW + 7, NOW + 7]


def test_a_clock_that_jumps_by_months_within_a_commit_stops_nothing(hand: Hand, partition: Partition) -> None:
    """A batch spans less than 50 days: commits continue after any jump of the clock."""
    days = 24 * 3600 * 1000
    for day in (0, 60, -400, 120):
        partition.append([b"%d" % day], b"\0", NOW + day * days)
    done = hand.commit()
    assert done is not None
    assert not done.failures
    assert hand.write(partition, b"later") == 4
    assert read_all(partition) == [b"0", b"60", b"-400", b"120", b"later"]
    assert partition.seek_timestamp(NOW) == 1


def test_seeking_a_timestamp_gives_the_first_record_after_it(hand: Hand, partition: Partition) -> None:
    rng = random.Random(5)
    stamps: list[int] = []
    now_ms = NOW
    for _ in range(120):
        now_ms += rng.choice([0, 0, 0, 1, 3])
        count = rng.randint(1, 4)
        partition.append([b"x" * rng.randint(0, 200)] * count, bytes(count), now_ms)
        stamps += [now_ms] * count
        if rng.random() < 0.4:
            hand.commit()
    hand.commit()
    for after_ms in range(NOW - 2, now_ms + 3):
        naive = next((number for number, stamp in enumerate(stamps) if stamp > after_ms), len(stamps))
        assert partition.seek_timestamp(after_ms) == naive


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
    assert (facts.start, facts.end, facts.first_timestamp_ms, facts.last_timestamp_ms) == (0, 2, NOW, NOW + 9)
    assert 20 <= facts.bytes <= 200


def test_a_commit_reports_how_much_it_contained(hand: Hand, partition: Partition) -> None:
    partition.append([b"ab", b"c"], b"\0\0", NOW)
    sequence = partition.queue.sequence
    done = hand.commit()
    assert done is not None
    assert (done.sequence, done.events, done.bytes, dict(done.failures)) == (sequence, 2, 3, {})
    assert partition.queue.sequence == sequence + 1


def test_committing_nothing_does_nothing(hand: Hand, partition: Partition) -> None:
    hand.store.commit()
    hand.loop.run_ready()
    assert (hand.done, partition.queue.sequence) == ([], 0)


def test_commits_are_numbered_within_their_queue(hand: Hand) -> None:
    first, second = hand.store.create("two", LogSettings(partitions=2), incarnation="i").partitions
    for partitions in ([first], [first, second], [second], [first]):
        expected = {partition.queue: partition.queue.sequence for partition in partitions}
        count = len(hand.done)
        for partition in partitions:
            partition.append([b"abc"], b"\0", NOW)
            assert partition.queue.pending_bytes
        hand.commit()
        assert {done.queue: done.sequence for done in hand.done[count:]} == expected
        assert not any(partition.queue.pending_bytes for partition in partitions)


def test_many_partitions_share_the_commits_of_their_queue(hand: Hand) -> None:
    partitions = hand.store.create("many", LogSettings(partitions=20), incarnation="i").partitions
    for round_ in range(30):
        for partition in partitions:
            partition.append([b"%d/%d" % (partition.index, round_) * 20], b"\0", NOW)
        hand.commit()
    # One for all partitions of a queue, not one for each partition.
    assert len(hand.done) == 30 * len({partition.queue for partition in partitions})
    for partition in partitions:
        assert read_all(partition) == [b"%d/%d" % (partition.index, round_) * 20 for round_ in range(30)]


def test_a_message_larger_than_any_buffer_goes_through(hand: Hand) -> None:
    first, second, third = hand.store.create("big", LogSettings(partitions=3), incarnation="i").partitions
    large = bytes(range(256)) * 8192
    for partition in (first, second, third):
        partition.append([b"before", large, b"after"], bytes(3), NOW)
    hand.commit()
    assert read_all(first) == read_all(second) == read_all(third) == [b"before", large, b"after"]


def test_a_log_is_made_once_and_found_by_its_name(hand: Hand) -> None:
    log = hand.store.create("a.b-c_1", LogSettings(partitions=3), incarnation="xyz")
    assert hand.store.logs["a.b-c_1"] == log or hand.store.logs["a.b-c_1"] is log
    assert [(partition.log, partition.index) for partition in log.partitions] == [
        ("a.b-c_1", 0),
        ("a.b-c_1", 1),
        ("a.b-c_1", 2),
    ]
    with pytest.raises(ValueError, match="exists"):
        hand.store.create("a.b-c_1", LogSettings(), incarnation="other")
    with pytest.raises(ValueError, match="not a valid log name"):
        hand.store.create("../a", LogSettings(), incarnation="other")


def test_a_deleted_log_does_not_exist_and_its_pending_appends_fail(hand: Hand, partition: Partition) -> None:
    hand.write(partition, b"a")
    partition.append([b"b"], b"\0", NOW)
    hand.store.delete("log")
    assert "log" not in hand.store.logs
    done = hand.commit()
    assert done is not None
    assert list(done.failures) == [partition]
    with pytest.raises(StorageError, match="deleted"):
        partition.append([b"c"], b"\0", NOW)
    with pytest.raises(KeyError):
        hand.store.delete("log")


def test_a_namesake_of_a_deleted_log_begins_empty(hand: Hand, partition: Partition) -> None:
    hand.write(partition, *[b"old" * 100] * 30)
    hand.store.delete("log")
    again = hand.store.create("log", LogSettings(), incarnation="2").partitions[0]
    assert (again.start, again.end) == (0, 0)
    hand.write(again, b"new")
    assert read_all(again) == [b"new"]


def test_settings_change_but_not_the_number_of_partitions(hand: Hand, partition: Partition) -> None:
    hand.store.update("log", LogSettings(retention_ms=5000))
    assert hand.store.logs["log"].settings.retention_ms == 5000
    assert hand.store.logs["log"].partitions[0] is partition
    with pytest.raises(ValueError, match="partitions"):
        hand.store.update("log", LogSettings(partitions=2))
    with pytest.raises(KeyError):
        hand.store.update("none", LogSettings())


def test_retention_by_bytes_drops_whole_segments_from_the_oldest_on(hand: Hand) -> None:
    settings = LogSettings(retention_bytes=1 << 20, segment_bytes=64 << 10)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    for number in range(300):
        hand.write(partition, b"%08d" % number * 1000)
    moved = hand.store.apply_retention(NOW)
    assert moved == [(partition, 0)]
    assert 0 < partition.start < 300 - 131
    assert (1 << 20) <= partition.facts().bytes < (1 << 20) + (80 << 10)
    assert read_all(partition) == [b"%08d" % number * 1000 for number in range(partition.start, 300)]
    assert hand.store.apply_retention(NOW) == []


def test_retention_by_age_drops_even_the_last_record_and_offsets_continue(hand: Hand) -> None:
    settings = LogSettings(retention_ms=10_000, segment_ms=1000)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    hand.write(partition, b"a", b"b", now_ms=NOW)
    assert hand.store.apply_retention(NOW + 5000) == []
    for _ in range(3):
        hand.store.apply_retention(NOW + 60_000)
        hand.loop.run_ready()
    # Threads may need a moment to bring the records to a segment that can go.
    while partition.start < partition.end:
        hand.store.apply_retention(NOW + 60_000)
        hand.loop.run_ready()
    assert (partition.start, partition.end, partition.read(0, 100)) == (2, 2, None)
    assert hand.write(partition, b"c", now_ms=NOW + 60_000) == 2
    assert read_all(partition) == [b"c"]


def test_retention_by_age_continues_after_a_clock_was_wrong_once(hand: Hand) -> None:
    settings = LogSettings(retention_ms=10_000, segment_ms=5000)
    partition = hand.store.create("short", settings, incarnation="i").partitions[0]
    years = 9 * 365 * 24 * 3600 * 1000
    hand.write(partition, b"wrong", now_ms=NOW + years)
    for second in range(60):
        now_ms = NOW + second * 1000
        hand.write(partition, b"%d" % second, now_ms=now_ms)
        hand.store.apply_retention(now_ms)
        hand.loop.run_ready()
    kept = read_all(partition)
    assert b"59" in kept
    assert b"50" in kept, "nothing younger than the retention is removed"
    assert b"30" not in kept
    assert b"wrong" not in kept


def test_a_reader_overtaken_by_retention_continues_at_the_earliest(hand: Hand) -> None:
    settings = LogSettings(retention_bytes=1 << 20, segment_bytes=64 << 10)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    for number in range(300):
        hand.write(partition, b"%08d" % number * 1000)
    hand.store.apply_retention(NOW)
    chunk = partition.read(0, 1)
    assert chunk is not None
    assert chunk.base == partition.start > 0


def test_nothing_more_is_reported_after_close(hand: Hand, partition: Partition) -> None:
    partition.append([b"a"], b"\0", NOW)
    hand.store.close()
    count = len(hand.done)
    hand.loop.run_ready()
    assert len(hand.done) == count
    hand.store.close()
