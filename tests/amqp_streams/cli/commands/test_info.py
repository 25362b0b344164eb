"""`info` shows the facts about a log, for people and for programs."""

import json

from amqp_streams.client import Event
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


def test_people_see_a_line_and_a_table(node: FakeNode, run: Run) -> None:
    node.logs["temps"][1] = [Event(b"a"), Event(b"b")]
    answer = run("info", "temps")
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert lines[0] == "temps: 2 partitions, 2 events, 200 B; kept forever; sync always"
    assert lines[1].split() == [
        "PARTITION",
        "EARLIEST",
        "LATEST",
        "EVENTS",
        "BYTES",
        "FIRST",
        "LAST",
        "STATE",
    ]
    assert lines[2].split() == ["0", "-", "-", "0", "0", "B", "-", "-", "running"]
    assert lines[3].split()[:4] == ["1", "0", "1", "2"]


def test_bounds_of_retention_are_shown(node: FakeNode, run: Run) -> None:
    node.settings["temps"] = {"retention-ms": 604_800_000, "retention-bytes": 10 << 30}
    assert "kept 7d, at most 10.0 GiB a partition" in run("info", "temps").stdout


def test_the_names_of_the_json_are_stable(node: FakeNode, run: Run) -> None:
    node.logs["temps"] = [[Event(b"a")]]
    assert json.loads(run("info", "temps", "--json").stdout) == {
        "log": "temps",
        "incarnation": "i1",
        "retention_ms": None,
        "retention_bytes": None,
        "segment_bytes": 1 << 27,
        "segment_ms": None,
        "compression": None,
        "sync": "always",
        "partitions": [
            {
                "partition": "0",
                "earliest_offset": 0,
                "latest_offset": 0,
                "event_count": 1,
                "bytes": 100,
                "first_timestamp": "2026-11-21T06:30:00.000Z",
                "last_timestamp": "2026-11-21T06:30:00.000Z",
                "state": "running",
            }
        ],
    }


def test_an_unknown_log_is_a_failure_in_the_nodes_words(node: FakeNode, run: Run) -> None:
    answer = run("info", "nope")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert (
        answer.stderr
        == "amqp-streams: no log named 'nope'; see 'amqp-streams log list', or create it: amqp-streams log"
        " create nope\n"
    )
