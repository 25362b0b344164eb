"""A full disk refuses appends and keeps the stored records. Retention and deletion free space, and the node
continues without a restart.
"""

import contextlib
import errno
import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.findings import Severity
from amqp_streams.storage.formats import record
from amqp_streams.storage.partitions.segment import Staged
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import (
    FOUR,
    NOW,
    ROOT,
    Hand,
    commit_failures,
    four_partitions,
    open_inline,
    open_real,
    read_all,
)

SETTINGS = LogSettings(retention_ms=1000, segment_ms=1000)


def _fill(hand: Hand, partition: Partition) -> None:
    """Append until the disk is full."""
    for _ in range(1000):
        try:
            partition.append([bytes(4096)], b"\0", NOW)
        except DiskFullError:
            return
        hand.commit()
    pytest.fail("the disk did not become full")


def _wait_for_threads(hand: Hand) -> None:
    hand.loop.run_until(lambda: not hand.store._outstanding.count)  # type: ignore[attr-defined]


def _opened_below(path: Path) -> list[str]:
    """Segments of a data directory, and notes that were segments, that this process has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            names.append(str(descriptor.readlink()))
    return [name for name in names if name.startswith(str(path)) and (".log" in name or ".start" in name)]


@pytest.fixture
def no_search_for_garbage() -> Iterator[None]:
    """A node that cannot accept events makes few objects, so Python searches for garbage only much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search_for_garbage")
def test_retention_on_a_full_disk_makes_room_though_the_log_is_idle(tiny_disk: Path) -> None:
    hand = open_real(tiny_disk / "data")
    partition = hand.store.create("log", SETTINGS, incarnation="i").partitions[0]
    _fill(hand, partition)
    for later in (2000, 4000, 6000):
        hand.store.apply_retention(NOW + later)
        _wait_for_threads(hand)
    assert partition.start == partition.end > 0
    # A write that has ended is gone, and with it the file that it wrote to.
    assert not [each for each in gc.get_objects() if isinstance(each, Staged)]
    # On a full disk, the last segment that is removed becomes the note of the new start.
    assert not [name for name in _opened_below(tiny_disk) if name.endswith(("(deleted)", ".start"))]
    hand.write(partition, b"healed" * 700, now_ms=NOW + 6000)
    assert read_all(partition) == [b"healed" * 700]
    hand.store.close()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_what_retention_removed_on_a_full_disk_does_not_seem_lost_after_a_kill(*, power: bool) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partition = hand.store.create("log", SETTINGS, incarnation="i").partitions[0]
    for number in range(8):
        hand.write(partition, b"x" * 5000, now_ms=NOW + 500 * number)
    files.fault = lambda operation, path: (
        errno.ENOSPC if operation == "open" and path.name.startswith("checkpoint") else 0
    )
    hand.store.apply_retention(NOW + 4000)
    hand.loop.run_ready()
    start, end = partition.start, partition.end
    assert 0 < start < end
    files.fault = lambda operation, path: 0
    (files.power_loss if power else files.kill)()
    for _ in range(2):  # the second start finds a checkpoint that has the start
        hand = open_inline(files)
        assert isinstance(hand.store, DirectoryStore)
        assert not [each for each in hand.store.findings if each.severity is Severity.DAMAGE]
        partition = hand.store.logs["log"].partitions[0]
        assert (partition.start, partition.end) == (start, end)
        assert len(read_all(partition)) == end - start
        notes = [name for name in files.listdir(ROOT / "logs" / "log" / "0") if name.endswith(".start")]
        files.kill()
    assert not notes


@pytest.mark.usefixtures("no_search_for_garbage")
def test_a_log_deleted_after_retention_leaves_no_file_open(tiny_disk: Path) -> None:
    hand = open_real(tiny_disk / "data")
    partition = hand.store.create("log", SETTINGS, incarnation="i").partitions[0]
    _fill(hand, partition)
    hand.store.apply_retention(NOW + 2000)
    _wait_for_threads(hand)
    hand.store.delete("log")
    _wait_for_threads(hand)
    assert not _opened_below(tiny_disk)
    again = hand.store.create("again", SETTINGS, incarnation="i").partitions[0]
    hand.store.apply_retention(NOW + 4000)
    hand.write(again, b"healed" * 700, now_ms=NOW + 4000)
    hand.store.close()


def test_a_full_disk_refuses_cleanly_and_recovers() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    hand.write(first, b"before" * 1000)
    files.space = 0
    failures = commit_failures(hand, (first, b"x" * 5000))
    assert [type(error) for error in failures.values()] == [DiskFullError]
    assert (first.end, first.facts().failure) == (1, None)
    with pytest.raises(DiskFullError, match="is full"):
        first.append([b"y"], b"\0", NOW)
    files.space = None
    assert hand.write(first, b"after", now_ms=NOW + 1000) == 1
    assert read_all(first) == [b"before" * 1000, b"after"]
    files.kill()
    hand = open_inline(files)
    assert read_all(hand.store.logs["log"].partitions[0]) == [b"before" * 1000, b"after"]


