"""A compressed file is read like the segment that it was made of."""

import random
from dataclasses import replace
from errno import EIO
from pathlib import Path
from typing import Any

import pytest

from amqp_streams.errors import CorruptionError, StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage.formats.compressed import BLOCK_HEAD_BYTES, TAIL_BYTES
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.sources import (
    Blocks,
    CompressedFile,
    open_source,
    stored_path,
)
from amqp_streams.storage.ports import LATER, ReadRequest
from amqp_streams.testing import FaultyFiles
from amqp_streams.wire.batched import compression
from tests.amqp_streams.storage.compressed import CODECS, ZSTD, compress, compressed_count, files_of, filled
from tests.amqp_streams.storage.conftest import NOW, SMALL, Hand, open_inline, read_all


def packed(files: FaultyFiles, **arguments: Any) -> tuple[Hand, PartitionLog, list[bytes], bytes]:
    """A partition with compressed segments, its messages, and the first segment as it was."""
    hand = open_inline(files, **arguments)
    partition, sent = filled(hand)
    first = bytes(files.content(files_of(files, ".log")[0]))
    compress(hand)
    assert compressed_count(partition) == len(partition.segments.row) - 1
    return hand, partition, sent, first


@pytest.mark.parametrize("codec", CODECS)
def test_everything_is_read_as_it_was_sent(codec: Compression) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition, sent = filled(hand, ZSTD.model_copy(update={"compression": codec}))
    before = partition.facts()
    compress(hand)
    assert partition.facts().bytes < before.bytes // 2
    assert partition.facts().bytes == partition.segments.bytes + partition.unflushed_bytes
    assert read_all(partition) == sent
    for at in (0, 5, 400, 1000):
        assert read_all(partition, at, 3000) == sent[at:]
    # Four messages have the same time.
    for step in (0, 17, 150, 298):
        assert partition.seek_timestamp(NOW + step) == 4 * (step + 1)


def test_any_part_of_the_segment_can_be_read() -> None:
    files = FaultyFiles()
    _, partition, _, first = packed(files)
    file = CompressedFile(files, files_of(files, ".logz")[0], 0, partition.segments.seed)
    assert (file.size(), file.read(1 << 30, 0)) == (len(first), first)
    rng = random.Random(2)
    for _ in range(200):
        position, count = rng.randrange(len(first) + 100), rng.randrange(60_000)
        assert file.read(count, position) == first[position : position + count]
    assert not file.faults()
    assert file.file_bytes() == len(files.content(file.path))


def test_a_reader_that_can_wait_never_decompresses_on_the_event_loop() -> None:
    """The first read of a block is made by a thread, the next ones find it in the memory."""
    files = FaultyFiles()
    hand, partition, sent, _ = packed(files, tuning=replace(SMALL, cache_bytes=1 << 20))
    ready: list[None] = []
    request = ReadRequest("reader", lambda: ready.append(None))
    at, waits = 0, 0
    while at < partition.segments.active.base:
        chunk = partition.read(at, 2000, request)
        if chunk is LATER:
            waits += 1
            hand.loop.run_ready()
            assert len(ready) == waits
            continue
        assert chunk is not None
        assert list(chunk.messages) == sent[at : at + len(chunk)]
        at = chunk.end
    blocks = sum(
        len(CompressedFile(files, segment.path, segment.base, partition.segments.seed).layout().starts)
        for segment in partition.segments.row[:-1]
    )
    indexes = len(partition.segments.row) - 1
    assert waits <= blocks + indexes


def test_the_memory_for_blocks_is_bounded() -> None:
    files = FaultyFiles()
    hand, partition, _, _ = packed(files)
    read_all(partition)
    use = hand.store.facts().uses["storage_block_bytes"]
    assert 0 < use.used <= use.limit
    kept = Blocks(10)
    for number in range(5):
        kept.put((0, number), b"1234")
        assert kept.bytes <= 10
    assert kept.get((0, 2)) is None
    kept.put((0, 9), b"x" * 50)
    assert (kept.bytes, kept.get((0, 4))) == (50, None)


