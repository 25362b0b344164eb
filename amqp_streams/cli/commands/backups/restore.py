"""`amqp-streams restore`: a data directory of a backup."""

from pathlib import Path

import click

from amqp_streams.cli.commands.backups.options import AS_JSON, EXISTING, bar, pace_of, rate_option
from amqp_streams.cli.terminal.console import human_bytes, print_json, say
from amqp_streams.cli.terminal.parameters import NAME
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.storage.backups import restoring
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.storage.disk.files import RealFiles


@click.command(short_help="Make a data directory of a backup.")
@EXISTING
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--backup", "name", metavar="NAME", help="The backup.  [default: the latest]")
@click.option("--log", "logs", type=NAME, multiple=True, help="Restore only this log; repeatable.")
@click.option(
    "--replace",
    is_flag=True,
    help="Move what DIRECTORY has to DIRECTORY/quarantine first, and then restore.",
)
@rate_option("unlimited")
@AS_JSON
def restore(
    folder: Path,
    directory: Path,
    *,
    name: str | None,
    logs: tuple[str, ...],
    replace: bool,
    rate: int,
    as_json: bool,
) -> int:
    """Restore a backup in the backup folder FOLDER to the data directory DIRECTORY.

    Offsets, times and bytes of events, cursors, epochs and settings are those of the backup. DIRECTORY must
    not exist or be empty, unless --replace is given. No node opens it until the restore is complete. If the
    command was interrupted, run it again: it continues.

    \b
    Examples:
      amqp-streams restore /backups/node /var/lib/amqp-streams
      amqp-streams restore /backups/node rehearsal --backup 20261128T031500Z
      amqp-streams restore /backups/node rehearsal --log temps --log orders
      amqp-streams restore /backups/node /var/lib/amqp-streams --replace
    """
    with bar("restoring") as advance:
        done = restoring.restore(
            Folder(RealFiles(), folder),
            directory,
            name=name,
            logs=logs,
            replace=replace,
            pace=pace_of(rate),
            progress=advance,
        )
    if as_json:
        print_json(
            {
                "backup": done.manifest.name,
                "began": iso_time(done.manifest.began_ms),
                "logs": done.logs,
                "events": done.events,
                "bytes": done.bytes,
                "states": done.states,
                "continued": done.continued,
                "moved_to": str(done.moved) if done.moved else None,
                "damage": list(done.manifest.damage),
            }
        )
        return 0
    if done.moved:
        say(f"what {directory} had before is in {done.moved}")
    for words in done.manifest.damage:
        say(f"the original had damage: {words}")
    say(
        f"restored backup {done.manifest.name} of {iso_time(done.manifest.began_ms)}: {done.events:,} events"
        f" of {len(done.logs)} logs, {done.states:,} states, {human_bytes(done.bytes)}"
    )
    return 0
