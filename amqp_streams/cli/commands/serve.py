"""`amqp-streams serve`: settings in, a running node, its exit status out."""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import click

from amqp_streams.cli.settings import PREFIX, checked_settings, file_contents, node_settings
from amqp_streams.cli.terminal.console import say
from service_parts.command_line.serving import (
    console_options,
    given_flags,
    print_schema,
    service_options,
    setting_option,
    started,
)
from service_parts.settings.choices import AnonymousAccess, LogFormat, LogLevel
from service_parts.settings.showing import InForce, in_force

_setting = setting_option(PREFIX)


@click.command(short_help="Run an event log node.")
@_setting(
    "data_dir",
    metavar="DIR",
    help="The folder of all stored data. Created if it does not exist, locked while the node runs.",
)
@_setting(
    "store",
    metavar="directory|kafka",
    help="Where the events are kept.  [default: directory]",
)
@_setting("kafka", "servers", metavar="HOST:PORT,...", help="Brokers of the Kafka cluster to begin with.")
@_setting(
    "kafka", "prefix", metavar="NAME", help="A log is a topic PREFIX.log.NAME.  [default: amqp-streams]"
)
@_setting("kafka", "topics", metavar="NAME,...", help="Existing topics that are logs as well.")
@_setting(
    "kafka",
    "weak",
    is_flag=True,
    default=None,
    help="Accept events for topics that can lose them when one broker is lost.",
)
@_setting("kafka", "tls", is_flag=True, default=None, help="Connect to the brokers with TLS.")
@_setting("kafka", "ca", metavar="FILE", help="Authorities that sign the brokers' certificates, PEM.")
@_setting("kafka", "login", metavar="MECHANISM", help="PLAIN (with TLS), SCRAM-SHA-256 or SCRAM-SHA-512.")
@_setting("kafka", "user", metavar="NAME", help="The user of the login to Kafka.")
@_setting("kafka", "password_file", metavar="FILE", help="A file with the password of that user.")
@_setting(
    "node",
    "listen",
    metavar="HOST:PORT",
    help="Listen here for other nodes with the same logs on Kafka; offers groups and cursors.",
)
@_setting("node", "advertise", metavar="HOST:PORT", help="Where other nodes reach this node.")
@_setting("node", "secret_file", metavar="FILE", help="A file with the secret that all nodes have.")
@_setting("node", "certificate", metavar="FILE", help="The certificate for other nodes, PEM.")
@_setting("node", "key", metavar="FILE", help="The private key of that certificate, PEM.")
@_setting("node", "ca", metavar="FILE", help="Authorities that sign the certificates of nodes, PEM.")
@_setting(
    "node", "certificate_name", metavar="NAME", help="The name that the certificates of all nodes have."
)
@_setting(
    "listen",
    metavar="HOST:PORT",
    multiple=True,
    help="Listen here; may be repeated. Port 0 chooses a free port.  [default: 127.0.0.1:5672]",
)
@_setting("listen_tls", metavar="HOST:PORT", multiple=True, help="Listen here with TLS; may be repeated.")
@_setting("tls", "certificate", metavar="FILE", help="Certificate chain, PEM; read again on SIGHUP.")
@_setting("tls", "key", metavar="FILE", help="The certificate's private key, PEM.")
@_setting("tls", "client_ca", metavar="FILE", help="Authorities that sign client certificates, PEM.")
@_setting(
    "tls",
    "client_certificates",
    metavar="required|optional",
    help="Whether a client must present a certificate.  [default: required]",
)
@_setting(
    "admin_listen",
    metavar="HOST:PORT",
    help="Serve /healthz, /readyz, /metrics and AMQP over WebSocket here.",
)
@console_options(PREFIX, service="node")
@_setting(
    "log",
    metavar="NAME:PARTITIONS",
    multiple=True,
    help="Create this log if it does not exist; may be repeated.",
)
@_setting(
    "sync",
    metavar="always|interval:MS|never",
    help=(
        "When events are synced to the disk: before they are accepted; every MS milliseconds; when the"
        " operating system does it.  [default: always]"
    ),
)
@_setting(
    "users",
    metavar="FILE",
    help="Users and the hashes of their passwords; written by 'amqp-streams user add'.",
)
@_setting(
    "anonymous",
    metavar="|".join(AnonymousAccess),
    help="Which connections need no login.  [default: loopback]",
)
@_setting(
    "plain_without_tls",
    is_flag=True,
    default=None,
    help="Accept passwords and tokens on connections that are neither TLS nor loopback.",
)
@_setting(
    "auto_create",
    metavar="PARTITIONS",
    help="Create unknown logs on first use, with this many partitions.  [default: 0, never]",
)
@_setting("container_id", metavar="NAME", help="The node's AMQP container-id.  [default: amqp-streams]")
@_setting(
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    help="A proxy whose X-Forwarded-For is trusted; may be repeated.",
)
@_setting(
    "shutdown_delay",
    metavar="DURATION",
    help="On SIGTERM, continue to serve for this time while /readyz answers 503.  [default: 0]",
)
@_setting("log_format", metavar="|".join(LogFormat), help="The format of log lines.  [default: text]")
@_setting("log_level", metavar="|".join(LogLevel), help="The lowest level that is logged.  [default: info]")
@service_options(
    PREFIX,
    check="Check settings, files, addresses and data directory, then exit: 0 if a node can start with them.",
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
    """Run an event log node until SIGTERM or SIGINT.

    A setting comes from its flag, else its variable, else the file, else the default. The file has the
    names of the flags:

    \b
      listen = ["127.0.0.1:5672"]
      sync = "always"
      [limits]
      message_bytes = "1MiB"
      [logs.temps]
      partitions = 4
      retention = "7d"
      [[access]]
      users = ["alice"]
      logs = ["temps"]
      allow = ["send", "receive"]

    On SIGHUP the node reads the file again: access rules, quotas, redirects, certificates and users take
    effect at once.

    \b
    Examples:
      amqp-streams serve --data-dir data --log temps:4
      amqp-streams serve --data-dir data --listen 127.0.0.1:0 --ready-file node.json
      amqp-streams serve --config node.toml --check
      amqp-streams serve --schema > node.schema.json
      amqp-streams serve --config node.toml --admin-listen 127.0.0.1:8672
      amqp-streams serve --data-dir data --console-listen 127.0.0.1:8081
      amqp-streams serve --store kafka --kafka-servers a:9092,b:9092,c:9092 --log temps:4
      amqp-streams serve --data-dir data --users users --listen-tls 0.0.0.0:5671 \\
        --tls-certificate c.pem --tls-key k.pem
    """
    if schema:
        print_schema(file_contents(), "Settings of amqp-streams serve")
        return 0
    with _hangups_held():
        return _check(config, flags) if check else _serve(config, ready_file, ready_fd, flags)


@contextlib.contextmanager
def _hangups_held() -> Iterator[None]:
    """Block SIGHUP, whose default action ends the process, until `server.serve` can handle it."""
    # A manager of services may send SIGHUP as soon as the process exists.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _check(config: Path | None, flags: Mapping[str, object]) -> int:
    settings = node_settings(given_flags(flags), os.environ, config)
    from amqp_streams.server.checks import check_start  # noqa: PLC0415  it loads the whole server

    for remark in check_start(settings):
        say(f"note: {remark}")
    say("the settings are valid")
    return 0


def _serve(
    config: Path | None, ready_file: Path | None, ready_fd: int | None, flags: Mapping[str, object]
) -> int:
    reread = partial(node_settings, given_flags(flags), os.environ, config)
    settings = reread()

    def shown() -> list[InForce]:
        return in_force(file_contents(), checked_settings(given_flags(flags), os.environ, config))

    # Imported when it is known to be needed: it loads the whole server.
    from amqp_streams import server  # noqa: PLC0415

    with started(settings.log_format, settings.log_level, ready_file=ready_file, ready_fd=ready_fd) as ready:
        return server.run(settings, ready=ready, reread=reread, shown=shown)
