"""The common flags of commands: the gateway and the namespace."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from knative_gateway.cli.client import Client
from knative_gateway.cli.contexts import CONTEXTS
from service_parts.command_line.contexts.choosing import chosen, completed, given, merged
from service_parts.command_line.contexts.secrets import secret

SERVER: Final = "http://127.0.0.1:8080"
_DEFAULTS: Final = {"server": SERVER, "token": None, "ca": None, "namespace": None}
_Command = TypeVar("_Command", bound=Callable[..., Any])


def asks_gateway(command: Callable[..., int]) -> Callable[..., int]:
    """Add the flags of `server_options`, and call the command with a `client`."""

    @wraps(command)
    def run(*, server: str, token: str | None, ca: Path | None, **others: Any) -> int:
        return command(client=Client(server, token, ca), **others)

    return server_options(run)


def server_options(command: _Command) -> _Command:
    """Add `--server`, `--context`, `--token` and `--ca`, and merge the settings of the context."""

    @wraps(command)
    def with_context(*, context: str | None, **others: Any) -> Any:
        known = {name: others.pop(name) for name in _DEFAULTS if name in others}
        return command(**connection_of(click.get_current_context(), known, context), **others)

    wrapped: Any = with_context
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
            "--context",
            metavar="NAME",
            shell_complete=completed(CONTEXTS),
            help="The stored connection NAME ('knative-gateway context').  [KNATIVE_GATEWAY_CONTEXT]",
        ),
        click.option(
            "--server",
            default=SERVER,
            metavar="URL",
            envvar="KNATIVE_GATEWAY_URL",
            help=f"The gateway.  [KNATIVE_GATEWAY_URL, default: {SERVER}]",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]  # click's decorators keep the callable


def connection_of(here: click.Context, params: Mapping[str, Any], context: str | None) -> dict[str, Any]:
    """Return server, token, authorities and namespace, from the options of a command or a context.

    Raises:
      click.UsageError: the command line has --server and --context.
      SettingError: the context cannot be used.
    """
    choice = chosen(CONTEXTS, os.environ, named=context, address_given=given(here, "server"))
    values = merged(here, choice, params, _DEFAULTS)
    if choice is not None and not given(here, "token"):
        values["token"] = secret(choice.settings, "token")
    values["ca"] = None if values["ca"] is None else Path(values["ca"])
    return values


def namespace_option(command: _Command) -> _Command:
    """Add `--namespace`."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="The namespace of objects without one.  [default: default]",
    )(command)
