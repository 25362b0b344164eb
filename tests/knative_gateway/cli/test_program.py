"""The program: help that costs little, and how commands end."""

import click
import pytest
from click.testing import CliRunner

from knative_gateway.cli import main
from service_parts.command_line.program import Program


def test_help_lists_every_command() -> None:
    told = CliRunner().invoke(main, ["--help"]).output
    assert isinstance(main, Program)
    for name, entry in main.table.items():
        assert name in told
        assert entry.summary[:40] in told


def test_every_command_that_is_listed_is_there_and_explains_itself() -> None:
    for name in main.list_commands(click.Context(main)):
        done = CliRunner().invoke(main, [name, "--help"])
        assert done.exit_code == 0, done.output
        assert "Usage: main " + name in done.output


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["serve", "--listen", "nowhere"], 2, "'nowhere' is not HOST:PORT"),
        (["serve", "--amqp", "x"], 2, "amqp"),
        (["serve", "--config", "/none.toml"], 2, "cannot read"),
        (["nonsense"], 2, "No such command"),
        (["serve", "--state-dir", "/proc/none"], 2, "state_dir"),
    ],
)
def test_a_usage_error_is_reported_and_ends_with_2(arguments: list[str], status: int, words: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == status, done.output
    assert words in done.output
