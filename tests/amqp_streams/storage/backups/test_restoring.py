"""A restore is complete, or no node opens its directory; it continues, and removes nothing."""

from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.backups.source import Source
from tests.amqp_streams.storage.backups.conftest import FOLDER, TARGET, Machine, content, opened
from tests.amqp_streams.storage.conftest import ROOT


class Killed(BaseException):
    """The restore ends here."""


@pytest.fixture
def backed_up(machine: Machine) -> Machine:
    machine.fill(400)
    machine.fill(20, log="other")
    machine.hand.keep(
        {"cursor/of-temps/a": b"1", "cursor/of-other/b": b"2", "epoch/gone/0/": b"3", "x": b"4"}
    )
    machine.back_up()
    return machine


def test_a_killed_restore_leaves_nothing_that_a_node_opens_and_continues(backed_up: Machine) -> None:
    """At every operation that changes a file."""
    machine, before = backed_up, backed_up.content()
    done, stopped_after, continued = False, 0, 0
    while not done:
        target = Path(f"/restored-{stopped_after}")
        left = stopped_after

        def fault(operation: str, path: Path) -> int:
            nonlocal left
            if operation in {"pwritev", "rename", "fdatasync", "fsync_dir"} and FOLDER not in path.parents:
                if left == 0:
                    raise Killed
                left -= 1
            return 0

        machine.files.fault = fault
        try:
            machine.restore(target)
            done = True
        except Killed:
            machine.files.kill()
            machine.files.fault = lambda operation, path: 0
            if machine.files.is_dir(target) and machine.files.listdir(target):
                _must_not_open(machine, target)
            continued += machine.restore(target).continued
        machine.files.fault = lambda operation, path: 0
        # All of them would take long, and the steps in the middle are alike.
        stopped_after += 1 if stopped_after < 12 else 13
        hand = machine.restored(target)
        assert content(hand) == before
        hand.store.close()
    assert continued > 3


def _must_not_open(machine: Machine, target: Path) -> None:
    names = machine.files.listdir(target)
    if "format.json" in names:
        with pytest.raises(StorageError, match=r"is incomplete: the restore of backup .* did not end"):
            opened(machine.files, target)
        with pytest.raises(StorageError, match="is incomplete"):
            Source(machine.files, target).format()
    else:
        # Nothing was restored yet: it is as good as empty.
        assert "logs" not in names


def test_a_directory_that_is_not_empty_is_refused(backed_up: Machine) -> None:
    backed_up.restore()
    with pytest.raises(StorageError, match="is not empty: use another directory, or --replace"):
        backed_up.restore()


def test_a_directory_of_another_program_is_refused_and_not_touched(backed_up: Machine) -> None:
    files = backed_up.files
    files.mkdir(TARGET)
    files.close(files.open(TARGET / "letter", create=True))
    for replace in (False, True):
        with pytest.raises(StorageError, match="not a data directory: it has 'letter'"):
            backed_up.restore(replace=replace)
    assert files.listdir(TARGET) == ["letter"]


def test_replace_moves_what_was_there_at_every_moment_of_a_kill(backed_up: Machine) -> None:
    machine, before = backed_up, backed_up.content()
    for stopped_after in range(0, 30, 2):
        target = Path(f"/replaced-{stopped_after}")
        machine.restore(target)
        hand = machine.restored(target)
        hand.store.create("more", LogSettings(), incarnation="m")
        hand.store.close()
        left = stopped_after

        def fault(operation: str, path: Path) -> int:
            nonlocal left
            if operation in {"rename", "fsync_dir", "pwritev"} and FOLDER not in path.parents:
                if left == 0:
                    raise Killed
                left -= 1
            return 0

        machine.files.fault = fault
        try:
            machine.restore(target, replace=True)
        except Killed:
            machine.files.kill()
            machine.files.fault = lambda operation, path: 0
            machine.restore(target, replace=True)
        machine.files.fault = lambda operation, path: 0
        hand = machine.restored(target)
        assert content(hand) == before
        hand.store.close()
        aside = target / catalog.QUARANTINE
        found = [name for name in machine.files.listdir(aside) if machine.files.is_dir(aside / name / "logs")]
        assert any("more" in machine.files.listdir(aside / name / "logs") for name in found)


def test_single_logs_are_restored_with_their_states(backed_up: Machine) -> None:
    done = backed_up.restore(logs=["temps"])
    assert done.logs == ["temps"]
    hand = backed_up.restored()
    assert set(hand.store.logs) == {"temps"}
    assert {key for key, _ in hand.store.states.items("")} == {"cursor/of-temps/a", "x"}
    hand.store.close()
    with pytest.raises(StorageError, match="has no log 'nope'; its logs are other, temps"):
        backed_up.restore(logs=["nope"])


def test_an_unfinished_restore_of_another_backup_is_not_continued(backed_up: Machine) -> None:
    machine = backed_up
    first = machine.folder.names()[0]
    machine.now_ms += 5000
    second = machine.back_up().manifest.name

    def fault(operation: str, path: Path) -> int:
        if operation == "pwritev" and path.suffix == ".log":
            raise Killed
        return 0

    machine.files.fault = fault
    with pytest.raises(Killed):
        machine.restore(name=first)
    machine.files.kill()
    machine.files.fault = lambda operation, path: 0
    with pytest.raises(StorageError, match=f"unfinished restore of backup '{first}'"):
        machine.restore(name=second)
    machine.restore(name=second, replace=True)
    machine.restored().store.close()


def test_a_running_node_is_not_replaced(backed_up: Machine) -> None:
    backed_up.files._locked = backed_up.disk._locked
    with pytest.raises(DirectoryLockedError, match="is in use"):
        backed_up.restore(ROOT, replace=True)
    backed_up.files._locked = set()


@pytest.mark.parametrize("name", ["journal", "states", "segment", "missing"])
def test_a_damaged_backup_is_not_restored(backed_up: Machine, name: str) -> None:
    machine = backed_up
    segments = [path for path in machine.files.paths() if path.suffix == ".log" and FOLDER in path.parents]
    path = (
        machine.folder.path_of(machine.folder.names()[0]) / name
        if name in {"journal", "states"}
        else segments[0]
    )
    if name == "missing":
        machine.files.unlink(path)
    else:
        machine.files.damage(path, lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 1))
    with pytest.raises(StorageError, match=r"damaged|missing"):
        machine.restore()
    with pytest.raises(StorageError, match="is incomplete"):
        opened(machine.files, TARGET)


def test_a_folder_without_a_backup_is_refused(machine: Machine) -> None:
    machine.files.mkdir(FOLDER)
    with pytest.raises(StorageError, match="has no complete backup"):
        machine.restore()
    assert not machine.files.is_dir(TARGET)


def test_a_full_disk_is_named_and_the_restore_continues(backed_up: Machine) -> None:
    machine = backed_up
    used = sum(len(machine.files.content(path)) for path in machine.files.paths())
    machine.files.space = used + 30_000
    with pytest.raises(StorageError, match="the disk is full: free space and run the restore again"):
        machine.restore()
    machine.files.space = None
    assert machine.restore().continued
    machine.restored().store.close()
