"""`amqp-streams log …`: make, list, describe, change and delete logs, over the node's `$management`."""

from typing import Final

import click

from amqp_streams.cli.connection import Endpoint, client_options, managed
from amqp_streams.cli.console import confirmed, print_json, print_table, say
from amqp_streams.cli.info import show
from amqp_streams.cli.parameters import DURATION, DURATION_OR_NONE, NAME, SIZE, SIZE_OR_NONE, Bound
from amqp_streams.config import PARTITIONS_MAX

_FAILED: Final = 1


@click.group(short_help="Create, list, describe, update and delete event logs.")
def log() -> None:
    """Create, list, describe, update and delete event logs.

    \b
    Examples:
      amqp-streams log create temps --partitions 4 --retention 7d
      amqp-streams log list
      amqp-streams log describe temps
      amqp-streams log update temps --retention-bytes 10GiB
      amqp-streams log delete temps
    """


@log.command()
@click.argument("name", type=NAME)
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=1, show_default=True, help="How many; fixed for ever.")
@click.option("--retention", type=DURATION, metavar="DURATION", help="Events older than this may go, such as 7d.  [default: kept for ever]")
@click.option(
    "--retention-bytes", type=SIZE, metavar="SIZE", help="The oldest go beyond this, such as 10GiB a partition.  [default: no bound]"
)
@click.option("--segment-bytes", type=SIZE, metavar="SIZE", help="A segment is closed at this size.  [default: 128MiB]")
@click.option("--segment-age", type=DURATION, metavar="DURATION", help="And at this age.  [default: 1d]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def create(
    name: str,
    *,
    partitions: int,
    retention: int | None,
    retention_bytes: int | None,
    segment_bytes: int | None,
    segment_age: int | None,
    as_json: bool,
    endpoint: Endpoint,
) -> None:
    """Make the log NAME.

    \b
    Examples:
      amqp-streams log create temps
      amqp-streams log create temps --partitions 4 --retention 7d --retention-bytes 10GiB
    """
    made = managed(
        endpoint,
        lambda management: management.create_log(
            name,
            partitions=partitions,
            retention_ms=retention,
            retention_bytes=retention_bytes,
            segment_bytes=segment_bytes,
            segment_ms=segment_age,
        ),
    )
    show(made, as_json=as_json)


@log.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def list_(*, as_json: bool, endpoint: Endpoint) -> None:
    """List all logs.

    \b
    Examples:
      amqp-streams log list
      amqp-streams log list --json | jq -r '.logs[].name'
    """
    logs = managed(endpoint, lambda management: management.list_logs())
    if as_json:
        print_json({"logs": [{"name": one.name, "partitions": one.partitions} for one in logs]})
    else:
        print_table(("LOG", "PARTITIONS"), [(one.name, one.partitions) for one in logs])


@log.command()
@click.argument("name", type=NAME)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def describe(name: str, *, as_json: bool, endpoint: Endpoint) -> None:
    """Show settings and figures of the log NAME.

    \b
    Examples:
      amqp-streams log describe temps
      amqp-streams log describe temps --json | jq .retention_ms
    """
    show(managed(endpoint, lambda management: management.describe_log(name)), as_json=as_json)


@log.command()
@click.argument("name", type=NAME)
@click.option("--retention", type=DURATION_OR_NONE, metavar="DURATION|none", help="Events older than this may go.")
@click.option("--retention-bytes", type=SIZE_OR_NONE, metavar="SIZE|none", help="The oldest go beyond this, a partition.")
@click.option("--segment-bytes", type=SIZE, metavar="SIZE", help="A segment is closed at this size.")
@click.option("--segment-age", type=DURATION, metavar="DURATION", help="And at this age.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@client_options
def update(
    name: str,
    *,
    retention: Bound | None,
    retention_bytes: Bound | None,
    segment_bytes: int | None,
    segment_age: int | None,
    as_json: bool,
    endpoint: Endpoint,
) -> None:
    """Change settings of the log NAME; what is not given stays. The number of partitions is fixed.

    \b
    Examples:
      amqp-streams log update temps --retention 30d
      amqp-streams log update temps --retention none --retention-bytes 50GiB
    """
    changes = {key: bound.value for key, bound in (("retention-ms", retention), ("retention-bytes", retention_bytes)) if bound is not None}
    changes |= {key: value for key, value in (("segment-bytes", segment_bytes), ("segment-ms", segment_age)) if value is not None}
    if not changes:
        message = "nothing to change: give --retention, --retention-bytes, --segment-bytes or --segment-age"
        raise click.UsageError(message)
    show(managed(endpoint, lambda management: management.update_log(name, changes)), as_json=as_json)


@log.command()
@click.argument("name", type=NAME)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(name: str, *, yes: bool, endpoint: Endpoint) -> int:
    """Delete the log NAME and all its events.

    \b
    Examples:
      amqp-streams log delete temps
      amqp-streams log delete temps --yes
    """
    if not yes and not confirmed(f"Delete the log {name} and all its events?"):
        say("nothing is deleted")
        return _FAILED
    managed(endpoint, lambda management: management.delete_log(name))
    say(f"{name} is deleted")
    return 0
