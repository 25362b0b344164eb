"""Every command has a help. A usage error ends with 2, a failure with 1, an interruption with 130, and
messages never go to stdout.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner

from amqp_streams import __version__
from amqp_streams.cli import main
from amqp_streams.errors import AmqpStreamsError, ConfigError

RUNNER = CliRunner()


def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)


COMMANDS = dict(commands(main))


def test_all_commands_are_there() -> None:
    assert {words[0] for words in COMMANDS} == {
        "serve", "log", "send", "receive", "info", "cursor", "group", "verify", "dump", "repair", "user",
        "backup", "bench", "connection", "console", "restore", "context", "config", "status", "version",
    }  # fmt: skip
    assert {words[1] for words in COMMANDS if words[0] == "log" and len(words) > 1} == {
        "create",
        "list",
        "describe",
        "update",
        "delete",
        "copy",
    }
    assert {words[1] for words in COMMANDS if words[0] == "cursor" and len(words) > 1} == {
        "list",
        "reset",
        "remove",
    }
    assert {words[1] for words in COMMANDS if words[0] == "group" and len(words) > 1} == {
        "list",
        "describe",
        "reset",
        "remove",
    }
    assert {words[1] for words in COMMANDS if words[0] == "user" and len(words) > 1} == {
        "add",
        "remove",
        "list",
    }
    assert {words[1] for words in COMMANDS if words[0] == "bench" and len(words) > 1} == {
        "produce",
        "consume",
        "latency",
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_examples(words: tuple[str, ...]) -> None:
    answer = RUNNER.invoke(main, [*words, "--help"])
    assert answer.exit_code == 0
    assert f"amqp-streams {words[0]}" in answer.stdout.partition("Examples:")[2]
    for parameter in COMMANDS[words].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} is explained"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_unknown_flag_is_a_usage_error(words: tuple[str, ...]) -> None:
    answer = RUNNER.invoke(main, [*words, "--no-such-flag"])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert "--no-such-flag" in answer.stderr


def test_every_command_prints_json() -> None:
    """Except commands of other commands, and services, which print nothing."""
    without = {
        words
        for words, command in COMMANDS.items()
        if not isinstance(command, click.Group)
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {("serve",), ("console",)}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_usage_error_is_a_line_of_json(words: tuple[str, ...]) -> None:
    answer = RUNNER.invoke(main, [*words, "--no-such-flag", "--json"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert json.loads(answer.stderr)["condition"] is None
    assert "--no-such-flag" in json.loads(answer.stderr)["error"]


def test_the_program_shows_its_version_and_lists_its_commands() -> None:
    assert RUNNER.invoke(main, ["version"]).stdout == f"{__version__}\n"
    assert RUNNER.invoke(main, ["--version"]).stdout == f"amqp-streams, version {__version__}\n"
    assert json.loads(RUNNER.invoke(main, ["version", "--json"]).stdout) == {"version": __version__}
    listed = RUNNER.invoke(main, ["--help"])
    assert listed.exit_code == 0
    assert all(f"  {words[0]} " in listed.stdout for words in COMMANDS)


def test_an_unknown_command_is_a_usage_error() -> None:
    answer = RUNNER.invoke(main, ["sned"])
    assert answer.exit_code == 2
    assert "No such command 'sned'. Did you mean 'send'?" in answer.stderr
    assert RUNNER.invoke(main, ["xyz"]).stderr.endswith("No such command 'xyz'.\n")


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int | None], object]:
    """Run a command that ends like this."""

    def run(end: BaseException | int | None) -> object:
        @click.command()
        def command() -> int | None:
            if isinstance(end, BaseException):
                raise end
            return end

        monkeypatch.setattr(type(main), "get_command", lambda *_: command)
        return RUNNER.invoke(main, ["anything"])

    return run


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (1, 1, ""),
        (AmqpStreamsError("the log is gone"), 1, "amqp-streams: the log is gone\n"),
        (ConfigError("no such setting"), 2, "amqp-streams: no such setting\n"),
        (OSError(2, "No such file", "x"), 1, "amqp-streams: x: No such file\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
    ],
)
def test_how_a_command_ends_decides_the_status(
    ending: Callable[[BaseException | int | None], click.testing.Result],
    end: BaseException | int | None,
    status: int,
    words: str,
) -> None:
    answer = ending(end)
    assert (answer.exit_code, answer.stderr, answer.stdout) == (status, words, "")


def test_an_error_without_a_message_is_reported_by_its_type(
    ending: Callable[[BaseException], click.testing.Result],
) -> None:
    assert "Root of all errors" in ending(AmqpStreamsError()).stderr


def test_a_fault_of_our_own_is_not_dressed_up(
    ending: Callable[[BaseException], click.testing.Result],
) -> None:
    assert isinstance(ending(AssertionError("broken")).exception, AssertionError)


def test_help_does_not_load_the_server_nor_the_client() -> None:
    """A shell's completion and the help must not wait until Proton is loaded."""
    check = (
        "import sys; from amqp_streams.cli import main; print(sorted(m for m in sys.modules if"
        " m.startswith(('proton', 'uvloop', 'rich'))))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_descriptor_does_not_matter(closed: str) -> None:
    """The next file that a program opens would get the number of stdout, and the output would be written into
    the file.
    """
    command = f'"{sys.executable}" -m amqp_streams.cli receive amqp://127.0.0.1:1/temps {closed}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr in {
        "",
        (
            "amqp-streams: amqp://127.0.0.1:1: nothing listens there. Is a node running ('amqp-streams"
            " serve'), and is --url right?\n"
        ),
    }
