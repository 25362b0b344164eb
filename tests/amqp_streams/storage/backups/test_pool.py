"""Segments in a backup folder only grow, continue what a killed backup copied, and follow another history."""

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.storage.backups.checking import check
from amqp_streams.storage.partitions.segment import segment_path
from tests.amqp_streams.storage.backups.conftest import FOLDER, TARGET, Machine, content, opened
from tests.amqp_streams.storage.conftest import ROOT


class Killed(BaseException):
    """The backup ends here."""


@dataclass
class Counted:
    """The bytes that are read of the node's segments; kills the backup after `most` writes."""

    machine: Machine
    most: int = -1
    reads: int = 0
    writes: int = 0

    def __call__(self, operation: str, path: Path) -> int:
        if operation == "pread" and ROOT / "logs" in path.parents:
            self.reads += 1
        if operation == "pwritev" and path.suffix == ".log":
            self.writes += 1
            if self.writes == self.most:
                raise Killed
        return 0


def _copied(machine: Machine) -> list[Path]:
    return [path for path in machine.files.paths() if FOLDER in path.parents and path.suffix == ".log"]


def test_a_killed_backup_is_continued(machine: Machine) -> None:
    machine.fill(900)
    machine.files.fault = Counted(machine, most=6)
    with pytest.raises(Killed):
        machine.back_up()
    assert not machine.folder.names()
    machine.files.kill()
    machine.files.fault = lambda operation, path: 0
    left = sum(len(machine.files.content(path)) for path in _copied(machine))
    assert left > 50_000
    made = machine.back_up()
    total = sum(piece.bytes for _, piece in made.manifest.pieces())
    assert made.copied <= total - left + 5000
    before = machine.content()
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    hand.store.close()


def test_what_a_killed_backup_left_is_not_trusted_after_a_power_loss(machine: Machine) -> None:
    machine.fill(900)
    machine.files.fault = Counted(machine, most=6)
    with pytest.raises(Killed):
        machine.back_up()
    machine.files.kill()
    machine.files.fault = lambda operation, path: 0
    for path in _copied(machine):
        # Sectors that were not on the disk.
        machine.files.damage(path, lambda data: data.__setitem__(slice(512, 1024), bytes(512)))
    machine.back_up()
    assert not check(machine.folder).faults
    machine.restore()
    machine.restored().store.close()


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4])
def test_names_that_a_killed_backup_created_survive_a_power_loss_after_the_next(
    machine: Machine, before: int
) -> None:
    """The first backup is killed before it syncs the name of a folder or a file."""
    machine.fill(300)
    left = before

    def fault(operation: str, path: Path) -> int:
        nonlocal left
        if operation == "fsync_dir" and FOLDER / "segments" in (path, *path.parents):
            if left == 0:
                raise Killed
            left -= 1
        return 0

    machine.files.fault = fault
    with pytest.raises(Killed):
        machine.back_up()
    machine.files.kill()
    machine.files.fault = lambda operation, path: 0
    machine.back_up()
    machine.hand.store.close()
    machine.files.kill()
    machine.disk.power_loss()
    found = check(machine.folder)
    assert found.whole
    assert not found.faults
    machine.hand = opened(machine.disk, ROOT)


def test_a_segment_with_another_history_gets_a_file_of_its_own(machine: Machine) -> None:
    """The node is restored to an earlier backup, and gets other events with the same numbers."""
    machine.fill(100)
    first = machine.back_up()
    machine.fill(100, size=120)
    second = machine.back_up()
    after = machine.content()
    machine.hand.store.close()
    machine.restore(ROOT, name=first.manifest.name, replace=True)
    machine.hand = opened(machine.disk, ROOT)
    machine.fill(150, size=140)
    third, other = machine.back_up(), machine.content()
    assert other != after
    assert {piece.version for _, piece in second.manifest.pieces()} == {1}
    assert 2 in {piece.version for _, piece in third.manifest.pieces()}
    assert not check(machine.folder).faults
    for made, expected in ((second, after), (third, other)):
        target = TARGET.with_name(made.manifest.name)
        machine.restore(target, name=made.manifest.name)
        hand = machine.restored(target)
        assert content(hand) == expected
        hand.store.close()


def test_a_file_that_the_folder_lost_is_copied_again(machine: Machine) -> None:
    machine.fill(300)
    machine.back_up(name="first")
    for path in _copied(machine):
        machine.files.unlink(path)
    assert len(check(machine.folder).faults) == 6 - 3
    machine.back_up(name="second")
    found = check(machine.folder)
    assert found.whole == ["second"]


def test_bytes_that_the_disk_changes_are_noticed(machine: Machine) -> None:
    machine.fill(300)
    pwritev = machine.files.pwritev

    def worse(fd: int, buffers: list[bytes], position: int) -> int:
        data = bytearray(b"".join(buffers))
        if machine.files.opened_path(fd).suffix == ".log" and data:
            data[0] ^= 1
        return pwritev(fd, [bytes(data)], position)

    machine.files.pwritev = worse  # type: ignore[method-assign, assignment]
    with pytest.raises(StorageError, match="has other bytes than were written"):
        machine.back_up()
    assert not machine.folder.names()


def test_a_segment_that_does_not_change_is_not_read(machine: Machine) -> None:
    machine.fill(700)
    machine.back_up()
    machine.files.fault = counted = Counted(machine)
    machine.back_up()
    # `log.json` of both logs, twice each, and the indexes of partitions.
    assert counted.reads < 20
    assert counted.writes == 0


def test_a_failed_sync_fails_the_backup(machine: Machine) -> None:
    machine.fill(300)
    machine.files.fault = lambda operation, path: (
        errno.EIO if operation == "fdatasync" and path.suffix == ".log" else 0
    )
    with pytest.raises(StorageError, match="Input/output error"):
        machine.back_up()
    assert not machine.folder.names()


def test_a_torn_batch_at_the_end_is_not_copied(machine: Machine) -> None:
    machine.fill(300)
    before = machine.content()
    path = segment_path(ROOT / "logs" / "temps" / "0", 0)
    size = len(machine.disk.content(path))
    active = machine.hand.store.logs["temps"].partitions[0].segments.active.path  # type: ignore[attr-defined]  # a PartitionLog
    assert active == path, size
    machine.disk.content(path).extend(b"AEB1 and no more")
    made = machine.back_up()
    assert not made.manifest.damage
    machine.restore()
    hand = machine.restored()
    assert content(hand) == before
    hand.store.close()
    del machine.disk.content(path)[size:]
