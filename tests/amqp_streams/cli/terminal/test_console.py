"""People can read the tables, and programs that did not ask for JSON can split them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.terminal.console import (
    cell,
    human_bytes,
    human_duration,
    print_json,
    print_table,
    progress,
    say,
    stored_size,
)
from service_parts.settings.units import duration_ms


def test_a_table_is_never_shortened_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "EVENTS"), [("x" * 300, 1_234_567), ("y", None)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "EVENTS"]
    assert lines[1] == "x" * 300 + "  1,234,567"
    assert lines[2].split() == ["y", "-"]


def test_markup_and_control_characters_in_a_table_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [("[red]a\x1b[0m",)])
    assert capsys.readouterr().out == "NAME\n[red]a\\x1b[0m\n"


def test_control_characters_in_json_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"container": "a\x1b\x7f\x9b31mä\u202e\u2028"}
    print_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert shown == '{\n  "container": "a\\u001b\\u007f\\u009b31mä\\u202e\\u2028"\n}\n'


def test_an_empty_table_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [])
    assert capsys.readouterr().out == "NAME\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (True, "yes"), (False, "no"), (1234.5, "1,234.50"), (1234, "1,234"), ("a", "a")],
)
def test_cells_are_written_as_people_do(value: object, shown: str) -> None:
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10 << 30, "10.0 GiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes_are_shown_with_units(count: int, shown: str) -> None:
    assert human_bytes(count) == shown


@given(st.integers(0, 10**12))
def test_a_duration_is_shown_as_it_would_be_written(ms: int) -> None:
    assert duration_ms(human_duration(ms)) == ms


def test_words_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("done")
    assert capsys.readouterr() == ("", "done\n")


def test_a_progress_bar_is_not_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sending", 10) as advance:
        advance(5, note="half")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("size", "events", "shown"), [(0, 0, "0 B"), (0, 1, "-"), (2048, 1, "2.0 KiB")])
def test_a_size_that_the_node_does_not_know_is_a_dash(size: int, events: int, shown: str) -> None:
    """Kafka does not say how many bytes a partition has."""
    assert stored_size(size, events) == shown
