"""`amqp-streams log …`: create, list, describe, change and delete logs, over the node's `$management`; `copy`
works without a node.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import click

from amqp_streams import names
from amqp_streams.cli.commands.info import described, show
from amqp_streams.cli.completion import log_names
from amqp_streams.cli.connection import Endpoint, NodeGroup, client_options, managed, opened, run
from amqp_streams.cli.terminal.console import (
    confirmed,
    declined,
    human_bytes,
    human_duration,
    print_json,
    print_table,
    report,
    stored_size,
)
from amqp_streams.cli.terminal.describing import described_lines
from amqp_streams.cli.terminal.parameters import NAME, Bound
from amqp_streams.cli.terminal.positions import cursor_json, group_json
from amqp_streams.cli.terminal.rendering import plain
from amqp_streams.cli.terminal.setting_options import setting_options
from amqp_streams.client import (
    Client,
    CursorInfo,
    GroupInfo,
    LogExtent,
    LogInfo,
    LogSummary,
    ManagementError,
)
from amqp_streams.log_settings import BY_FIELD, LOG_SETTINGS, LogSettingValues
from service_parts.extras import needs_extra

_FORBIDDEN: Final = 403
_LOOK_S: Final = 1.0
"""The time between the two looks of `--rates`."""
_RATES: Final = ("EVENTS/S", "OUT/S", "CONSUMERS", "GROUPS")
_ASKED_MAX: Final = 1024
"""The most partitions in one request for figures: the node answers a request in one loop iteration."""


@click.group(cls=NodeGroup, short_help="Create, list, describe, update and delete event logs.")
def log() -> None:
    """Create, list, describe, update and delete event logs.

    \b
    Examples:
      amqp-streams log create temps --partitions 4 --retention 7d
      amqp-streams log list
      amqp-streams log describe temps
      amqp-streams log update temps --retention-bytes 10GiB
      amqp-streams log delete temps
      amqp-streams log copy data temps --kafka-servers a:9092,b:9092,c:9092
    """


@log.command()
@click.argument("name", type=NAME)
@setting_options(create=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def create(name: str, *, as_json: bool, endpoint: Endpoint, **given: Bound | None) -> None:
    """Create the log NAME.

    \b
    Examples:
      amqp-streams log create temps
      amqp-streams log create temps --partitions 4 --retention 7d --retention-bytes 10GiB
    """
    settings = cast(
        "LogSettingValues", {field: bound.value for field, bound in given.items() if bound is not None}
    )
    show(managed(endpoint, lambda management: management.create_log(name, **settings)), as_json=as_json)


@log.command("list")
@click.option(
    "--rates",
    is_flag=True,
    help="Look twice, a second apart: show events in and out per second, consumers and groups.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def list_(*, rates: bool, as_json: bool, endpoint: Endpoint) -> None:
    """List all logs: events, bytes, and how long events are kept.

    \b
    Examples:
      amqp-streams log list
      amqp-streams log list --rates
      amqp-streams log list --json | jq -r '.logs[].name'
    """
    (logs, extents), per_second, out_per_second = run(_looked(endpoint, rates=rates))
    if as_json:
        print_json(
            {
                "logs": [
                    _summary_json(one, extents.get(one.name))
                    | (
                        {
                            "events_per_second": per_second.get(one.name),
                            "events_out_per_second": out_per_second.get(one.name),
                        }
                        if rates
                        else {}
                    )
                    for one in logs
                ]
            }
        )
        return
    rows = [
        (
            one.name,
            one.partitions,
            *_figures(extents.get(one.name)),
            *(
                (
                    per_second.get(one.name),
                    out_per_second.get(one.name),
                    *_readers(extents.get(one.name)).values(),
                )
                if rates
                else ()
            ),
            _kept(one),
        )
        for one in logs
    ]
    columns = ("LOG", "PARTITIONS", "EVENTS", "BYTES", *(_RATES if rates else ()), "KEPT")
    print_table(columns, rows)


async def _looked(
    endpoint: Endpoint, *, rates: bool
) -> tuple[tuple[list[LogSummary], dict[str, LogExtent]], dict[str, float], dict[str, float]]:
    """All logs and, if asked for, the events that each gets per second, and that consumers get from it."""
    async with opened(endpoint) as client:
        if not rates:
            return await listed(client), {}, {}
        started = time.monotonic()
        _, before = await listed(client)
        await asyncio.sleep(_LOOK_S)
        elapsed = time.monotonic() - started
        logs, after = await listed(client)
    # Retention moves the first offset, never the next one.
    rates_in = _rates(before, after, elapsed, _next)
    return (logs, after), rates_in, _rates(before, after, elapsed, lambda extent: extent.events_out)


def _rates(
    before: dict[str, LogExtent],
    after: dict[str, LogExtent],
    elapsed: float,
    count: Callable[[LogExtent], int | None],
) -> dict[str, float]:
    rates = {}
    for name, extent in after.items():
        first, last = None if name not in before else count(before[name]), count(extent)
        # A log that was deleted and created again begins at 0.
        if first is not None and last is not None and last >= first:
            rates[name] = round((last - first) / elapsed, 1)
    return rates


def _readers(extent: LogExtent | None) -> dict[str, int | None]:
    """None for what the node does not send to this user."""
    return {
        "consumers": None if extent is None else extent.consumers,
        "groups": None if extent is None else extent.groups,
    }


def _next(extent: LogExtent) -> int:
    return sum(one.next for one in extent.partitions)


async def listed(client: Client) -> tuple[list[LogSummary], dict[str, LogExtent]]:
    """All logs, with start and end of their partitions; asks for a bounded number of partitions at a time."""
    logs = await client.management.list_logs()
    extents: dict[str, LogExtent] = {}
    for part in _parts(logs):
        # A log may be deleted between the two requests.
        extents |= await client.extents([one.name for one in part], missing_ok=True)
    return logs, extents


def _parts(logs: Sequence[LogSummary]) -> list[list[LogSummary]]:
    """The logs in parts of at most `_ASKED_MAX` logs and partitions, or of one log."""
    parts: list[list[LogSummary]] = []
    room = 0
    for one in logs:
        # One log is never divided, however many partitions it has.
        if one.partitions > room or not parts:
            parts.append([])
            room = _ASKED_MAX
        parts[-1].append(one)
        room -= max(one.partitions, 1)
    return parts


def _figures(extent: LogExtent | None) -> tuple[int | None, str | None]:
    """Events and bytes; None for a log that was deleted meanwhile."""
    return (
        (None, None)
        if extent is None
        else (_events(extent), stored_size(sum(one.bytes for one in extent.partitions), _events(extent)))
    )


def _events(extent: LogExtent) -> int:
    return sum(one.next - one.earliest for one in extent.partitions)


def _kept(one: LogSummary) -> str:
    """How long events are kept, and how many bytes of a partition."""
    ms, size = one.details.get(names.INFO_RETENTION_MS), one.details.get(names.INFO_RETENTION_BYTES)
    age = human_duration(ms) if isinstance(ms, int) else "forever"
    return f"{age}, {human_bytes(size)} a partition" if isinstance(size, int) else age


def _summary_json(one: LogSummary, extent: LogExtent | None) -> dict[str, object]:
    return {
        "name": one.name,
        "partitions": one.partitions,
        "events": None if extent is None else _events(extent),
        "bytes": None if extent is None else sum(each.bytes for each in extent.partitions),
        "events_out": None if extent is None else extent.events_out,
        **_readers(extent),
        **{
            setting.field: plain(one.details.get(setting.name)) for setting in LOG_SETTINGS if setting.in_info
        },
    }


@log.command()
@click.argument("name", type=NAME, shell_complete=log_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def describe(name: str, *, as_json: bool, endpoint: Endpoint) -> None:
    """Show all settings of the log NAME, its size, and who reads it. 'info' shows its partitions.

    \b
    Examples:
      amqp-streams log describe temps
      amqp-streams log describe temps --json | jq .retention_ms
    """
    found, groups, cursors = run(_described(endpoint, name))
    if not as_json:
        click.echo("\n".join(described_lines(found, groups, cursors)))
        return
    readers = {
        "groups": None if groups is None else [group_json(one) for one in groups],
        "cursors": None if cursors is None else [cursor_json(one) for one in cursors],
    }
    print_json(described(found) | readers)


async def _described(
    endpoint: Endpoint, name: str
) -> tuple[LogInfo, list[GroupInfo] | None, list[CursorInfo] | None]:
    """A log, its groups and its cursors; None for what the user has no right to see."""
    async with opened(endpoint, name) as client:
        found = await client.management.describe_log(name)
        try:
            return (
                found,
                await client.management.list_groups(name),
                await client.management.list_cursors(name),
            )
        except ManagementError as error:
            if error.status != _FORBIDDEN:
                raise
            return found, None, None


@log.command()
@click.argument("name", type=NAME, shell_complete=log_names)
@setting_options(create=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def update(name: str, *, as_json: bool, endpoint: Endpoint, **given: Bound | None) -> None:
    """Change settings of the log NAME; the others stay. The number of partitions cannot be changed.

    \b
    Examples:
      amqp-streams log update temps --retention 30d
      amqp-streams log update temps --retention none --retention-bytes 50GiB
    """
    changes = {BY_FIELD[field].name: bound.value for field, bound in given.items() if bound is not None}
    if not changes:
        flags = [setting.flag for setting in LOG_SETTINGS if not setting.fixed]
        message = f"nothing to change: give {', '.join(flags[:-1])} or {flags[-1]}"
        raise click.UsageError(message)
    show(
        managed(endpoint, lambda management: management.update_log(name, changes), log=name), as_json=as_json
    )


@log.command()
@click.argument("name", type=NAME, shell_complete=log_names)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def delete(name: str, *, yes: bool, as_json: bool, endpoint: Endpoint) -> int:
    """Delete the log NAME and all its events.

    \b
    Examples:
      amqp-streams log delete temps
      amqp-streams log delete temps --yes
    """
    if not yes and not confirmed(f"Delete the log {name} and all its events?"):
        return declined("nothing was deleted", as_json=as_json)
    managed(endpoint, lambda management: management.delete_log(name), log=name)
    report(f"{name} was deleted", as_json=as_json, deleted=name)
    return 0


@log.command(short_help="Copy a log from a data directory to Kafka.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name", metavar="LOG", type=NAME)
@click.option(
    "--kafka-servers",
    envvar="AMQP_STREAMS_KAFKA_SERVERS",
    metavar="HOST:PORT,...",
    help="Brokers of the Kafka cluster to begin with; also in the file of --config.",
)
@click.option("--kafka-prefix", metavar="NAME", help="As of the nodes.  [default: amqp-streams]")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A configuration file of the nodes on Kafka: for TLS, a login, and the largest message.",
)
@click.option(
    "--map",
    "map_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the new offsets of records and cursors are written.  [default: LOG.offsets.json]",
)
@click.option("--skip-damaged", is_flag=True, help="Copy the other records if some are damaged.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def copy(
    directory: Path,
    name: str,
    *,
    kafka_servers: str | None,
    kafka_prefix: str | None,
    config: Path | None,
    map_file: Path | None,
    skip_damaged: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy the log LOG of the data directory DIRECTORY to Kafka, while no node uses the directory.

    The copy has the same messages with the same times, but other offsets: FILE has the new offset of each
    record and of each cursor. Everything is read back and compared. If the command ends before it is done,
    start it again: it continues, and no event is there twice. Nodes on Kafka show the log meanwhile, and
    take events for it when the copy is complete.

    \b
    Examples:
      amqp-streams log copy data temps --kafka-servers a:9092,b:9092,c:9092
      amqp-streams log copy data temps --config node.toml --map temps.json
      amqp-streams log copy data temps --kafka-servers a:9092 --dry-run
    """
    if kafka_servers is None and config is None:
        message = "give --kafka-servers or --config"
        raise click.UsageError(message)
    given = {("kafka", "servers"): kafka_servers, ("kafka", "prefix"): kafka_prefix}
    # Not imported with this module: the other commands need no extra.
    with needs_extra("log copy", "kafka"), needs_extra("log copy", "node"):
        work = import_module("amqp_streams.cli.commands.log_copying")
    wanted = work.Wanted(
        directory,
        name,
        {key: value for key, value in given.items() if value is not None},
        config,
        map_file,
        skip_damaged,
        dry_run,
        as_json,
    )
    return cast("int", work.copy_log(wanted))
