"""A disk that fails, and the starts after it: visible events stay, and every report is true."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore, Finding, Severity
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import ROOT, Hand, open_inline, read_all


def test_records_in_the_page_cache_after_a_failed_sync_are_durable_once_they_are_visible() -> None:
    """The system shows bytes that it will never write, so a start that reads them must write them itself."""
    files = FaultyFiles()
    hand = open_inline(files)
    (partition, *_) = _logs(hand)
    hand.write(partition, b"durable")
    files.fault = lambda operation, path: (
        errno.EIO if operation == "fdatasync" and path.suffix == ".log" else 0
    )
    partition.append([b"in the cache" * 1000], b"\0", 0)
    hand.store.commit()
    hand.loop.run_ready()
    assert partition.facts().failure
    files.fault = lambda operation, path: 0
    files.kill()
    hand = open_inline(files)
    visible = read_all(hand.store.logs["log"].partitions[0])
    assert visible == [b"durable", b"in the cache" * 1000]
    files.power_loss()
    hand = open_inline(files)
    assert read_all(hand.store.logs["log"].partitions[0]) == visible


def test_a_state_in_the_page_cache_after_a_failed_sync_is_durable_once_read() -> None:
    """Otherwise a cursor or an epoch goes back at the next power loss, and its bytes count as damage."""
    files = FaultyFiles()
    hand = open_inline(files)
    files.fault = lambda operation, path: (
        errno.EIO if operation == "fdatasync" and path.name == "states" else 0
    )
    hand.store.states.write({"epoch": b"7"})
    hand.loop.run_ready()
    files.fault = lambda operation, path: 0
    files.kill()
    hand = open_inline(files)
    assert hand.store.states.get("epoch") == b"7"
    hand.store.states.write({"cursor": b"1"})
    hand.loop.run_ready()
    files.power_loss()
    hand = open_inline(files)
    assert hand.store.states.get("epoch") == b"7"
    assert not [each for each in _findings(hand) if each.severity is Severity.DAMAGE]


def test_a_closed_segment_without_an_index_is_durable_once_it_is_visible() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    (partition, *_) = _logs(hand)
    written = [b"%d" % number * 3000 for number in range(40)]
    for message in written:
        hand.write(partition, message)
    hand.store.close()
    folder = ROOT / "logs" / "log" / "0"
    first, *others = sorted(path for path in files.paths() if path.parent == folder and path.suffix == ".log")
    assert others, "the first segment is closed"
    files.unlink(first.with_suffix(".idx"))
    # As a failed sync leaves it: the bytes are in the cache, and the system will not write them.
    content = bytes(files.content(first))
    files.damage(first, lambda data: data.clear())
    files.content(first).extend(content)
    assert read_all(open_inline(files).store.logs["log"].partitions[0]) == written
    files.power_loss()
    assert read_all(open_inline(files).store.logs["log"].partitions[0]) == written


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
def test_records_of_a_commit_that_the_journal_failed_do_not_become_visible(operation: str) -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    (partition, *_) = _logs(hand)
    hand.write(partition, b"durable")
    files.fault = lambda asked, path: errno.EIO if asked == operation and path.parent.name == "journal" else 0
    partition.append([b"failed"], b"\0", 0)
    done = hand.commit()
    assert done is not None
    assert partition in done.failures
    assert read_all(partition) == [b"durable"]


def test_a_journal_file_that_could_not_be_created_is_not_reported_as_damage() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    first, second, *_ = _logs(hand)
    hand.write(first, b"durable")
    files.fault = lambda operation, path: errno.EIO if _journal(operation, path) else 0
    second.append([b"refused"], b"\0", 0)
    hand.store.commit()
    hand.loop.run_ready()
    assert second.facts().failure
    files.fault = lambda operation, path: 0
    assert not [
        path for path in files.paths() if path.parent.name == "journal" and path.name.startswith("2.")
    ]
    files.kill()
    hand = open_inline(files)
    assert not [each for each in _findings(hand) if each.severity is Severity.DAMAGE]
    assert read_all(hand.store.logs["log"].partitions[0]) == [b"durable"]


def test_a_journal_file_that_a_crash_left_half_made_is_removed_without_a_word() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    (partition, *_) = _logs(hand)
    hand.write(partition, b"durable")
    hand.store.close()
    files.open(ROOT / "journal" / "2.journal.tmp", create=True)
    hand = open_inline(files)
    assert not _findings(hand)
    assert not [path for path in files.paths() if path.suffix == ".tmp"]


def test_a_deleted_log_is_not_reported_as_missing_though_no_checkpoint_was_written_since() -> None:
    files = FaultyFiles()
    hand = open_inline(files)
    (partition, *_) = _logs(hand)
    hand.write(partition, b"deleted")
    files.fault = lambda operation, path: errno.EIO if "checkpoint" in path.name else 0
    hand.store.delete("log")
    files.fault = lambda operation, path: 0
    for _ in range(2):
        files.kill()
        hand = open_inline(files)
        assert not hand.store.logs
        assert not _findings(hand)
    assert files.listdir(ROOT / "trash") == []


def _journal(operation: str, path: Path) -> bool:
    return operation == "fdatasync" and path.parent.name == "journal"


def _findings(hand: Hand) -> Sequence[Finding]:
    assert isinstance(hand.store, DirectoryStore)
    return hand.store.findings


def _logs(hand: Hand) -> tuple[Partition, ...]:
    settings = LogSettings(partitions=3, segment_bytes=64 << 10)
    return hand.store.create("log", settings, incarnation="i").partitions
