"""Reading starts at the requested position, shows each event once, and ends at the requested end."""

import json

import pytest

from amqp_streams.cli.commands.receive import CONTAINER, filters_of
from amqp_streams.cli.copying import line_of, shown
from amqp_streams.cli.terminal.rendering import Format, Shown
from amqp_streams.client import EARLIEST, LATEST, AfterOffset, AfterTime, Event, ReceivedEvent, sql_filter
from amqp_streams.wire.codec import Described, Symbol
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import NOW_MS, FakeNode


@pytest.fixture
def filled(node: FakeNode) -> FakeNode:
    """Three events in partition 0, two in partition 1."""
    node.logs["temps"] = [[Event(b"a0", key="a"), Event(b"a1"), Event(b"a2")], [Event(b"b0"), Event(b"b1")]]
    return node


def test_all_existing_events_are_read_by_default(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--format", "body")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "a0\na1\na2\nb0\nb1\n", "")
    assert filled.opened == [{"log": "temps", "partition": None, "start": EARLIEST, "credit": 1000}]


def test_one_partition_is_read_alone(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--partition", "1").stdout == "b0\nb1\n"


def test_an_unknown_partition_is_a_usage_error_with_the_existing_ones(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--partition", "7")
    assert answer.exit_code == 2
    assert "its partitions are 0, 1" in answer.stderr


def test_reading_ends_before_an_offset_in_each_partition(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--until", "1").stdout == "a0\nb0\n"


def test_reading_ends_before_a_time(filled: FakeNode, run: Run) -> None:
    assert (
        run("receive", "temps", "--format", "body", "--until", str(NOW_MS + 2)).stdout == "a0\na1\nb0\nb1\n"
    )


def test_reading_ends_after_so_many_events(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--format", "body", "--max", "2").stdout == "a0\na1\n"
    assert filled.opened[0]["credit"] == 2


def test_an_empty_log_has_nothing_to_wait_for(node: FakeNode, run: Run) -> None:
    answer = run("receive", "temps")
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr == "nothing to read: temps has no event at all\n"
    assert not node.opened


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("99", "no event with offset 99 or a later one; 'amqp-streams info' shows the offsets"),
        (str(NOW_MS + 5), "no event stored at or after 2026-11-21T06:30:00.005Z"),
        ("latest", "no event after the latest one; wait for new ones with --follow"),
    ],
)
def test_a_start_after_the_last_event_is_reported(filled: FakeNode, run: Run, start: str, words: str) -> None:
    answer = run("receive", "temps", "--from", start)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (
        0,
        "",
        f"nothing to read: temps has {words}\n",
    )


@pytest.mark.parametrize(
    ("words", "count"),
    [((), "0 of 5 events"), (("--from", "1"), "0 of 3 events"), (("--from", str(NOW_MS)), "no event")],
)
def test_a_filter_that_nothing_passes_says_so_and_what_filters_see(
    filled: FakeNode, run: Run, words: tuple[str, ...], count: str
) -> None:
    filled.passes = lambda body: False
    answer = run("receive", "temps", "--where", "temp > 80", *words)
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert answer.stderr.startswith(
        f"{count} matched. A filter sees properties and annotations of events, not their bodies"
    )
    filled.passes = lambda body: True
    assert run("receive", "temps", "--where", "temp > 80").stderr == ""


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
def test_the_start_goes_to_the_node(filled: FakeNode, run: Run, words: list[str], start: object) -> None:
    run("receive", "temps", *words, "--timeout", "0.001")
    assert filled.opened[0]["start"] == start


def test_following_continues_until_nothing_came_for_a_time(filled: FakeNode, run: Run) -> None:
    answer = run(
        "receive", "temps", "--follow", "--from", "earliest", "--format", "body", "--timeout", "0.001"
    )
    assert answer.exit_code == 0
    assert answer.stdout == "a0\na1\na2\nb0\nb1\n"
    assert answer.stderr == "no event arrived for 0.001 s\n"


def test_an_end_that_is_not_reached_in_time_is_a_failure(filled: FakeNode, run: Run) -> None:
    """`$info` reports events that the node does not deliver."""
    assert run("receive", "temps", "--from", "1", "--timeout", "0.001").exit_code == 1


def test_following_to_a_moment_that_is_over_ends(filled: FakeNode, run: Run) -> None:
    answer = run(
        "receive", "temps", "--follow", "--from", "earliest", "--until", "time:1", "--format", "body"
    )
    assert (answer.exit_code, answer.stdout) == (0, "")


def test_json_lines_have_the_whole_event(filled: FakeNode, run: Run) -> None:
    filled.logs["temps"][0][0] = Event(
        b"\xff", key="k", subject="s", content_type="x/y", properties={"n": 1}, annotations={"x-note": "hi"}
    )
    first = json.loads(run("receive", "temps", "--format", "json").stdout.splitlines()[0])
    assert first == {
        "partition": "0",
        "offset": 0,
        "timestamp": "2026-11-21T06:30:00.000Z",
        "key": "k",
        "subject": "s",
        "content_type": "x/y",
        "properties": {"n": 1},
        "body_base64": "/w==",
        "annotations": {"x-note": "hi", "event-streams-group-key": "k"},
    }


def test_json_is_another_name_for_its_format(filled: FakeNode, run: Run) -> None:
    assert run("receive", "temps", "--json").stdout == run("receive", "temps", "--format", "json").stdout


def test_no_more_is_taken_out_of_an_event_than_its_form_shows(filled: FakeNode) -> None:
    event = filled.stored("temps", 0, 0)
    assert shown(event, Format.RAW) == Shown(None, None, None, body=b"a0")
    assert shown(event, Format.TEXT) == Shown("0", 0, NOW_MS, key="a", body=b"a0")


def test_a_message_that_cannot_be_decoded_is_shown_whole_and_reported(
    filled: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broken event must not stop all readers of the log."""
    placed = filled.stored("temps", 0, 0).message.removesuffix(filled.logs["temps"][0][0].encode())
    broken = (
        b"\x00\x53\x74\xc1\x04\x02\xa1\x01\xff\x40"  # application properties with a name that is not UTF-8
    )
    assert line_of(ReceivedEvent(placed + broken), Format.RAW) == broken
    assert capsys.readouterr().err.startswith("partition 0, offset 0: ")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--from", "yesterday"], "'--from'"),
        (["--until", "tomorrow"], "nor 'end'"),
        (["--max", "0"], "--max"),
        (["--format", "xml"], "--format"),
        (["--timeout", "0"], "--timeout"),
        (["--credit", "0"], "--credit"),
        (["--property", "kind"], "NAME=VALUE"),
        (["--epoch", "-1", "--partition", "0"], "--epoch"),
        (["--epoch", "1"], "needs --partition"),
        (["--durable", "x", "--until", "5"], "only 'end'"),
        (["--durable", "x", "--group", "y"], "cannot be used with --group"),
        (["--group", "x", "--until", "-1h"], "only 'end'"),
    ],
)
def test_a_usage_error_is_found_before_a_server_is_asked(
    node: FakeNode, run: Run, words: list[str], complaint: str
) -> None:
    answer = run("receive", "temps", *words)
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert not node.endpoints


# -- filters, groups, subscriptions


def test_filters_go_to_the_node_and_texts_are_not_patterns() -> None:
    assert filters_of(None, []) == {}
    assert filters_of("a = 1", [("kind", "alarm"), ("x", "&p:b")]) == {
        "where": sql_filter("a = 1"),
        "property": Described(Symbol("amqp:application-properties-filter"), {"kind": "alarm", "x": "&&p:b"}),
    }


def test_a_filtered_log_ends_when_the_node_reports_the_end(filled: FakeNode, run: Run) -> None:
    """The last events may not pass: waiting for the latest offset would be waiting forever."""
    filled.passes = lambda body: body in (b"a0", b"b0")
    filled.slow = 2
    answer = run("receive", "temps", "--where", "kind = 'alarm'", "--format", "body", "--timeout", "5")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "a0\nb0\n", "")
    assert filled.opened[0]["filters"] == {"where": sql_filter("kind = 'alarm'")}


def test_a_filter_goes_to_the_node_even_when_the_log_is_empty(node: FakeNode, run: Run) -> None:
    """A filter that is not valid is refused now, and not when the first event arrives."""
    node.passes = lambda body: False
    assert run("receive", "temps", "--where", "x IS").exit_code == 0
    assert len(node.opened) == 1


@pytest.mark.parametrize(("until", "shown"), [("2", "a0\n"), ("time:1795242600001", "a0\n")])
def test_following_a_filtered_log_to_an_end_stops_though_nothing_passes_there(
    filled: FakeNode, run: Run, until: str, shown: str
) -> None:
    """The given end is in the log, but the filter excludes it."""
    filled.passes = lambda body: body == b"a0"
    filled.slow = 1
    words = ("--where", "x = 1", "--from", "earliest", "--format", "body")
    answer = run("receive", "temps", "--follow", "--until", until, *words)
    assert (answer.exit_code, answer.stdout) == (0, shown)
    assert filled.slow == 0, "the node was asked whether there is more, until it knew"


def test_a_moment_that_is_over_does_not_end_what_is_still_being_searched(filled: FakeNode, run: Run) -> None:
    filled.passes = lambda body: body == b"a0"
    filled.slow = 3
    assert (
        run(
            "receive", "temps", "--until", "-1h", "--where", "x = 1", "--format", "body", "--from", "time:1"
        ).exit_code
        == 0
    )
    assert filled.slow == 0


def test_following_a_filtered_log_beyond_its_end_continues(filled: FakeNode, run: Run) -> None:
    filled.passes = lambda body: body == b"a0"
    words = ("--where", "x = 1", "--from", "earliest", "--format", "body", "--timeout", "0.001")
    answer = run("receive", "temps", "--follow", "--until", "3", *words)
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "a0\n", "no event arrived for 0.001 s\n")


def test_a_filtered_log_that_takes_too_long_is_a_failure(filled: FakeNode, run: Run) -> None:
    filled.passes = lambda body: False
    filled.slow = 1 << 30
    answer = run("receive", "temps", "--property", "a=b", "--timeout", "0.001")
    assert (answer.exit_code, answer.stderr) == (1, "no event arrived for 0.001 s\n")


def test_printed_events_of_a_subscription_are_settled(filled: FakeNode, run: Run) -> None:
    answer = run("receive", "temps", "--durable", "nightly", "--max", "2", "--format", "body")
    assert (answer.stdout, filled.settled) == ("a0\na1\n", [b"a0", b"a1"])
    assert filled.opened == [
        {
            "log": "temps",
            "partition": None,
            "start": EARLIEST,
            "credit": 2,
            "durable": "nightly",
            "settle": "manual",
        }
    ]
    assert filled.containers == [CONTAINER]


def test_nothing_is_settled_of_what_others_may_read_as_they_like(filled: FakeNode, run: Run) -> None:
    run("receive", "temps")
    assert filled.settled == []
    assert filled.containers == [None]


def test_a_subscription_is_followed_from_its_beginning_and_belongs_to_a_container(
    filled: FakeNode, run: Run
) -> None:
    run("receive", "temps", "--durable", "n", "--container-id", "reports", "--follow", "--timeout", "0.001")
    assert filled.opened[0]["start"] == EARLIEST
    assert filled.containers == ["reports"]


def test_a_member_of_a_group_asks_for_its_partition_and_epoch(filled: FakeNode, run: Run) -> None:
    answer = run(
        "receive", "temps", "--group", "billing", "--partition", "1", "--epoch", "7", "--format", "body"
    )
    assert (answer.exit_code, answer.stdout, filled.settled) == (0, "b0\nb1\n", [b"b0", b"b1"])
    (asked,) = filled.opened
    assert {key: asked[key] for key in ("group", "partition", "epoch", "durable", "settle")} == {
        "group": "billing", "partition": "1", "epoch": 7, "durable": "billing", "settle": "manual",
    }  # fmt: skip
    assert filled.containers == [None], "two members are two containers"
