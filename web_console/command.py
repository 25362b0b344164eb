"""[io] `amqp-streams console`: a web console for a node."""

from typing import Final

import click

from amqp_streams.client.endpoints.address import parse_all
from amqp_streams.errors import ConfigError
from web_console.node import NODE
from web_console.options import Run, runs_console

_URL: Final = "amqp://127.0.0.1:5672"


@runs_console(
    NODE,
    click.option(
        "--url",
        envvar="AMQP_STREAMS_URL",
        metavar="URL",
        help=f"The node, without a user: people log in with their own.  [AMQP_STREAMS_URL; default: {_URL}]",
    ),
)
def console(url: str | None, run: Run) -> None:
    """Run a web console for a node.

    \b
    Examples:
      amqp-streams console
      amqp-streams console --url amqps://node.example:5671 --listen 0.0.0.0:8081 --allow-host console.example

    Each person logs in with a user of the node, and sees and changes what that user may.
    """
    # The flag of the program counts if the command has none, as with every command.
    url = url or click.get_current_context().find_root().params.get("url") or _URL
    try:
        addresses = parse_all(url)
    except ValueError as error:
        message = f"--url: {error}"
        raise ConfigError(message) from error
    if any(address.user is not None for address in addresses):
        # Everyone who opens the console would be this user.
        message = "--url: give the address of the node without a user: people log in with their own"
        raise ConfigError(message)
    run(url)
