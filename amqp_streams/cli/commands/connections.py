"""`amqp-streams connection …`: list, describe and close the connections of a node."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

import click

from amqp_streams import names
from amqp_streams.cli.completion import connection_names
from amqp_streams.cli.connection import Endpoint, NodeGroup, client_options, managed, opened, run
from amqp_streams.cli.terminal.console import (
    confirmed,
    declined,
    human_bytes,
    print_json,
    print_table,
    report,
)
from amqp_streams.cli.terminal.positions import AS_JSON, YES
from amqp_streams.cli.terminal.rendering import iso_time
from amqp_streams.cli.terminal.wording import is_missing, missing_connection
from amqp_streams.client import AttachedLink, ConnectionInfo, Held, Management, ManagementError
from service_parts.texts import printable

T = TypeVar("T")


@click.group(cls=NodeGroup, short_help="List, describe and close connections of a node.")
def connection() -> None:
    """List, describe and close the connections of a node.
    A user sees its own connections. Those of others need the right 'manage' on all logs.

    \b
    Examples:
      amqp-streams connection list --sort bytes-in-per-second
      amqp-streams connection describe 7f3a-12
      amqp-streams connection close 7f3a-12 --reason 'sends to the wrong log'
    """


@connection.command("list")
@click.option(
    "--search",
    metavar="TEXT",
    help="Only those with TEXT in a user, peer, container, group, address, or name of a link.",
)
@click.option(
    "--sort",
    type=click.Choice(names.CONNECTION_SORTS),
    default=names.CONNECTION_SINCE,
    show_default=True,
    metavar="FIELD",
    help=f"Order by one of {', '.join(names.CONNECTION_SORTS)}.",
)
@AS_JSON
@client_options
def list_(*, search: str | None, sort: str, as_json: bool, endpoint: Endpoint) -> None:
    """List the connections of the node that the user may see.
    Rates are averages of the last 5 to 10 seconds. HELD is what a connection or its links wait for.

    \b
    Examples:
      amqp-streams connection list --search temps
      amqp-streams connection list --json | jq '.connections[] | select(.held != [])'
    """
    found = managed(endpoint, lambda management: management.list_connections(search=search, sort=sort))
    if as_json:
        print_json({"connections": [_json(one) for one in found]})
        return
    rows = [
        (
            one.name,
            one.user,
            one.peer,
            one.container,
            _protocol(one),
            iso_time(one.since_ms),
            one.links,
            float(one.rate.events_in),
            _speed(one.rate.bytes_in),
            float(one.rate.events_out),
            _speed(one.rate.bytes_out),
            ", ".join(each.reason for each in one.held) or None,
        )
        for one in found
    ]
    columns = ("CONNECTION", "USER", "PEER", "CONTAINER", "PROTOCOL", "SINCE", "LINKS")
    print_table((*columns, "EVENTS IN/S", "BYTES IN/S", "EVENTS OUT/S", "BYTES OUT/S", "HELD"), rows)


@connection.command()
@click.argument("connection", shell_complete=connection_names)
@AS_JSON
@client_options
def describe(connection: str, *, as_json: bool, endpoint: Endpoint) -> None:
    """Show CONNECTION with its links.

    \b
    Examples:
      amqp-streams connection describe 7f3a-12
      amqp-streams connection describe 7f3a-12 --json | jq '.links[] | {name, lag}'
    """
    one = _asked(endpoint, connection, lambda management: management.describe_connection(connection))
    if as_json:
        print_json(_json(one) | {"links": [_link_json(link) for link in one.attached]})
        return
    for name, value in _facts(one):
        click.echo(f"{name + ':':13}{value}")
    click.echo()
    columns = ("LINK", "ROLE", "ADDRESS", "PARTITIONS", "GROUP", "EPOCH", "LAG", "CREDIT", "UNSETTLED")
    rows = [
        (
            link.name,
            link.role,
            link.address,
            _partitions(link),
            link.group,
            link.epoch,
            link.lag,
            link.credit,
            link.unsettled,
            link.events,
            human_bytes(link.bytes),
            None if link.held is None else link.held.reason,
        )
        for link in one.attached
    ]
    print_table((*columns, "EVENTS", "BYTES", "HELD"), rows)


@connection.command()
@click.argument("connection", shell_complete=connection_names)
@click.option("--reason", metavar="TEXT", help="Why: the client and the log of the node get it.")
@YES
@AS_JSON
@client_options
def close(connection: str, *, reason: str | None, yes: bool, as_json: bool, endpoint: Endpoint) -> int:
    """Close CONNECTION. Its client gets amqp:connection:forced with the name of the user who closed it.
    A client may connect again: to prevent it, remove its user or its rights.

    \b
    Examples:
      amqp-streams connection close 7f3a-12
      amqp-streams connection close 7f3a-12 --yes --reason 'sends to the wrong log'
    """
    if not yes:
        one = _asked(endpoint, connection, lambda management: management.describe_connection(connection))
        if not confirmed(_question(one)):
            return declined("nothing was closed", as_json=as_json)
    _asked(endpoint, connection, lambda management: management.close_connection(connection, reason=reason))
    report(f"{connection} was closed", as_json=as_json, closed=connection)
    return 0


def _asked(endpoint: Endpoint, name: str, ask: Callable[[Management], Awaitable[T]]) -> T:
    """Ask about one connection. If it does not exist, the error has the nearest name."""

    async def asked() -> T:
        async with opened(endpoint) as client:
            try:
                return await ask(client.management)
            except ManagementError as error:
                if not is_missing(error):
                    raise
                known = await client.management.list_connections()
                raise missing_connection(name, [one.name for one in known]) from error

    return run(asked())


def _question(one: ConnectionInfo) -> str:
    whose = printable(one.user) if one.user is not None else "an anonymous client"
    links = "1 link" if one.links == 1 else f"{one.links} links"
    return f"Close connection {printable(one.name)} of {whose} from {printable(one.peer)} with {links}?"


def _facts(one: ConnectionInfo) -> list[tuple[str, str]]:
    """What people read about a connection, in order."""
    total, rate = one.total, one.rate
    user = "anonymous" if one.user is None else printable(one.user)
    facts = [
        ("connection", one.name + (" (of this request)" if one.own else "")),
        ("user", user + (f", by {one.mechanism}" if one.mechanism else "")),
        ("peer", printable(one.peer)),
        ("container", "-" if one.container is None else printable(one.container)),
        ("protocol", _protocol(one)),
        ("state", f"{one.state}, since {iso_time(one.since_ms) or '-'}"),
        ("links", f"{one.links:,}: {one.producers:,} producers, {one.consumers:,} consumers"),
        ("credit", f"{one.credit:,}; {one.unsettled:,} deliveries unsettled"),
        ("in", _flow(total.events_in, total.bytes_in, rate.events_in, rate.bytes_in)),
        ("out", _flow(total.events_out, total.bytes_out, rate.events_out, rate.bytes_out)),
        ("unread", human_bytes(one.unread_bytes)),
    ]
    held = one.held or (Held("", "nothing"),)
    return facts + [("waits for" if not index else "", _why(each)) for index, each in enumerate(held)]


def _why(held: Held) -> str:
    links = "" if not held.links else f" ({held.links:,} link{'s' if held.links > 1 else ''})"
    return f"{held.detail}{links}"


def _flow(events: float, size: float, events_rate: float, size_rate: float) -> str:
    return f"{events:,} events, {human_bytes(size)}; {events_rate:,.1f} events/s, {_speed(size_rate)}"


def _speed(size: float) -> str:
    return f"{human_bytes(size)}/s"


def _protocol(one: ConnectionInfo) -> str:
    carrier = {"amqp": "AMQP", "websocket": "WebSocket"}.get(one.protocol, one.protocol)
    return carrier + (" with TLS" if one.tls else "")


def _partitions(link: AttachedLink) -> str | None:
    # All partitions of a log fill the terminal and say nothing: the first and the last do.
    if link.partition_count > len(link.partitions) or len(link.partitions) > 8:
        return f"{link.partitions[0]} and {link.partition_count - 1:,} more"
    return ", ".join(link.partitions) or None


def _json(one: ConnectionInfo) -> dict[str, object]:
    """A connection as JSON values."""
    return {
        "connection": one.name,
        "user": one.user,
        "mechanism": one.mechanism,
        "peer": one.peer,
        "container": one.container,
        "protocol": one.protocol,
        "tls": one.tls,
        "state": one.state,
        "since": iso_time(one.since_ms),
        "own": one.own,
        "link_count": one.links,
        "producers": one.producers,
        "consumers": one.consumers,
        "credit": one.credit,
        "unsettled": one.unsettled,
        "unread_bytes": one.unread_bytes,
        "total": asdict(one.total),
        "per_second": asdict(one.rate),
        "held": _held_json(one.held),
    }


def _held_json(held: Sequence[Held]) -> list[dict[str, object]]:
    return [asdict(each) for each in held]


def _link_json(link: AttachedLink) -> dict[str, object]:
    """A link as JSON values."""
    held = None if link.held is None else {"reason": link.held.reason, "detail": link.held.detail}
    return {**asdict(link), "partitions": list(link.partitions), "held": held}
