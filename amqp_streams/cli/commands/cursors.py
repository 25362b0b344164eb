"""`amqp-streams cursor …`: list, move and remove the cursors of subscriptions and groups."""

from typing import Final

import click

from amqp_streams.cli.completion import cursor_names, log_names
from amqp_streams.cli.connection import Endpoint, NodeGroup, client_options, managed
from amqp_streams.cli.terminal.console import confirmed, declined, print_json, print_table, report
from amqp_streams.cli.terminal.positions import (
    AS_JSON,
    PARTITION,
    TO,
    YES,
    check_partition,
    cursor_json,
    lag,
    move_confirmed,
    print_positions,
    target,
)
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.client import CursorInfo, Management, ManagementError

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


@click.group(cls=NodeGroup, short_help="List, move and remove cursors of subscriptions and groups.")
def cursor() -> None:
    """List, move and remove cursors: of subscriptions ('receive --durable NAME') and of consumer groups.

    A CURSOR is an id from 'cursor list', or the NAME of a subscription if only one container has it.

    \b
    Examples:
      amqp-streams cursor list temps
      amqp-streams cursor reset temps nightly-report --to -1h
      amqp-streams cursor remove temps nightly-report
    """


@cursor.command("list")
@click.argument("address", required=False, shell_complete=log_names)
@AS_JSON
@client_options
def list_(address: str | None, *, as_json: bool, endpoint: Endpoint) -> None:
    """List the cursors of the log at ADDRESS, or of all logs.
    LAG is the number of events that are not read yet.

    \b
    Examples:
      amqp-streams cursor list
      amqp-streams cursor list temps --json | jq '.cursors[] | {name, lag}'
    """
    node, log = endpoint.at(address) if address is not None else (endpoint, None)
    found = managed(node, lambda management: management.list_cursors(log), log=log)
    if as_json:
        print_json({"cursors": [cursor_json(one) for one in found]})
        return
    rows = [
        (
            one.log,
            one.id,
            one.link,
            one.container,
            one.group,
            one.user,
            one.active,
            lag(one.positions),
            iso_time(one.updated_ms),
        )
        for one in found
    ]
    print_table(("LOG", "CURSOR", "NAME", "CONTAINER", "GROUP", "USER", "ACTIVE", "LAG", "UPDATED"), rows)


@cursor.command()
@click.argument("address", shell_complete=log_names)
@click.argument("cursor", shell_complete=cursor_names)
@TO
@PARTITION
@YES
@AS_JSON
@client_options
def reset(
    address: str, cursor: str, *, to: str, partition: str | None, yes: bool, as_json: bool, endpoint: Endpoint
) -> int:
    """Move CURSOR of the log at ADDRESS.
    Refused while a consumer uses it. Shows the current position and asks for confirmation.

    \b
    Examples:
      amqp-streams cursor reset temps nightly-report --to earliest
      amqp-streams cursor reset temps nightly-report --to 42 --partition 0
      amqp-streams cursor reset temps 9de4ecb2f2f467d789edf6cb --to 2026-11-21T06:30
    """
    start = target(to)
    node, log = endpoint.at(address)

    # Found before the question, so that the question can show what moves.
    found = managed(node, lambda management: _found(management, log, cursor), log=log)
    check_partition(start, partition, found.positions)
    if not yes and not move_confirmed(f"{cursor} of {log}", to, partition, found.positions):
        return declined("nothing was moved", as_json=as_json)
    one = managed(
        node, lambda management: management.reset_cursor(log, found.id, start, partition=partition), log=log
    )
    if as_json:
        print_json(cursor_json(one))
    else:
        print_positions(one.positions)
    return 0


@cursor.command()
@click.argument("address", shell_complete=log_names)
@click.argument("cursor", shell_complete=cursor_names)
@YES
@AS_JSON
@client_options
def remove(address: str, cursor: str, *, yes: bool, as_json: bool, endpoint: Endpoint) -> int:
    """Remove CURSOR of the log at ADDRESS.
    A consumer with its name then begins anew. Refused while a consumer uses it.

    \b
    Examples:
      amqp-streams cursor remove temps nightly-report
      amqp-streams cursor remove temps 9de4ecb2f2f467d789edf6cb --yes
    """
    node, log = endpoint.at(address)
    # Before the question: a name that does not exist is an error, whatever the answer is.
    found = managed(node, lambda management: _found(management, log, cursor), log=log)
    if not yes and not confirmed(f"Remove cursor {cursor} of {log} with its position?"):
        return declined("nothing was removed", as_json=as_json)

    async def forgotten(management: Management) -> None:
        await management.delete_cursor(log, found.id)

    managed(node, forgotten, log=log)
    report(f"{cursor} was removed", as_json=as_json, removed=found.id, log=log)
    return 0


async def _found(management: Management, log: str, word: str) -> CursorInfo:
    """The cursor with this id or subscription name.

    Raises:
        ManagementError: no cursor matches, or more than one.
    """
    cursors = await management.list_cursors(log)
    # An id first: a subscription may have the text of an id as its name.
    by_id = next((one for one in cursors if one.id == word), None)
    if by_id is not None:
        return by_id
    named = [one for one in cursors if one.link == word]
    if not named:
        raise ManagementError(
            _NOT_FOUND, f"log {log!r} has no cursor {word!r}: see 'amqp-streams cursor list {log}'"
        )
    if len(named) > 1:
        raise ManagementError(
            _CONFLICT,
            f"{len(named)} containers have a subscription {word!r}: use a cursor id,"
            f" {', '.join(one.id for one in named)}",
        )
    return named[0]
