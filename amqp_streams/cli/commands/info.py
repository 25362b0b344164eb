"""`amqp-streams info`: the content of a log's `$info` node, as a table or as JSON."""

import click

from amqp_streams.cli.completion import log_names
from amqp_streams.cli.connection import Endpoint, NodeCommand, client_options, opened, run
from amqp_streams.cli.terminal.console import (
    human_bytes,
    human_duration,
    print_json,
    print_table,
    stored_size,
)
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.client import LogInfo
from amqp_streams.log_settings import LOG_SETTINGS


@click.command(cls=NodeCommand, short_help="Show the partitions of a log.")
@click.argument("address", shell_complete=log_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def info(address: str, *, as_json: bool, endpoint: Endpoint) -> None:
    """Show the partitions of the log at ADDRESS: offsets, events, bytes, times. 'log describe' shows its
    settings and who reads it.

    \b
    Examples:
      amqp-streams info temps
      amqp-streams info temps --json | jq '.partitions[].latest_offset'
      amqp-streams info amqps://streams.example.org/temps
    """
    node, log = endpoint.at(address)
    show(run(_info(node, log)), as_json=as_json)


def show(found: LogInfo, *, as_json: bool) -> None:
    """Print the information about a log."""
    if as_json:
        print_json(described(found))
        return
    rows = [
        (
            one.partition,
            one.earliest_offset,
            one.latest_offset,
            one.event_count,
            None if one.bytes is None else stored_size(one.bytes, one.event_count or 0),
            iso_time(one.first_timestamp_ms),
            iso_time(one.last_timestamp_ms),
            one.state,
        )
        for one in found.partitions
    ]
    click.echo(headline(found))
    print_table(("PARTITION", "EARLIEST", "LATEST", "EVENTS", "BYTES", "FIRST", "LAST", "STATE"), rows)


def headline(found: LogInfo) -> str:
    """The log in one line."""
    events = sum(one.event_count or 0 for one in found.partitions)
    stored = sum(one.bytes or 0 for one in found.partitions)
    age = "forever" if found.retention_ms is None else human_duration(found.retention_ms)
    size = (
        "" if found.retention_bytes is None else f", at most {human_bytes(found.retention_bytes)} a partition"
    )
    sync = "" if found.sync is None else f"; sync {found.sync}"
    return (
        f"{found.log}: {len(found.partitions)} partitions, {events:,} events,"
        f" {stored_size(stored, events)}; kept"
        f" {age}{size}{sync}"
    )


def described(found: LogInfo) -> dict[str, object]:
    """The information about a log as JSON values; entries that the node did not send are null."""
    return {
        "log": found.log,
        "incarnation": found.incarnation,
        **{setting.field: found.settings.get(setting.field) for setting in LOG_SETTINGS if not setting.fixed},
        "sync": found.sync,
        "partitions": [
            {
                "partition": one.partition,
                "earliest_offset": one.earliest_offset,
                "latest_offset": one.latest_offset,
                "event_count": one.event_count,
                "bytes": one.bytes,
                "first_timestamp": iso_time(one.first_timestamp_ms),
                "last_timestamp": iso_time(one.last_timestamp_ms),
                "state": one.state,
            }
            for one in found.partitions
        ],
    }


async def _info(node: Endpoint, log: str) -> LogInfo:
    async with opened(node, log) as client:
        return await client.info(log)
