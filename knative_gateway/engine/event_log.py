"""[io] The logs of an event log node, through its client: `ports.EventLog`.

A reader holds its positions itself; the node stores nothing for it. After the connection to the node is lost,
a reader continues at its positions. The number of events that were read and not yet taken is bounded.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Final, Self

import structlog

from amqp_streams.client import (
    EARLIEST,
    AfterOffset,
    Client,
    Consumer,
    LogInfo,
    ManagementError,
    PartitionExtent,
    RetryPolicy,
    Run,
    TlsOptions,
    connect,
)
from amqp_streams.client.raw import bare, delivered, position_of
from amqp_streams.errors import AmqpStreamsError
from knative_gateway.engine.appending import Appender, AppendLimits, Report
from knative_gateway.engine.probing import Probe, ProbeTimes
from knative_gateway.engine.sharing import GroupShares
from knative_gateway.errors import RefusedError, UnavailableError
from knative_gateway.offsets import offset_text
from knative_gateway.ports import Extents, Stored
from knative_gateway.running.supervising import Supervisor

READ_EVENTS_MAX: Final = 500
"""Events in one batch of a reader."""
# Two batches: while the gateway works on one, the node sends the next.
_CREDIT: Final = 1000
_ANSWER_S: Final = 10.0
_RANGE_BATCH_BYTES: Final = 128 << 10
_AGAIN_S: Final = 1.0
# The client needs a bound. The gateway never gives a node up, because senders get 503 in the meantime.
_FOR_EVER: Final = 1 << 40
_CONFLICT: Final = 409
_SERVER_ERROR: Final = 500

log = structlog.get_logger("knative_gateway.engine.event_log")


class AmqpEventLog:
    """The logs of one node. Use it with `async with`.

    The node may be unreachable at the start and at any later time.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        user: str | None = None,
        password: str | None = None,
        tls: TlsOptions | None = None,
        limits: AppendLimits | None = None,
        drain_s: float = 5.0,
        probes: ProbeTimes | None = None,
        tasks: Supervisor | None = None,
    ) -> None:
        retry = RetryPolicy(
            attempts_max=_FOR_EVER,
            elapsed_max_ms=_FOR_EVER,
            # Short waits, because senders wait at most `limits.append` for a node that restarts.
            first_ms=50,
            wait_max_ms=1000,
            first_connect=True,
        )
        self._client: Final[Client] = connect(
            url, user=user, password=password, tls=tls, retry=retry, timeout=None
        )
        self._appender: Final = Appender(self._client, limits)
        self._drain_s: Final = drain_s
        self._probes: Final = probes
        self._supervisor: Final = tasks or Supervisor()
        self._probe: Probe | None = None
        self._shares: GroupShares | None = None
        self._tasks: Final[list[asyncio.Task[None]]] = []

    @property
    def problem(self) -> str | None:
        """Why the node cannot be used; None if no problem is known."""
        refusal = None if self._shares is None else self._shares.refusal
        return "the event log node is unreachable" if self._probe is None else self._probe.problem or refusal

    def shares(self) -> GroupShares:
        """Share partitions with the other processes that deliver the same events."""
        self._shares = GroupShares(self._client)
        return self._shares

    @property
    def client(self) -> Client:
        """The client that is connected to the node."""
        return self._client

    @property
    def pending(self) -> Mapping[str, tuple[int, int]]:
        """How many events and bytes are not durable yet, and how many of all logs may be."""
        return self._appender.pending

    @property
    def connected(self) -> bool:
        """Whether the connection to the node exists now."""
        return self._client.connected

    async def __aenter__(self) -> Self:
        self._probe = Probe(self._client, self._probes)
        self._tasks[:] = (
            asyncio.create_task(self._connect()),
            self._supervisor.keep("event log probe", self._probe.run),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait up to `drain_s` for the outcomes of appends in flight, and disconnect."""
        # Without a connection no outcome can arrive, so waiting would only delay the stop.
        await self._appender.close(self._drain_s if self.connected else 0.0)
        for task in self._tasks:
            task.cancel()
        await self._client.close()

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the first connection to the node.

        Raises:
            UnavailableError: the node does not answer within `timeout_s`, or refuses the login; the message
                contains the node's reason.
        """
        connecting, *_ = self._tasks
        done, _ = await asyncio.wait({connecting}, timeout=timeout_s)
        if not done:
            message = f"the event log node does not answer within {timeout_s:g} s"
            raise UnavailableError(message)
        connecting.result()

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        """Create the log if it does not exist. Returns the number of its partitions.

        Raises:
            RefusedError: the node does not create a log with this name and these settings.
            UnavailableError: the node is unreachable, or has an error.
        """
        try:
            info = await self._client.management.create_log(
                log, partitions=partitions, retention_ms=retention_ms, timeout=_ANSWER_S
            )
        except ManagementError as error:
            # The log exists, created by this gateway earlier or by another replica. Its own settings stay.
            if error.status != _CONFLICT:
                raise _refused(log, error) from error
            info = await self._info(log)
        except AmqpStreamsError as error:
            raise _away(log, error) from error
        return len(info.partitions) or partitions

    async def delete(self, log: str) -> None:
        """Delete a log and its events. Does nothing if the log does not exist.

        Raises:
            UnavailableError: the node is unreachable, or refuses the request.
        """
        # Before the request, so that waiting appends fail with this reason and not with the loss of their
        # link.
        self._appender.forget(log)
        try:
            await self._client.management.delete_log(log, timeout=_ANSWER_S)
        except ManagementError as error:
            if error.status != 404:
                raise _away(log, error) from error
        except AmqpStreamsError as error:
            raise _away(log, error) from error

    def append(self, log: str, message: bytes) -> Coroutine[None, None, None]:
        """Store one message, which contains its own group key. It is durable when the returned coroutine
        returns.

        Raises:
            OverloadedError: the log accepts no more events now; retry later.
            UnavailableError: the log is not available; it is not known whether the message is stored.
            TooLargeError: the message is larger than the limit of the node.
        """
        return self._appender.append(log, message)

    def post(self, log: str, message: bytes, report: Report) -> None:
        """Store one message without waiting. `report` is called once, later: None if it is durable, else the
        error.

        Raises:
            OverloadedError, UnavailableError: the message cannot be queued; `report` is not called.
        """
        self._appender.post(log, message, report)

    def forget(self, log: str) -> None:
        """Stop appending to a log that is not served any more, and fail its waiting appends. The next append
        begins as if the log was new.
        """
        self._appender.forget(log)

    async def ends(self, log: str) -> Mapping[int, str | None]:
        """Return the offset of the last event of each partition; None for an empty partition.

        Raises:
            UnavailableError: the node is unreachable, or the log does not exist.
        """
        partitions = (await self._info(log)).partitions
        return {int(entry.partition): offset_text(entry.latest_offset) for entry in partitions}

    async def extents(self, log: str) -> Extents:
        """Return the current extents of the log. Its links stay open, because calls are frequent.

        Raises:
            UnavailableError: the node is unreachable, or the log does not exist.
        """
        try:
            extent = (await self._client.extents(log, timeout=_ANSWER_S))[log]
        except (AmqpStreamsError, KeyError) as error:
            raise _away(log, error) from error
        first = {int(one.partition): _offset(one.earliest, one) for one in extent.partitions}
        last = {int(one.partition): _offset(one.next - 1, one) for one in extent.partitions}
        return Extents(extent.incarnation, first, last)

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        """Return, for each partition, the position from which to read all events that were stored after
        `at_ms`.

        Raises:
            UnavailableError: the node is unreachable, or the log does not exist.
        """
        try:
            found = await self._client.offset_at(log, None, at_ms + 1, timeout=_ANSWER_S)
        except AmqpStreamsError as error:
            raise _away(log, error) from error
        return {
            int(partition): offset_text(number - 1 if number else None) for partition, number in found.items()
        }

    async def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        """Yield events of these partitions in batches, without end; in order within a partition.

        `after`: the offset before the first event, by partition; None: from the earliest event.
        """
        if len(after) == 1:
            # Without a queue, and so without another task that wakes up for each batch.
            ((partition, offset),) = after.items()
            async with aclosing(self._follow(log, partition, offset)) as taken:
                async for batch in taken:
                    yield batch
        # At most one batch of each partition waits here. More events wait in the client; credit limits them.
        batches: asyncio.Queue[Sequence[Stored]] = asyncio.Queue(max(1, len(after)))
        readers = [
            asyncio.create_task(self._read(log, partition, offset, batches))
            for partition, offset in after.items()
        ]
        try:
            while True:
                yield await batches.get()
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def read_range(
        self, log: str, partition: int, start: int, end: int, *, bytes_max: int
    ) -> Sequence[Stored]:
        """Return the events of a partition from offset `start` to before `end`, except those that retention
        has removed. No event is added after `bytes_max` bytes.

        Raises:
            UnavailableError: the node is unreachable, or refuses the request.
        """
        found: list[Stored] = []
        reader = self._client.read_range(
            log,
            partition,
            start,
            end,
            batch_events=READ_EVENTS_MAX,
            batch_bytes=_RANGE_BATCH_BYTES,
            prefetch_bytes=2 * _RANGE_BATCH_BYTES,
            timeout=_ANSWER_S,
        )
        try:
            async with reader:
                while bytes_max > 0 and (runs := await reader.take()):
                    for event in (event for run in runs for event in _of_run(partition, run)):
                        if bytes_max <= 0:
                            break
                        found.append(event)
                        bytes_max -= len(event.message)
        except AmqpStreamsError as error:
            raise _away(log, error) from error
        return found

    async def _read(
        self, name: str, partition: int, offset: str | None, batches: "asyncio.Queue[Sequence[Stored]]"
    ) -> None:
        """Read one partition into a queue until cancelled."""
        async with aclosing(self._follow(name, partition, offset)) as taken:
            async for batch in taken:
                await batches.put(batch)

    async def _follow(
        self, name: str, partition: int, offset: str | None
    ) -> AsyncGenerator[Sequence[Stored], None]:
        """Yield batches of one partition, without end. After an error, continue at the current position."""
        while True:
            try:
                start = EARLIEST if offset is None else AfterOffset(int(offset))
                consumer = self._client.consumer(
                    # Nothing is settled: the gateway stores positions in its database, when deliveries have
                    # ended.
                    name,
                    partition=partition,
                    start=start,
                    credit=_CREDIT,
                    settle="none",
                )
                try:
                    await consumer.open(timeout=None)
                    async with aclosing(_batches(consumer, partition)) as taken:
                        async for batch in taken:
                            yield batch
                            offset = batch[-1].offset
                finally:
                    await consumer.close(timeout=1.0)
            except (AmqpStreamsError, ValueError) as error:
                # ValueError: the stored position is not an offset.
                log.warning("reading_interrupted", log=name, partition=partition, reason=str(error))
                await asyncio.sleep(_AGAIN_S)

    async def _info(self, log: str) -> LogInfo:
        try:
            return await self._client.info(log, timeout=_ANSWER_S)
        except AmqpStreamsError as error:
            raise _away(log, error) from error

    async def _connect(self) -> None:
        try:
            await self._client.connect()
        except AmqpStreamsError as error:
            message = f"the event log node: {error}"
            raise UnavailableError(message) from error


async def _batches(consumer: Consumer, partition: int) -> AsyncGenerator[Sequence[Stored], None]:
    while True:
        messages = await consumer.receive_raw(READ_EVENTS_MAX)
        if any(consumer.raw_formats):
            batch = _with_formats(partition, messages, consumer.raw_formats)
        else:
            batch = [stored for message in messages if (stored := _stored(partition, message)) is not None]
        if batch:
            yield batch


def _with_formats(partition: int, messages: Sequence[bytes], formats: Sequence[int]) -> list[Stored]:
    """Return the events of messages, some of which have a message-format other than 0."""
    read = ((_stored(partition, message), number) for message, number in zip(messages, formats, strict=True))
    return [stored._replace(message_format=number) for stored, number in read if stored is not None]


def _of_run(partition: int, run: Run) -> list[Stored]:
    formats = run.message_formats
    return [
        Stored(partition, offset_text(offset), at_ms, message, formats.get(index, 0))
        for index, (offset, at_ms, message) in enumerate(
            zip(run.offsets, run.timestamps_ms, run.messages, strict=True)
        )
    ]


def _stored(partition: int, message: bytes) -> Stored | None:
    """Return one event; None if the message has no offset.

    A message that cannot be decoded is passed on, so that it appears in the history.
    """
    usual = delivered(message)
    if usual is not None:
        return Stored(partition, *usual)
    try:
        position = position_of(message)
    except AmqpStreamsError as error:
        log.warning("message_unreadable", partition=partition, reason=str(error))
        return None
    if position.offset is None:
        return None
    # The delivery annotations belong to the hop from the node to the gateway (AMQP 3.2.2), and must not be
    # forwarded.
    with suppress(AmqpStreamsError):
        message = bare(message)
    return Stored(partition, offset_text(position.offset), position.timestamp_ms or 0, message)


def _offset(number: int, extent: PartitionExtent) -> str | None:
    """Return the offset as text; None if the partition has no events."""
    return offset_text(number) if extent.earliest < extent.next else None


def _refused(log: str, error: ManagementError) -> UnavailableError:
    if error.status >= _SERVER_ERROR:
        return _away(log, error)
    return RefusedError(f"{log}: {error.description or error}")


def _away(log: str, error: Exception) -> UnavailableError:
    return UnavailableError(f"{log}: {error}")
