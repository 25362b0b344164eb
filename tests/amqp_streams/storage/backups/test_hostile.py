"""A backup folder that another user prepared, or that has links, makes no command touch other files."""

from pathlib import Path
from typing import Any

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.backups import checking, creating, restoring
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.storage.disk.files import RealFiles
from tests.amqp_streams.storage.backups.conftest import FOLDER, Machine, give_away, on_disk
from tests.amqp_streams.storage.conftest import ROOT, SMALL


class Disk:
    """A data directory and its backup folder with one backup, as real files; and files of somebody else."""

    def __init__(self, machine: Machine, path: Path) -> None:
        machine.fill(300)
        self.first = machine.back_up().manifest.name
        self.data = on_disk(machine, ROOT, path / "data")
        self.folder = on_disk(machine, FOLDER, path / "backup")
        self.elsewhere = path / "elsewhere"
        self.elsewhere.mkdir()
        (self.elsewhere / "mine").write_text("mine")

    def back_up(self, **options: Any) -> creating.Made:
        made = creating.create(RealFiles(), self.data, self.folder, **options)
        self.is_untouched()
        return made

    def restore(self, target: Path, **options: Any) -> restoring.Restored:
        return restoring.restore(Folder(RealFiles(), self.folder), target, tuning=SMALL, **options)

    def is_untouched(self) -> None:
        assert [path.name for path in self.elsewhere.iterdir()] == ["mine"]
        assert (self.elsewhere / "mine").read_text() == "mine"

    def change(self, **changes: object) -> None:
        file = self.folder / "backups" / self.first / "manifest.json"
        content = catalog.unseal(file.read_bytes())
        assert content is not None
        file.write_bytes(catalog.seal(content | changes))

    def logs(self) -> list[Any]:
        content = catalog.unseal((self.folder / "backups" / self.first / "manifest.json").read_bytes())
        assert content is not None
        return list(content["logs"])

    @property
    def segment(self) -> Path:
        return min((self.folder / "segments").rglob("*.log"))


@pytest.fixture
def disk(machine: Machine, tmp_path: Path) -> Disk:
    return Disk(machine, tmp_path)


def test_a_folder_on_a_real_disk_is_backed_up_to_and_restored(disk: Disk, tmp_path: Path) -> None:
    assert not disk.back_up(name="again").copied
    assert (
        disk.restore(tmp_path / "restored", name="again").events == disk.restore(tmp_path / "two").events > 0
    )


