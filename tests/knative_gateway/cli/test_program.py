"""The program: help that costs little, and how commands end."""

import json
from collections.abc import Iterator

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


def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that are not groups of commands, with their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name), command


COMMANDS = dict(commands(main))


def test_every_command_prints_json() -> None:
    """Except `serve` and `console`, which print nothing."""
    without = {
        words
        for words, command in COMMANDS.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {("console",), ("serve",)}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_and_usage_errors_in_json(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, [*words, "--help"]).output
    assert f"knative-gateway {words[0]}" in shown.partition("Example")[2]
    answer = CliRunner().invoke(main, [*words, "--no-such-flag", "--json"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "--no-such-flag" in json.loads(answer.stderr)["error"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["serve", "--listen", "nowhere"], 2, "'nowhere' is not a valid address"),
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
