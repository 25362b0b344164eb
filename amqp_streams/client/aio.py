"""The asyncio client.

`async with connect(url) as client`, then producers, consumers, log information and management.

Every method that waits takes `timeout` in seconds (None: no limit) and raises `TimedOutError` when the time
is over. All objects belong to the event loop in which they were created.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import uuid4

from amqp_streams import names
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
from amqp_streams.client.endpoints.address import parse_all
from amqp_streams.client.endpoints.rotation import Health, Rotation
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
from amqp_streams.client.producing.batching import BYTES_DEFAULT
from amqp_streams.client.producing.pending import Pending, Receipt
from amqp_streams.client.producing.producer import Producer

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
    """A client of an event log node.

    It opens more connections if its links do not fit into one, and reconnects after a loss.

    Created by `connect`.
    """

    def __init__(self, pool: Pool, timeout: float | None, *, named: bool = False) -> None:
        """`named`: the program chose the container-id, so the container-id is the same after a restart."""
        self._named: Final = named
        self._pool: Final = pool
        self._timeout: Final = timeout
        self.management: Final = Management(pool)
        self._asker: Final = Asker(pool)

    def __repr__(self) -> str:
        return f"<Client of {self.address}, {'connected' if self.connected else 'not connected'}>"

    @property
    def connected(self) -> bool:
        """Whether the first connection of the client is open now. Links may need more connections."""
        return self._pool.connected

    @property
    def address(self) -> str:
        """The URL of the current connection, or the next one to try. Without user and password."""
        return str(self._pool.address)

    def producer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        window: int = 1000,
        properties: Mapping[str, object] | None = None,
        producer_id: str | None = None,
        batch_bytes: int = BYTES_DEFAULT,
        linger_ms: float = 0,
        compression: str | None = None,
    ) -> Producer:
        """Create a producer for `log`; `async with` attaches it.

        `window`: the maximum number of events without an outcome. If the window is full, `send` and `post`
        wait.

        `producer_id` makes the producer idempotent: its events are numbered under this id, and the node
        stores each event once, also if it is sent several times. Numbering continues after the highest number
        that the node has stored for this id, unless the program passes the numbers (`sequence=`).

        `batch_bytes`: events that wait to be sent share transfers of at most this size, if the node takes
        batches; 0: each event has its own. `linger_ms`: how long an event waits for others to share a
        transfer with. By default it waits for the other events of the same loop iteration only.
        `compression`: "zstd" or "lz4" compresses these batches, if the node supports it; needs the
        `compression` extra.
        """
        bound = _partition(partition)
        return Producer(
            self._pool,
            log,
            partition=bound,
            window=window,
            properties=properties,
            producer_id=producer_id,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            compression=compression,
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
        """Create a consumer of `log`; `async with` attaches it.

        `credit`: the maximum number of events of this consumer that are in flight or unread. `properties`:
        link properties to send in the attach. `filters`: filters by name, each a `Described(descriptor,
        value)`; see `sql_filter`.

        `group`: each partition is assigned to one consumer of the group. Without `partition` the node assigns
        one, and entering waits until one is free. `epoch`: take the partition from an owner that has a
        smaller epoch.

        `durable`: the name of the subscription. The node keeps its cursor under this name and the
        `container_id`. In a group the node keeps the group's cursor instead.

        `start`: LATEST or "latest", EARLIEST or "earliest", AfterOffset(42) or AfterTime. LATEST means events
        that are accepted after the attach, also with `filters`.

        Raises:
            ValueError, TypeError if `start` is not valid; ValueError if `durable` is used outside a group and
            `connect` was not given a container_id.
        """
        if durable is not None and group is None and not self._named:
            message = (
                "durable needs connect(…, container_id=…): the node keeps the cursor under that id, and a"
                " generated id is never used again"
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
        """Create a member of consumer group `group` of `log`; `async with` joins the group.

        The node assigns partitions to the member and keeps the group's cursor. `start` is used in partitions
        where the group has no position yet. `candidates`: the maximum number of attaches that wait for a
        partition.

        `credit`: the maximum number of unread and unsettled events of one partition. `ahead_ms`: prefetch
        about as many events as the program processes in this time. A smaller value lets partitions move
        between members faster.

        `on_assigned` and `on_revoked` are called with the partition that was assigned or taken away.
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
        filter: Filter = None,  # noqa: A002 (the usual word for it, in spite of the built-in function)
        batch_events: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        prefetch_bytes: int = PREFETCH_BYTES,
        compression: str | None = None,
        incarnation: str | None = None,
        timeout: float | None = 30.0,
    ) -> RangeReader:
        """Iterate over the events of a partition from offset `start` to before `end`: `async for run in …`.

        `end` None: the end of the log when the link is attached. The iteration ends by itself, also if
        retention has deleted some of the events: the offsets then have gaps. `filter`: a text as in
        `sql_filter`, or described values.

        A run has at most `batch_events` events and about `batch_bytes` bytes, but at least one event.
        `prefetch_bytes`: the maximum number of bytes in flight or unread. `compression`: "zstd" or "lz4" lets
        the node compress the batches, if it supports that; needs the `compression` extra. `incarnation`:
        refuse to read a log that has another `LogInfo.incarnation`. `timeout`: the maximum number of seconds
        in which the node sends nothing.

        Raises:
            ValueError at once if a number is out of range or the codec is unknown, MissingExtraError if its
            library is not installed. While iterating: what `RangeReader.take` raises.
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
            compression=compression,
            incarnation=incarnation,
            timeout=timeout,
        )

    async def info(self, log: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Read the partitions, offsets and settings of a log from its `$info` address.

        Raises:
            LinkRefusedError if the log does not exist, ConnectionLostError, TimedOutError.
        """
        return await within(timeout, f"information on {log}", self._again(lambda wire: read_info(wire, log)))

    async def extents(
        self, logs: str | Sequence[str], *, missing_ok: bool = False, timeout: float | None = 30.0
    ) -> dict[str, LogExtent]:
        """Return the first and the next offset of every partition of some logs, by log name.

        One request for all logs, on links that stay open, so that frequent calls are cheap. If the logs have
        more than 10,000 partitions together, the client sends several requests, and the parts of the answer
        are of different moments. `missing_ok`: leave out logs that do not exist instead of raising an error.

        Raises:
            ManagementError (404: a log does not exist; 403: no permission), LinkRefusedError,
            ConnectionLostError, TimedOutError.
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
        """Return by partition the offset of the first event that was stored at or after `timestamp_ms`.

        If no such event exists, the offset is that of the next event to be stored. `partitions` None: all
        partitions. `timestamp_ms`: milliseconds since 1970 UTC.

        Raises:
            what `extents` raises.
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
        """Open the first connection, as `async with` does."""
        await within(self._timeout, "connecting", self._pool.connect())

    async def close(self) -> None:
        """Close all connections.

        Producers and consumers that are still open end with ClosedError: close them first.
        """
        await self._pool.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        # BaseException: Ctrl-C while connecting must close the connections as well.
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _again(self, ask: Callable[[Wire], Awaitable[_T]]) -> _T:
        """Repeat a request that changes nothing on the next connection, until one connection answers it."""
        while True:
            wire = await self._pool.question_wire()
            try:
                return await ask(wire)
            # The request changes nothing, so sending it again is safe. The connector limits the attempts.
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
    health: Health | None = None,
) -> Client:
    """Create a client for the node at `url`; `async with` connects it.

    `url`: amqp://, amqps://, ws:// or wss://, with user and password in the URL or in `user` and `password`,
    which count for all URLs. Several URLs of the nodes of one cluster: a text with commas between them, or a
    sequence. Each connection begins at a random one, and changes to another one if a node refuses it, is
    silent, or is lost. `timeout`: seconds for the first connection, over all URLs.

    `container_id`: the name of this client at the node; by default a random one. `idle_timeout_ms`: a
    connection on which nothing arrives for so long counts as lost. `redirects_max`: how many redirects in a
    row a link follows to another container; 0: none. `health`: what an earlier client of these URLs has
    learnt about them.

    Raises:
        ValueError at once if a URL is not valid. When entered: ConnectError, AuthenticationError,
        TimedOutError.
    """
    addresses = parse_all(url)
    if user is not None:
        addresses = [replace(address, user=user, password=password) for address in addresses]
    pool = Pool(
        # The order of endpoints spreads the load and keeps no secret.
        Rotation(addresses, health or Health(random.random)),
        tls=tls,
        sasl=sasl,
        retry=retry if retry is not None else RetryPolicy(),
        container_id=container_id or f"amqp-streams-{uuid4().hex}",
        idle_timeout_ms=idle_timeout_ms,
        redirects_max=redirects_max,
        connect_s=timeout,
    )
    return Client(pool, timeout, named=container_id is not None)