def test_damage_to_a_block_is_reported_with_the_next_readable_record() -> None:
    files = FaultyFiles()
    hand, _, sent, _ = packed(files)
    path = files_of(files, ".logz")[0]
    hand.store.close()
    files.kill()
    files.damage(path, lambda data: data.__setitem__(200, data[200] ^ 1))
    again = open_inline(files)
    partition = again.store.logs["log"].partitions[0]
    with pytest.raises(CorruptionError, match=r"\.logz at byte 0: records 0 to") as found:
        partition.read(0, 1000)
    after = found.value.after
    assert after is not None
    assert read_all(partition, after) == sent[after:]


def test_a_lost_table_costs_nothing_but_is_noticed() -> None:
    files = FaultyFiles()
    _, partition, _, first = packed(files)
    path = files_of(files, ".logz")[0]
    files.damage(path, lambda data: data.__setitem__(len(data) - TAIL_BYTES + 20, 99))
    file = open_source(files, path, 0, partition.segments.seed)
    assert isinstance(file, CompressedFile)
    assert file.read(1 << 30, 0) == first
    assert "table" in file.faults()[0]
    files.damage(path, lambda data: data.__setitem__(20, data[20] ^ 4))
    twice = CompressedFile(files, path, 0, partition.segments.seed)
    assert not twice.read(1 << 30, 0).strip(b"\0"), "without head and tail, the codec is not known"


def test_an_error_of_the_disk_is_not_damage() -> None:
    files = FaultyFiles()
    _, partition, sent, _ = packed(files)
    partition.segments._reading.close()
    files.fault = lambda operation, path: EIO if operation == "pread" and path.suffix == ".logz" else 0
    with pytest.raises(StorageError, match="cannot read") as failed:
        partition.read(0, 1000)
    assert not isinstance(failed.value, CorruptionError)
    files.fault = lambda operation, path: 0
    assert read_all(partition) == sent


def test_a_missing_library_keeps_the_directory_closed_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = FaultyFiles()
    hand, *_ = packed(files)
    hand.store.close()
    files.kill()
    before = {path: bytes(files.content(path)) for path in files_of(files, "")}
    with monkeypatch.context() as without:
        without.setattr(compression, "_codec", lambda _name: None)
        with pytest.raises(StorageError, match=r"\.logz: .*zstd needs the compression extra: pip install"):
            open_inline(files)
    assert {path: bytes(files.content(path)) for path in files_of(files, "")} == before
    files.kill()
    open_inline(files)


def test_a_codec_of_a_later_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    hand, *_ = packed(files)
    hand.store.close()
    files.kill()
    monkeypatch.setattr("amqp_streams.storage.partitions.sources.CODECS", {})
    with pytest.raises(StorageError, match=r"codec 1, which this version does not know"):
        open_inline(files)


def test_the_uncompressed_file_is_read_as_long_as_it_exists(tmp_path: Path) -> None:
    plain = tmp_path / "1.log"
    packed_path = tmp_path / "1.logz"
    assert stored_path(plain) == plain
    packed_path.touch()
    assert stored_path(plain) == packed_path
    plain.touch()
    assert stored_path(plain) == plain


def test_a_block_is_decompressed_once_for_all_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    _, partition, _, first = packed(files)
    blocks = Blocks(1 << 20)
    file = CompressedFile(files, files_of(files, ".logz")[0], 0, partition.segments.seed, blocks)
    assert file.is_cached(10, 0) is False
    assert file.read(10, 0) == first[:10]
    assert file.is_cached(10, 0) is True
    assert file.is_cached(len(first), 0) is False
    files.fault = lambda operation, path: EIO
    assert file.read(100, 20) == first[20:120]
    assert blocks.bytes > BLOCK_HEAD_BYTES
