"""[io] `amqp-streams console`: a web console for a node."""

import os
from pathlib import Path
from typing import Final

import click

from amqp_streams.client.endpoints.address import parse_all
from amqp_streams.errors import ConfigError
from service_parts import logging_setup
from service_parts.command_line.readiness import announcer
from service_parts.settings.choices import AnonymousAccess, LogFormat, LogLevel
from web_console.node import NODE
from web_console.serving import serve
from web_console.settings import IDLE_S, LOOPBACK, SESSIONS_MAX, ConsoleSettings

_URL: Final = "amqp://127.0.0.1:5672"


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:8081",
    show_default=True,
    metavar="HOST:PORT",
    help="Where browsers connect; unix:PATH for a reverse proxy on this machine; fd:N for a bound socket.",
)
@click.option(
    "--url",
    envvar="AMQP_STREAMS_URL",
    metavar="URL",
    help=f"The node, without a user: people log in with their own.  [AMQP_STREAMS_URL; default: {_URL}]",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The authorities of the node's certificate.  [default: the system's]",
)
@click.option("--plain-without-tls", is_flag=True, help="Send passwords and tokens to the node without TLS.")
@click.option(
    "--anonymous",
    type=click.Choice([one.value for one in AnonymousAccess]),
    default="loopback",
    show_default=True,
    help="Which browsers may continue without a login, if the node allows it.",
)
@click.option(
    "--root-path", default="", metavar="PATH", help="The prefix of all paths, for example /console."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers may reach the console.  [default: on loopback localhost, else all]",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="NETWORK",
    help="A proxy whose X-Forwarded headers count.  [default: this machine]",
)
@click.option(
    "--sessions",
    type=click.IntRange(1, 10_000),
    default=SESSIONS_MAX,
    show_default=True,
    help="Logins at once.",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=1),
    default=IDLE_S,
    show_default=True,
    help="Seconds until a login ends.",
)
@click.option(
    "--log-format",
    type=click.Choice([one.value for one in LogFormat]),
    default="text",
    show_default=True,
    help="The format of log lines.",
)
@click.option(
    "--ready-file", type=click.Path(path_type=Path), metavar="FILE", help="Write the address here, as JSON."
)
def console(
    listen: str,
    url: str | None,
    ca: Path | None,
    *,
    plain_without_tls: bool,
    anonymous: str,
    root_path: str,
    hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    sessions: int,
    idle: float,
    log_format: str,
    ready_file: Path | None,
) -> None:
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
    settings = ConsoleSettings(
        url=url,
        ca_file=ca,
        plain_without_tls=plain_without_tls,
        anonymous=AnonymousAccess(anonymous),
        root_path=root_path.rstrip("/"),
        hosts=hosts,
        trusted_proxies=proxies or LOOPBACK,
        sessions_max=sessions,
        idle_s=idle,
    )
    logging_setup.configure(LogFormat(log_format), LogLevel.INFO)
    with announcer(file=ready_file, descriptor=None, notify_socket=os.environ.get("NOTIFY_SOCKET")) as ready:
        serve(settings, NODE, listen, lambda address: ready({"console": [address]}))
