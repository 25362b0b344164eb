"""Closed segments are compressed one after the other, and whatever happens meanwhile, nothing is lost."""

import random
from dataclasses import replace
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError
from amqp_streams.log_settings import Compression
from amqp_streams.storage import Severity
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.questions import Update
from amqp_streams.testing import FaultyFiles
from amqp_streams.wire.batched import compression
from tests.amqp_streams.storage.compressed import (
    CODECS,
    FOLDER,
    ZSTD,
    compress,
    compressed_count,
    files_of,
    filled,
)
from tests.amqp_streams.storage.conftest import NOW, SMALL, open_inline, open_real, read_all
from tests.amqp_streams.storage.held import open_held

NONE = ZSTD.model_copy(update={"compression": Compression.NONE})


def test_all_closed_segments_are_compressed_and_the_active_one_is_not() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand)
    compress(hand)
    assert len(files_of(files, ".log")) == 1
    assert len(files_of(files, ".logz")) == len(partition.segments.row) - 1
    assert not files_of(files, ".new")
    assert read_all(partition) == sent
    stored = sum(len(files.content(path)) for path in files_of(files, ".log") + files_of(files, ".logz"))
    assert partition.segments.bytes == stored
    hand.store.close()
    files.kill()
    again = open_inline(files)
    assert read_all(again.store.logs["log"].partitions[0]) == sent
    assert not [each for each in again.store.findings if each.severity is not Severity.NOTE]  # type: ignore[attr-defined]  # of a directory store
    assert again.store.logs["log"].settings.compression == "zstd"


def test_a_log_without_the_setting_is_left_alone_and_the_format_stays() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, _ = filled(hand, NONE)
    before = hand.store._format  # type: ignore[attr-defined]  # of a directory store
    compress(hand)
    assert not files_of(files, ".logz")
    assert hand.store._format == before  # type: ignore[attr-defined]
    assert b"compression" not in bytes(files.content(FOLDER.parent / "log.json"))
    # The format is raised with the first compressed segment, not with the setting.
    hand.store.update("log", ZSTD)
    assert hand.store._format == before  # type: ignore[attr-defined]
    compress(hand, 3)
    assert compressed_count(partition)
    assert hand.store._format.number == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", CODECS)
def test_the_setting_can_change_and_both_kinds_stay_readable(codec: Compression) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand)
    compress(hand, 1)
    first = compressed_count(partition)
    assert 0 < first < len(partition.segments.row) - 1
    hand.store.update("log", NONE)
    compress(hand)
    assert compressed_count(partition) == first
    hand.store.update("log", ZSTD.model_copy(update={"compression": codec}))
    compress(hand)
    assert compressed_count(partition) == len(partition.segments.row) - 1
    assert read_all(partition) == sent


def test_a_call_compresses_a_bounded_number_of_bytes() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, _ = filled(hand, steps=1000)
    for _ in range(5):
        before = sum(s.bytes for s in partition.segments.row if s.stored is not None)
        hand.store.compress()
        hand.loop.run_ready()
        after = sum(s.bytes for s in partition.segments.row if s.stored is not None)
        # Each byte is compressed and read back. A segment that was begun is completed by the next call.
        assert (after - before) * 2 < SMALL.compress_call_bytes + 2 * (64 << 10) * 2


def test_other_work_of_the_keeper_waits_for_one_piece_only() -> None:
    files = FaultyFiles()
    hand = open_held(files)
    filled(hand)
    hand.work()
    hand.store.compress()
    assert len(hand.held.keeper.tasks) == 1
    while hand.held.keeper.run(1):
        hand.loop.run_ready()
        assert len(hand.held.keeper.tasks) <= 2


def test_what_saves_nothing_stays_as_it_is() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand, alike=False)
    compress(hand)
    assert not files_of(files, ".logz")
    assert not files_of(files, ".new")
    assert read_all(partition) == sent


def test_small_segments_stay_as_they_are() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    settings = LogSettings(segment_ms=1000, retention_ms=10**9, compression=Compression.ZSTD)
    log = hand.store.create("log", settings, incarnation="i")
    for number in range(3):
        hand.write(log.partitions[0], b"event", now_ms=NOW + number * 5000)
        hand.store.apply_retention(NOW + number * 5000 + 2000)
        hand.loop.run_ready()
    compress(hand)
    assert len(files_of(files, ".log")) > 1
    assert not files_of(files, ".logz")


