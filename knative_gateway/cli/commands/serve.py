"""`knative-gateway serve`: reads the settings and runs a gateway. [io]"""

import os
from functools import partial
from pathlib import Path

import click

from knative_gateway.cli.settings import PREFIX, checked_settings, file_contents, gateway_settings
from service_parts.command_line.serving import (
    console_options,
    given_flags,
    print_schema,
    service_options,
    setting_option,
    started,
)
from service_parts.settings.choices import LogFormat, LogLevel
from service_parts.settings.showing import in_force

_setting = setting_option(PREFIX)


@click.command(short_help="Run a gateway, and an event log node unless --amqp names one.")
@_setting(
    "listen",
    metavar="HOST:PORT",
    multiple=True,
    help="The address to listen on; may be repeated. Port 0 chooses a free port.  [default: 127.0.0.1:8080]",
)
@_setting(
    "workers",
    metavar="N",
    help="Processes that accept and deliver events, at most one for each core.  [default: 1]",
)
@_setting(
    "state_dir",
    metavar="DIR",
    help="Resources, positions, and the embedded node's events.  [default: knative-gateway-state]",
)
@_setting(
    "amqp",
    metavar="URL",
    help="The event log node, amqp://USER:PASSWORD@HOST:PORT; several nodes of a cluster with commas."
    " Without it, the gateway starts a node.",
)
@_setting(
    "amqp_listen",
    metavar="HOST:PORT",
    help="Where the started node listens.  [default: 127.0.0.1:0, any port]",
)
@_setting(
    "public_url",
    metavar="URL",
    help=(
        "The URL of this gateway for senders; status.address.url begins with it.  [default: where it listens]"
    ),
)
@_setting(
    "store",
    metavar="URL",
    help=(
        "The database for resources and positions: postgresql://… for replicas.  [default: a file in "
        "the state"
        " directory]"
    ),
)
@_setting("resources", metavar="DIR", help="Apply the YAML files of this directory at start.")
@_setting(
    "logs", "partitions", metavar="N", help="Partitions of the log of a new Broker or Channel.  [default: 4]"
)
@_setting("logs", "retention", metavar="SECONDS", help="How long its events are kept.  [default: the node's]")
@console_options(PREFIX, service="gateway")
@_setting(
    "tls", "certificate", metavar="FILE", help="Serve HTTPS: certificate chain, PEM; read again on SIGHUP."
)
@_setting("tls", "key", metavar="FILE", help="The certificate's private key, PEM.")
@_setting(
    "tokens",
    metavar="FILE.csv",
    help='Bearer tokens of API and ingress, a line each: token,user,uid,"group1,group2".',
)
@_setting(
    "traces",
    metavar="URL",
    help=(
        "Send OpenTelemetry traces of events to this collector, OTLP over HTTP.  [default: as OTEL_…"
        " variables say, else nowhere]"
    ),
)
@_setting(
    "shutdown_delay",
    metavar="SECONDS",
    help="On SIGTERM, continue to serve for this time while /readyz answers 503.  [default: 0]",
)
@_setting("log_format", metavar="|".join(LogFormat), help="The format of log lines.  [default: text]")
@_setting("log_level", metavar="|".join(LogLevel), help="The lowest level that is logged.  [default: info]")
@service_options(
    PREFIX,
    check="Check settings and the files that they name, then exit: 0 if a gateway can start with them.",
)
def serve(
    config: Path | None,
    ready_file: Path | None,
    ready_fd: int | None,
    *,
    check: bool,
    schema: bool,
    **flags: object,
) -> int:
    """Run a gateway until SIGTERM or SIGINT.

    A setting comes from its flag, else its variable, else the file, else the default. The file has the names
    of the flags:

    \b
      listen = ["0.0.0.0:8080"]
      public_url = "http://events.example.com"
      [services]
      "hello.default" = "http://10.0.0.5:8080"
      [destinations]
      deny = ["10.0.0.0/8"]
      [limits]
      body = "1MiB"

    \b
    Examples:
      knative-gateway serve
      knative-gateway serve --listen 0.0.0.0:8080 --state-dir /var/lib/knative-gateway \\
        --amqp-listen 0.0.0.0:5672
      knative-gateway serve --amqp amqp://127.0.0.1:5672
      knative-gateway serve --amqp amqp://node-1:5672,node-2:5672,node-3:5672
      knative-gateway serve --console-listen 127.0.0.1:8081
      knative-gateway serve --config gateway.toml --check
      knative-gateway serve --schema > gateway.schema.json
    """
    if schema:
        print_schema(file_contents(), "Settings of knative-gateway serve")
        return 0
    given = given_flags(flags)
    settings = gateway_settings(given, os.environ, config)
    # The imports are late because they load the whole server, which --help and --schema do not need.
    if check:
        from knative_gateway.checks import check_settings  # noqa: PLC0415

        check_settings(settings)
        click.echo("the settings are valid", err=True)
        return 0
    if settings.workers > 1:
        from knative_gateway.workers.serving import run  # noqa: PLC0415
    else:
        from knative_gateway.server import run  # noqa: PLC0415

    with started(settings.log_format, settings.log_level, ready_file=ready_file, ready_fd=ready_fd) as ready:
        return run(
            settings,
            ready=ready,
            reread=partial(gateway_settings, given, os.environ, config),
            shown=lambda: in_force(file_contents(), checked_settings(given, os.environ, config)),
        )
