"""The flags by which a command finds a gateway."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

SERVER: Final = "http://127.0.0.1:8080"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def server_options(command: _Command) -> _Command:
    """`--server`, `--token`, `--ca`."""
    for option in (
        click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="Certificates, PEM, that the server's is checked with."),
        click.option("--token", metavar="TOKEN", envvar="KNATIVE_GATEWAY_TOKEN", help="A bearer token.  [KNATIVE_GATEWAY_TOKEN]"),
        click.option(
            "--server",
            default=SERVER,
            metavar="URL",
            envvar="KNATIVE_GATEWAY_URL",
            help=f"The gateway.  [KNATIVE_GATEWAY_URL, default: {SERVER}]",
        ),
    ):
        command = option(command)
    return command
