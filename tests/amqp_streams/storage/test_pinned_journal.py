"""All journal files hold records of partitions that failed: others get an answer, and a close ends."""

import contextlib
import errno
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.disk.work import Task
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, Hand, open_inline, read_all

BEFORE = b"before" * 2000
"""It is so large that it does not go through the journal."""


def _pinned(files: FaultyFiles, *, growth: int) -> tuple[Hand, list[Partition]]:
    """A store whose journal files failed. A new one fails with the error `growth`. The first partitions are
    stopped, and the last one is not.
    """
    hand = open_inline(files)
    partitions = list(hand.store.create("log", LogSettings(partitions=12), incarnation="i").partitions)
    hand.write(partitions[-1], BEFORE)

    def fault(operation: str, path: Path) -> int:
        if path.suffix != ".journal":
            return 0
        return {"fdatasync": errno.EIO, "open": growth}.get(operation, 0)

    files.fault = fault
    for partition in partitions[:-1]:
        with contextlib.suppress(DiskFullError):  # no file is left: the others need not try
            partition.append([b"lost"], b"\0", NOW)
        if not hand.store.pending_bytes:
            break
        done = hand.commit()
        assert done is not None
        assert partition in done.failures
    return hand, partitions


def _refusal(hand: Hand, partition: Partition) -> StorageError:
    """Why a record is not stored, at the append or at the end of its commit."""
    try:
        partition.append([b"refused"], b"\0", NOW)
    except StorageError as error:
        return error
    done = hand.commit()
    assert done is not None
    return done.failures[partition]


@pytest.mark.parametrize(
    ("growth", "kind", "words"),
    [
        (errno.EIO, StorageError, "no journal file can be written: Input/output error"),
        (errno.ENOSPC, DiskFullError, "is full"),
        (0, StorageError, "all 8 journal files hold records of partitions that failed"),
    ],
    ids=["EIO", "ENOSPC", "no more files"],
)
def test_a_record_that_no_journal_file_will_take_fails_instead_of_waiting(
    growth: int, kind: type[StorageError], words: str
) -> None:
    hand, partitions = _pinned(FaultyFiles(), growth=growth)
    for _ in range(2):
        error = _refusal(hand, partitions[-1])
        assert isinstance(error, kind)
        assert words in str(error)
    assert read_all(partitions[-1]) == [BEFORE]
    assert not hand.store.pending_bytes


def test_the_partition_continues_after_a_journal_file_can_be_added() -> None:
    files = FaultyFiles()
    hand, partitions = _pinned(files, growth=errno.EIO)
    partitions[-1].append([b"refused"], b"\0", NOW)
    hand.commit()
    files.fault = lambda operation, path: 0
    hand.write(partitions[-1], b"after")
    assert read_all(partitions[-1]) == [BEFORE, b"after"]


@pytest.mark.parametrize("growth", [errno.EIO, errno.ENOSPC, 0], ids=["EIO", "ENOSPC", "no more files"])
def test_a_close_ends_with_records_that_no_journal_file_will_take(growth: int) -> None:
    files = FaultyFiles()
    hand, partitions = _pinned(files, growth=growth)
    with contextlib.suppress(DiskFullError):  # the disk is known to be full
        partitions[-1].append([b"pending"], b"\0", NOW)
    assert not hand.store.close()
    files.fault = lambda operation, path: 0
    files.kill()
    assert read_all(open_inline(files).store.logs["log"].partitions[-1])[0] == BEFORE


def test_no_record_is_stored_between_the_refusal_of_earlier_ones_and_its_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = FaultyFiles()
    hand, partitions = _pinned(files, growth=errno.EIO)
    last, count = partitions[-1], len(hand.done)
    assert isinstance(hand.store, DirectoryStore)
    writer, held, sequence = hand.store._writer, list[Task](), last.queue.sequence
    submit = writer.submit

    def hold_commits(task: Task) -> None:
        """The attempt to add a journal file runs; the commit after it does not end yet."""
        (held.append if last.queue.sequence > sequence else submit)(task)

    with monkeypatch.context() as patched:
        patched.setattr(writer, "submit", hold_commits)
        last.append([b"first"], b"\0", NOW)
        hand.store.commit()
        hand.loop.run_until(lambda: bool(held))
        with pytest.raises(StorageError, match="no journal file can be written"):
            last.append([b"second"], b"\0", NOW)
    for task in held:
        submit(task)
    hand.loop.run_until(lambda: len(hand.done) > count)
    assert list(hand.done[-1].failures) == [last]
    files.fault = lambda operation, path: 0
    hand.write(last, b"first", b"second")
    assert read_all(last) == [BEFORE, b"first", b"second"]
