"""Damage to the last record before a kill is distinguished from a write that was cut off, because `ends`
names what was synced.
"""

import copy
import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings, Sync, SyncMode
from amqp_streams.errors import CorruptionError
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.findings import Finding
from amqp_streams.storage.formats.journal_record import ALIGN, HEAD_BYTES
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, ROOT, Hand, open_inline, read_all

JOURNAL = ROOT / "journal" / "0.journal"
SEGMENT = ROOT / "logs" / "log" / "0" / f"{0:016}.log"
ENDS = ROOT / "ends"
SMALL = [b"first", b"second", b"third"]
LARGE = [bytes([65 + number]) * 6_000 for number in range(3)]
"""Each is a commit that goes directly to the segment. The second one is followed by an index."""


def _written(messages: Sequence[bytes], sync: Sync | None = None) -> FaultyFiles:
    """Each message in a commit of its own; then the process is killed."""
    files = FaultyFiles()
    hand = open_inline(files, sync=sync)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    for message in messages:
        hand.write(partition, message)
    files.kill()
    return files


def _findings(hand: Hand) -> list[Finding]:
    assert isinstance(hand.store, DirectoryStore)
    return [one for one in hand.store.findings if one.severity is not Severity.NOTE]


def _cut(position: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        del data[position:]

    return change


def _flip(position: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[position] ^= 1

    return change


@pytest.mark.parametrize(
    ("path", "messages", "damage"),
    [
        pytest.param(JOURNAL, SMALL, _flip(2 * ALIGN + 20), id="header of a record of the journal"),
        pytest.param(JOURNAL, SMALL, _flip(2 * ALIGN + HEAD_BYTES + 40), id="batch of the journal"),
        pytest.param(JOURNAL, SMALL, _cut(2 * ALIGN), id="journal cut"),
        pytest.param(JOURNAL, SMALL[:1], _flip(20), id="the only record of the journal"),
        pytest.param(SEGMENT, LARGE[:1], _flip(5000), id="batch of a segment without an index"),
        pytest.param(SEGMENT, LARGE, lambda data: _cut(len(data) - 9)(data), id="segment cut"),
        pytest.param(SEGMENT, LARGE[:1], _cut(0), id="segment emptied"),
    ],
)
def test_damage_to_the_last_record_is_reported_and_its_number_is_not_used_again(
    path: Path, messages: list[bytes], damage: Callable[[bytearray], None]
) -> None:
    files = _written(messages)
    files.damage(path, damage)
    last = len(messages) - 1
    for _ in range(2):  # the second opening is that after another crash
        hand = open_inline(files)
        assert any(
            one.severity is Severity.DAMAGE and f"records {last} to {last} " in one.words
            for one in _findings(hand)
        )
        partition = hand.store.logs["log"].partitions[0]
        assert partition.end == last + 1
        if last:
            chunk = partition.read(0, 1)
            assert chunk is not None
            assert chunk.messages[0] == messages[0]
        with pytest.raises(CorruptionError):
            partition.read(last, 1)
        files.kill()
    hand = open_inline(files)
    partition = hand.store.logs["log"].partitions[0]
    assert hand.write(partition, b"later") == last + 1
    chunk = partition.read(last + 1, 100)
    assert chunk is not None
    assert list(chunk.messages) == [b"later"]


def test_a_record_behind_shows_that_the_damaged_record_was_synced() -> None:
    """Also without the file: the header of the next record is written only after a sync."""
    files = _written(SMALL)
    files.unlink(ENDS)
    files.damage(JOURNAL, _flip(ALIGN + HEAD_BYTES + 40))
    files.damage(JOURNAL, _flip(2 * ALIGN + HEAD_BYTES + 40))
    found = _findings(open_inline(files))
    assert [(one.severity, one.position) for one in found] == [
        (Severity.DAMAGE, _length(files, 0)),
        (Severity.WARNING, 2 * ALIGN),
    ]


def _length(files: FaultyFiles, record: int) -> int:
    return int.from_bytes(files.content(JOURNAL)[record * ALIGN + 24 : record * ALIGN + 32], "little")


def test_a_write_that_was_cut_off_is_a_warning_with_its_bytes() -> None:
    files = _written(SMALL)
    hand = open_inline(files)
    partition = hand.store.logs["log"].partitions[0]

    def cut_off(operation: str, path: Path) -> int:
        writing = operation == "pwritev" and path.parent.name == "journal"
        if writing:
            files.fault = lambda *_: errno.EIO
        return -1 if writing else 0

    files.fault = cut_off
    partition.append([b"x" * 2000], b"\0", NOW)
    done = hand.commit()
    assert done is not None
    assert done.failures
    files.kill()
    files.fault = lambda *_: 0
    again = open_inline(files)
    (warning,) = _findings(again)
    assert warning.severity is Severity.WARNING
    name = ROOT / warning.file
    length = int.from_bytes(files.content(name)[24:32], "little")
    assert length > 2000
    assert f"its {length} bytes are dropped" in warning.words
    assert read_all(again.store.logs["log"].partitions[0]) == SMALL


@pytest.mark.parametrize("sync", [Sync(mode=SyncMode.NEVER), Sync(mode=SyncMode.INTERVAL, interval_ms=1000)])
def test_a_power_loss_without_syncs_is_not_damage(sync: Sync) -> None:
    files = _written(SMALL, sync)
    files.power_loss()
    hand = open_inline(files, sync=sync)
    assert not [one for one in _findings(hand) if one.severity is Severity.DAMAGE]
    assert hand.store.logs["log"].partitions[0].end == 0


def test_whatever_of_the_ends_a_power_loss_keeps_nothing_is_reported() -> None:
    """The file is not synced, but what it names is."""
    before = _written(SMALL + LARGE)
    for seed in range(50):
        files = copy.deepcopy(before)
        files.power_loss(random.Random(seed))
        hand = open_inline(files)
        assert not [one for one in _findings(hand) if one.severity is Severity.DAMAGE]
        assert read_all(hand.store.logs["log"].partitions[0]) == SMALL + LARGE


def test_commits_do_not_depend_on_the_ends() -> None:
    files = FaultyFiles()
    files.fault = lambda operation, path: errno.EIO if path == ENDS and operation == "pwritev" else 0
    hand = open_inline(files)
    partition = hand.store.create("log", LogSettings(), incarnation="i").partitions[0]
    for message in SMALL + LARGE:
        hand.write(partition, message)
    files.kill()
    hand = open_inline(files)
    assert not _findings(hand)
    assert read_all(hand.store.logs["log"].partitions[0]) == SMALL + LARGE


def test_a_damaged_file_of_ends_is_a_warning() -> None:
    files = _written(SMALL)
    files.damage(ENDS, lambda data: data.__setitem__(slice(None), b"x" * len(data)))
    hand = open_inline(files)
    assert [(one.severity, one.file) for one in _findings(hand)] == [(Severity.WARNING, "ends")]
    assert read_all(hand.store.logs["log"].partitions[0]) == SMALL
