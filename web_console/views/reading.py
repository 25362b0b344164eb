"""[io] Reads a page of events, and one event, of a log.

Laws: all requests of a console together read few partitions at a time, those of one session half of them, and
keep of an event only what a list shows.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqp_streams.client import Client, LinkRefusedError, PartitionExtent, sql_filter
from amqp_streams.errors import AmqpStreamsError
from service_parts.shares import Shares
from web_console.showing.browsing import From, Listing, Read, Row, Slice, listing, slices
from web_console.showing.decoding import line
from web_console.showing.trying import Position, Tried, spans, tried

_READS_MAX: Final = 8
"""Partitions that are read at the same time, for all sessions: each may have a batch of bytes in flight."""
_BATCH_BYTES: Final = 128 << 10
_PAGE_S: Final = 15.0
_WAIT_S: Final = 10.0
_reads: Final = Shares(_READS_MAX)


class Message(NamedTuple):
    """A stored message, as its producer sent it."""

    content: bytes
    timestamp_ms: int


class SlowError(Exception):
    """A page of events took too long to read."""


async def read_page(
    client: Client,
    log: str,
    extents: Sequence[PartitionExtent],
    where: From,
    starts: dict[str, int],
    *,
    count: int,
    sql: str,
) -> Listing:
    """Read a page of events.

    Raises:
        SlowError; LinkRefusedError and other errors of the client.
    """
    wanted = slices(extents, where, starts, count=count, filtered=bool(sql))
    last = where in {From.LATEST, From.BEFORE}
    tasks = [
        asyncio.create_task(_read(client, log, each, count=count, sql=sql, last=last)) for each in wanted
    ]
    try:
        async with asyncio.timeout(_PAGE_S):
            # All partitions have the same fault, for example a filter that is not valid: the first is raised.
            reads = await asyncio.gather(*tasks)
    except TimeoutError as error:
        if isinstance(error, AmqpStreamsError):
            raise
        raise SlowError from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return listing(reads, extents, where, count=count)


async def try_filter(
    client: Client,
    log: str,
    extents: Sequence[PartitionExtent],
    where: From,
    starts: dict[str, int],
    *,
    count: int,
    sql: str,
) -> Tried:
    """Read a page of events without a filter, and which of them match `sql`.

    Raises:
        SlowError; LinkRefusedError and other errors of the client.
    """
    try:
        async with asyncio.timeout(_PAGE_S):
            # Before the page is read: it may have no event, and the filter may not be valid.
            await _check(client, log, sql)
            found = await read_page(client, log, extents, where, starts, count=count, sql="")
            wanted = spans(found.rows)
            matching = await _matching(client, log, wanted, sql)
            try:
                opposite = await _matching(client, log, wanted, f"NOT ({sql})")
            except LinkRefusedError:
                opposite = None  # with the negation, the filter is larger than the node allows
    except TimeoutError as error:
        if isinstance(error, AmqpStreamsError):
            raise
        raise SlowError from error
    return tried(found.rows, matching, opposite)


async def _check(client: Client, log: str, sql: str) -> None:
    async with client.consumer(log, filters={"where": sql_filter(sql)}, credit=1):
        pass


async def _matching(client: Client, log: str, wanted: Sequence[Slice], sql: str) -> set[Position]:
    tasks = [asyncio.create_task(_positions(client, log, each, sql)) for each in wanted]
    try:
        return set().union(*await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _positions(client: Client, log: str, wanted: Slice, sql: str) -> set[Position]:
    async with (
        _reads.place(id(client)),
        client.read_range(
            log,
            wanted.partition,
            wanted.start,
            wanted.end,
            filter=sql,
            batch_bytes=_BATCH_BYTES,
            prefetch_bytes=2 * _BATCH_BYTES,
            timeout=_WAIT_S,
        ) as reader,
    ):
        found = set[Position]()
        while runs := await reader.take():
            found.update((run.partition, offset) for run in runs for offset in run.offsets)
        return found


async def _read(client: Client, log: str, wanted: Slice, *, count: int, sql: str, last: bool) -> Read:
    rows: deque[Row] = deque(maxlen=count)
    if wanted.start >= wanted.end:
        return Read(wanted, rows, wanted.start if last else wanted.end)
    matched = 0
    async with (
        _reads.place(id(client)),
        client.read_range(
            log,
            wanted.partition,
            wanted.start,
            wanted.end,
            filter=sql or None,
            batch_events=count,
            batch_bytes=_BATCH_BYTES,
            prefetch_bytes=2 * _BATCH_BYTES,
            timeout=_WAIT_S,
        ) as reader,
    ):
        while runs := await reader.take():
            for run in runs:
                for offset, stored_ms, message in zip(
                    run.offsets, run.timestamps_ms, run.messages, strict=True
                ):
                    if not last and len(rows) == count:
                        return Read(wanted, rows, offset)
                    rows.append(row_of(run.partition, offset, stored_ms, message))
                    matched += 1
    if not last:
        return Read(wanted, rows, wanted.end)
    # Earlier events that match are left to the page before.
    return Read(wanted, rows, rows[0].offset if matched > count else wanted.start)


def row_of(partition: str, offset: int, timestamp_ms: int, message: bytes) -> Row:
    """Return what a list shows of an event."""
    shown = line(message)
    return Row(partition, offset, timestamp_ms, len(message), shown.key, shown.content_type, shown.preview)


async def read_event(client: Client, log: str, partition: str, offset: int) -> Message | None:
    """Read one event; None if no event has this offset.

    Raises:
        LinkRefusedError and other errors of the client.
    """
    async with (
        _reads.place(id(client)),
        client.read_range(
            log, partition, offset, offset + 1, batch_bytes=_BATCH_BYTES, timeout=_WAIT_S
        ) as reader,
    ):
        for run in await reader.take():
            return Message(run.messages[0], run.timestamps_ms[0])
    return None
