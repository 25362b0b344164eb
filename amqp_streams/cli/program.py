"""The program `amqp-streams`: its commands and its errors.

With --json, an error is a line of JSON on stderr.
"""

from typing import Final

import click

from amqp_streams import __version__
from amqp_streams.errors import AmqpStreamsError, ConfigError
from service_parts.command_line.program import CONTEXT, Entry, Faults, Program
from service_parts.command_line.wording import json_line, printable_json

_NODE: Final = "node"

_COMMANDS: Final = {
    "serve": Entry("amqp_streams.cli.commands.serve:serve", "Run an event log node.", _NODE),
    "config": Entry("amqp_streams.cli.commands.config:config", "Show settings and their sources.", _NODE),
    "status": Entry(
        "amqp_streams.cli.commands.status:status", "Show whether a node is up and ready, its logs and disk."
    ),
    "log": Entry(
        "amqp_streams.cli.commands.logs:log", "Create, list, describe, update and delete event logs."
    ),
    "send": Entry("amqp_streams.cli.commands.send:send", "Send events from stdin or files."),
    "receive": Entry("amqp_streams.cli.commands.receive:receive", "Read events from an offset or a time on."),
    "info": Entry(
        "amqp_streams.cli.commands.info:info", "Show the partitions of a log: offsets, events, bytes, times."
    ),
    "cursor": Entry(
        "amqp_streams.cli.commands.cursors:cursor",
        "List, move and remove cursors of subscriptions and groups.",
    ),
    "group": Entry(
        "amqp_streams.cli.commands.groups:group", "List, describe, move and remove consumer groups."
    ),
    "connection": Entry(
        "amqp_streams.cli.commands.connections:connection", "List, describe and close connections of a node."
    ),
    "verify": Entry(
        "amqp_streams.cli.commands.offline:verify", "Check a data directory without a node.", _NODE
    ),
    "dump": Entry(
        "amqp_streams.cli.commands.offline:dump", "Show the stored records of a log without a node.", _NODE
    ),
    "repair": Entry(
        "amqp_streams.cli.commands.repair:repair", "Make a damaged data directory open again.", _NODE
    ),
    "backup": Entry(
        "amqp_streams.cli.commands.backups.backup:backup",
        "Back up the data of a node while it runs; list, check and remove backups.",
        _NODE,
    ),
    "restore": Entry(
        "amqp_streams.cli.commands.backups.restore:restore", "Make a data directory of a backup.", _NODE
    ),
    "user": Entry("amqp_streams.cli.commands.users:user", "Manage the users file of a node.", _NODE),
    "context": Entry("amqp_streams.cli.contexts:context", "Store connections under names, and choose one."),
    "bench": Entry("amqp_streams.cli.commands.bench:bench", "Measure rates and latency."),
    "console": Entry("web_console.command:console", "Run a web console for a node.", "console"),
    "version": Entry("amqp_streams.cli.program:version", "Show the version."),
}


def _complain(error: Exception, as_json: bool) -> None:  # as `Faults` calls it
    from amqp_streams.cli.terminal.wording import condition, sentence  # noqa: PLC0415  # loads the client

    words = sentence(error)
    click.echo(json_line(words, condition(error)) if as_json else f"amqp-streams: {words}", err=True)


@click.command(
    cls=Program,
    table=_COMMANDS,
    faults=Faults(failures=(AmqpStreamsError,), usage_errors=(ConfigError,), complain=_complain),
    context_settings=dict(CONTEXT),
)
@click.version_option(__version__, prog_name="amqp-streams")
@click.option("--url", metavar="URL", help="The node; the same as --url of a command.")
@click.option("--context", metavar="NAME", help="A stored connection; the same as --context of a command.")
def main(url: str | None, context: str | None) -> None:  # commands look them up (connection.py)
    """An event stream engine: durable, partitioned event logs served over AMQP 1.0.

    \b
    A first minute:
      amqp-streams serve --data-dir data --log temps:4
      echo '20.5' | amqp-streams send temps --key kitchen
      amqp-streams receive temps
      amqp-streams info temps

    Commands connect to the node in --url or AMQP_STREAMS_URL, or of a context ('amqp-streams context');
    otherwise to amqp://127.0.0.1:5672.
    """


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(*, as_json: bool) -> None:
    """Show the version.

    \b
    Examples:
      amqp-streams version
    """
    click.echo(printable_json({"version": __version__}) if as_json else __version__)
