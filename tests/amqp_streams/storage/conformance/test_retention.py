"""Retention of every store."""

from contextlib import suppress

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError
from amqp_streams.log_settings import Compression
from tests.amqp_streams.storage.conftest import NOW, Hand, entries, read_all, stamps


def test_retention_by_bytes_drops_whole_segments_from_the_oldest_on(hand: Hand) -> None:
    settings = LogSettings(retention_bytes=1 << 20, segment_bytes=64 << 10)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    messages = [b"%08d" % number * 1000 for number in range(300)]
    for message in messages:
        hand.write(partition, message)
    assert hand.store.apply_retention(NOW) == [(partition, 0)]
    kept = read_all(partition)
    assert 131 < len(kept) < 300
    assert kept == messages[-len(kept) :]
    assert partition.start == entries(partition)[0][0]
    assert (1 << 20) <= partition.facts().bytes < (1 << 20) + (80 << 10)
    assert hand.store.apply_retention(NOW) == []


def test_retention_by_age_drops_even_the_last_record_and_offsets_continue(hand: Hand) -> None:
    settings = LogSettings(retention_ms=10_000, segment_ms=1000)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    hand.write(partition, b"a", b"b", now_ms=NOW)
    end = partition.end
    assert hand.store.apply_retention(NOW + 5000) == []
    for _ in range(3):
        hand.store.apply_retention(NOW + 60_000)
        hand.loop.run_ready()
    # Threads may need a moment to bring the records to a segment that can go.
    while partition.start < partition.end:
        hand.store.apply_retention(NOW + 60_000)
        hand.loop.run_ready()
    assert (partition.start, partition.end, partition.read(0, 100)) == (end, end, None)
    hand.write(partition, b"c", now_ms=NOW + 60_000)
    [(number, message)] = entries(partition)
    assert (number >= end, message) == (True, b"c")


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


def test_compressing_changes_nothing_that_can_be_read(hand: Hand) -> None:
    settings = LogSettings(segment_bytes=64 << 10)
    with suppress(SettingRefusedError):
        hand.store.create(
            "log", settings.model_copy(update={"compression": Compression.ZSTD}), incarnation="i"
        )
    log = hand.store.logs.get("log") or hand.store.create("log", settings, incarnation="i")
    partition = log.partitions[0]
    for number in range(50):
        hand.write(partition, b"%08d" % number * 1000)

    def readable() -> object:
        found = partition.seek_timestamp(NOW - 1)
        return entries(partition), stamps(partition), partition.start, partition.end, found

    before = readable()
    for _ in range(20):
        hand.store.compress()
        hand.loop.run_ready()
    assert readable() == before