def test_retention_counts_and_frees_the_bytes_of_the_files() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    settings = ZSTD.model_copy(update={"retention_bytes": 1 << 20})
    partition, sent = filled(hand, settings, steps=2500)
    assert partition.segments.bytes > 1 << 20
    compress(hand, 200)
    assert partition.segments.bytes < 1 << 20
    hand.store.apply_retention(NOW)
    assert partition.start == 0, "the compressed events need less than the bound"
    hand.store.update("log", settings.model_copy(update={"retention_bytes": None, "retention_ms": 1000}))
    removed = partition.segments.row[3].base
    hand.store.apply_retention(partition.segments.row[2].last_timestamp_ms + 1001)
    hand.loop.run_ready()
    assert partition.start == removed
    stored = sum(len(files.content(path)) for path in files_of(files, ".log") + files_of(files, ".logz"))
    assert partition.segments.bytes == stored
    assert read_all(partition) == sent[removed:]


def test_retention_of_a_segment_that_is_being_compressed_leaves_nothing() -> None:
    """Retention may drop it at any moment of the work."""
    for pieces in range(14):
        files = FaultyFiles()
        hand = open_held(files)
        partition, sent = filled(hand, ZSTD.model_copy(update={"retention_ms": 1000}))
        hand.work()
        hand.store.compress()
        for _ in range(pieces):
            hand.held.keeper.run(1)
            hand.loop.run_ready()
        later = partition.segments.row[1].base
        hand.store.apply_retention(partition.segments.row[0].last_timestamp_ms + 1001)
        hand.work()
        assert partition.start == later
        bases = {path.name[:16] for path in files.paths() if path.parent == FOLDER}
        assert f"{0:016}" not in bases
        assert read_all(partition) == sent[later:]
        compress(hand)
        hand.work()
        files.kill()
        again = open_inline(files)
        assert read_all(again.store.logs["log"].partitions[0]) == sent[later:]


def test_a_log_that_is_deleted_meanwhile_leaves_nothing_to_its_successor() -> None:
    for pieces in range(14):
        files = FaultyFiles()
        hand = open_held(files)
        filled(hand)
        hand.work()
        hand.store.compress()
        for _ in range(pieces):
            hand.held.keeper.run(1)
            hand.loop.run_ready()
        hand.store.delete("log")
        hand.store.create("log", NONE, incarnation="j")
        hand.work()
        assert [path.name for path in files.paths() if FOLDER.parent in path.parents] == ["log.json"]
        partition, sent = filled(hand, NONE, seed=2)
        hand.work()
        assert read_all(partition) == sent


def test_a_full_disk_ends_the_work_and_nothing_else() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand)
    files.fault = lambda operation, path: ENOSPC if operation == "pwritev" and path.suffix == ".new" else 0
    compress(hand, 3)
    assert not files_of(files, ".new")
    assert not files_of(files, ".logz")
    assert hand.store.facts().full is None, "the node stays ready"
    assert partition.facts().failure is None
    files.fault = lambda operation, path: 0
    compress(hand, 100)
    assert not compressed_count(partition), "it waits for a minute"
    compress(hand, 60)
    assert compressed_count(partition) == len(partition.segments.row) - 1
    assert read_all(partition) == sent


def test_nothing_is_compressed_while_the_disk_is_full() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    filled(hand)
    hand.store._flusher.space.ran_out(NOW)  # type: ignore[attr-defined]  # of a directory store
    before = files.operations
    compress(hand, 5)
    assert files.operations == before


def test_what_was_begun_is_removed_when_the_disk_is_full() -> None:
    files = FaultyFiles()
    hand = open_inline(files, tuning=replace(SMALL, compress_call_bytes=SMALL.compress_piece_bytes))
    filled(hand)
    while not files_of(files, ".new"):
        compress(hand, 1)
    hand.store._flusher.space.ran_out(NOW)  # type: ignore[attr-defined]  # of a directory store
    compress(hand, 1)
    assert not files_of(files, ".new")


