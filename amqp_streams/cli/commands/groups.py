"""`amqp-streams group …`: list, describe, move and remove consumer groups."""

import click

from amqp_streams.cli.completion import group_names, log_names
from amqp_streams.cli.connection import Endpoint, NodeGroup, client_options, managed
from amqp_streams.cli.terminal.console import confirmed, declined, print_json, print_table, report
from amqp_streams.cli.terminal.positions import (
    AS_JSON,
    PARTITION,
    TO,
    YES,
    check_partition,
    group_json,
    lag,
    move_confirmed,
    print_positions,
    say_unknown,
    target,
)
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.client import GroupInfo


@click.group(cls=NodeGroup, short_help="List, describe, move and remove consumer groups.")
def group() -> None:
    """List, describe, move and remove consumer groups.
    A group exists once it has a member ('receive --group NAME').

    \b
    Examples:
      amqp-streams group list temps
      amqp-streams group describe temps billing
      amqp-streams group reset temps billing --to -1h
      amqp-streams group remove temps billing
    """


@group.command("list")
@click.argument("address", required=False, shell_complete=log_names)
@AS_JSON
@client_options
def list_(address: str | None, *, as_json: bool, endpoint: Endpoint) -> None:
    """List the consumer groups of the log at ADDRESS, or of all logs.
    LAG is the number of events that are not read yet. On Kafka, MEMBERS and WAITING are '-' if the node that
    decides about the group did not answer.

    \b
    Examples:
      amqp-streams group list
      amqp-streams group list temps --json | jq '.groups[] | {group, lag}'
    """
    node, log = endpoint.at(address) if address is not None else (endpoint, None)
    found = managed(node, lambda management: management.query_groups(log), log=log)
    if as_json:
        groups = [group_json(one) for one in found.groups]
        print_json({"groups": groups, "incomplete": list(found.incomplete)})
        return
    say_unknown(found.groups, found.incomplete)
    rows = [
        (
            one.log,
            one.name,
            # A part of the members would look like all of them.
            len(one.members) if one.members_known else None,
            one.waiting if one.members_known else None,
            lag(one.positions),
            iso_time(one.updated_ms),
        )
        for one in found.groups
    ]
    print_table(("LOG", "GROUP", "MEMBERS", "WAITING", "LAG", "UPDATED"), rows)


@group.command()
@click.argument("address", shell_complete=log_names)
@click.argument("group", shell_complete=group_names)
@AS_JSON
@client_options
def describe(address: str, group: str, *, as_json: bool, endpoint: Endpoint) -> None:
    """Show the position of GROUP in each partition of the log at ADDRESS, and the owners of the partitions.

    \b
    Examples:
      amqp-streams group describe temps billing
      amqp-streams group describe temps billing --json | jq '.partitions[].owner'
    """
    node, log = endpoint.at(address)
    _show(
        managed(node, lambda management: management.describe_group(log, group), log=log, group=group),
        as_json=as_json,
    )


@group.command()
@click.argument("address", shell_complete=log_names)
@click.argument("group", shell_complete=group_names)
@TO
@PARTITION
@YES
@AS_JSON
@client_options
def reset(
    address: str, group: str, *, to: str, partition: str | None, yes: bool, as_json: bool, endpoint: Endpoint
) -> int:
    """Move the position of GROUP in the log at ADDRESS.
    Refused while the group has members. Shows the current position and asks for confirmation.

    \b
    Examples:
      amqp-streams group reset temps billing --to earliest
      amqp-streams group reset temps billing --to 42 --partition 0
      amqp-streams group reset temps billing --to 2026-11-21T06:30 --yes
    """
    start = target(to)
    node, log = endpoint.at(address)
    positions = managed(
        node, lambda management: management.describe_group(log, group), log=log, group=group
    ).positions
    check_partition(start, partition, positions)
    if not yes and not move_confirmed(f"the group {group} of {log}", to, partition, positions):
        return declined("nothing was moved", as_json=as_json)
    _show(
        managed(
            node, lambda management: management.reset_group(log, group, start, partition=partition), log=log
        ),
        as_json=as_json,
    )
    return 0


@group.command()
@click.argument("address", shell_complete=log_names)
@click.argument("group", shell_complete=group_names)
@YES
@AS_JSON
@client_options
def remove(address: str, group: str, *, yes: bool, as_json: bool, endpoint: Endpoint) -> int:
    """Remove the cursor and the epochs of GROUP in the log at ADDRESS. Refused while it has members.

    \b
    Examples:
      amqp-streams group remove temps billing
      amqp-streams group remove temps billing --yes
    """
    node, log = endpoint.at(address)
    if not yes and not confirmed(f"Remove group {group} of {log} with its position and its epochs?"):
        return declined("nothing was removed", as_json=as_json)
    managed(node, lambda management: management.delete_group(log, group), log=log, group=group)
    report(f"{group} was removed", as_json=as_json, removed=group, log=log)
    return 0


def _show(one: GroupInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(group_json(one))
        return
    say_unknown([one])
    waiting = f", {one.waiting} attaches waiting" if one.waiting else ""
    members = f"{len(one.members)} members" if one.members_known else "members not known"
    behind = lag(one.positions)
    click.echo(
        f"{one.name} of {one.log}: {members}{waiting};"
        f" {'-' if behind is None else f'{behind:,}'} events to come"
    )
    print_positions(one.positions)
