"""Removing files frees space: a full disk recovers by retention and by deletion, without a restart."""

import contextlib
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import DiskFullError
from amqp_streams.storage.ports import Partition
from tests.amqp_streams.storage.conftest import NOW, Hand, open_real, read_all

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
    """Segments of a data directory that this process has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            names.append(str(descriptor.readlink()))
    return [name for name in names if name.startswith(str(path)) and ".log" in name]


def test_retention_on_a_full_disk_makes_room_though_the_log_is_idle(tiny_disk: Path) -> None:
    hand = open_real(tiny_disk / "data")
    partition = hand.store.create("log", SETTINGS, incarnation="i").partitions[0]
    _fill(hand, partition)
    for later in (2000, 4000, 6000):
        hand.store.apply_retention(NOW + later)
        _wait_for_threads(hand)
    assert partition.start == partition.end > 0
    assert not [name for name in _opened_below(tiny_disk) if name.endswith("(deleted)")]
    hand.write(partition, b"healed" * 700, now_ms=NOW + 6000)
    assert read_all(partition) == [b"healed" * 700]
    hand.store.close()


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
