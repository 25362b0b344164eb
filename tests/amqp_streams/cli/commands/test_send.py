"""The lines are sent as events with the intended fields, and refused ones are reported."""

import json
from pathlib import Path

import pytest

from amqp_streams.client import Event
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode
from tests.amqp_streams.decoded import binary


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """A file of three lines, the last without an end."""
    file = tmp_path / "lines.txt"
    file.write_bytes(b"a 1\nb 2\na 3")
    return str(file)


def bodies(node: FakeNode, partition: int = 0) -> list[object]:
    """The stored events."""
    return [event.body for event in node.logs["temps"][partition]]


def test_each_line_of_each_file_is_an_event_by_default(node: FakeNode, run: Run, lines: str) -> None:
    answer = run("send", "temps", lines, lines)
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert bodies(node) == [b"a 1", b"b 2", b"a 3"] * 2
    assert answer.stderr.startswith("6 sent, 6 accepted, 0 refused in ")


def test_keys_properties_and_types_are_put_on_all_events(node: FakeNode, run: Run, lines: str) -> None:
    run(
        "send",
        "temps",
        lines,
        "--key",
        "k",
        "--property",
        "site=lisbon",
        "--property",
        "x=",
        "--content-type",
        "text/plain",
        "--subject",
        "s",
    )
    assert node.logs["temps"][0][0] == Event(
        b"a 1", key="k", properties={"site": "lisbon", "x": ""}, content_type="text/plain", subject="s"
    )


def test_lines_without_a_key_are_counted(node: FakeNode, run: Run, lines: str) -> None:
    answer = run("send", "temps", lines, "--key-regex", "^(a)")
    assert [event.key for event in node.logs["temps"][0]] == ["a", None, "a"]
    assert "1 lines had no key" in answer.stderr


def test_a_partition_is_bound_and_the_window_is_passed_on(node: FakeNode, run: Run, lines: str) -> None:
    run("send", "temps", lines, "--partition", "1", "--window", "7")
    assert node.opened == [{"log": "temps", "partition": "1", "window": 7, "compression": None}]
    assert len(bodies(node, 1)) == 3


def test_compression_is_passed_on_and_needs_its_library(
    node: FakeNode, run: Run, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("send", "temps", lines, "--compression", "zstd").exit_code == 0
    assert node.opened[-1]["compression"] == "zstd"
    monkeypatch.setattr("amqp_streams.wire.batched.compression._codec", lambda name: None)
    answer = run("send", "temps", lines, "--compression", "lz4")
    assert answer.exit_code == 2
    assert "compression with lz4 needs the compression extra: pip install" in answer.stderr


def test_json_lines_choose_their_partitions_and_keep_their_order(
    node: FakeNode, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(
        "\n".join(json.dumps({"body": str(number), "partition": number % 2}) for number in range(6))
    )
    assert run("send", "temps", str(file), "--json-lines").exit_code == 0
    assert (bodies(node, 0), bodies(node, 1)) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])


def test_a_csv_file_with_line_ends_in_quotes_is_read_by_rows(
    node: FakeNode, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('date,note\r\n2010/01/01 00:00,"two\nlines"\r\n2010/01/02 00:00,one\r\n')
    assert run("send", "temps", str(file), "--csv", "--key-template", "{date:.10}").exit_code == 0
    assert [event.key for event in node.logs["temps"][0]] == ["2010/01/01", "2010/01/02"]
    assert json.loads(binary(bodies(node)[0]))["note"] == "two\nlines"


def test_each_file_has_a_header_of_its_own(node: FakeNode, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("y\n2\n")
    run("send", "temps", "--csv", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
    assert bodies(node) == [b'{"x": "1"}', b'{"y": "2"}']


def test_a_file_can_be_one_event_with_its_type(node: FakeNode, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\n\n")
    (tmp_path / "empty").write_bytes(b"")
    run("send", "temps", "--file", str(tmp_path / "a.png"), str(tmp_path / "empty"))
    assert node.logs["temps"][0] == [Event(b"\x89PNG\n\n", content_type="image/png"), Event(b"")]


def test_refused_events_are_a_failure_and_the_first_is_named(node: FakeNode, run: Run, lines: str) -> None:
    node.refuse = b"b 2"
    answer = run("send", "temps", lines, "--json")
    assert answer.exit_code == 1
    summary = json.loads(answer.stdout)
    assert summary.pop("seconds") >= 0
    assert summary == {
        "sent": 3,
        "accepted": 2,
        "refused": 1,
        "first_refusal": "amqp:not-allowed: not this one",
    }
    assert "the first refusal: amqp:not-allowed: not this one" in answer.stderr


def test_a_wrong_line_is_a_failure_that_says_where_and_how_far_it_came(
    node: FakeNode, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"body": "x"}\n{\n{"body": "y"}\n')
    answer = run("send", "temps", str(file), "--json-lines")
    assert answer.exit_code == 1
    assert f"{file}: line 2: not valid JSON" in answer.stderr
    assert "1 events were sent before" in answer.stderr
    assert bodies(node) == [b"x"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--key-column", "a"], "--csv"),
        (["--key-template", "{a}"], "--csv"),
        (["--csv", "--key-column", "a", "--key", "b"], "alternatives"),
        (["--key", "a", "--key-regex", "(b)"], "alternatives"),
        (["--file"], "--file needs FILES"),
        (["--key-regex", "("], "--key-regex"),
        (["--key-regex", "a"], "no group"),
        (["--property", "a"], "NAME=VALUE"),
        (["--window", "0"], "--window"),
        (["/nowhere/at/all"], "does not exist"),
    ],
)
def test_a_usage_error_is_found_before_anything_is_sent(
    node: FakeNode, run: Run, words: list[str], complaint: str
) -> None:
    answer = run("send", "temps", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not node.endpoints
