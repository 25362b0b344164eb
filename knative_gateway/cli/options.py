"""The common flags of commands: the gateway and the namespace."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from knative_gateway.cli.client import Client

SERVER: Final = "http://127.0.0.1:8080"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def asks_gateway(command: Callable[..., int]) -> Callable[..., int]:
    """Add the flags of `server_options`, and call the command with a `client`."""

    @wraps(command)
    def run(*, server: str, token: str | None, ca: Path | None, **given: Any) -> int:
        return command(client=Client(server, token, ca), **given)

    return server_options(run)


def server_options(command: _Command) -> _Command:
    """Add `--server`, `--token` and `--ca`."""
    for option in (
        click.option(
            "--ca",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Certificate authorities of the server, PEM.",
        ),
        click.option(
            "--token",
            metavar="TOKEN",
            envvar="KNATIVE_GATEWAY_TOKEN",
            help="A bearer token.  [KNATIVE_GATEWAY_TOKEN]",
        ),
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


def namespace_option(command: _Command) -> _Command:
    """Add `--namespace`."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="The namespace of objects without one.  [default: default]",
    )(command)
