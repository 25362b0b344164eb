"""A repair makes a directory usable again, keeps everything that a checksum proves, and reports the
losses.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, DirectoryLockedError, StorageError
from amqp_streams.storage.catalog import UnknownFormatError, seal, unseal
from amqp_streams.storage.ports import Partition
from amqp_streams.storage.repairing import Action, Repaired, plan, repair
from tests.amqp_streams.storage.conftest import NOW, Hand, open_real, read_all

LOGS = ("first", "second")


@pytest.fixture
def written(tmp_path: Path) -> dict[str, list[bytes]]:
    """A directory of a killed node: two logs, cursors, and records that only the journal has."""
    hand = open_real(tmp_path / "alive", threads=False)
    messages: dict[str, list[bytes]] = {}
    for log in LOGS:
        hand.store.create(log, LogSettings(segment_bytes=64 << 10), incarnation=log)
        messages[log] = []
    for number in range(200):
        for log in LOGS:
            some = [b"%s %d" % (log.encode(), number) + b"." * 700]
            hand.store.logs[log].partitions[0].append(some, bytes(1), NOW)
            messages[log] += some
        hand.commit()
    hand.keep({f"cursor/{log}": b"1" for log in LOGS})
    shutil.copytree(tmp_path / "alive", tmp_path / "data")  # as a kill leaves it
    hand.store.close()
    return messages


@pytest.fixture
def directory(tmp_path: Path, written: dict[str, list[bytes]]) -> Path:
    return tmp_path / "data"


def _repaired(directory: Path) -> Repaired:
    return repair(plan(directory), name="now")


def _logs(hand: Hand) -> dict[str, list[bytes]]:
    return {name: read_all(log.partitions[0]) for name, log in hand.store.logs.items()}


def _opened(directory: Path) -> Hand:
    return open_real(directory)


def _bytes(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_directory_of_a_killed_node_needs_no_step_and_loses_nothing(
    directory: Path, written: dict[str, list[bytes]]
) -> None:
    before = _bytes(directory)
    planned = plan(directory)
    assert (list(planned.steps), list(planned.findings)) == ([], [])
    assert _bytes(directory) == before
    assert _repaired(directory) == Repaired(None, [], [])
    assert _logs(_opened(directory)) == written


def test_a_log_that_nothing_describes_is_moved_and_the_others_open(
    directory: Path, written: dict[str, list[bytes]]
) -> None:
    (directory / "checkpoint.json").unlink()
    (directory / "logs" / "first" / "log.json").write_bytes(b"{}")
    with pytest.raises(StorageError, match="amqp-streams repair"):
        _opened(directory)
    done = _repaired(directory)
    assert [(step.action, step.file, step.lost) for step in done.steps if step.lost] == [
        (Action.MOVE, "logs/first", True)
    ]
    assert any("logs/first" in words for words in done.lost)
    assert done.quarantine is not None
    # Everything of the log is kept, the journal with its latest records included.
    assert list((done.quarantine / "logs" / "first" / "0").glob("*.log"))
    assert list((done.quarantine / "journal").iterdir())
    report = unseal((done.quarantine / "report.json").read_bytes())
    assert report is not None
    assert report["lost"] == list(done.lost)
    assert _logs(_opened(directory)) == {"second": written["second"]}


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_the_id_of_the_directory_is_taken_from_the_states(
    directory: Path, written: dict[str, list[bytes]], damage: Callable[[Path], object]
) -> None:
    damage(directory / "format.json")
    damage(directory / "checkpoint.json")
    with pytest.raises(StorageError, match="amqp-streams repair"):
        _opened(directory)
    done = _repaired(directory)
    assert [step.action for step in done.steps] == [Action.WRITE]
    assert not done.lost
    hand = _opened(directory)
    assert _logs(hand) == written
    assert len(dict(hand.store.states.items("cursor/"))) == len(LOGS)


def test_without_any_trace_of_the_id_journal_and_states_are_moved(
    directory: Path, written: dict[str, list[bytes]]
) -> None:
    for name in ("format.json", "checkpoint.json", "states"):
        (directory / name).unlink()
    done = _repaired(directory)
    assert {step.file for step in done.steps if step.lost} == {"journal/0.journal", "journal/1.journal"}
    assert done.quarantine is not None
    assert (done.quarantine / "journal" / "0.journal").stat().st_size > 0
    found = _logs(_opened(directory))
    for log in LOGS:
        assert found[log] == written[log][: len(found[log])]


def test_states_of_another_directory_do_not_count_as_its_id(
    directory: Path, tmp_path: Path, written: dict[str, list[bytes]]
) -> None:
    other = open_real(tmp_path / "other")
    other.store.close()
    shutil.copyfile(tmp_path / "other" / "states", directory / "states")
    for name in ("format.json", "checkpoint.json"):
        (directory / name).unlink()
    done = _repaired(directory)
    assert {step.file for step in done.steps if step.action is Action.MOVE} == {
        "journal/0.journal",
        "journal/1.journal",
        "states",
    }
    _opened(directory)


def test_states_of_another_directory_are_moved(
    directory: Path, tmp_path: Path, written: dict[str, list[bytes]]
) -> None:
    other = open_real(tmp_path / "other")
    other.store.close()
    shutil.copyfile(tmp_path / "other" / "states", directory / "states")
    with pytest.raises(StorageError, match="belongs to another data directory"):
        _opened(directory)
    done = _repaired(directory)
    assert [step.file for step in done.steps] == ["states"]
    assert _logs(_opened(directory)) == written


def test_damaged_records_stay_refused_and_their_file_is_kept(
    directory: Path, written: dict[str, list[bytes]]
) -> None:
    path = min((directory / "logs" / "first" / "0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done = _repaired(directory)
    assert any("records" in words for words in done.lost)
    assert done.quarantine is not None
    assert (done.quarantine / path.relative_to(directory)).read_bytes() == data
    hand = _opened(directory)
    partition, refused, at = hand.store.logs["first"].partitions[0], 0, 0
    while at < partition.end:
        after = _refused_until(partition, at)
        if after is not None:
            refused += after - at
            at = after
            continue
        chunk = partition.read(at, 1 << 20)
        assert chunk is not None
        assert list(chunk.messages) == written["first"][at : at + len(chunk)]
        at += len(chunk)
    assert 0 < refused < len(written["first"])
    assert read_all(hand.store.logs["second"].partitions[0]) == written["second"]


def _refused_until(partition: Partition, at: int) -> int | None:
    """The next readable number if the record at `at` is refused."""
    try:
        partition.read(at, 1 << 20)
    except CorruptionError as error:
        return error.after
    return None


def test_a_directory_of_a_newer_version_is_not_touched(directory: Path) -> None:
    (directory / "format.json").write_bytes(seal({"format": 99, "id": "0" * 16}))
    before = _bytes(directory)
    with pytest.raises(UnknownFormatError, match="use the version that wrote the directory"):
        plan(directory)
    assert _bytes(directory) == before


def test_a_directory_that_a_node_uses_is_refused(directory: Path) -> None:
    hand = _opened(directory)
    with pytest.raises(DirectoryLockedError):
        plan(directory)
    hand.store.close()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a data directory"):
        plan(tmp_path)


def test_the_quarantine_is_not_reported_as_unknown_at_the_next_start(directory: Path) -> None:
    (directory / "checkpoint.json").unlink()
    (directory / "logs" / "first" / "log.json").unlink()
    _repaired(directory)
    hand = _opened(directory)
    assert not [finding for finding in hand.store.findings if "quarantine" in finding.file]  # type: ignore[attr-defined]
    assert json.loads((directory / "quarantine" / "now" / "report.json").read_text())["content"]["lost"]
