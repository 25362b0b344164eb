"""Reading starts where it is told to, shows every event once, and ends where it should."""

import json

import pytest

from amqp_streams.cli.receive import line_of, shown
from amqp_streams.cli.rendering import Format, Shown
from amqp_streams.client import EARLIEST, LATEST, AfterOffset, AfterTime, Event, ReceivedEvent
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import NOW_MS, FakeNode


@pytest.fixture
def filled(node: FakeNode) -> FakeNode:
    """Three events in partition 0, two in partition 1."""
    node.logs["temps"] = [[Event(b"a0", key="a"), Event(b"a1"), Event(b"a2")], [Event(b"b0"), Event(b"b1")]]
    return node


def test_everything_there_is_is_read_by_default(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--format", "body")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "a0\na1\na2\nb0\nb1\n", "")
    assert filled.opened == [{"log": "temps", "partition": None, "start": EARLIEST, "credit": 1000}]


def test_one_partition_is_read_alone(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--partition", "1").stdout == "b0\nb1\n"


def test_an_unknown_partition_is_misuse_with_those_there_are(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--partition", "7")
    assert answer.exit_code == 2
    assert "there are 0, 1" in answer.stderr


def test_reading_ends_before_an_offset_in_each_partition(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--until", "1").stdout == "a0\nb0\n"


def test_reading_ends_before_a_time(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--until", str(NOW_MS + 2)).stdout == "a0\na1\nb0\nb1\n"


def test_reading_ends_after_so_many_events(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--max", "2").stdout == "a0\na1\n"
    assert filled.opened[0]["credit"] == 2


def test_an_empty_log_has_nothing_to_wait_for(node: FakeNode, run: Run) -> None:
    answer = run("receive", "temps")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert not node.opened


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--from", "1"], AfterOffset(0)),
        (["--from", "0000000000000001"], AfterOffset(0)),
        (["--from", str(NOW_MS + 1)], AfterTime(NOW_MS)),
        (["--from", "2026-11-21T06:30:00.001Z"], AfterTime(NOW_MS)),
        (["--from", "earliest", "--follow", "--timeout", "0.001"], EARLIEST),
        (["--follow", "--timeout", "0.001"], LATEST),
    ],
)
def test_the_place_to_start_at_goes_to_the_node(filled: FakeNode, run: Run, words: list[str], start: object) -> None:
    run("receive", "temps", *words, "--timeout", "0.001")
    assert filled.opened[0]["start"] == start


def test_following_goes_on_until_nothing_came_for_a_time(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--follow", "--from", "earliest", "--format", "body", "--timeout", "0.001")
    assert answer.exit_code == 0
    assert answer.stdout == "a0\na1\na2\nb0\nb1\n"
    assert answer.stderr == "nothing came for 0.001 s\n"


def test_an_end_that_is_not_reached_in_time_is_a_failure(filled: FakeNode, run: Run) -> None:
    """Events are there according to `$info`, but do not come."""
    assert run("receive", "temps", "--from", "1", "--timeout", "0.001").exit_code == 1


def test_following_to_a_moment_that_is_over_ends(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--follow", "--from", "earliest", "--until", "time:1", "--format", "body")
    assert (answer.exit_code, answer.stdout) == (0, "")


def test_json_lines_have_the_whole_event(filled: FakeNode, run: Run) -> None:
    filled.logs["temps"][0][0] = Event(b"\xff", key="k", subject="s", content_type="x/y", properties={"n": 1}, annotations={"x-note": "hi"})
    first = json.loads(run("receive", "temps", "--format", "json").stdout.splitlines()[0])
    assert first == {
        "partition": "0",
        "offset": "0000000000000000",
        "timestamp": "2026-11-21T06:30:00.000Z",
        "key": "k",
        "subject": "s",
        "content_type": "x/y",
        "properties": {"n": 1},
        "body_base64": "/w==",
        "annotations": {"x-note": "hi", "event-streams-group-key": "k"},
    }


def test_no_more_is_taken_out_of_an_event_than_its_form_shows(filled: FakeNode) -> None:
    event = filled.stored("temps", 0, 0)
    assert shown(event, Format.RAW) == Shown(None, None, None, body=b"a0")
    assert shown(event, Format.TEXT) == Shown("0", "0000000000000000", NOW_MS, key="a", body=b"a0")


def test_a_message_that_cannot_be_taken_apart_is_shown_whole_and_told(filled: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    """One broken event must not stop everybody who reads the log at its place."""
    placed = filled.stored("temps", 0, 0).message.removesuffix(filled.logs["temps"][0][0].encode())
    broken = b"\x00\x53\x74\xc1\x04\x02\xa1\x01\xff\x40"  # application properties with a name that is no UTF-8
    assert line_of(ReceivedEvent(placed + broken), Format.RAW) == broken
    assert capsys.readouterr().err.startswith("partition 0, offset 0000000000000000: ")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--from", "yesterday"], "'--from'"),
        (["--until", "tomorrow"], "nor 'end'"),
        (["--max", "0"], "--max"),
        (["--format", "xml"], "--format"),
        (["--timeout", "0"], "--timeout"),
        (["--credit", "0"], "--credit"),
    ],
)
def test_misuse_is_found_before_anybody_is_asked(node: FakeNode, run: Run, words: list[str], complaint: str) -> None:
    answer = run("receive", "temps", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not node.endpoints
