"""Completes names in a shell from the node that the command line names: logs, groups, cursors, connections.

Law: **a completion never fails, and ends within `TIME_LIMIT_S`**. A node that does not answer completes
nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem

from amqp_streams.cli.connection import Endpoint, endpoint_of, run
from amqp_streams.client import Client
from amqp_streams.errors import AmqpStreamsError
from service_parts.errors import SettingError

TIME_LIMIT_S: Final = 2.0
NAMES_MAX: Final = 1000
"""A shell shows no more names than this in a useful way."""

Names = Awaitable[Iterable[tuple[str, str]]]


def log_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a log."""

    async def names(client: Client, _: str) -> Iterable[tuple[str, str]]:
        return [(one.name, f"{one.partitions} partitions") for one in await client.management.list_logs()]

    # A URL names another node.
    return [] if "://" in incomplete else _completed(ctx, "", incomplete, names)


def group_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a consumer group of the log in ADDRESS."""

    async def names(client: Client, log: str) -> Iterable[tuple[str, str]]:
        found = await client.management.list_groups(log)
        return [(one.name, f"{len(one.members)} members") for one in found]

    return _completed(ctx, _address(ctx), incomplete, names)


def cursor_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a cursor of the log in ADDRESS: the name of a subscription, or an id."""

    async def names(client: Client, log: str) -> Iterable[tuple[str, str]]:
        found = await client.management.list_cursors(log)
        # The name of a subscription is enough if only one container has it.
        links = [one.link for one in found]
        return [
            (one.link if one.link is not None and links.count(one.link) == 1 else one.id, one.container or "")
            for one in found
        ]

    return _completed(ctx, _address(ctx), incomplete, names)


def connection_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a connection of the node."""

    async def names(client: Client, _: str) -> Iterable[tuple[str, str]]:
        page = await client.management.connection_page(count=NAMES_MAX, search=incomplete or None)
        return [(one.name, f"{one.user or 'anonymous'} from {one.peer}") for one in page.connections]

    return _completed(ctx, "", incomplete, names)


def _address(ctx: click.Context) -> str | None:
    """The ADDRESS of the command line.

    Behind an option that lacks its value, click leaves the arguments unread.
    """
    return ctx.params.get("address") or next((word for word in ctx.args if not word.startswith("-")), None)


def _completed(
    ctx: click.Context, address: str | None, incomplete: str, names: Callable[[Client, str], Names]
) -> list[CompletionItem]:
    """`address`: of the log whose names are asked for; empty: the node itself."""
    if address is None:
        return []
    try:
        endpoint = endpoint_of(ctx, ctx.params)
        node, log = endpoint.at(address) if address else (endpoint, "")
        found = run(asyncio.wait_for(_asked(node, log, names), TIME_LIMIT_S))
    # The shell shows whatever is printed, so that an error would look like a name.
    except (AmqpStreamsError, SettingError, click.ClickException, OSError):
        return []
    matching = [CompletionItem(name, help=about) for name, about in found if name.startswith(incomplete)]
    return matching[:NAMES_MAX]


async def _asked(
    node: Endpoint, log: str, names: Callable[[Client, str], Names]
) -> Iterable[tuple[str, str]]:
    async with node.client() as client:
        return await names(client, log)
