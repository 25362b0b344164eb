"""Recovery of many partitions: the same in threads, and only of what was not known to be durable."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL, Hand, open_inline, open_real, read_all

PARTITIONS = 12


def filled(hand: Hand) -> None:
    """Write different records to the partitions of two logs, and leave some of them in the journal alone."""
    for name in ("one", "two"):
        for partition in hand.store.create(
            name, LogSettings(partitions=PARTITIONS), incarnation=name
        ).partitions:
            for number in range(partition.index + 3):
                hand.write(partition, b"%d" % number * 300, now_ms=NOW + number)


def killed(path: Path) -> Path:
    """What a kill leaves of a data directory with a damaged partition."""
    hand = open_real(path / "alive")
    filled(hand)
    shutil.copytree(path / "alive", path / "killed")
    hand.store.close()
    active = segment_path(path / "killed" / "logs" / "one" / "7", 0)
    with active.open("r+b") as file:
        file.seek(40)
        file.write(b"damage")
    return path / "killed"


def test_partitions_recovered_in_threads_are_those_recovered_in_turn(tmp_path: Path) -> None:
    source, opened = killed(tmp_path), []
    for threads in (False, True):
        path = tmp_path / f"threads-{threads}"
        shutil.copytree(source, path)
        hand = open_real(path, threads=threads)
        assert hand.store.findings  # type: ignore[attr-defined]  # of a directory
        opened.append(
            (
                hand.store.findings,  # type: ignore[attr-defined]  # of a directory
                [(each.start, each.end) for log in hand.store.logs.values() for each in log.partitions],
                {file.relative_to(path): file.read_bytes() for file in path.rglob("*.log")},
            )
        )
        hand.store.close()
    assert opened[0] == opened[1]


def test_the_first_partition_that_cannot_be_recovered_fails_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = killed(tmp_path)
    listdir = RealFiles.listdir

    def failing(files: RealFiles, path: Path) -> list[str]:
        if path.parent.name == "two" and path.name in {"3", "9"}:
            raise OSError(5, "Input/output error", str(path))
        return listdir(files, path)

    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "listdir", failing)
        with pytest.raises(StorageError, match="two/3"):
            open_real(source)
    open_real(source).store.close()


def test_recovery_does_not_read_what_an_index_covers() -> None:
    """Each partition has megabytes that were synced before their index was written."""
    files = FaultyFiles()
    tuning = replace(SMALL, sync_bytes=64 << 10, index_bytes=64 << 10)
    hand = open_inline(files, tuning=tuning)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    for number in range(200):
        hand.write(partition, b"%d" % number * 500, now_ms=NOW + number)
    segment = segment_path(ROOT / "logs" / "log" / "0", 0)
    covered = partition.segments.active.covered  # type: ignore[attr-defined]  # a PartitionLog
    assert covered > 64 << 10
    hand.write(partition, b"in the journal")
    files.kill()
    reads: list[int] = []
    pread = files.pread

    def counted(fd: int, count: int, position: int) -> bytes:
        if files.opened_path(fd) == segment:
            reads.append(position)
        return pread(fd, count, position)

    files.pread = counted  # type: ignore[method-assign]
    hand = open_inline(files, tuning=tuning)
    assert reads
    assert min(reads) >= covered
    assert any("written from the journal" in each.words for each in hand.store.findings)  # type: ignore[attr-defined]  # of a directory
    assert read_all(hand.store.logs["log"].partitions[0])[-1] == b"in the journal"
    hand.store.close()


def test_a_first_start_that_was_killed_leaves_no_folder_that_a_power_loss_takes_away() -> None:
    """The first start created the folder, and was killed before it synced its name."""
    files = FaultyFiles()

    def killed(operation: str, path: Path) -> int:
        if operation == "fsync_dir" and path == ROOT.parent:
            raise KeyboardInterrupt
        return 0

    files.fault = killed
    with pytest.raises(KeyboardInterrupt):
        open_inline(files)
    files.fault = lambda _operation, _path: 0
    files.kill()
    hand = open_inline(files)
    hand.write(hand.store.create("log", LogSettings(), incarnation="i").partitions[0], b"accepted")
    files.power_loss()
    assert read_all(open_inline(files).store.logs["log"].partitions[0]) == [b"accepted"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EROFS])
def test_a_folder_above_that_cannot_be_synced_does_not_prevent_the_first_start(number: int) -> None:
    files = FaultyFiles()
    files.fault = lambda operation, path: number if (operation, path) == ("fsync_dir", Path("/")) else 0
    files.mkdir(ROOT)
    assert open_inline(files).store.logs == {}
