"""`amqp-streams repair` shows its plan before it changes anything, and its exit status shows whether data is
lost.
"""

import json
from pathlib import Path

import pytest

from tests.amqp_streams.cli.commands.test_offline import directory
from tests.amqp_streams.cli.conftest import Run

__all__ = ["directory"]  # the fixture


@pytest.fixture
def broken(directory: Path) -> Path:
    """A directory without the two files that know the log."""
    (directory / "checkpoint.json").unlink()
    (directory / "logs" / "temps" / "log.json").unlink()
    return directory


def test_a_sound_directory_needs_nothing(run: Run, directory: Path) -> None:
    assert run("repair", str(directory), "--dry-run").stdout == "no damage; the next start needs no repair\n"
    done = run("repair", str(directory))
    assert (done.exit_code, done.stdout) == (0, "the directory opens; nothing is lost\n")


def test_a_dry_run_shows_the_steps_and_changes_nothing(run: Run, broken: Path) -> None:
    shown = run("repair", str(broken), "--dry-run")
    assert shown.exit_code == 1
    assert "move to the quarantine: logs/temps: log.json is missing or damaged" in shown.stdout
    assert (broken / "logs" / "temps").is_dir()
    document = json.loads(run("repair", str(broken), "--dry-run", "--json").stdout)
    assert {step["file"] for step in document["steps"]} >= {"logs/temps"}


def test_a_repair_asks_first(run: Run, broken: Path) -> None:
    refused = run("repair", str(broken), stdin="n\n")
    assert refused.exit_code == 1
    assert "nothing was changed" in refused.stderr
    assert (broken / "logs" / "temps").is_dir()


def test_a_repair_names_what_is_lost_and_where_it_is(run: Run, broken: Path) -> None:
    done = run("repair", str(broken), "--yes", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert not document["ok"]
    assert (Path(document["quarantine"]) / "logs" / "temps").is_dir()
    again = run("repair", str(broken))
    assert (again.exit_code, again.stdout) == (0, "the directory opens; nothing is lost\n")
