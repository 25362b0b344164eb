"""A data directory is checked and shown without a server, and damage is reported, never skipped silently."""

import fcntl
import json
import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqp_streams.cli.commands.offline import shown
from amqp_streams.cli.terminal.rendering import Shown
from amqp_streams.client import Event
from amqp_streams.config import LogSettings, Sync
from amqp_streams.storage import DirectoryStore, Tuning
from amqp_streams.storage.inspect import DumpedRecord
from amqp_streams.storage.ports import Numbers
from tests.amqp_streams.cli.conftest import Run

NOW_MS = 1_795_242_600_000


@contextmanager
def opened(path: Path) -> Iterator[DirectoryStore]:
    """A store that does everything at once."""
    store = DirectoryStore.open(
        path,
        Sync(),
        loop_call=lambda call, *arguments: call(*arguments),
        tuning=Tuning(journal_bytes=1 << 20),
        threads=False,
    )
    yield store
    store.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Five batches of ten events in partition 0 of `temps`, one event in partition 1; batch n stored n
    seconds after `NOW_MS`.
    """
    path = tmp_path / "data"
    with opened(path) as store:
        store.create("temps", LogSettings(partitions=2), incarnation="i1")
    for batch in range(5):
        with opened(path) as store:
            messages = [Event(f"{batch}.{number}".encode(), key="k").encode() for number in range(10)]
            store.logs["temps"].partitions[0].append(messages, bytes(10), NOW_MS + batch * 1000)
            store.commit()
    with opened(path) as store:
        store.logs["temps"].partitions[1].append([Event(b"other").encode()], bytes(1), NOW_MS)
        store.commit()
    with opened(path):
        return path  # the journal holds nothing any more that could make damage good


@pytest.fixture
def damaged(directory: Path) -> Path:
    """The same with a byte of the second batch turned."""
    (segment,) = (directory / "logs" / "temps" / "0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"1.5")] ^= 0xFF
    segment.write_bytes(data)
    return directory


@pytest.fixture
def held(directory: Path) -> Iterator[Path]:
    """The same, locked as a node does."""
    (lock,) = [path for path in directory.iterdir() if "lock" in path.name]
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield directory


def test_a_sound_directory_is_reported_as_sound(run: Run, directory: Path) -> None:
    answer = run("verify", str(directory))
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith(
        "no damage; 0 warnings, 0 notes; 1 logs, 2 partitions, 2 segments, 51 records, "
    )


def test_the_names_of_the_json_are_stable(run: Run, directory: Path) -> None:
    found = json.loads(run("verify", str(directory), "--json").stdout)
    assert found.pop("bytes") > 0
    assert found == {
        "ok": True, "logs": 1, "partitions": 2, "segments": 2, "records": 51, "states": 0, "producers": 0,
        "notes": 0, "warnings": 0, "damages": 0, "findings": [],
    }  # fmt: skip


def test_damage_is_named_with_its_file_and_is_a_failure(run: Run, damaged: Path) -> None:
    answer = run("verify", str(damaged))
    assert answer.exit_code == 1
    assert answer.stdout.startswith("damage: logs/temps/0/")
    found = run("verify", str(damaged), "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["ok"] is False
    assert set(json.loads(found.stdout)["findings"][0]) == {"severity", "file", "position", "words"}


def test_a_directory_that_a_node_has_open_is_left_alone_unless_forced(run: Run, held: Path) -> None:
    for words in (["verify", str(held)], ["dump", str(held), "temps"]):
        answer = run(*words)
        assert (answer.exit_code, answer.stdout) == (1, "")
        assert "in use" in answer.stderr
        assert run(*words, "--force").exit_code == 0


def test_a_folder_of_another_program_is_a_failure(run: Run, tmp_path: Path) -> None:
    for words in (["verify", str(tmp_path)], ["dump", str(tmp_path), "temps"]):
        answer = run(*words)
        assert answer.exit_code == 1
        assert "not a data directory" in answer.stderr


def test_records_are_shown_a_line_each_partition_by_partition(run: Run, directory: Path) -> None:
    lines = run("dump", str(directory), "temps").stdout.splitlines()
    assert len(lines) == 51
    assert lines[0] == "0:0\t2026-11-21T06:30:00.000Z\tk\t0.0"
    assert lines[-1] == "1:0\t2026-11-21T06:30:00.000Z\t-\tother"


def test_a_json_line_is_that_of_receive(run: Run, directory: Path) -> None:
    assert json.loads(run("dump", str(directory), "temps", "--json", "--max", "1").stdout) == {
        "partition": "0",
        "offset": 0,
        "timestamp": "2026-11-21T06:30:00.000Z",
        "key": "k",
        "subject": None,
        "content_type": None,
        "properties": {},
        "body": "0.0",
        "annotations": {"event-streams-group-key": "k"},
    }


@pytest.mark.parametrize(
    ("words", "first", "count"),
    [
        (["--partition", "0"], "0.0", 50),
        (["--partition", "0", "--from", "42"], "4.2", 8),
        (["--partition", "0", "--from", "42", "--max", "3"], "4.2", 3),
        (["--from", "2026-11-21T06:30:02Z"], "2.0", 30),
        (["--from", "earliest", "--max", "7"], "0.0", 7),
        (["--partition", "1"], "other", 1),
    ],
)
def test_reading_starts_and_ends_where_the_options_say(
    run: Run, directory: Path, words: list[str], first: str, count: int
) -> None:
    lines = run("dump", str(directory), "temps", *words).stdout.splitlines()
    assert len(lines) == count
    assert lines[0].endswith(f"\t{first}")


def test_records_after_damage_are_shown_and_the_damage_reported(run: Run, damaged: Path) -> None:
    answer = run("dump", str(damaged), "temps", "--json")
    assert answer.exit_code == 1
    bodies = [json.loads(line)["body"] for line in answer.stdout.splitlines()]
    assert bodies == [f"{batch}.{number}" for batch in (0, 2, 3, 4) for number in range(10)] + ["other"]
    assert "10 to 19" in answer.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nope"], "no log named 'nope'"),
        (["temps", "--partition", "7"], "no partition 7 of log 'temps'"),
        (["temps", "--from", "yesterday"], "--from"),
        (["a/b"], "not a valid log name"),
        (["temps", "--max", "0"], "--max"),
    ],
)
def test_a_usage_error_is_named(run: Run, directory: Path, words: list[str], complaint: str) -> None:
    answer = run("dump", str(directory), *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr


def test_a_message_that_cannot_be_taken_apart_is_shown_whole() -> None:
    record = DumpedRecord(0, 7, 5, 0, b"\x00\x53\x75\xff")
    assert shown(record) == Shown("0", 7, 5, body=b"\x00\x53\x75\xff")


def test_looking_changes_nothing(run: Run, damaged: Path) -> None:
    def files() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in damaged.rglob("*")
            if path.is_file() and os.access(path, os.R_OK)
        }

    before = files()
    run("verify", str(damaged))
    run("dump", str(damaged), "temps")
    assert files() == before


def test_states_are_dumped_a_line_each_as_text_where_they_are_text(run: Run, directory: Path) -> None:
    with opened(directory) as store:
        store.states.write({"b\n": b'{"x":1}', "a": b"\x00\xff", "c": b"bell\x07"})
    answer = run("dump", str(directory), "--states")
    assert answer.stdout.splitlines() == ['"a"  00ff', '"b\\n"  "{\\"x\\":1}"', '"c"  62656c6c07']
    lines = [
        json.loads(line) for line in run("dump", str(directory), "--states", "--json").stdout.splitlines()
    ]
    assert lines[1] == {"key": "b\n", "value": '{"x":1}', "hex": b'{"x":1}'.hex()}
    assert json.loads(run("verify", str(directory), "--json").stdout)["states"] == 3


def test_dump_wants_a_log_or_states_and_not_both(run: Run, directory: Path) -> None:
    for arguments in ([], ["temps", "--states"]):
        answer = run("dump", str(directory), *arguments)
        assert answer.exit_code == 2
        assert "give the name of a log, or use --states" in answer.stderr


def test_producers_are_dumped_a_line_each(run: Run, directory: Path) -> None:
    with opened(directory) as store:
        store.allow_numbers()
        numbers = Numbers("meter\n7", array("Q", [41]))
        store.logs["temps"].partitions[1].append([Event(b"x").encode()], bytes(1), NOW_MS, numbers)
        store.commit()
    answer = run("dump", str(directory), "temps", "--producers")
    assert answer.stdout.splitlines() == ['1  "meter\\n7"  41  2026-11-21T06:30:00.000Z']
    answer = run("dump", str(directory), "temps", "--producers", "--partition", "1", "--json")
    assert json.loads(answer.stdout) == {
        "partition": 1,
        "producer": "meter\n7",
        "sequence": 41,
        "at_ms": NOW_MS,
    }
    assert json.loads(run("verify", str(directory), "--json").stdout)["producers"] == 1
    assert "no log named 'nope'" in run("dump", str(directory), "nope", "--producers").stderr
    assert "no partition 9" in run("dump", str(directory), "temps", "--producers", "--partition", "9").stderr


def test_damaged_states_are_reported_with_their_file(run: Run, directory: Path) -> None:
    with opened(directory) as store:
        for number in range(3):
            store.states.write({f"{number}": b"x"})
    data = bytearray((directory / "states").read_bytes())
    data[20] ^= 1
    (directory / "states").write_bytes(data)
    answer = run("verify", str(directory))
    assert answer.exit_code == 1
    assert answer.stdout.startswith("damage: states at byte 16: ")
