"""The asyncio face: `async with connect(url) as client`, then producers, consumers, information and
management.

Every method that waits takes `timeout` in seconds (None: no limit) and raises `TimedOutError` when it runs
out. All of it belongs to the event loop it was made on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.address import Address
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.transport import Wire
from amqp_streams.client.consuming.consumer import Consumer
from amqp_streams.client.consuming.group import GroupConsumer, GroupSettle
from amqp_streams.client.consuming.ranges import (
    BATCH_BYTES,
    PREFETCH_BYTES,
    Filter,
    RangeReader,
    Run,
    named_filters,
)
from amqp_streams.client.errors import ConnectionLostError
from amqp_streams.client.management.asking import Asker
from amqp_streams.client.management.calls import Management, within
from amqp_streams.client.management.extents import LogExtent, ask_extents, extents_body, read_extents
from amqp_streams.client.management.info import LogInfo
from amqp_streams.client.management.requests import read_info
from amqp_streams.client.options import (
    EARLIEST,
    LATEST,
    RetryPolicy,
    SaslOptions,
    Settle,
    StartAt,
    TlsOptions,
    start_of,
)
from amqp_streams.client.producing.producer import Pending, Producer, Receipt

__all__ = [
    "Client",
    "Consumer",
    "GroupConsumer",
    "Management",
    "Pending",
    "Producer",
    "RangeReader",
    "Receipt",
    "Run",
    "connect",
]

_T = TypeVar("_T")


class Client:
    """A client of an event log node: one connection, or more for a thousand links; lost ones are made again.

    Created by `connect`.
    """

    def __init__(self, pool: Pool, timeout: float | None, *, named: bool = False) -> None:
        """`named`: the container-id was chosen, and will be the same next time."""
        self._named: Final = named
        self._pool: Final = pool
        self._timeout: Final = timeout
        self.management: Final = Management(pool)
        self._asker: Final = Asker(pool)

    def __repr__(self) -> str:
        return f"<Client of {self.address}, {'connected' if self.connected else 'not connected'}>"

    @property
    def connected(self) -> bool:
        """There is a connection just now."""
        return self._pool.connected

    @property
    def address(self) -> str:
        """The URL that is connected to, or is tried next; without user and password."""
        return str(self._pool.address)

    def producer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        window: int = 1000,
        properties: Mapping[str, object] | None = None,
        producer_id: str | None = None,
    ) -> Producer:
        """A producer for `log`; attached when entered with `async with`. `window` bounds events whose outcome
        is not known yet.

        `producer_id`: events are numbered under this name, and the node stores each once however often it is
        sent. A producer goes on behind the highest number that the node has of this name, unless it is given
        the numbers (`sequence=`).
        """
        bound = _partition(partition)
        return Producer(
            self._pool, log, partition=bound, window=window, properties=properties, producer_id=producer_id
        )

    def consumer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        start: StartAt = LATEST,
        credit: int = 1000,
        settle: Settle = "auto",
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
        group: str | None = None,
        epoch: int | None = None,
        durable: str | None = None,
    ) -> Consumer:
        """A consumer of `log`; attached when entered with `async with`.

        `credit` bounds the events on their way or unread here. `properties` are link properties, `filters`
        further filters: name -> Described(descriptor, value).

        `group`: one consumer of a group has each partition; without `partition` the node assigns one, and
        `open` waits until one is free. `epoch` takes a partition from whoever has it with a smaller one.
        `durable`: the node keeps the place of the subscription of this name, for this `container_id`; in a
        group, the group's place in the partition.

        `start`: LATEST and "latest", EARLIEST and "earliest", AfterOffset or AfterTime. With `filters`, too,
        LATEST means events accepted after the attach.

        Raises: ValueError, TypeError for an invalid start; ValueError for `durable` outside of a group when
        `connect` was not given a container_id.
        """
        if durable is not None and group is None and not self._named:
            message = (
                "durable needs connect(…, container_id=…): under that id the node keeps the place, and a"
                " made-up one never returns"
            )
            raise ValueError(message)
        return Consumer(
            self._pool,
            log,
            partition=_partition(partition),
            start=start_of(start),
            credit=credit,
            settle=settle,
            properties=properties,
            filters=filters,
            group=group,
            epoch=epoch,
            durable=durable,
        )

    def group_consumer(
        self,
        log: str,
        group: str,
        *,
        start: StartAt = EARLIEST,
        settle: GroupSettle = "auto",
        credit: int = 1000,
        candidates: int = 4,
        ahead_ms: int = 250,
        filters: Mapping[str, object] | None = None,
        on_assigned: Callable[[str], object] | None = None,
        on_revoked: Callable[[str], object] | None = None,
    ) -> GroupConsumer:
        """A member of consumer group `group` of `log`, with its share of the partitions; joins when entered
        with `async with`.

        The node keeps the group's place in each partition; `start` counts where it has none yet. `credit`
        bounds what is unread or unsettled here of a partition, `ahead_ms` the time that what is fetched ahead
        lasts: less lets partitions move faster. `candidates` bounds the attaches that wait for a partition.
        `on_assigned` and `on_revoked` are called with a partition that came or went.
        """
        return GroupConsumer(
            self._pool,
            log,
            group,
            start=start_of(start),
            settle=settle,
            credit=credit,
            candidates=candidates,
            ahead_ms=ahead_ms,
            filters=filters,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )

    def read_range(
        self,
        log: str,
        partition: str | int,
        start: int = 0,
        end: int | None = None,
        *,
        filter: Filter = None,  # noqa: A002  the word that everybody has for it
        batch_events: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        prefetch_bytes: int = PREFETCH_BYTES,
        incarnation: str | None = None,
        timeout: float | None = 30.0,
    ) -> RangeReader:
        """The events of a partition from number `start` to before `end` (None: to where the log ends now):
        `async for run in …`.

        Ends by itself, also when there are fewer: where retention took some, the offsets tell. `filter`: SQL
        as in `sql_filter`, or described values. A run has at most `batch_events` events and about
        `batch_bytes` bytes, or one event; `prefetch_bytes` bound what is on its way or unread. `incarnation`:
        the log that it has to be (`LogInfo.incarnation`). `timeout`: seconds without a word from the node.

        Raises (while iterating): what `RangeReader.take` raises. ValueError at once for numbers that cannot
        be.
        """
        return RangeReader(
            self._pool,
            log,
            str(partition),
            start,
            end,
            filters=named_filters(filter),
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            prefetch_bytes=prefetch_bytes,
            incarnation=incarnation,
            timeout=timeout,
        )

    async def info(self, log: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Partitions, offsets and figures of a log, from its `$info` node.

        Raises: LinkRefusedError if there is no such log, ConnectionLostError, TimedOutError.
        """
        return await within(timeout, f"information on {log}", self._again(lambda wire: read_info(wire, log)))

    async def extents(
        self, logs: str | Sequence[str], *, missing_ok: bool = False, timeout: float | None = 30.0
    ) -> dict[str, LogExtent]:
        """Where the partitions of some logs begin and end, by log: one request for all of them, on links that
        stay. Cheap to repeat.

        Logs that have more than 10,000 partitions together take several requests, so the answer is of several
        moments. `missing_ok`: logs that are not there are left out, instead of an error.

        Raises: ManagementError (404: there is no such log, 403), LinkRefusedError, ConnectionLostError,
        TimedOutError.
        """
        listed = [logs] if isinstance(logs, str) else list(logs)
        asked = ask_extents(self._asker.ask, listed, missing_ok=missing_ok)
        return await within(timeout, f"where {', '.join(listed)[:200]} begin and end", asked)

    async def offset_at(
        self,
        log: str,
        partitions: str | int | Sequence[str | int] | None,
        timestamp_ms: int,
        *,
        timeout: float | None = 30.0,
    ) -> dict[str, int]:
        """For each of these partitions (None: all) the number of the first event stored at or after a moment,
        or else of the next to come.

        Raises: what `extents` raises.
        """
        given = [partitions] if isinstance(partitions, str | int) else partitions
        body = extents_body(
            [log], None if given is None else [str(partition) for partition in given], timestamp_ms
        )
        answer = read_extents(
            await within(timeout, f"offsets of {log}", self._asker.ask(names.EXTENTS, body))
        )
        return {
            each.partition: each.next if each.found is None else each.found
            for extent in answer.values()
            for each in extent.partitions
        }

    async def connect(self) -> None:
        """Make the first connection, as `async with` does."""
        await within(self._timeout, "connecting", self._pool.connect())

    async def close(self) -> None:
        """Close the connection. Producers and consumers are best closed before: they end with ClosedError."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _again(self, ask: Callable[[Wire], Awaitable[_T]]) -> _T:
        """A question without effect is asked again on the next connection."""
        while True:
            wire = await self._pool.question_wire()
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
    sasl: SaslOptions | None = None,
    retry: RetryPolicy | None = None,
    container_id: str | None = None,
    idle_timeout_ms: int = 30_000,
    timeout: float | None = 10.0,
    redirects_max: int = 4,
) -> Client:
    """A client for the node at `url`: amqp:// amqps:// ws:// wss://, user and password in the URL or given;
    several URLs: tried in turn.

    Use it with `async with`, which connects within `timeout` seconds; each of several URLs gets an equal
    share of them. `idle_timeout_ms`: a connection silent for so long is lost. `redirects_max`: how often in a
    row a link may be sent on to another container; 0: never.

    Raises (when entered): ConnectError, AuthenticationError, TimedOutError. At once: ValueError for a URL
    that is none.
    """
    addresses = [Address.parse(one) for one in ([url] if isinstance(url, str) else url)]
    if not addresses:
        message = "no URL"
        raise ValueError(message)
    if user is not None:
        addresses = [replace(address, user=user, password=password) for address in addresses]
    pool = Pool(
        addresses,
        tls=tls,
        sasl=sasl,
        retry=retry if retry is not None else RetryPolicy(),
        container_id=container_id or f"amqp-streams-{uuid4().hex}",
        idle_timeout_ms=idle_timeout_ms,
        redirects_max=redirects_max,
        connect_s=timeout,
    )
    return Client(pool, timeout, named=container_id is not None)
