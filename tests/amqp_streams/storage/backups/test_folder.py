"""The versions of the files of a backup folder are checked, and a damaged manifest removes nothing."""

from pathlib import Path

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.backups import creating
from amqp_streams.storage.backups.checking import check
from amqp_streams.storage.backups.folder import RESERVE_BYTES, Folder
from amqp_streams.storage.disk.files import read_file, replace_file
from tests.amqp_streams.storage.backups.conftest import FOLDER, Machine
from tests.amqp_streams.storage.conftest import ROOT


def _rewrite(machine: Machine, path: Path, **changes: object) -> None:
    content = catalog.unseal(read_file(machine.files, path))
    assert content is not None
    replace_file(machine.files, path, catalog.seal(content | changes), sync=True)


def test_a_folder_of_a_later_version_is_refused_and_not_changed(machine: Machine) -> None:
    machine.back_up()
    _rewrite(machine, FOLDER / "backup.json", backup=2)
    before = {path: bytes(machine.files.content(path)) for path in machine.files.paths()}
    with pytest.raises(StorageError, match="has version 2, but this program reads version 1"):
        machine.back_up()
    with pytest.raises(StorageError, match="has version 2"):
        check(machine.folder)
    assert {path: bytes(machine.files.content(path)) for path in machine.files.paths()} == before


def test_a_manifest_of_a_later_version_is_refused_and_keeps_its_segments(machine: Machine) -> None:
    machine.fill(300)
    name = machine.back_up().manifest.name
    _rewrite(machine, machine.folder.path_of(name) / "manifest.json", backup=2)
    with pytest.raises(StorageError, match="use the version that wrote it"):
        machine.restore(name=name)
    with pytest.raises(StorageError, match="use the version that wrote it"):
        machine.restore()
    segments = [path for path in machine.files.paths() if path.suffix == ".log" and FOLDER in path.parents]
    made = [machine.back_up(keep=1) for _ in range(3)]
    assert made[0].notes
    assert {path for path in machine.files.paths() if path.suffix == ".log"} >= set(segments)


def test_a_folder_of_another_data_directory_is_refused(machine: Machine) -> None:
    machine.back_up()
    other = Machine()
    other.files = machine.files
    other.disk._root.names["other"] = other.disk._root.names["data"]
    machine.disk._root.names["other"] = other.disk._root.names["data"]
    with pytest.raises(StorageError, match="has backups of another data directory"):
        creating.create(machine.files, Path("/other"), FOLDER)
    other.hand.store.close()


def test_a_folder_with_other_files_is_refused(machine: Machine) -> None:
    machine.files.mkdir(FOLDER)
    machine.files.close(machine.files.open(FOLDER / "letter", create=True))
    with pytest.raises(StorageError, match="is not a backup folder: it has 'letter'"):
        machine.back_up()
    assert machine.files.listdir(FOLDER) == ["letter"]


def test_a_damaged_format_file_is_written_again(machine: Machine) -> None:
    machine.back_up()
    machine.files.damage(FOLDER / "backup.json", lambda data: data.clear())
    machine.back_up()
    assert catalog.unseal(read_file(machine.files, FOLDER / "backup.json"))


def test_an_unreadable_manifest_is_named_and_nothing_is_removed(machine: Machine) -> None:
    machine.fill(300)
    names = [machine.back_up().manifest.name for _ in range(2)]
    machine.files.damage(machine.folder.path_of(names[0]) / "manifest.json", lambda data: data.clear())
    manifests, errors = machine.folder.manifests()
    assert [each.name for each in manifests] == names[1:]
    assert names[0] in str(errors[0])
    count = len(machine.files.paths())
    machine.folder.remove_all([names[0]])
    assert len(machine.files.paths()) < count
    assert not check(machine.folder).faults


def test_the_removal_of_all_backups_leaves_no_segment(machine: Machine) -> None:
    machine.fill(300)
    names = [machine.back_up().manifest.name for _ in range(2)]
    assert machine.folder.remove_all(names[:1]) == names[1:]
    assert not check(machine.folder).faults
    assert machine.folder.remove_all(names[1:]) == []
    assert not [path for path in machine.files.paths() if path.suffix == ".log" and FOLDER in path.parents]
    machine.back_up()


def test_space_is_kept_for_a_node_on_the_same_disk(machine: Machine) -> None:
    folder = machine.folder
    machine.files.mkdir(FOLDER)
    machine.files.space = RESERVE_BYTES * 2
    folder.has_room()
    machine.files.space = RESERVE_BYTES
    with pytest.raises(OSError, match="No space left"):
        folder.has_room()


def test_a_name_that_is_a_path_is_not_a_backup(machine: Machine) -> None:
    machine.back_up()
    for name in ("..", "../..", "/etc"):
        with pytest.raises(StorageError, match="has no backup"):
            machine.folder.manifest(name)


def test_what_a_killed_backup_left_is_removed_by_the_next(machine: Machine) -> None:
    machine.back_up()
    left = machine.folder.begin("killed")
    assert machine.files.is_dir(left)
    assert "killed" not in machine.folder.names()
    machine.back_up()
    assert not machine.files.is_dir(left)
    assert isinstance(machine.folder, Folder)
    assert machine.files.is_dir(ROOT)
