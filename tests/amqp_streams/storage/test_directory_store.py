"""The directory store and a world that fails it: failing writes and syncs, locked directories; and what its
modes of syncing promise. Full disks: test_full_disk.py.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings, Sync
from amqp_streams.errors import CorruptionError, DirectoryLockedError, DiskFullError, StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.formats import record
from amqp_streams.storage.ports import Chunk, Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import (
    NOW,
    ROOT,
    SMALL,
    commit_failures,
    four_partitions,
    open_inline,
    open_real,
    read_all,
)


class PowerLossError(BaseException):
    """The machine stops here."""


# -- opening


def test_a_directory_has_one_owner_whose_process_is_named(tmp_path: Path) -> None:
    hand = open_real(tmp_path)
    with pytest.raises(DirectoryLockedError, match=f"in use by process {os.getpid()}"):
        open_real(tmp_path)
    hand.store.close()
    open_real(tmp_path).store.close()


def test_a_directory_has_an_identity_for_ever(tmp_path: Path) -> None:
    identities = []
    for name in ("one", "two", "one"):
        hand = open_real(tmp_path / name)
        identities.append(hand.store.identity)
        hand.store.close()
    one, two, again = identities
    assert one == again != two


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="file"):
        open_real(tmp_path / "file" / "data")


def test_a_disk_too_small_for_the_journal_says_how_much_it_takes() -> None:
    files = FaultyFiles(space=50_000)
    with pytest.raises(DiskFullError, match="for the journal"):
        open_inline(files)
    assert files.free_bytes(ROOT) > 49_000, "what was begun is removed"


def test_a_store_closed_in_order_opens_again_without_findings_and_without_a_scan() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    for number in range(400):
        hand.write(first, b"%d" % number * 100)
    hand.store.close()
    files.kill()
    read: list[int] = []
    pread = files.pread

    def counted(fd: int, count: int, position: int) -> bytes:
        data = pread(fd, count, position)
        if files.opened_path(fd).suffix == ".log":
            read.append(len(data))
        return data

    files.pread = counted  # type: ignore[method-assign]
    hand = open_inline(files)
    assert isinstance(hand.store, DirectoryStore)
    assert hand.store.findings == ()
    assert sum(read) == 0
    assert read_all(hand.store.logs["log"].partitions[0]) == [b"%d" % number * 100 for number in range(400)]


@pytest.mark.parametrize(("within_s", "clean"), [(0.0, False), (None, True)])
def test_a_close_with_too_little_time_leaves_records_in_the_journal_and_loses_none(
    within_s: float | None, clean: bool
) -> None:
    """Hundreds of partitions on a busy disk need more syncs than the time after SIGTERM allows."""
    files = FaultyFiles()
    hand = open_inline(files)
    log = hand.store.create("many", LogSettings(partitions=40), incarnation="i")
    for number in range(3):
        for partition in log.partitions:
            partition.append([b"%d" % number], b"\0", NOW)
        hand.commit()
    assert hand.store.close(within_s=within_s) is clean
    in_segments = sum(path.suffix == ".log" for path in files.paths())
    assert in_segments == (40 if clean else 0)
    files.kill()
    hand = open_inline(files)
    for partition in hand.store.logs["many"].partitions:
        assert read_all(partition) == [b"0", b"1", b"2"]


def test_settings_and_incarnation_outlive_the_process() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    hand.store.create("a", LogSettings(partitions=2), incarnation="born once")
    hand.store.update("a", LogSettings(partitions=2, retention_ms=7000))
    files.power_loss()
    log = open_inline(files).store.logs["a"]
    assert (log.incarnation, log.settings.retention_ms, len(log.partitions)) == ("born once", 7000, 2)


def test_a_deleted_log_stays_deleted() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    hand.write(first, b"gone")
    hand.store.delete("log")
    files.power_loss()
    hand = open_inline(files)
    assert isinstance(hand.store, DirectoryStore)
    assert not hand.store.logs
    assert hand.store.findings == ()
    assert not [path for path in files.paths() if "trash" in path.parts]


def test_names_of_segments_that_were_never_written_are_no_damage() -> None:
    """A power loss keeps each name that was not synced, or not: here only that of the later segment."""
    files = FaultyFiles()
    hand = open_inline(files)
    log = hand.store.create("log", LogSettings(partitions=1, segment_bytes=64 << 10), incarnation="i")
    folder = ROOT / "logs" / "log" / "0"

    def crash(operation: str, path: Path) -> int:
        if (operation, path) == ("fsync_dir", folder):
            raise PowerLossError
        return 0

    files.fault = crash
    for _ in range(2):  # direct writes to two segments
        log.partitions[0].append([b"x" * (1 << 20)], b"\0", NOW)
    with pytest.raises(PowerLossError):
        hand.store.commit()
    files.fault = lambda operation, path: 0
    first, later = sorted(path for path in files.paths() if path.suffix == ".log")
    assert (first.parent, later.parent) == (folder, folder)
    files.unlink(first)
    files.fsync_dir(folder)
    files.kill()
    hand = open_inline(files)
    assert isinstance(hand.store, DirectoryStore)
    assert hand.store.findings == ()
    assert hand.write(hand.store.logs["log"].partitions[0], b"y") == 0


# -- failing disks


def test_a_failed_write_stops_its_partition_and_no_other() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, second, *_ = four_partitions(hand)
    hand.write(first, b"durable" * 1000)
    files.fault = lambda operation, path: (
        errno.EIO if operation == "pwritev" and path.parent.name == "0" else 0
    )
    failures = commit_failures(hand, (first, b"x" * 5000), (second, b"y" * 5000))
    assert list(failures) == [first]
    files.fault = lambda operation, path: 0
    with pytest.raises(StorageError, match="log partition 0 stopped"):
        first.append([b"z"], b"\0", NOW)
    assert "Input/output error" in str(first.facts().failure)
    assert read_all(first) == [b"durable" * 1000]
    assert hand.write(second, b"goes on") == 1


def test_a_stopped_partition_keeps_nothing_of_the_appends_that_it_refuses() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    files.fault = lambda operation, path: (
        errno.EIO if operation == "pwritev" and path.parent.name == "0" else 0
    )
    commit_failures(hand, (first, b"x" * 5000))
    depths = []
    for _ in range(3):
        with pytest.raises(StorageError) as refused:
            first.append([b"y"], b"\0", NOW)
        depths.append(len(refused.traceback))
    assert len(set(depths)) == 1


@pytest.mark.parametrize("size", [10, 9000], ids=["journal", "segments"])
def test_events_that_cannot_be_encoded_fail_alone_and_commits_continue(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = open_inline(FaultyFiles())
    first, second, third, _ = four_partitions(hand)
    encode = record.encode

    def faulty(chunk: Chunk, seed: int) -> tuple[bytes, bytes | memoryview]:
        assert b"poison" not in chunk.messages[0]
        return encode(chunk, seed)

    monkeypatch.setattr(record, "encode", faulty)
    failures = commit_failures(
        hand, (first, b"poison" * size), (second, b"well" * size), (third, b"well" * size)
    )
    assert list(failures) == [first]
    assert "cannot be stored" in str(failures[first])
    for partition, end in ((first, 0), (second, 1)):
        assert hand.write(partition, b"goes on" * size) == end


def test_a_failed_sync_is_never_retried() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, second, *_ = four_partitions(hand)
    hand.write(first, b"durable" * 1000)
    syncs: list[Path] = []

    def fault(operation: str, path: Path) -> int:
        if operation == "fdatasync" and path.parent.name == "0":
            syncs.append(path)
            return errno.EIO
        return 0

    files.fault = fault
    assert list(commit_failures(hand, (first, b"x" * 5000))) == [first]
    for _ in range(50):
        hand.write(second, b"goes on" * 500)
    hand.store.close()
    assert len(syncs) == 1
    assert first.end == 1


def test_a_failed_journal_sync_stops_its_partitions_and_the_others_continue_in_another_file() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, second, third, fourth = four_partitions(hand)
    hand.write(first, b"journaled, durable")
    files.fault = lambda operation, path: (
        errno.EIO if operation == "fdatasync" and path.suffix == ".journal" else 0
    )
    failures = commit_failures(hand, (second, b"a"), (third, b"b"))
    assert set(failures) == {second, third}
    files.fault = lambda operation, path: 0
    assert read_all(first) == [b"journaled, durable"]
    assert first.facts().failure is not None
    for number in range(100):
        assert hand.write(fourth, b"%d" % number) == number
    files.power_loss()
    hand = open_inline(files)
    again = hand.store.logs["log"].partitions
    assert read_all(again[0]) == [b"journaled, durable"]
    assert read_all(again[3]) == [b"%d" % number for number in range(100)]


def test_a_background_sync_that_fails_stops_the_partition_and_the_journal_keeps_its_records() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, second, *_ = four_partitions(hand)
    files.fault = lambda operation, path: (
        errno.EIO if operation == "fdatasync" and path.parent.name == "0" and path.suffix == ".log" else 0
    )
    written = []
    for number in range(100):
        if first.facts().failure:
            break
        hand.write(first, b"%d" % number * 300)
        written.append(b"%d" % number * 300)
    assert first.facts().failure
    for _ in range(100):
        hand.write(second, b"goes on")
    files.fault = lambda operation, path: 0
    files.power_loss()
    assert read_all(open_inline(files).store.logs["log"].partitions[0]) == written


def test_a_read_that_fails_names_the_file() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    hand.write(first, b"x" * 20_000)
    hand.write(first, b"y" * 20_000)
    hand.write(first, b"z" * 20_000)
    files.fault = lambda operation, path: errno.EIO if operation == "pread" else 0
    with pytest.raises(StorageError, match=r"cannot read .*0000000000000000\.log: Input/output error"):
        first.read(0, 100)


def test_records_damaged_in_the_middle_are_fenced_and_both_sides_stay_readable() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    for number in range(10):
        hand.write(first, b"%d" % number * 6000)
    hand.store.close()
    files.kill()
    path = ROOT / "logs" / "log" / "0" / "0000000000000000.log"

    def change(data: bytearray) -> None:
        data[20_000] ^= 1

    files.damage(path, change)
    hand = open_inline(files)
    first = hand.store.logs["log"].partitions[0]
    assert read_all_until_damage(first) == [b"%d" % number * 6000 for number in range(3)]
    with pytest.raises(
        CorruptionError, match=r"log/0/0000000000000000\.log at byte 18132: records 3 to 3 are damaged"
    ) as caught:
        first.read(3, 100)
    assert (caught.value.first, caught.value.after) == (3, 4)
    chunk = first.read(4, 100)
    assert chunk is not None
    assert chunk.messages[0] == b"4" * 6000
    assert hand.write(first, b"goes on") == 10


def read_all_until_damage(partition: Partition) -> list[bytes]:
    """Messages from the start to the first that is refused."""
    messages: list[bytes] = []
    while True:
        try:
            chunk = partition.read(len(messages), 10_000)
        except CorruptionError:
            return messages
        assert chunk is not None
        messages += chunk.messages


# -- sync modes


@pytest.mark.parametrize("mode", ["interval:5", "never"])
def test_without_a_sync_each_time_records_outlive_the_process_but_not_the_power(mode: str) -> None:
    files = FaultyFiles()
    hand = open_inline(files, sync=Sync.parse(mode))
    first, *_ = four_partitions(hand)
    for number in range(20):
        hand.write(first, b"%d" % number)
    syncs = []
    files.fault = lambda operation, path: syncs.append(path) or 0 if operation == "fdatasync" else 0  # type: ignore[func-returns-value]
    hand.write(first, b"last")
    assert not syncs
    files.fault = lambda operation, path: 0
    files.kill()
    first = open_inline(files).store.logs["log"].partitions[0]
    assert read_all(first) == [*[b"%d" % number for number in range(20)], b"last"]


def test_the_interval_mode_syncs_in_time_without_being_asked(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(RealFiles):
        def fdatasync(self, fd: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            super().fdatasync(fd)
            if calls:
                calls[0](lambda: None)

    calls: list[Callable[..., None]] = []
    hand = open_real(tmp_path, sync=Sync.parse("interval:5"), files=Watched())
    first, *_ = four_partitions(hand)
    calls.append(hand.loop.call)
    synced.clear()
    hand.write(first, b"a")
    hand.loop.run_until(lambda: any(name.endswith(".journal") for name in synced))
    hand.store.close()


def test_a_failed_interval_sync_stops_the_partitions_it_was_for(tmp_path: Path) -> None:
    failing = False

    class Failing(RealFiles):
        def fdatasync(self, fd: int) -> None:
            if failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fdatasync(fd)

    hand = open_real(tmp_path, sync=Sync.parse("interval:5"), files=Failing(), tuning=SMALL)
    first, second, *_ = four_partitions(hand)
    failing = True
    hand.write(first, b"a")
    hand.loop.run_until(lambda: first.facts().failure is not None)
    assert second.facts().failure is None
    failing = False
    hand.store.close()


def test_a_commit_that_the_loop_has_not_noticed_yet_is_not_time_of_the_disk(tmp_path: Path) -> None:
    answers = threading.Event()

    class Slow(RealFiles):
        def fdatasync(self, fd: int) -> None:
            answers.wait()
            super().fdatasync(fd)

    answers.set()
    hand = open_real(tmp_path, files=Slow())
    first, *_ = four_partitions(hand)
    answers.clear()
    first.append([b"a"], b"\0", NOW)
    hand.store.commit()
    while hand.store.facts().commit_ms < 10:
        time.sleep(0.01)
    answers.set()
    while hand.store.facts().commit_ms:
        time.sleep(0.01)
    assert hand.done == [], "the loop has not run"
    hand.store.close()
