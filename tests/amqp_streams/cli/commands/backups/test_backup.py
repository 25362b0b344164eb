"""`amqp-streams backup` and `restore`: what they print, and with which exit status they end."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.client import Event
from amqp_streams.storage import inspect
from tests.amqp_streams.cli.commands.test_offline import NOW_MS, directory, opened
from tests.amqp_streams.cli.conftest import Run

__all__ = ["directory"]  # the fixture


@pytest.fixture(autouse=True)
def _umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command changes that of its process."""
    monkeypatch.delenv("AMQP_STREAMS_DATA_DIR", raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def folder(run: Run, directory: Path, tmp_path: Path) -> Path:
    """A folder with the backup `first`."""
    path = tmp_path / "backups"
    assert run("backup", "create", str(path), "--data-dir", str(directory), "--name", "first").exit_code == 0
    return path


def _events(path: Path) -> list[tuple[int, bytes]]:
    return [(record.number, record.message) for record in inspect.dump(path, "temps")]


def test_a_backup_of_an_open_directory_is_restored(run: Run, directory: Path, tmp_path: Path) -> None:
    folder, target = tmp_path / "backups", tmp_path / "restored"
    with opened(directory) as store:
        store.logs["temps"].partitions[0].append([Event(b"late").encode()], bytes(1), NOW_MS + 90_000)
        store.commit()
        done = run("backup", "create", str(folder), "--data-dir", str(directory), "--name", "now")
        assert (done.exit_code, done.stdout) == (0, "")
        assert "backup now: 52 events of 1 logs" in done.stderr
    restored = run("restore", str(folder), str(target))
    assert restored.exit_code == 0, restored.stderr
    assert "restored backup now of" in restored.stderr
    assert "52 events of 1 logs" in restored.stderr
    assert _events(target) == _events(directory)
    assert run("verify", str(target)).exit_code == 0


def test_the_output_for_programs_has_what_was_done(run: Run, directory: Path, folder: Path) -> None:
    document = json.loads(
        run("backup", "create", str(folder), "--data-dir", str(directory), "--keep", "1", "--json").stdout
    )
    assert document["ok"]
    assert document["events"] == 51
    assert document["copied_bytes"] == 0
    assert document["logs"] == ["temps"]
    listed = json.loads(run("backup", "list", str(folder), "--json").stdout)
    assert [each["name"] for each in listed["backups"]] == ["first", document["name"]]
    checked = json.loads(run("backup", "verify", str(folder), "--json").stdout)
    assert checked["ok"]
    assert checked["whole"] == ["first", document["name"]]


def test_a_list_is_a_table(run: Run, folder: Path) -> None:
    shown = run("backup", "list", str(folder)).stdout
    assert shown.splitlines()[0].split() == ["NAME", "BEGAN", "LOGS", "EVENTS", "SIZE", "STATE"]
    assert shown.splitlines()[1].split()[0] == "first"


def test_damage_of_the_backup_ends_verify_with_1(run: Run, folder: Path) -> None:
    assert run("backup", "verify", str(folder)).exit_code == 0
    path = folder / "backups" / "first" / "states"
    path.write_bytes(path.read_bytes()[:-1])
    done = run("backup", "verify", str(folder))
    assert done.exit_code == 1
    assert "damage: backups/first/states: has" in done.stdout
    assert "whole: none" in done.stdout
    (folder / "backups" / "first" / "manifest.json").write_text("{}")
    assert run("backup", "list", str(folder)).exit_code == 1


def test_a_damaged_segment_is_set_aside_on_request(run: Run, folder: Path, directory: Path) -> None:
    [path] = folder.glob("segments/*/0/*.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert "use --set-aside, and make a new backup" in run("backup", "verify", str(folder)).stderr
    done = run("backup", "verify", str(folder), "--set-aside")
    assert (done.exit_code, path.exists()) == (1, False)
    assert "set aside 1 segments" in done.stderr
    made = run("backup", "create", str(folder), "--data-dir", str(directory), "--name", "second", "--json")
    assert json.loads(made.stdout)["copied_bytes"] > 0
    checked = json.loads(run("backup", "verify", str(folder), "--json").stdout)
    assert checked["whole"] == ["second"]


def test_damage_of_the_data_directory_ends_create_with_1(run: Run, directory: Path, tmp_path: Path) -> None:
    path = directory / "logs" / "temps" / "0" / f"{0:016d}.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    done = run("backup", "create", str(tmp_path / "new"), "--data-dir", str(directory))
    assert done.exit_code == 1
    assert "logs/temps/0: 10 records in its segments are damaged" in done.stderr
    assert "the data directory has damage" in done.stderr
    assert run("backup", "verify", str(tmp_path / "new")).exit_code == 0


def test_the_directory_is_that_of_the_node_s_configuration(
    run: Run, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = tmp_path / "node.toml", tmp_path / "backups"
    config.write_text(f'data_dir = "{directory}"\n')
    assert run("backup", "create", str(folder), "--config", str(config)).exit_code == 0
    monkeypatch.setenv("AMQP_STREAMS_DATA_DIR", str(directory))
    assert run("backup", "create", str(folder)).exit_code == 0
    assert len(json.loads(run("backup", "list", str(folder), "--json").stdout)["backups"]) == 2
    monkeypatch.delenv("AMQP_STREAMS_DATA_DIR")
    refused = run("backup", "create", str(folder))
    assert refused.exit_code == 2
    assert "data_dir is not set" in refused.stderr


def test_a_node_on_kafka_is_refused(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('store = "kafka"\n[kafka]\nservers = ["127.0.0.1:9092"]\n')
    refused = run("backup", "create", str(tmp_path / "backups"), "--config", str(config))
    assert refused.exit_code == 2
    assert "back up the topics of the cluster with the tools of Kafka" in refused.stderr
    assert not (tmp_path / "backups").exists()


def test_only_the_user_of_the_node_can_read_a_backup(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_removal_asks_first(run: Run, folder: Path) -> None:
    refused = run("backup", "remove", str(folder), "first", stdin="n\n")
    assert refused.exit_code == 1
    assert "nothing was removed" in refused.stderr
    unknown = run("backup", "remove", str(folder), "second", "--yes")
    assert unknown.exit_code == 1
    assert "no backup 'second'; its backups are first" in unknown.stderr
    done = run("backup", "remove", str(folder), "first", "--yes", "--json")
    assert json.loads(done.stdout) == {"removed": ["first"], "backups": []}
    assert not list(folder.rglob("*.log"))


def test_a_restore_replaces_only_if_it_is_asked_to(run: Run, folder: Path, directory: Path) -> None:
    refused = run("restore", str(folder), str(directory))
    assert refused.exit_code == 1
    assert "is not empty" in refused.stderr
    done = run("restore", str(folder), str(directory), "--replace", "--log", "temps", "--json")
    document = json.loads(done.stdout)
    assert document["events"] == 51
    assert (Path(document["moved_to"]) / "logs" / "temps").is_dir()
    assert run("verify", str(directory)).exit_code == 0
    again = run("restore", str(folder), str(directory), "--replace")
    assert "what" in again.stderr
    assert "had before is in" in again.stderr


@pytest.mark.parametrize(("rate", "status"), [("10KiB", 2), ("fast", 2), ("unlimited", 0), ("64KiB", 0)])
def test_a_rate_is_a_size_or_unlimited(run: Run, folder: Path, rate: str, status: int) -> None:
    assert run("backup", "verify", str(folder), "--rate", rate).exit_code == status


def test_a_directory_that_does_not_exist_is_named(run: Run, tmp_path: Path) -> None:
    refused = run("backup", "create", str(tmp_path / "b"), "--data-dir", str(tmp_path / "none"), "--json")
    assert refused.exit_code == 1
    assert "is not a data directory" in json.loads(refused.stderr)["error"]
