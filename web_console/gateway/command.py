"""[io] `knative-gateway console`: a web console for a gateway."""

from typing import Final

import click

from web_console.gateway.api import server_of
from web_console.gateway.product import GATEWAY
from web_console.options import Run, runs_console

_SERVER: Final = "http://127.0.0.1:8080"


@runs_console(
    GATEWAY,
    click.option(
        "--server",
        envvar="KNATIVE_GATEWAY_URL",
        default=_SERVER,
        metavar="URL",
        help=f"The gateway: people log in with their own token.  [KNATIVE_GATEWAY_URL; default: {_SERVER}]",
    ),
)
def console(server: str, run: Run) -> None:
    """Run a web console for a gateway.

    \b
    Examples:
      knative-gateway console
      knative-gateway console --server https://gateway.example --listen 0.0.0.0:8081 \\
        --allow-host console.example

    Each person logs in with a bearer token, and sees and changes what the gateway allows its user.
    """
    try:
        server_of(server)
    except ValueError as error:
        message = f"--server: {error}"
        raise click.UsageError(message) from error
    run(server.rstrip("/"))
