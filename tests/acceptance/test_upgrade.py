"""Directories that earlier versions wrote open without a finding, and continue where they were.

The archives in `directories/` are data directories as nodes left them at a kill -9: `format-1-first` is from
the first version with cursors of consumer groups, the others are from the versions that wrote formats 1 to 4.
Each has the log `temps` with 100 events in each of two partitions, a consumer group that accepted 50 events
of partition 0 (40, a restart, and 10 more), a subscription that accepted 25 events of partition 1, and the
log `other` whose last two events are in the journal only. From format 2 on, an idempotent producer
`meter` numbered the events of `temps`. From format 3 on, each tenth event of `temps` has message-format 7. In
format 4, the segments of `temps` are closed and compressed, and no event is in the journal only.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from amqp_streams.client import Event, connect
from amqp_streams.storage import inspect
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli, StartNode
from tools.extracting import extract

DIRECTORIES = Path(__file__).parent / "directories"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in DIRECTORIES.glob("*.tar.xz"))
EVENTS = 100
MESSAGE_FORMAT = 7


def _unpack(name: str, into: Path) -> Path:
    with tarfile.open(DIRECTORIES / f"{name}.tar.xz") as archive:
        extract(archive, into)
    return into


def _received(cli: Cli, node: NodeProcess, *arguments: str) -> list[dict[str, object]]:
    lines = cli(node, "receive", *arguments, "--format", "json").splitlines()
    return [json.loads(line) for line in lines]


def test_each_format_has_a_directory() -> None:
    assert {name.split("-")[1] for name in NAMES} == {"1", "2", "3", "4"}


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_version_has_no_damage(name: str, tmp_path: Path) -> None:
    counts = inspect.Verified()
    findings = list(inspect.verify(_unpack(name, tmp_path / "data"), counts=counts))
    assert not counts.damages, findings
    assert not counts.warnings, findings
    assert (counts.logs, counts.records) == (2, 2 * EVENTS + 5)
    assert counts.producers == (0 if name.startswith("format-1") else 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_node_continues_with_a_directory_of_an_earlier_version(
    name: str, tmp_path: Path, start_node: StartNode, cli: Cli
) -> None:
    _unpack(name, tmp_path / "node" / "data")
    node = start_node()
    for partition in range(2):
        events = _received(cli, node, "temps", "--partition", str(partition), "--from", "earliest")
        assert [(event["offset"], event["body"]) for event in events] == [
            (n, f"event {n} of partition {partition}") for n in range(EVENTS)
        ]
    other = _received(cli, node, "other", "--from", "earliest")
    assert [event["body"] for event in other] == ["one", "two", "three", "four", "five"]
    [group] = json.loads(cli(node, "group", "list", "temps", "--json"))["groups"]
    assert group["group"] == "readers"
    first = _received(cli, node, "temps", "--group", "readers", "--partition", "0", "--max", "1")
    assert [event["offset"] for event in first] == [50]
    first = _received(
        cli,
        node,
        "temps",
        "--durable",
        "nightly",
        "--container-id",
        "upgrade",
        "--partition",
        "1",
        "--max",
        "1",
    )
    assert [event["offset"] for event in first] == [25]
    cli(node, "send", "other", given="six\n")
    assert node.stop() == 0, node.words
    node.start()
    assert len(_received(cli, node, "other", "--from", "earliest")) == 6


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_a_backup_of_a_directory_of_an_earlier_version_is_a_way_back_to_it(
    name: str, tmp_path: Path, cli: Cli, start_node: StartNode
) -> None:
    """The restored directory has the format of the original, so the earlier version opens it."""
    data = _unpack(name, tmp_path / "node" / "data")
    folder, restored = tmp_path / "backups", tmp_path / "restored"
    made = _command("backup", "create", str(folder), "--data-dir", str(data), "--name", "before-upgrade")
    assert made["events"] == 2 * EVENTS + 5
    node = start_node()
    cli(node, "send", "other", given="after the upgrade\n")
    assert node.stop() == 0
    _command("restore", str(folder), str(restored), "--backup", "before-upgrade")
    number = json.loads((restored / "format.json").read_text())["content"]["format"]
    assert number == int(name.split("-")[1])
    counts = inspect.Verified()
    assert not list(inspect.verify(restored, counts=counts))
    assert (counts.logs, counts.records) == (2, 2 * EVENTS + 5)
    assert counts.producers == (0 if name.startswith("format-1") else 2)
    old = NodeProcess(tmp_path / "old")
    old.folder.mkdir()
    restored.rename(old.data_dir)
    with old:
        [group] = json.loads(cli(old, "group", "list", "temps", "--json"))["groups"]
        assert group["group"] == "readers"
        first = _received(cli, old, "temps", "--group", "readers", "--partition", "0", "--max", "1")
        assert [event["offset"] for event in first] == [50]


def _command(*words: str) -> dict[str, Any]:
    program = str(Path(sys.executable).parent / "amqp-streams")
    done = subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def test_a_known_producer_continues_its_numbers(tmp_path: Path, start_node: StartNode) -> None:
    data = _unpack("format-2", tmp_path / "node" / "data")
    assert _sequence(data) == EVENTS - 1
    node = start_node()
    async with (
        connect(node.url, container_id="upgrade") as connection,
        connection.producer("temps", partition="0", producer_id="meter") as producer,
    ):
        await producer.send(Event("after the upgrade"))
    assert node.stop() == 0, node.words
    assert _sequence(data) == 2 * EVENTS  # the client numbers the events of all partitions in one sequence


def _sequence(data: Path) -> int:
    """The highest number of the producer in partition 0."""
    [(_, table)] = inspect.dump_producers(data, "temps", partition=0)
    [reached] = table.values()
    return reached.sequence


def test_message_formats_are_kept(tmp_path: Path) -> None:
    directory = _unpack("format-3", tmp_path / "data")
    formats = [record.message_format for record in inspect.dump(directory, "temps", partition=0)]
    assert formats == [MESSAGE_FORMAT if n % 10 == 0 else 0 for n in range(EVENTS)]