@pytest.mark.parametrize(
    "operation", ["open", "pread", "pwritev", "fdatasync", "rename", "fsync_dir", "unlink"]
)
def test_a_disk_that_fails_stops_no_partition_and_loses_nothing(operation: str) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand)
    touched: list[Path] = []

    def fault(what: str, path: Path) -> int:
        # Of the first segment only, and its folder.
        if what != operation or (path != FOLDER and not path.name.startswith("0" * 16)):
            return 0
        touched.append(path)
        return EIO

    files.fault = fault
    compress(hand, 5)
    assert touched
    files.fault = lambda operation, path: 0
    assert partition.facts().failure is None
    assert read_all(partition) == sent
    compress(hand, 60)
    hand.write(partition, b"more")
    files.power_loss(random.Random(1))
    again = open_inline(files)
    assert read_all(again.store.logs["log"].partitions[0]) == [*sent, b"more"]
    compress(again, 60)
    assert read_all(again.store.logs["log"].partitions[0]) == [*sent, b"more"]


def test_a_store_that_closes_completes_no_segment_and_leaves_no_part() -> None:
    for pieces in range(12):
        files = FaultyFiles()
        hand = open_held(files)
        _, sent = filled(hand)
        hand.work()
        hand.store.compress()
        for _ in range(pieces):
            hand.held.keeper.run(1)
            hand.loop.run_ready()
        assert hand.store.close()
        assert not files_of(files, ".new")
        assert len(files_of(files, ".logz")) <= 2
        files.kill()
        again = open_inline(files)
        assert read_all(again.store.logs["log"].partitions[0]) == sent


def test_a_setting_without_its_library_is_refused_and_other_changes_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    hand.store.create("log", ZSTD, incarnation="i")
    monkeypatch.setattr(compression, "_codec", lambda _name: None)
    with pytest.raises(SettingRefusedError, match="compression"):
        hand.store.create("other", ZSTD, incarnation="j")
    assert "other" not in hand.store.logs
    with pytest.raises(SettingRefusedError, match="lz4"):
        hand.ask(Update("log", ZSTD.model_copy(update={"compression": Compression.LZ4})))
    changed = hand.ask(Update("log", ZSTD.model_copy(update={"retention_ms": 5000})))
    assert changed is not None
    assert (changed.settings.retention_ms, changed.settings.compression) == (5000, "zstd")
    compress(hand)


def test_many_partitions_share_the_work_and_a_call_looks_at_a_bounded_number() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    log = hand.store.create("log", ZSTD.model_copy(update={"partitions": 1000}), incarnation="i")
    other = hand.store.create("other", ZSTD.model_copy(update={"partitions": 500}), incarnation="i")
    partition = other.partitions[400]
    sent: list[bytes] = []
    for step in range(300):
        some = [b"%d" % step * 100] * 4
        partition.append(some, bytes(4), NOW)
        hand.commit()
        sent += some
    looked: list[PartitionLog] = []
    compressing = hand.store._compressing  # type: ignore[attr-defined]  # of a directory store
    original = compressing._of

    def of(each: PartitionLog) -> object:
        looked.append(each)
        return original(each)

    compressing._of = of
    hand.store.compress()
    hand.loop.run_ready()
    assert len(looked) == len(set(looked)) == 1000
    compress(hand, 6)
    assert compressed_count(partition) == 0 or read_all(partition) == sent
    compress(hand, 60)
    assert compressed_count(partition) > 0
    assert read_all(partition) == sent
    assert len(log.partitions) == 1000


def test_threads_compress_on_a_real_disk(tmp_path: Path) -> None:
    hand = open_real(tmp_path / "data")
    partition, sent = filled(hand)
    wanted = len(partition.segments.row) - 1

    def done() -> bool:
        hand.store.compress()
        return (
            compressed_count(partition) == wanted
            and not [
                path for path in (tmp_path / "data" / "logs" / "log" / "0").iterdir() if path.suffix == ".log"
            ][1:]
        )

    hand.loop.run_until(done)
    assert read_all(partition) == sent
    hand.store.close()
    again = open_real(tmp_path / "data")
    assert read_all(again.store.logs["log"].partitions[0]) == sent
    again.store.close()
