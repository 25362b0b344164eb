"""`knative-gateway backup`: a copy of the state database, while the gateway runs. [io]"""

import os
from pathlib import Path

import click

from knative_gateway.cli.output import AS_JSON, report
from knative_gateway.cli.settings import gateway_settings
from knative_gateway.store import sqlite_url
from knative_gateway.store.backup import back_up, sqlite_file


@click.command(short_help="Copy the state database while the gateway runs.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The state directory of the gateway.  [default: as for 'serve']",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="The configuration file of the gateway, which names its state directory.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE. It is replaced only by a whole copy.")
@AS_JSON
def backup(
    file: Path, state_dir: Path | None, config: Path | None, *, overwrite: bool, as_json: bool
) -> None:
    """Copy resources and positions of a gateway to FILE, while it runs.

    Then back up the log node: 'amqp-streams backup create'. In this order, events are delivered again after
    a restore; in the other order, events could be lost. To restore, stop the gateway, and put FILE in the
    place of gateway.db in the state directory, without gateway.db-wal and gateway.db-shm.

    \b
    Examples:
      knative-gateway backup /backups/gateway.db --config /etc/knative-gateway/gateway.toml
      knative-gateway backup /backups/gateway.db --state-dir knative-gateway-state --overwrite
    """
    given: dict[tuple[str, ...], object] = {} if state_dir is None else {("state_dir",): str(state_dir)}
    settings = gateway_settings(given, os.environ, config)
    source = sqlite_file(settings.store or sqlite_url(settings.state_dir))
    size = back_up(source, file, overwrite=overwrite)
    words = f"copied {source} to {file}, {size:,} bytes; now back up the log node"
    report(words, as_json=as_json, file=str(file), source=str(source), bytes=size)
