"""A data directory is read in an order in which nothing accepted is missed, and nothing seems damaged."""

import io
from pathlib import Path

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.storage.backups.source import LogGoneError, Source, retried
from tests.amqp_streams.storage.backups.conftest import Machine
from tests.amqp_streams.storage.conftest import ROOT


def _opened(machine: Machine) -> list[Path]:
    """The files in the order in which they are opened."""
    paths: list[Path] = []

    def fault(operation: str, path: Path) -> int:
        if operation == "open":
            paths.append(path.relative_to(ROOT))
        return 0

    machine.files.fault = fault
    return paths


def test_states_are_read_before_the_journal_and_the_journal_before_logs(machine: Machine) -> None:
    """A position that is stored later may be beyond the events. A record that has left the journal is in a
    segment.
    """
    machine.fill(10)
    paths = _opened(machine)
    Source(machine.files, ROOT).start(io.BytesIO())
    first = {
        name: next(i for i, path in enumerate(paths) if name in path.parts) for name in ("states", "logs")
    }
    last = max(i for i, path in enumerate(paths) if path.parts[0] == "journal")
    assert first["states"] < next(i for i, path in enumerate(paths) if path.parts[0] == "journal")
    assert last < first["logs"]


def test_sizes_are_read_from_the_last_segment_on_and_after_the_index(machine: Machine) -> None:
    """If the last segment has bytes, the one before it is complete. An index that is read later may cover
    more than the sizes.
    """
    machine.fill(900)
    source = Source(machine.files, ROOT)
    start = source.start(io.BytesIO())
    log = next(log for log in start.logs if log.name == "temps")
    paths = _opened(machine)
    looked = source.look(log, 0, start)
    assert len(looked.seen) > 1
    segments = [path.stem for path in paths if path.suffix == ".log"]
    assert segments == sorted(segments, reverse=True)
    assert paths[0].suffix == ".idx"
    assert [seen.base for seen in looked.seen] == sorted(seen.base for seen in looked.seen)


def test_a_log_without_a_readable_file_costs_only_itself(machine: Machine) -> None:
    machine.fill(3, log="other")
    machine.hand.store.create("new", machine.hand.store.logs["temps"].settings, incarnation="n")
    machine.disk.damage(ROOT / "checkpoint.json", lambda data: data.clear())
    machine.disk.damage(ROOT / "logs" / "temps" / "log.json", lambda data: data.clear())
    made = machine.back_up()
    assert {log.name for log in made.manifest.logs} == {"other", "new"}
    assert any("logs/temps: log.json is missing or damaged" in words for words in made.manifest.damage)


def test_a_directory_of_a_later_version_is_refused(machine: Machine) -> None:
    path = ROOT / "format.json"
    machine.disk.damage(path, lambda data: data.__setitem__(slice(None), b'{"crc32":0,"content":{}}'))
    machine.disk.damage(ROOT / "checkpoint.json", lambda data: data.clear())
    with pytest.raises(StorageError):
        machine.back_up()


def test_a_look_is_repeated_while_the_log_exists() -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) < 3:
            raise FileNotFoundError

    retried(look, lambda: True, tries=3)
    assert len(looks) == 3
    looks.clear()
    with pytest.raises(FileNotFoundError):
        retried(look, lambda: True, tries=2)
    looks.clear()
    with pytest.raises(LogGoneError):
        retried(look, lambda: False, tries=2)
