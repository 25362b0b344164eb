"""Damage of each kind of file in a backup folder is found, and named with the backups that need the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.storage.backups.checking import check, set_aside
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.backups.pool import segment_file
from tests.amqp_streams.storage.backups.conftest import FOLDER, Machine, content


@pytest.fixture
def two(machine: Machine) -> Machine:
    """Two backups, `first` and `second`, which share most segments."""
    machine.fill(500)
    machine.hand.keep({"cursor/of-temps/a": b"value"})
    machine.back_up(name="first")
    machine.now_ms += 1000
    machine.fill(20)
    machine.back_up(name="second")
    return machine


def _flip(data: bytearray) -> None:
    data[len(data) // 2] ^= 4


def _cut(data: bytearray) -> None:
    del data[-2:]  # the last byte of a manifest is the end of its line


def _zero(data: bytearray) -> None:
    data[:] = bytes(len(data))


def _all_files(machine: Machine) -> list[Path]:
    whole = FOLDER / "backup.json"
    return [
        path
        for path in machine.files.paths()
        if FOLDER in path.parents and path.name != "lock" and path != whole and machine.files.content(path)
    ]


def test_a_folder_without_damage_is_whole(two: Machine) -> None:
    steps: list[tuple[int, int]] = []
    found = check(two.folder, progress=lambda done, total: steps.append((done, total)))
    assert not found.faults
    assert found.whole == ["first", "second"]
    assert steps[-1] == (found.bytes, found.bytes)
    assert found.backups == 2


@pytest.mark.parametrize("change", [_flip, _cut, _zero], ids=["a bit", "a cut", "zeros"])
def test_a_change_of_any_file_is_found(two: Machine, change: Callable[[bytearray], None]) -> None:
    paths = _all_files(two)
    assert {path.name for path in paths} >= {"manifest.json", "states", "journal"}
    assert any(path.suffix == ".log" for path in paths)
    for path in paths:
        before = bytes(two.files.content(path))
        two.files.damage(path, change)
        found = check(two.folder)
        assert [fault.file for fault in found.faults] == [str(path.relative_to(FOLDER))], path
        assert set(found.whole).isdisjoint(found.faults[0].backups)
        two.files.damage(path, lambda data, before=before: data.__setitem__(slice(None), before))  # type: ignore[misc]  # a default
    assert not check(two.folder).faults


def test_a_missing_file_is_found(two: Machine) -> None:
    for path in _all_files(two):
        aside = path.with_name("aside")
        two.files.rename(path, aside)
        found = check(two.folder)
        assert [fault.file for fault in found.faults] == [str(path.relative_to(FOLDER))]
        two.files.rename(aside, path)


def test_damage_after_what_a_backup_needs_does_not_concern_it(two: Machine) -> None:
    first = {(key, piece.base): piece for key, piece in two.folder.manifest("first").pieces()}
    key, grown = next(
        (key, piece)
        for key, piece in two.folder.manifest("second").pieces()
        if (key, piece.base) in first and piece.bytes > first[key, piece.base].bytes
    )
    path = segment_file(FOLDER, key, grown.base, grown.version)
    two.files.damage(path, lambda data: data.__setitem__(-3, data[-3] ^ 1))
    found = check(two.folder)
    assert found.whole == ["first"]
    assert [fault.backups for fault in found.faults] == [("second",)]


def test_a_damaged_segment_that_is_set_aside_is_copied_again(two: Machine) -> None:
    path = next(path for path in _all_files(two) if path.suffix == ".log")
    two.files.damage(path, _flip)
    two.back_up(name="third")
    found = check(two.folder)
    assert not found.whole, "the third relies on the damaged file"
    assert set_aside(two.folder, found.faults) == [f"{path.relative_to(FOLDER)}.damaged"]
    two.back_up(name="fourth")
    assert check(two.folder).whole == ["fourth"]
    two.folder.remove_all(["first", "second", "third"])
    assert not check(two.folder).faults
    before = two.content()
    two.restore()
    hand = two.restored()
    assert content(hand) == before
    hand.store.close()


def test_other_damage_is_not_set_aside(two: Machine) -> None:
    two.files.damage(two.folder.path_of("first") / "states", _flip)
    assert set_aside(two.folder, check(two.folder).faults) == []
    assert check(two.folder).whole == ["second"]


def test_single_backups_can_be_checked(two: Machine) -> None:
    path = two.folder.path_of("first") / "states"
    two.files.damage(path, _flip)
    assert not check(two.folder, ["second"]).faults
    assert check(two.folder, ["first"]).faults[0].backups == ("first",)
    with pytest.raises(StorageError, match="no backup 'third'; its backups are first, second"):
        check(two.folder, ["third"])


def test_a_check_is_paced(two: Machine) -> None:
    slept: list[float] = []
    found = check(two.folder, pace=Pace(1000, clock=lambda: 0.0, sleep=slept.append))
    assert max(slept) > found.bytes / 1000 * 0.5


def test_a_folder_of_something_else_is_refused(machine: Machine) -> None:
    machine.files.mkdir(Path("/elsewhere"))
    with pytest.raises(StorageError, match="is not a backup folder"):
        check(Folder(machine.files, Path("/elsewhere")))
