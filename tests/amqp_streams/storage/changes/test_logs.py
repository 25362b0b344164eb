"""The steps of changes: nothing accepted is lost, nothing is accepted for a deleted log, no state is half."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.changes import logs
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.segment import Segment
from amqp_streams.storage.ports import Partition, ReadRequest
from amqp_streams.storage.questions import Create, Delete, Update
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.changes.steps import (
    DELETE,
    SETTINGS,
    Fault,
    append,
    crash,
    fails,
    opened,
    to_the_disk,
)
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL, read_all
from tests.amqp_streams.storage.held import HeldHand, open_held

# -- appends and commits during a deletion


def test_nothing_is_accepted_for_a_log_after_its_deletion_has_begun() -> None:
    hand, partition = opened()
    end = partition.end
    partition.append([b"in the commit in flight"], b"\0", NOW)
    hand.store.commit()
    partition.append([b"pending"], b"\0", NOW)
    asked = hand.ask_later(DELETE)
    with pytest.raises(LogDeletedError, match="log log is being deleted"):
        partition.append([b"later"], b"\0", NOW)
    to_the_disk(hand)
    assert partition.end == end + 1, "the keeper has not begun"
    hand.store.commit()
    to_the_disk(hand)
    (failure,) = hand.done[-1].failures.values()
    assert isinstance(failure, LogDeletedError)
    assert "log" in hand.store.logs
    assert asked.waits
    hand.work()
    assert "log" not in hand.store.logs
    assert asked.again() is None
    assert partition.end == end + 1
    with pytest.raises(LogDeletedError, match="log log was deleted"):
        partition.append([b"last"], b"\0", NOW)


def test_a_commit_that_ends_while_its_log_is_deleted_at_once_is_not_accepted() -> None:
    """A call that cannot wait does not let the loop see the end of the commit."""
    hand, partition = opened()
    end = partition.end
    partition.append([b"x"], b"\0", NOW)
    hand.store.commit()
    hand.store.delete("log")
    hand.work()
    assert list(hand.done[-1].failures) == [partition]
    assert partition.end == end


def test_other_logs_take_events_while_a_log_is_deleted() -> None:
    hand, partition = opened()
    other = hand.store.logs["other"].partitions[0]
    partition.append([b"pending"], b"\0", NOW)
    hand.ask_later(DELETE)
    for _ in range(3):
        other.append([b"y" * 6000], b"\0", NOW)
        hand.store.commit()
        to_the_disk(hand)
    assert other.end == 3
    assert hand.held.keeper.tasks, "the deletion is in flight"
    hand.work()
    assert read_all(other) == [b"y" * 6000] * 3


def test_records_move_to_no_segment_while_a_log_is_deleted_and_the_memory_stays_bounded() -> None:
    hand, partition = opened()
    other = hand.store.logs["other"].partitions[0]
    append(hand, partition, b"x" * 5000)
    for _ in range(4):
        append(hand, partition, b"z" * 100)
    recent = hand.held._flusher.recent
    hand.ask_later(DELETE)
    to_the_disk(hand)
    files = [(segment.path, segment.bytes) for segment in _segments(partition)]
    for _ in range(30):
        other.append([b"y" * 1000], b"\0", NOW)
        hand.store.commit()
        to_the_disk(hand)
        assert not hand.store.apply_retention(NOW + 3600_000)
        hand.held._flusher.catch_up()
        hand.held._flusher.sync(_log(partition), with_index=True)
        assert not _log(partition).syncing
    assert recent.bytes <= SMALL.recent_bytes
    assert [(segment.path, segment.bytes) for segment in _segments(partition)] == files
    # The deletion fails: the records are in memory, and those of this log go to its segments again.
    hand.held._files.fault = fails("rename", "trash")  # type: ignore[attr-defined]
    hand.work()
    hand.held._files.fault = lambda operation, path: 0  # type: ignore[attr-defined]
    for _ in range(30):
        append(hand, partition, b"w" * 1000)
    assert recent.bytes <= SMALL.recent_bytes
    tails = sum(len(each.tail) for each in hand.held._logs.all_partitions())
    assert len(recent) == tails
    assert read_all(partition)[-34:] == [b"z" * 100] * 4 + [b"w" * 1000] * 30


def until_a_commit_waits(hand: HeldHand, partition: Partition) -> int:
    """Append events until a commit waits for a file of the journal. Returns the end of the partition."""
    for _ in range(100):
        end = partition.end
        partition.append([b"y" * 1000], b"\0", NOW)
        hand.commit_all()
        if partition.end == end:
            return end
    pytest.fail("the journal takes everything")


@pytest.mark.parametrize("fault", [None, fails("rename", "trash")], ids=["deleted", "failed"])
def test_a_commit_that_waits_for_records_of_a_log_continues_when_its_deletion_has_ended(
    fault: Fault | None,
) -> None:
    """The records pin a file of the journal, and do not move to segments meanwhile."""
    files = FaultyFiles()
    hand, partition = opened(files)
    other = hand.store.logs["other"].partitions[0]
    append(hand, partition, b"z" * 100)
    hand.ask_later(DELETE)
    to_the_disk(hand)
    deletion = hand.held.keeper.tasks.popleft()
    before = until_a_commit_waits(hand, other)
    files.fault = fault or files.fault
    hand.held.keeper.submit(deletion)
    hand.held.keeper.run(1)
    files.fault = lambda operation, path: 0
    hand.work()
    assert other.end == before + 1
    assert ("log" in hand.store.logs) == (fault is not None)


def test_a_sync_that_a_failed_deletion_delayed_is_made_up_for() -> None:
    """Otherwise a file of the journal would never be free, and all commits would wait for the file."""
    files = FaultyFiles()
    hand, partition = opened(files)
    other = hand.store.logs["other"].partitions[0]
    append(hand, partition, b"z" * 100)
    hand.held._flusher.flush(_log(partition))
    hand.ask_later(DELETE)
    to_the_disk(hand)
    assert _log(partition).flushed_end == partition.end, "written to its segment, and not synced"
    deletion = hand.held.keeper.tasks.popleft()
    before = until_a_commit_waits(hand, other)
    files.fault = fails("rename", "trash")
    hand.held.keeper.submit(deletion)
    hand.held.keeper.run(1)
    files.fault = lambda operation, path: 0
    hand.work()
    assert other.end == before + 1
    for _ in range(100):
        append(hand, other, b"y" * 1000)


def test_a_deleted_log_is_not_ahead_of_the_clock() -> None:
    hand = open_held(FaultyFiles())
    log = hand.store.create("log", LogSettings(partitions=100), incarnation="1")
    partition = log.partitions[0]
    append(hand, partition, b"x", now_ms=NOW + 86400_000)
    append(hand, partition, b"x")
    assert list(hand.store.facts().ahead_ms) == ["log"]
    asked = hand.ask_later(DELETE)
    to_the_disk(hand)
    hand.held.keeper.run(1)
    hand.loop.run_ready()
    assert asked.waits, "it releases the partitions in steps"
    assert not hand.store.facts().ahead_ms
    hand.store.apply_retention(NOW)


def _log(partition: Partition) -> PartitionLog:
    assert isinstance(partition, PartitionLog)
    return partition


def _segments(partition: Partition) -> list[Segment]:
    return _log(partition).segments.row


# -- deletions that fail


FAULTS: list[Fault] = [
    fails("rename", "trash"),
    fails("rename", "trash", errno.ENOSPC),
    lambda operation, path: errno.EIO if (operation, path.name) == ("fsync_dir", "logs") else 0,
]


def once(fault: Fault) -> Fault:
    """The fault happens once."""
    happened: list[Path] = []

    def fails_once(operation: str, path: Path) -> int:
        error = 0 if happened else fault(operation, path)
        if error:
            happened.append(path)
        return error

    return fails_once


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("fault", FAULTS, ids=["rename", "full", "sync"])
def test_a_log_whose_deletion_fails_keeps_all_events_and_takes_more(fault: Fault, *, power: bool) -> None:
    files = FaultyFiles()
    hand, partition = opened(files)
    append(hand, partition, b"before")
    partition.append([b"in flight"], b"\0", NOW)
    hand.store.commit()
    asked = hand.ask_later(DELETE)
    files.fault = once(fault)
    hand.work()
    with pytest.raises(StorageError, match=r"/data/(trash|logs)"):
        asked.again()
    assert hand.store.logs["log"].partitions == (partition,)
    append(hand, partition, b"after")
    kept = read_all(partition)
    assert kept[-3:] == [b"before", b"in flight", b"after"]
    start = partition.start
    store = crash(hand, files, power=power)
    again = store.logs["log"].partitions[0]
    assert (again.start, read_all(again)) == (start, kept)


def test_a_deletion_that_can_neither_be_completed_nor_undone_stops_the_partitions() -> None:
    """The next start may find the log deleted: until then, nothing may be accepted."""
    files = FaultyFiles()
    hand, partition = opened(files)
    partition.append([b"pending"], b"\0", NOW)
    asked = hand.ask_later(DELETE)
    files.fault = lambda operation, path: errno.EIO if (operation, path.name) == ("fsync_dir", "logs") else 0
    hand.work()
    with pytest.raises(StorageError):
        asked.again()
    with pytest.raises(StorageError, match="stopped"):
        partition.append([b"x"], b"\0", NOW)
    hand.commit_all()
    assert list(hand.done[-1].failures) == [partition]
    files.fault = lambda operation, path: 0
    assert "log" in crash(hand, files, power=False).logs, "it is back in its place"


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        (Create("new", LogSettings(partitions=3), "n"), fails("mkdir", "trash")),
        (Create("new", LogSettings(partitions=3), "n"), fails("rename", "new")),
        (Update("log", SETTINGS), fails("pwritev", "log")),
    ],
    ids=["folder", "name", "settings"],
)
def test_a_change_that_the_disk_refuses_changes_nothing_and_can_be_repeated(
    question: Create | Update, fault: Fault
) -> None:
    files = FaultyFiles()
    hand, _ = opened(files)
    before = dict(hand.store.logs)
    asked = hand.ask_later(question)
    files.fault = fault
    hand.work()
    with pytest.raises(StorageError):
        asked.again()
    assert hand.store.logs == before
    files.fault = lambda operation, path: 0
    again = hand.ask_later(question)
    hand.work()
    assert again.again() is hand.store.logs[question.name]


# -- readers during a deletion


def test_a_reader_of_a_log_that_is_being_deleted_is_not_shown_damage() -> None:
    hand = open_held(FaultyFiles())
    partition = hand.store.create("log", LogSettings(), incarnation="1").partitions[0]
    for number in range(4):
        append(hand, partition, b"x" * 5000, now_ms=NOW + number)
    (segment,) = _segments(partition)
    hand.ask_later(DELETE)
    to_the_disk(hand)

    def calls() -> tuple[Callable[[], object], ...]:
        # Other readers need the place of the file among the open ones, and of its bytes in the cache.
        hand.held._reading.forget(segment.path)
        request = ReadRequest("reader", lambda: None)
        return (
            lambda: partition.read(0, 1),
            lambda: partition.read(0, 1, request),
            lambda: partition.seek_timestamp(NOW + 1),
        )

    for call in calls():
        assert call() is not None, "the file is in its place"
    assert hand.held.keeper.run(1) == 1
    for call in calls():
        with pytest.raises(LogDeletedError, match="is being deleted"):
            call()
    hand.work()
    for call in calls():
        with pytest.raises(LogDeletedError, match="was deleted"):
            call()


# -- retention, and a later log of the same name


def test_what_retention_removed_from_a_deleted_log_is_not_removed_from_a_later_log_of_its_name() -> None:
    files = FaultyFiles()
    hand = open_held(files)
    partition = hand.store.create("log", SETTINGS, incarnation="1").partitions[0]
    for number in range(4):
        append(hand, partition, b"x" * 5000, now_ms=NOW + 500 * number)
    # A checkpoint is in flight, so retention's files wait for the next one.
    hand.ask_later(Update("log", SETTINGS))
    hand.held.keeper.run()
    hand.loop.run_ready()
    assert hand.store.apply_retention(NOW + 4000)
    hand.store.delete("log")
    again = hand.store.create("log", SETTINGS, incarnation="2").partitions[0]
    again.append([b"y" * 9000], b"\0", NOW)
    hand.store.commit()
    hand.held.writer.run()
    hand.work()
    assert hand.done[-1].failures == {}
    assert crash(hand, files, power=True).logs["log"].partitions[0].end == 1


# -- many deletions at once


def test_many_deletions_at_once_share_checkpoints() -> None:
    """A checkpoint has every log: with one for each deletion, a thousand of them took half a minute."""
    files = FaultyFiles()
    hand = open_held(files)
    names = [str(number) for number in range(100)]
    for name in names:
        hand.store.create(name, LogSettings(), incarnation=name)
    hand.work()
    checkpoints: list[Path] = []

    def counted(operation: str, path: Path) -> int:
        if (operation, path.name) == ("rename", catalog.CHECKPOINT_FILE):
            checkpoints.append(path)
        return 0

    files.fault = counted
    asked = [hand.ask_later(Delete(name)) for name in names]
    hand.work()
    assert all(each.calls for each in asked)
    assert not hand.store.logs
    assert not files.listdir(ROOT / "trash")
    assert len(checkpoints) <= 3


def test_on_a_full_disk_a_new_log_gets_the_space_of_a_log_that_was_just_deleted() -> None:
    """The files of the deleted log may wait for a checkpoint that has not begun."""
    files = FaultyFiles()
    hand, partition = opened(files)
    for _ in range(20):
        append(hand, partition, b"x" * 5000)
    hand.held._flusher.flush(_log(partition))
    hand.work()
    # A checkpoint is in flight when the log is deleted.
    hand.ask_later(Update("other", SETTINGS))
    hand.held.keeper.run(1)
    hand.loop.run_ready()
    waiting = hand.held.keeper.tasks.popleft()
    hand.ask_later(DELETE)
    to_the_disk(hand)
    assert hand.held.keeper.run(1) == 1
    hand.held.keeper.submit(waiting)
    hand.loop.run_ready()
    files.space = sum(len(files.content(path)) for path in files.paths())
    asked = hand.ask_later(Create("new", LogSettings(), "n"))
    hand.work()
    assert asked.again() is hand.store.logs["new"]


# -- large logs


def test_a_log_with_many_partitions_is_made_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = open_held(FaultyFiles())
    made: list[int] = []
    partition = logs.Logs.partition

    def counted(self: logs.Logs, *arguments: object) -> PartitionLog:
        made[-1] += 1
        return partition(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(logs.Logs, "partition", counted)
    asked = hand.ask_later(Create("wide", LogSettings(partitions=1024), "w"))
    while asked.waits:
        assert hand.held.keeper.run(1)
        made.append(0)
        hand.loop.run_ready()
    assert sum(made) == 1024
    assert max(made) == 32
    assert len(hand.store.logs["wide"].partitions) == 1024
