"""`log copy` says what it did and where each cursor continues."""

import json
import uuid
from pathlib import Path

import pytest

from amqp_streams.cli.commands.log_copying import new_position
from amqp_streams.config import LogSettings
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.copying.copying import CopiedPartition
from amqp_streams.streams.consuming.cursors import group_key, link_key
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.storage.conftest import NOW, open_real

BODY = b"\x00\x53\x75\xa0\x04body"


def cursor(positions: dict[int, int], **names: str) -> bytes:
    next_ = {str(partition): position for partition, position in positions.items()}
    return json.dumps({"v": 1, **names, "next": next_, "user": "alice", "at": NOW}).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with a group and a durable link, and a group of another log."""
    hand = open_real(tmp_path / "data")
    settings = LogSettings(partitions=2, retention_ms=315_360_000_000)
    log = hand.store.create("temps", settings, incarnation="i")
    for partition in log.partitions:
        hand.write(partition, *[BODY] * 10)
    hand.keep(
        {
            group_key("i", "g").state: cursor({0: 4, 1: 10}, group="g"),
            link_key("i", "c", "l").state: cursor({1: 0}, container="c", link="l"),
            group_key("other", "g").state: cursor({0: 1}, group="g"),
        }
    )
    hand.store.close()
    return tmp_path / "data"


def test_a_position_behind_the_last_record_is_the_end() -> None:
    copied = CopiedPartition(0, extent=Extent(0, 12))
    copied.runs.add(3, range(9))
    assert [new_position(copied, old) for old in (0, 3, 11, 12)] == [0, 0, 8, 12]


def test_a_copy_is_described_and_cursors_get_their_new_positions(
    run: Run, kafka: Cluster, directory: Path, tmp_path: Path
) -> None:
    prefix, file = f"t{uuid.uuid4().hex[:12]}", tmp_path / "map.json"
    command = ["log", "copy", str(directory), "temps", "--map", str(file)]
    command += ["--kafka-servers", kafka.servers, "--kafka-prefix", prefix]
    topic = f"{prefix}.log.temps"
    planned = run(*command, "--dry-run")
    assert planned.stdout == (f"topic {topic} is created with 2 partitions; 2 cursors; nothing was changed\n")
    done = json.loads(run(*command, "--json").stdout)
    assert (done["events"], done["appended"], done["cursors"], done["damaged"]) == (20, 20, 2, [])
    assert done["partitions"][1] | {"kafka_end": 0} == {
        "partition": 1,
        "start": 0,
        "end": 10,
        "events": 10,
        "appended": 10,
        "kafka_start": 0,
        "kafka_end": 0,
    }
    end = done["partitions"][1]["kafka_end"]
    mapped = json.loads(file.read_text())
    assert (mapped["version"], mapped["log"], mapped["incarnation"], mapped["topic"]) == (
        1,
        "temps",
        "i",
        topic,
    )
    assert mapped["partitions"] == [
        {"partition": index, "records": 10, "runs": [[0, 0, 10]]} for index in (0, 1)
    ]
    by_group = {each["group"]: each for each in mapped["cursors"]}
    assert by_group["g"]["positions"] == [
        {"partition": 0, "log": 4, "kafka": 4},
        {"partition": 1, "log": 10, "kafka": end},
    ]
    assert (by_group[None]["container"], by_group[None]["link"], by_group[None]["user"]) == (
        "c",
        "l",
        "alice",
    )
    planned = run(*command, "--dry-run", "--json")
    assert json.loads(planned.stdout) == {
        "log": "temps",
        "topic": topic,
        "topic_exists": True,
        "partitions": 2,
        "cursors": 2,
    }
    again = run(*command)
    assert (again.exit_code, again.stdout.splitlines()[1].split()[:3]) == (0, ["0", "10", "0"])
    assert f"temps is in topic {topic}: 20 events compared" in again.stderr


def test_what_cannot_be_copied_is_said_before_anything_changes(run: Run, directory: Path) -> None:
    command = ["log", "copy", str(directory)]
    missing = run(*command, "nope", "--kafka-servers", "127.0.0.1:1")
    assert (missing.exit_code, "its logs are temps" in missing.stderr) == (2, True)
    without = run(*command, "temps")
    assert (without.exit_code, "give --kafka-servers or --config" in without.stderr) == (2, True)
    wrong = run(*command, "temps", "--kafka-servers", "127.0.0.1:1", "--kafka-prefix", "a_b")
    assert (wrong.exit_code, "'a_b' is not a valid prefix" in wrong.stderr) == (2, True)
    hand = open_real(directory)
    used = run(*command, "temps", "--kafka-servers", "127.0.0.1:1")
    assert (used.exit_code, "in use by process" in used.stderr) == (1, True)
    hand.store.close()
