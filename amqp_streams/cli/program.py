"""The program `amqp-streams`: its commands, and how every one of them ends.

One law: **stdout is data, stderr is words**; exit status 0 done, 1 failed, 2 misuse, 130 interrupted. A reader of stdout that has
seen enough (`| head`) is no failure.
"""

import os
import sys
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
    "serve": "amqp_streams.cli.serve:serve",
    "log": "amqp_streams.cli.logs:log",
    "send": "amqp_streams.cli.send:send",
    "receive": "amqp_streams.cli.receive:receive",
    "info": "amqp_streams.cli.info:info",
    "cursor": "amqp_streams.cli.cursors:cursor",
    "group": "amqp_streams.cli.groups:group",
    "verify": "amqp_streams.cli.offline:verify",
    "dump": "amqp_streams.cli.offline:dump",
    "user": "amqp_streams.cli.users:user",
    "bench": "amqp_streams.cli.bench:bench",
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run the command that was named, and end with its status; only misuse that click finds passes through to it."""
        _open_standard_descriptors()
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _abandon_stdout()
            status = DONE
        except (AmqpStreamsError, OSError) as error:
            click.echo(f"amqp-streams: {str(error) or type(error).__doc__}", err=True)
            status = MISUSE if isinstance(error, ConfigError) else FAILED
        except (KeyboardInterrupt, click.Abort):
            status = INTERRUPTED
        ctx.exit(status if isinstance(status, int) else DONE)


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="amqp-streams")
def main() -> None:
    """An event stream engine: durable, partitioned event logs served over AMQP 1.0.

    \b
    A first minute:
      amqp-streams serve --data-dir data --log temps:4
      echo '20.5' | amqp-streams send temps --key kitchen
      amqp-streams receive temps
      amqp-streams info temps

    Commands that talk to a node find it by --url or AMQP_STREAMS_URL (amqp://127.0.0.1:5672 if neither is set).
    """


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
