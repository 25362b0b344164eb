"""The `$management` address of a node as methods: logs, cursors and consumer groups.

Spec: AMQP Management 1.0 (working draft).
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar, Unpack

from amqp_streams import names
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.errors import TimedOutError
from amqp_streams.client.management.connections import (
    ConnectionInfo,
    ConnectionPage,
    connection_info,
    connection_page,
    query_body,
)
from amqp_streams.client.management.cursors import (
    CursorInfo,
    GroupInfo,
    GroupList,
    cursor_info,
    group_info,
    listed,
    reset_body,
)
from amqp_streams.client.management.info import LogInfo, LogSummary
from amqp_streams.client.management.node import NodeInfo, node_info
from amqp_streams.client.management.requests import log_info, manage
from amqp_streams.client.options import StartAt
from amqp_streams.log_settings import BY_FIELD, LogSettingValues, SettingValue

_T = TypeVar("_T")


def on_the_wire(settings: LogSettingValues) -> dict[str, object]:
    """Return the settings that have a value, by their names on the wire.

    Raises:
        TypeError: a setting is unknown.
    """
    unknown = sorted(settings.keys() - BY_FIELD.keys())
    if unknown:
        message = f"{unknown[0]!r} is not a setting of a log; the settings are {', '.join(BY_FIELD)}"
        raise TypeError(message)
    return {BY_FIELD[field].name: value for field, value in settings.items() if value is not None}


async def within(timeout: float | None, what: str, work: Awaitable[_T]) -> _T:
    """Await `work`. Raises TimedOutError, which names `what`, if it takes longer than `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"{what} took longer than {timeout} s"
        raise TimedOutError(message) from None


class Management:
    """Creates, lists, describes, changes and deletes logs.

    Lists, moves and deletes cursors and consumer groups. Lists, describes and closes connections. Describes
    the node.

    Each call raises ManagementError with a status (404, 409, …) if the node refuses it. No call is repeated
    when the connection is lost: after ConnectionLostError it is unknown whether the node carried it out.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool

    async def create_log(
        self, name: str, *, timeout: float | None = 30.0, **settings: Unpack[LogSettingValues]
    ) -> LogInfo:
        """Create a log; it is durable when this returns.

        The settings are those of `amqp_streams.log_settings`.
        """
        return log_info(name, await self._ask("CREATE", name, on_the_wire(settings), timeout))

    async def list_logs(self, *, timeout: float | None = 30.0) -> list[LogSummary]:
        """Return all logs that the user may see, sorted by name."""
        summaries = [_summary(entry) for entry in await self._list("logs", timeout)]
        return sorted(summaries, key=lambda summary: summary.name)

    async def describe_log(self, name: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Return the settings, partitions and offsets of one log."""
        return log_info(name, await self._ask("READ", name, {}, timeout))

    async def update_log(
        self, name: str, settings: Mapping[str, SettingValue], *, timeout: float | None = 30.0
    ) -> LogInfo:
        """Change settings: keys `retention-ms`, `retention-bytes`, …; the value None removes a limit."""
        return log_info(name, await self._ask("UPDATE", name, settings, timeout))

    async def delete_log(self, name: str, *, timeout: float | None = 30.0) -> None:
        """Delete a log and its events."""
        await self._ask("DELETE", name, {}, timeout)

    async def list_cursors(self, log: str | None = None, *, timeout: float | None = 30.0) -> list[CursorInfo]:
        """Return the cursors of a log, or of all logs: those of subscriptions and of consumer groups."""
        return [
            cursor_info(entry)
            for entry in await self._list(names.CURSORS, timeout, type_=names.CURSOR_TYPE, log=log)
        ]

    async def describe_cursor(self, log: str, cursor: str, *, timeout: float | None = 30.0) -> CursorInfo:
        """Return the cursor with this id."""
        return cursor_info(await self._ask("READ", cursor, {}, timeout, type_=names.CURSOR_TYPE, log=log))

    async def reset_cursor(
        self,
        log: str,
        cursor: str,
        to: StartAt,
        *,
        partition: str | None = None,
        timeout: float | None = 30.0,
    ) -> CursorInfo:
        """Move a cursor in one partition, or in all: the next event is the first one after `to`.

        The node refuses it (409) while a link uses the cursor.
        """
        return cursor_info(
            await self._ask(
                "UPDATE", cursor, reset_body(to, partition), timeout, type_=names.CURSOR_TYPE, log=log
            )
        )

    async def delete_cursor(self, log: str, cursor: str, *, timeout: float | None = 30.0) -> None:
        """Delete a cursor: the next link with its name begins at its own start.

        Refused (409) while a link uses the cursor.
        """
        await self._ask("DELETE", cursor, {}, timeout, type_=names.CURSOR_TYPE, log=log)

    async def list_groups(self, log: str | None = None, *, timeout: float | None = 30.0) -> list[GroupInfo]:
        """Return the consumer groups of a log, or of all logs."""
        return [*(await self.query_groups(log, timeout=timeout)).groups]

    async def query_groups(self, log: str | None = None, *, timeout: float | None = 30.0) -> GroupList:
        """Return the consumer groups of a log, or of all logs, and whether some may be missing."""
        incomplete: dict[str, None] = {}
        entries = await self._list(names.GROUPS, timeout, type_=names.GROUP_TYPE, log=log, reasons=incomplete)
        return GroupList(tuple(map(group_info, entries)), tuple(incomplete))

    async def describe_group(self, log: str, group: str, *, timeout: float | None = 30.0) -> GroupInfo:
        """Return one consumer group: its position, epoch and owner in each partition."""
        return group_info(await self._ask("READ", group, {}, timeout, type_=names.GROUP_TYPE, log=log))

    async def reset_group(
        self, log: str, group: str, to: StartAt, *, partition: str | None = None, timeout: float | None = 30.0
    ) -> GroupInfo:
        """Move the cursor of a group in one partition, or in all: the next event is the first one after `to`.

        The node refuses it (409) while the group has links.
        """
        return group_info(
            await self._ask(
                "UPDATE", group, reset_body(to, partition), timeout, type_=names.GROUP_TYPE, log=log
            )
        )

    async def delete_group(self, log: str, group: str, *, timeout: float | None = 30.0) -> None:
        """Delete the cursor and the epochs of a group. Refused (409) while the group has links."""
        await self._ask("DELETE", group, {}, timeout, type_=names.GROUP_TYPE, log=log)

    async def list_connections(
        self, *, search: str | None = None, sort: str | None = None, timeout: float | None = 30.0
    ) -> list[ConnectionInfo]:
        """Return the connections that the user may see: its own, or all with `manage` on all logs.

        `search`, `sort`: see `connection_page`. The list may have 10,000 entries.
        """

        async def ask() -> list[ConnectionInfo]:
            page = await self._page(0, None, search, sort)
            found = [*page.connections]
            while page.next is not None:
                page = await self._page(page.next, None, search, sort)
                found += page.connections
            return found

        return await within(timeout, "QUERY of the connections", ask())

    async def connection_page(
        self,
        *,
        offset: int = 0,
        count: int | None = None,
        search: str | None = None,
        sort: str | None = None,
        timeout: float | None = 30.0,
    ) -> ConnectionPage:
        """Return at most `count` connections, from the index `offset` on.

        `search`: a part of a user, peer, container-id, group or address, or of the name of a connection or
        link.
        `sort`: `since-ms` (the default), `user`, `peer`, `container`, `links`, `unread-bytes`, `events-in`,
        `events-in-per-second`, and the same with `bytes` and `out`. Numbers are descending.
        """
        return await within(timeout, "QUERY of the connections", self._page(offset, count, search, sort))

    async def describe_connection(self, name: str, *, timeout: float | None = 30.0) -> ConnectionInfo:
        """Return one connection with its links."""
        return connection_info(await self._ask("READ", name, {}, timeout, type_=names.CONNECTION_TYPE))

    async def close_connection(
        self, name: str, *, reason: str | None = None, timeout: float | None = 30.0
    ) -> None:
        """Close a connection: its client gets `amqp:connection:forced`, the user's name and the reason.

        The node refuses (409) the connection over which the request comes. A client may connect again.
        """
        body = {} if reason is None else {names.CONNECTION_REASON: reason}
        await self._ask("DELETE", name, body, timeout, type_=names.CONNECTION_TYPE)

    async def describe_node(
        self, *, parts: Sequence[str] | None = None, log: str | None = None, timeout: float | None = 30.0
    ) -> NodeInfo:
        """Return the health of the node. Needs the right `manage` on all logs.

        `parts`: some of `rights`, `figures`, `warnings`, `settings`, `changes`; None: all of them. Every user
        may ask for `rights` alone: `NodeInfo.administers`, and with `log` also `NodeInfo.log_rights`.
        """
        body = {} if parts is None else {names.NODE_PARTS: list(parts)}
        return node_info(await self._ask("READ", None, body, timeout, type_=names.NODE_TYPE, log=log))

    async def _page(
        self, offset: int, count: int | None, search: str | None, sort: str | None
    ) -> ConnectionPage:
        body, type_ = query_body(search, sort), names.CONNECTION_TYPE
        wire = await self._pool.question_wire()
        at = offset or None
        return connection_page(await manage(wire, "QUERY", None, body, type_=type_, offset=at, count=count))

    async def _list(
        self,
        what: str,
        timeout: float | None,
        *,
        type_: str = names.LOG_TYPE,
        log: str | None = None,
        reasons: dict[str, None] | None = None,
    ) -> list[dict[str, object]]:
        """Return all entries of a list, which the node sends in pages.

        `reasons`: gets why entries may be missing.
        """

        async def ask() -> list[dict[str, object]]:
            entries: list[dict[str, object]] = []
            at: object = 0
            while isinstance(at, int):
                wire = await self._pool.question_wire()
                answer = await manage(wire, "QUERY", None, {}, type_=type_, log=log, offset=at or None)
                page = listed(answer, what)
                entries += page
                missing = answer.get(names.QUERY_INCOMPLETE)
                if reasons is not None and isinstance(missing, list):
                    reasons.update(dict.fromkeys(map(str, missing)))
                # An empty page must end the list, whatever the node says about the next page.
                at = answer.get(names.QUERY_NEXT) if page else None
            return entries

        return await within(timeout, f"QUERY of {log or 'the logs'}", ask())

    async def _ask(
        self,
        operation: str,
        name: str | None,
        body: Mapping[str, object],
        timeout: float | None,
        *,
        type_: str = names.LOG_TYPE,
        log: str | None = None,
    ) -> dict[str, object]:
        async def ask() -> dict[str, object]:
            return await manage(await self._pool.question_wire(), operation, name, body, type_=type_, log=log)

        return await within(timeout, f"{operation} of {name or log or 'the logs'}", ask())


def _summary(entry: Mapping[str, object]) -> LogSummary:
    partitions = entry.get("partitions")
    count = (
        partitions if isinstance(partitions, int) else len(partitions) if isinstance(partitions, list) else 0
    )
    return LogSummary(str(entry.get(names.NAME)), count, dict(entry))
