"""The program `amqp-streams`: its commands, and how every one of them ends.

One law: **stdout is data, stderr is words** (with --json, an error is a line of JSON there); exit status 0 done, 1 failed,
2 misuse, 130 interrupted. A reader of stdout that has seen enough (`| head`) is not a failure.
"""

import json
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Final, NoReturn

import click

from amqp_streams import __version__
from amqp_streams.errors import AmqpStreamsError, ConfigError

DONE: Final = 0
FAILED: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130

# Each command's module is imported when the command is asked for: `--help` and a shell's completion stay quick.
_COMMANDS: Final = {
    "serve": "amqp_streams.cli.commands.serve:serve",
    "log": "amqp_streams.cli.commands.logs:log",
    "send": "amqp_streams.cli.commands.send:send",
    "receive": "amqp_streams.cli.commands.receive:receive",
    "info": "amqp_streams.cli.commands.info:info",
    "cursor": "amqp_streams.cli.commands.cursors:cursor",
    "group": "amqp_streams.cli.commands.groups:group",
    "verify": "amqp_streams.cli.commands.offline:verify",
    "dump": "amqp_streams.cli.commands.offline:dump",
    "user": "amqp_streams.cli.commands.users:user",
    "bench": "amqp_streams.cli.commands.bench:bench",
    "version": "amqp_streams.cli.program:version",
}
_SUMMARIES: Final = {
    "serve": "Run an event log node.",
    "log": "Create, list, describe, update and delete event logs.",
    "send": "Send events from stdin or files.",
    "receive": "Read events from an offset or a time on.",
    "info": "Show the partitions of a log: offsets, events, bytes, times.",
    "cursor": "List, move and remove the places that a node keeps for subscriptions.",
    "group": "List, describe, move and remove consumer groups.",
    "verify": "Check a data directory without the server.",
    "dump": "Show the stored records of a log without the server.",
    "user": "Manage the users file of a node.",
    "bench": "Measure rates and latency.",
    "version": "Show the version.",
}


class Program(click.Group):
    """The commands, imported when used, and one end for all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature, here and below
        """The commands in the order in which a newcomer meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        where = _COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for a command that does not exist."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run the command that was named, and end with its status; only misuse that click finds passes through to it."""
        _open_standard_descriptors()
        as_json = "--json" in (*ctx._protected_args, *ctx.args)
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _abandon_stdout()
            status = DONE
        except (AmqpStreamsError, OSError) as error:
            _complain(error, as_json=as_json)
            status = MISUSE if isinstance(error, ConfigError) else FAILED
        except (KeyboardInterrupt, click.Abort):
            status = INTERRUPTED
        ctx.exit(status if isinstance(status, int) else DONE)


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="amqp-streams")
@click.option("--url", metavar="URL", help="The node; the same as the --url of a command.")
def main(url: str | None) -> None:  # commands look it up (connection.py)
    """An event stream engine: durable, partitioned event logs served over AMQP 1.0.

    \b
    A first minute:
      amqp-streams serve --data-dir data --log temps:4
      echo '20.5' | amqp-streams send temps --key kitchen
      amqp-streams receive temps
      amqp-streams info temps

    Commands that talk to a node find it by --url or AMQP_STREAMS_URL (amqp://127.0.0.1:5672 if neither is set).
    """


@click.command()
def version() -> None:
    """Show the version.

    \b
    Examples:
      amqp-streams version
    """
    click.echo(__version__)


def _complain(error: BaseException, *, as_json: bool) -> None:
    """Say on stderr what went wrong; with --json as one line of JSON."""
    from amqp_streams.cli.terminal.wording import condition, sentence  # noqa: PLC0415  # loads the client

    words = sentence(error)
    click.echo(json.dumps({"error": words, "condition": condition(error)}) if as_json else f"amqp-streams: {words}", err=True)


def _open_standard_descriptors() -> None:
    """Whoever closed one of them (`>&-`) gets a hole there: otherwise a socket or a file of ours would be taken for it."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            assert nowhere == descriptor, "the lowest free descriptor is the one that was closed"
            setattr(sys, name, os.fdopen(nowhere, mode))


def _abandon_stdout() -> None:
    """Nobody reads stdout any more: let what is buffered go nowhere when the interpreter flushes it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