def test_a_node_stops_on_a_disk_without_a_free_byte_and_starts_when_space_is_free() -> None:
    """The stop is not clean, and is not an error either; a start says what to do."""
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    hand.write(first, b"before" * 1000)
    files.space = 0
    assert hand.store.close() is False
    with pytest.raises(StorageError, match="the disk is full: free space on it, or move the data directory"):
        open_inline(files)
    files.space = None
    assert read_all(open_inline(files).store.logs["log"].partitions[0]) == [b"before" * 1000]


def test_a_short_write_before_the_disk_is_full_leaves_nothing_half_visible() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    hand.write(first, b"before" * 1000)
    files.space = sum(len(files.content(path)) for path in files.paths()) + 3000
    assert list(commit_failures(hand, (first, b"x" * 9000))) == [first]
    files.kill()
    files.space = None
    hand = open_inline(files)
    assert isinstance(hand.store, DirectoryStore)
    assert not hand.store.findings
    assert read_all(hand.store.logs["log"].partitions[0]) == [b"before" * 1000]


def test_appends_after_a_refused_one_fail_too_so_that_offsets_have_no_gap() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, *_ = four_partitions(hand)
    first.append([b"x" * 5000], b"\0", NOW)
    files.space = 0
    hand.store.commit()  # its result waits for the loop
    hand.loop.run_ready()
    with pytest.raises(DiskFullError):
        first.append([b"behind"], b"\0", NOW)
    files.space = None
    assert first.append([b"again"], b"\0", NOW + 1000) == 0


def test_small_appends_continue_in_the_journal_while_segments_cannot_grow_and_nothing_is_lost() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    partitions = four_partitions(hand)
    files.space = sum(len(files.content(path)) for path in files.paths()) + (5 << 10)
    refused = 0
    for number in range(200):
        for partition in partitions:
            try:
                partition.append([b"%d" % number * 50], b"\0", NOW + number)
            except DiskFullError:
                refused += 1
        hand.store.commit()
        hand.loop.run_ready()
    accepted = [read_all(partition) for partition in partitions]
    assert refused > 100
    assert all(partition.facts().failure is None for partition in partitions)
    files.space = None
    for partition in partitions:
        hand.write(partition, b"healed" * 700, now_ms=NOW + 100_000)
    files.power_loss()
    hand = open_inline(files)
    for partition, kept in zip(hand.store.logs["log"].partitions, accepted, strict=True):
        assert read_all(partition) == [*kept, b"healed" * 700]


@pytest.mark.parametrize("error", [errno.ENOSPC, None], ids=["full", "fault"])
def test_a_segment_that_was_created_for_events_that_failed_leaves_no_file(
    error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of these events are assigned again. At the next start, an empty segment in the middle would
    hide events of the segment before it.
    """
    monkeypatch.setattr(record, "BATCH_BYTES_MAX", 40 << 10)
    files = FaultyFiles()
    hand = open_inline(files)
    (partition,) = hand.store.create("log", LogSettings(segment_bytes=64 << 10), incarnation="i").partitions
    hand.write(partition, bytes(30_000))
    created: list[Path] = []

    def fault(operation: str, path: Path) -> int:
        if operation == "open" and path.suffix == ".log" and path not in created:
            created.append(path)
            if len(created) == 2:
                assert error is not None, "a fault of our own"
                return error
        return 0

    files.fault = fault
    assert commit_failures(hand, *[(partition, bytes(10_000))] * 15)
    files.fault = lambda operation, path: 0
    assert len(created) == 2
    hand.store.apply_retention(NOW + 1000)
    for size in (3000,) * 30 + (30_000,) * 4:
        hand.write(partition, bytes(size), now_ms=NOW + 1000)
    stored = read_all(partition)
    assert len(stored) == 35
    files.kill()
    again = open_inline(files).store
    assert read_all(again.logs["log"].partitions[0]) == stored


def test_a_real_full_disk_refuses_cleanly_and_recovers(tiny_disk: Path) -> None:
    hand = open_real(tiny_disk / "data")
    first, *_ = four_partitions(hand)
    accepted: list[bytes] = []
    refused, number = 0, 0
    while not refused:
        message = b"%06d" % number * 1000
        try:
            first.append([message], b"\0", NOW + number)
        except DiskFullError:
            refused += 1
            break
        number += 1
        done = hand.commit()
        assert done is not None
        if done.failures:
            assert isinstance(done.failures[first], DiskFullError)
            refused += 1
        else:
            accepted.append(message)
    assert len(accepted) > 50
    assert read_all(first) == accepted
    hand.store.delete("log")
    again = hand.store.create("log", FOUR, incarnation="2").partitions[0]
    deadline, now_ms = time.monotonic() + 60, NOW
    while True:
        now_ms += 10_000
        hand.store.apply_retention(now_ms)
        try:
            hand.write(again, b"healed", now_ms=now_ms)
            break
        except DiskFullError:
            # A thread removes the files of the deleted log.
            assert time.monotonic() < deadline, "the space of the deleted log is not free"
            time.sleep(0.01)
    hand.store.close()
