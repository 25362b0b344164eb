"""`amqp-streams backup …`: copies of the data of a node, without a stop."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from amqp_streams.cli.commands.backups.options import (
    AS_JSON,
    EXISTING,
    FAILED,
    FOLDER,
    bar,
    pace_of,
    rate_option,
)
from amqp_streams.cli.connection import NodeGroup
from amqp_streams.cli.settings import node_settings
from amqp_streams.cli.terminal.console import confirmed, declined, human_bytes, print_json, print_table, say
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.errors import ConfigError, StorageError
from amqp_streams.storage.backups import checking, creating
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.formats.manifest import Manifest

_NAMED_MAX: Final = 3
"""Of many logs that were deleted meanwhile, the message has this many names."""


@click.group(
    cls=NodeGroup, short_help="Back up the data of a node while it runs; list, check and remove backups."
)
def backup() -> None:
    """Back up the data of a node while it runs; list, check and remove backups.

    A backup folder has any number of backups. They share the files of events, so each backup copies only what
    is new. 'amqp-streams restore' makes a data directory of one of them.

    \b
    Examples:
      amqp-streams backup create /backups/node --config /etc/amqp-streams/node.toml --keep 14
      amqp-streams backup list /backups/node
      amqp-streams backup verify /backups/node
      amqp-streams restore /backups/node /var/lib/amqp-streams
    """


@backup.command()
@FOLDER
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The data directory of the node.  [default: as for 'serve', from --config or AMQP_STREAMS_DATA_DIR]",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="The configuration file of the node, which names its data directory.",
)
@click.option("--name", metavar="NAME", help="Name the backup; --keep never removes it.  [default: the time]")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Then remove all but the newest N backups without a name of their own.  [default: keep all]",
)
@rate_option("20MiB")
@AS_JSON
def create(
    folder: Path,
    data_dir: Path | None,
    config: Path | None,
    *,
    name: str | None,
    keep: int | None,
    rate: int,
    as_json: bool,
) -> int:
    """Back up the data of a node to FOLDER. The node may run: it does nothing for the backup.

    Every event that was accepted before the command began is in the backup, with its offset, time and bytes,
    and with cursors, groups, epochs and the numbers of idempotent producers. Run it on the machine of the
    node, as the user of the node. Users, keys and certificates are not in a backup.

    The exit status is 0 if everything was copied, synced and read back. It is 1 if the backup failed, or if
    the data directory has damage; then the backup has everything else.

    \b
    Examples:
      amqp-streams backup create /backups/node --data-dir data
      amqp-streams backup create /backups/node --config /etc/amqp-streams/node.toml --keep 14
      amqp-streams backup create /backups/node --data-dir data --name before-upgrade
      amqp-streams backup create /backups/node --data-dir data --rate 5MiB --json
    """
    source = _data_dir(data_dir, config)
    # A user who can read a backup can read every event.
    os.umask(0o077)
    with bar("copying") as advance:
        made = creating.create(
            RealFiles(), source, folder, name=name, keep=keep, pace=pace_of(rate), progress=advance
        )
    manifest = made.manifest
    if as_json:
        print_json(
            {"ok": not manifest.damage}
            | _summary(manifest)
            | {"copied_bytes": made.copied, "deleted_logs": made.deleted, "removed": made.removed}
            | {"damage": list(manifest.damage), "notes": made.notes}
        )
    else:
        for words in (*made.notes, *manifest.damage):
            say(words)
        if made.deleted:
            names = ", ".join(made.deleted[:_NAMED_MAX])
            say(f"{len(made.deleted)} logs were deleted meanwhile and are not in the backup: {names}")
        say(
            f"backup {manifest.name}: {manifest.events:,} events of {len(manifest.logs)} logs,"
            f" {human_bytes(manifest.bytes)}, of which {human_bytes(made.copied)} were new"
            + (f"; removed {', '.join(made.removed)}" if made.removed else "")
        )
        if manifest.damage:
            say("the data directory has damage, which the backup cannot contain: see 'amqp-streams verify'")
    return FAILED if manifest.damage else 0


@backup.command("list")
@EXISTING
@AS_JSON
def list_(folder: Path, *, as_json: bool) -> int:
    """List the backups in FOLDER, the oldest first.

    \b
    Examples:
      amqp-streams backup list /backups/node
      amqp-streams backup list /backups/node --json | jq -r '.backups[-1].name'
    """
    opened = Folder(RealFiles(), folder)
    with _storage_errors(folder):
        opened.directory_id()
        manifests, errors = opened.manifests()
    if as_json:
        backups = [_summary(each) | {"damage": list(each.damage)} for each in manifests]
        print_json({"backups": backups, "unreadable": [str(error) for error in errors]})
    else:
        rows = [
            (
                each.name,
                iso_time(each.began_ms),
                len(each.logs),
                each.events,
                human_bytes(each.bytes),
                "damage in the data directory" if each.damage else "complete",
            )
            for each in manifests
        ]
        print_table(("NAME", "BEGAN", "LOGS", "EVENTS", "SIZE", "STATE"), rows)
        for error in errors:
            say(f"amqp-streams: {error}")
    return FAILED if errors else 0


@backup.command()
@EXISTING
@click.option(
    "--backup", "names", multiple=True, metavar="NAME", help="Only this backup; repeatable.  [default: all]"
)
@click.option(
    "--set-aside",
    is_flag=True,
    help="Rename damaged segments to NAME.damaged, so that the next backup copies them from the node again.",
)
@rate_option("unlimited")
@AS_JSON
def verify(folder: Path, names: tuple[str, ...], *, set_aside: bool, rate: int, as_json: bool) -> int:
    """Read the backups in FOLDER and compare all checksums. Exits with 1 if a file is damaged.

    Files that several backups share are read once. A later backup relies on the files of earlier ones: if a
    segment is damaged, use --set-aside, and make a new backup.

    \b
    Examples:
      amqp-streams backup verify /backups/node
      amqp-streams backup verify /backups/node --backup 20261128T031500Z --rate 20MiB
      amqp-streams backup verify /backups/node --set-aside
      amqp-streams backup verify /backups/node --json | jq '.damage[]'
    """
    opened = Folder(RealFiles(), folder)
    with _storage_errors(folder):
        with bar("checking") as advance:
            found = checking.check(opened, names, pace=pace_of(rate), progress=advance)
        moved = checking.set_aside(opened, found.faults) if set_aside and found.faults else []
    if as_json:
        damage = [asdict(fault) for fault in found.faults]
        print_json(
            {"ok": not damage, "backups": found.backups, "files": found.files, "bytes": found.bytes}
            | {"whole": found.whole, "damage": damage, "set_aside": moved}
        )
    else:
        _print_checked(found, moved)
    return FAILED if found.faults else 0


def _print_checked(found: checking.Checked, moved: list[str]) -> None:
    for fault in found.faults:
        click.echo(str(fault))
    verdict = f"{len(found.faults)} damaged files" if found.faults else "no damage"
    click.echo(
        f"{verdict}; {found.backups} backups, {found.files} files, {human_bytes(found.bytes)}; whole:"
        f" {', '.join(found.whole) or 'none'}"
    )
    if moved:
        say(f"set aside {len(moved)} segments: the next backup copies them again, if the node has them")
    elif any(fault.file.startswith("segments/") for fault in found.faults):
        say("later backups rely on these files: use --set-aside, and make a new backup")


@backup.command()
@EXISTING
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@AS_JSON
def remove(folder: Path, names: tuple[str, ...], *, yes: bool, as_json: bool) -> int:
    """Remove backups from FOLDER, and the files that no other backup needs.

    \b
    Examples:
      amqp-streams backup remove /backups/node before-upgrade
      amqp-streams backup remove /backups/node 20261101T031500Z 20261102T031500Z --yes
    """
    opened = Folder(RealFiles(), folder)
    with _storage_errors(folder):
        known = opened.names()
        for name in names:
            if name not in known:
                opened.manifest(name)
        if not yes and not confirmed(f"Remove {', '.join(names)} from {folder}?"):
            return declined("nothing was removed", as_json=as_json)
        kept = opened.remove_all(names)
    if as_json:
        print_json({"removed": list(names), "backups": kept})
    else:
        say(f"removed {', '.join(names)}; {len(kept)} backups remain")
    return 0


def _data_dir(data_dir: Path | None, config: Path | None) -> Path:
    """The data directory that the flag, the variable or the file names."""
    if data_dir is not None:
        return data_dir
    settings = node_settings({}, os.environ, config)
    if settings.data_dir is None:
        message = (
            "store: the node keeps its events in Kafka, and this command copies data directories only: back"
            " up the topics of the cluster with the tools of Kafka"
        )
        raise ConfigError(message)
    return settings.data_dir


def _summary(manifest: Manifest) -> dict[str, object]:
    return {
        "name": manifest.name,
        "began": iso_time(manifest.began_ms),
        "ended": iso_time(manifest.ended_ms),
        "program": manifest.program,
        "logs": [log.name for log in manifest.logs],
        "events": manifest.events,
        "bytes": manifest.bytes,
    }


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror or error}"
        raise StorageError(message) from error
