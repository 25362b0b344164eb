"""The asyncio face: `async with connect(url) as client`, then producers, consumers, information and management.

Every method that waits takes `timeout` in seconds (None: no limit) and raises `TimedOutError` when it runs out. All of it belongs to the
event loop it was made on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.address import Address
from amqp_streams.client.connector import Connector
from amqp_streams.client.consumer import Consumer
from amqp_streams.client.errors import ConnectionLostError, TimedOutError
from amqp_streams.client.info import LogInfo, LogSummary
from amqp_streams.client.options import LATEST, RetryPolicy, Settle, Start, TlsOptions
from amqp_streams.client.producer import Pending, Producer, Receipt
from amqp_streams.client.requests import log_info, manage, read_info
from amqp_streams.client.wire import Wire

__all__ = ["Client", "Consumer", "Management", "Pending", "Producer", "Receipt", "connect"]

_T = TypeVar("_T")


async def _within(timeout: float | None, what: str, work: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(timeout) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"{what} took longer than {timeout} s"
        raise TimedOutError(message) from None


class Management:
    """Makes, lists, describes, changes and deletes logs. Each call raises ManagementError (status 404, 409, …) when refused.

    None of them is tried again when the connection is lost meanwhile: ConnectionLostError then says that it may have been done.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector: Final = connector

    async def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        segment_bytes: int | None = None,
        segment_ms: int | None = None,
        timeout: float | None = 30.0,
    ) -> LogInfo:
        """Make a log; durable when this returns. None: the server's default."""
        settings = {
            "partitions": partitions,
            names.INFO_RETENTION_MS: retention_ms,
            names.INFO_RETENTION_BYTES: retention_bytes,
            "segment-bytes": segment_bytes,
            "segment-ms": segment_ms,
        }
        given = {key: value for key, value in settings.items() if value is not None}
        return log_info(name, await self._ask("CREATE", name, given, timeout))

    async def list_logs(self, *, timeout: float | None = 30.0) -> list[LogSummary]:
        """All logs, by name."""
        logs = (await self._ask("QUERY", None, {}, timeout)).get("logs")
        summaries = (
            [_summary({str(key): value for key, value in entry.items()}) for entry in logs if isinstance(entry, dict)]
            if isinstance(logs, list)
            else []
        )
        return sorted(summaries, key=lambda summary: summary.name)

    async def describe_log(self, name: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Settings and figures of one log."""
        return log_info(name, await self._ask("READ", name, {}, timeout))

    async def update_log(self, name: str, settings: Mapping[str, int | None], *, timeout: float | None = 30.0) -> LogInfo:
        """Change settings: keys `retention-ms`, `retention-bytes`, …; None takes a bound away."""
        return log_info(name, await self._ask("UPDATE", name, settings, timeout))

    async def delete_log(self, name: str, *, timeout: float | None = 30.0) -> None:
        """Delete a log and its events."""
        await self._ask("DELETE", name, {}, timeout)

    async def _ask(self, operation: str, name: str | None, body: Mapping[str, object], timeout: float | None) -> dict[str, object]:
        async def ask() -> dict[str, object]:
            return await manage(await self._connector.wire(), operation, name, body)

        return await _within(timeout, f"{operation} of {name or 'the logs'}", ask())


def _summary(entry: Mapping[str, object]) -> LogSummary:
    partitions = entry.get("partitions")
    count = partitions if isinstance(partitions, int) else len(partitions) if isinstance(partitions, list) else 0
    return LogSummary(str(entry.get(names.NAME)), count, dict(entry))


class Client:
    """One connection to an event log node, made again when it is lost. Made by `connect`."""

    def __init__(self, connector: Connector, timeout: float | None) -> None:
        self._connector: Final = connector
        self._timeout: Final = timeout
        self.management: Final = Management(connector)

    def producer(
        self, log: str, *, partition: str | int | None = None, window: int = 1000, properties: Mapping[str, object] | None = None
    ) -> Producer:
        """A producer for `log`; attached when entered with `async with`. `window` bounds events whose outcome is not known yet."""
        return Producer(self._connector, log, partition=_partition(partition), window=window, properties=properties)

    def consumer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        start: Start = LATEST,
        credit: int = 1000,
        settle: Settle = "auto",
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
    ) -> Consumer:
        """A consumer of `log`; attached when entered with `async with`.

        `credit` bounds the events on their way or unread here. `properties` are link properties (`event-streams-consumer-group`,
        `event-streams-epoch`), `filters` further filters: name -> Described(descriptor, value).
        """
        return Consumer(
            self._connector,
            log,
            partition=_partition(partition),
            start=start,
            credit=credit,
            settle=settle,
            properties=properties,
            filters=filters,
        )

    async def info(self, log: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Partitions, offsets and figures of a log, from its `$info` node.

        Raises: LinkRefusedError if there is no such log, ConnectionLostError, TimedOutError.
        """
        return await _within(timeout, f"information on {log}", self._again(lambda wire: read_info(wire, log)))

    async def connect(self) -> None:
        """Make the first connection, as `async with` does."""
        await _within(self._timeout, "connecting", self._connector.connect())

    async def close(self) -> None:
        """Close the connection. Producers and consumers are best closed before: they end with ClosedError."""
        await self._connector.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _again(self, ask: Callable[[Wire], Awaitable[_T]]) -> _T:
        """A question without effect is asked again on the next connection."""
        while True:
            wire = await self._connector.wire()
            try:
                return await ask(wire)
            except ConnectionLostError:
                continue


def _partition(partition: str | int | None) -> str | None:
    return None if partition is None else str(partition)


def connect(
    url: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    tls: TlsOptions | None = None,
    retry: RetryPolicy | None = None,
    container_id: str | None = None,
    idle_timeout_ms: int = 30_000,
    timeout: float | None = 10.0,
) -> Client:
    """A client for the node at `url`: amqp:// amqps:// ws:// wss://, user and password in the URL or given; several URLs: tried in turn.

    Use it with `async with`, which connects within `timeout` seconds. `idle_timeout_ms`: a connection silent for so long is lost.

    Raises (when entered): ConnectError, AuthenticationError, TimedOutError. At once: ValueError for a URL that is none.
    """
    addresses = [Address.parse(one) for one in ([url] if isinstance(url, str) else url)]
    if not addresses:
        message = "no URL"
        raise ValueError(message)
    if user is not None:
        addresses = [replace(address, user=user, password=password) for address in addresses]
    connector = Connector(
        addresses,
        tls=tls,
        retry=retry if retry is not None else RetryPolicy(),
        container_id=container_id or f"amqp-streams-{uuid4().hex}",
        idle_timeout_ms=idle_timeout_ms,
    )
    return Client(connector, timeout)