@pytest.mark.parametrize("part", ["", "backups", "segments", "lock"])
def test_a_folder_of_another_user_is_refused_and_not_changed(
    disk: Disk, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (disk.folder / "lock").touch()
    give_away(disk.folder / part, monkeypatch)
    before = sorted(disk.folder.rglob("*"))
    folder = Folder(RealFiles(), disk.folder)
    with pytest.raises(
        StorageError, match=r"belongs to user \w+, and this command runs as .*: run it as user"
    ):
        disk.back_up(name="again")
    with pytest.raises(StorageError, match="run it as user"):
        folder.remove_all([disk.first])
    fault = checking.Fault(str(disk.segment.relative_to(disk.folder)), "is damaged", (disk.first,))
    with pytest.raises(StorageError, match="run it as user"):
        checking.set_aside(folder, [fault])
    assert sorted(disk.folder.rglob("*")) == before


def test_a_target_of_another_user_is_refused_and_not_changed(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "restored"
    target.mkdir()
    give_away(target, monkeypatch)
    with pytest.raises(StorageError, match=r"restored belongs to user .* run it as user"):
        disk.restore(target)
    assert not [*target.iterdir()]


def test_what_a_link_names_is_not_removed_with_a_backup(disk: Disk) -> None:
    (disk.folder / "backups" / "x.tmp").symlink_to(disk.elsewhere)
    (disk.folder / "backups" / "y.tmp").mkdir()
    (disk.folder / "backups" / "y.tmp" / "inner").symlink_to(disk.elsewhere)
    disk.back_up(name="again")
    assert sorted(path.name for path in (disk.folder / "backups").iterdir()) == sorted([disk.first, "again"])


def test_segments_are_not_removed_through_a_link(disk: Disk) -> None:
    folder = disk.elsewhere / "0"
    folder.mkdir()
    (folder / f"{0:016d}-1.log").write_text("mine")
    (disk.folder / "segments" / f"{7:016x}").symlink_to(disk.elsewhere)
    (disk.folder / "segments" / "letter").write_text("mine")
    Folder(RealFiles(), disk.folder).remove_all([disk.first])
    assert (folder / f"{0:016d}-1.log").read_text() == "mine"
    assert sorted(path.name for path in (disk.folder / "segments").iterdir()) == [f"{7:016x}", "letter"]


def test_a_segment_that_is_a_link_is_neither_read_nor_written(disk: Disk, tmp_path: Path) -> None:
    outside = disk.segment.rename(tmp_path / "outside.log")
    whole = outside.read_bytes()
    (disk.folder / "segments" / outside.name).unlink(missing_ok=True)
    [missing] = [fault.file for fault in checking.check(Folder(RealFiles(), disk.folder)).faults]
    (disk.folder / missing).symlink_to(outside)
    for command in (lambda: disk.back_up(name="again"), lambda: disk.restore(tmp_path / "restored")):
        with pytest.raises(StorageError, match="is a symbolic link, which is not followed here"):
            command()
    assert outside.read_bytes() == whole


@pytest.mark.parametrize("name", ["lock", "backup.json", "backup.json.tmp"])
def test_files_of_the_folder_that_are_links_are_not_followed(disk: Disk, name: str) -> None:
    (disk.folder / name).unlink(missing_ok=True)
    (disk.folder / "backup.json").unlink(missing_ok=True)
    (disk.folder / name).symlink_to(disk.elsewhere / "made")
    with pytest.raises(StorageError, match="is a symbolic link"):
        disk.back_up(name="again")
    disk.is_untouched()


@pytest.mark.parametrize(
    "version", ["1/../../../../elsewhere/mine", "1", -1, 1.5, True, None, 1 << 64], ids=repr
)
def test_a_version_that_is_not_a_number_makes_the_manifest_damaged(
    disk: Disk, version: object, tmp_path: Path
) -> None:
    logs = disk.logs()
    next(part for log in logs for part in log["partitions"] if part["segments"])["segments"][0][1] = version
    disk.change(logs=logs)
    with pytest.raises(StorageError, match="is damaged: use another backup"):
        disk.restore(tmp_path / "restored", name=disk.first)
    assert disk.back_up(name="again", keep=1).notes


@pytest.mark.parametrize("key", ["name", "uid"])
@pytest.mark.parametrize(
    "value", ["..", "../../elsewhere", "a/b", "/etc", "", 7, None, "-000000000000001"], ids=repr
)
def test_a_log_whose_name_or_uid_is_a_path_makes_the_manifest_damaged(
    disk: Disk, key: str, value: object, tmp_path: Path
) -> None:
    logs = disk.logs()
    logs[0]["log"][key] = value
    disk.change(logs=logs)
    with pytest.raises(StorageError, match="is damaged: use another backup"):
        disk.restore(tmp_path / "restored", name=disk.first)
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"directory": "no number"},
        {"directory": 7},
        {"name": 7},
        {"logs": [7]},
        {"logs": 7},
        {"states": ["1", 2]},
        {"journal": [1]},
        {"began_ms": float("inf")},
    ],
    ids=repr,
)
def test_other_content_makes_the_manifest_damaged(disk: Disk, changes: dict[str, object]) -> None:
    disk.change(**changes)
    with pytest.raises(StorageError, match="is damaged: use another backup"):
        Folder(RealFiles(), disk.folder).manifest(disk.first)


def test_a_log_with_invalid_settings_is_refused_before_the_target_exists(disk: Disk, tmp_path: Path) -> None:
    logs = disk.logs()
    logs[0]["log"]["settings"] = {"partitions": "many"}
    disk.change(logs=logs)
    with pytest.raises(StorageError, match="is damaged at log"):
        disk.restore(tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_format_file_with_another_id_is_taken_for_damaged(disk: Disk) -> None:
    known = Folder(RealFiles(), disk.folder).directory_id()
    (disk.folder / "backup.json").write_bytes(catalog.seal({"backup": 1, "directory": "no number"}))
    assert Folder(RealFiles(), disk.folder).directory_id() == known


def test_an_interrupted_restore_moves_nothing_to_another_folder(disk: Disk, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    disk.restore(target)
    marker = {"format": catalog.RESTORING, "aside": "../../elsewhere"}
    (target / "format.json").write_bytes(catalog.seal(marker))
    with pytest.raises(StorageError, match="is damaged: it names the folder"):
        disk.restore(target, replace=True)
    disk.is_untouched()


def test_only_a_backup_of_the_folder_is_removed(disk: Disk) -> None:
    with pytest.raises(StorageError, match="has no backup"):
        Folder(RealFiles(), disk.folder).remove_all(["../../elsewhere"])
    disk.is_untouched()
