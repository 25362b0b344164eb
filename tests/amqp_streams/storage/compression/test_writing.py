"""The compressed file of a segment is complete and read back, or is not made."""

from errno import EIO
from typing import Any

import pytest

from amqp_streams.storage.compression.writing import Limits, SegmentWriter, Verdict, Wanted
from amqp_streams.storage.disk.files import OpenFile
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.sources import CompressedFile
from amqp_streams.testing import FaultyFiles
from amqp_streams.wire.batched.compression import codec
from tests.amqp_streams.storage.compressed import FOLDER, ZSTD, files_of, filled
from tests.amqp_streams.storage.conftest import open_inline

LIMITS = Limits(piece_bytes=20_000, block_bytes=16 << 10, reserve_bytes=0)


def opened(files: FaultyFiles, *, alike: bool = True) -> PartitionLog:
    return filled(open_inline(files), ZSTD, alike=alike)[0]


def writer_of(files: FaultyFiles, partition: PartitionLog, **changes: Any) -> SegmentWriter:
    """For the first segment."""
    segment = partition.segments.row[0]
    values: dict[str, Any] = {
        "path": segment.path,
        "base": segment.base,
        "end": segment.end,
        "size": segment.bytes,
    } | changes
    limits = values.pop("limits", LIMITS)
    return SegmentWriter(
        files,
        Wanted(**values),
        OpenFile(files, segment.path),
        codec=codec("zstd"),
        seed=partition.segments.seed,
        limits=limits,
    )


def run(writer: SegmentWriter) -> Verdict:
    """Do all pieces."""
    for _ in range(1000):
        writer.piece()
        if writer.verdict is not None:
            return writer.verdict
        assert writer.done_bytes < LIMITS.piece_bytes + (64 << 10), "a piece is small"
    pytest.fail("it does not end")


def test_a_complete_file_has_the_bytes_of_the_segment_and_is_durable() -> None:
    files = FaultyFiles()
    partition = opened(files)
    writer = writer_of(files, partition)
    segment = partition.segments.row[0]
    before = bytes(files.content(segment.path))
    assert run(writer) is Verdict.DONE
    files.fsync_dir(FOLDER)
    files.power_loss()
    file = CompressedFile(files, writer.path, 0, partition.segments.seed)
    assert file.read(1 << 30, 0) == before == bytes(files.content(segment.path))
    assert file.file_bytes() == writer.file_bytes < len(before) // 2
    assert len(file.layout().starts) > 2


def test_a_file_that_a_crash_left_is_written_again() -> None:
    files = FaultyFiles()
    partition = opened(files)
    first = writer_of(files, partition)
    OpenFile(files, first.path, create=True).write([b"garbage" * 30_000], 0)
    assert run(first) is Verdict.DONE
    assert len(files.content(first.path)) == first.file_bytes


def test_what_is_not_whole_is_not_compressed() -> None:
    """A damaged segment stays as it is: what can be read of it, and what it looks like."""
    for at in (0, 30, 30_000):
        files = FaultyFiles()
        partition = opened(files)
        path = partition.segments.row[0].path
        files.damage(path, lambda data, at=at: data.__setitem__(at, data[at] ^ 1))  # type: ignore[misc]  # of a lambda
        assert run(writer_of(files, partition)) is Verdict.UNFIT


@pytest.mark.parametrize("changes", [{"size": 100}, {"end": 3}])
def test_a_segment_that_its_index_does_not_cover_is_not_compressed(changes: dict[str, int]) -> None:
    files = FaultyFiles()
    partition = opened(files)
    assert run(writer_of(files, partition, **changes)) is Verdict.UNFIT
    files.unlink(partition.segments.row[0].index_path)
    assert run(writer_of(files, partition)) is Verdict.UNFIT


def test_a_segment_that_was_cut_is_not_compressed() -> None:
    files = FaultyFiles()
    partition = opened(files)
    files.damage(partition.segments.row[0].path, lambda data: data.__delitem__(slice(40_000, None)))
    assert run(writer_of(files, partition)) is Verdict.UNFIT


def test_what_saves_nothing_is_given_up_early() -> None:
    files = FaultyFiles()
    partition = opened(files, alike=False)
    writer = writer_of(files, partition, limits=Limits(4000, 2000, 0))
    read = 0
    while writer.verdict is None:
        writer.piece()
        read += writer.done_bytes
    assert writer.verdict is Verdict.UNFIT
    assert read <= partition.segments.row[0].bytes


def test_a_byte_that_the_disk_wrote_wrongly_is_found_when_it_is_read_back() -> None:
    """Nothing but reading it back shows it: the write and the sync have succeeded."""
    files = FaultyFiles()
    partition = opened(files)
    writer = writer_of(files, partition)
    original = files.pwritev

    def pwritev(fd: int, buffers: Any, position: int) -> int:
        written = original(fd, buffers, position)
        if files.opened_path(fd) == writer.path and position > 1000:
            content = files.content(writer.path)
            content[position + 50 if len(content) > position + 50 else position] ^= 1
        return written

    files.pwritev = pwritev  # type: ignore[method-assign]
    assert run(writer) is Verdict.UNFIT


def test_a_library_that_compresses_wrongly_is_found_when_it_is_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = FaultyFiles()
    partition = opened(files)
    writer = writer_of(files, partition)
    right = writer._codec

    def compress(data: bytes) -> bytes:
        return right.compress(data[:-1] + b"?")

    wrong = type(right)(right.name, compress, right.decompress)
    monkeypatch.setattr(writer, "_codec", wrong)
    assert run(writer) is Verdict.UNFIT


def test_the_reserve_of_the_disk_is_not_used() -> None:
    files = FaultyFiles()
    partition = opened(files)
    writer = writer_of(files, partition, limits=Limits(20_000, 16 << 10, 1 << 60))
    assert run(writer) is Verdict.NO_SPACE
    assert not files_of(files, ".new")


def test_an_error_of_the_disk_is_raised() -> None:
    files = FaultyFiles()
    partition = opened(files)
    writer = writer_of(files, partition)
    files.fault = lambda operation, path: EIO if operation == "fdatasync" else 0
    with pytest.raises(OSError, match="Input/output"):
        run(writer)
