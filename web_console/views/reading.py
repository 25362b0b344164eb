"""[io] Reads a page of events, and one event, of a log.

Laws: all requests of a console together read few partitions at a time, those of one session half of them, and
keep of an event only what a list shows.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

from amqp_streams.client import Client, LinkRefusedError, PartitionExtent, RangeReader, sql_filter
from amqp_streams.errors import AmqpStreamsError
from service_parts.shares import Shares
from web_console.showing.browsing import From, Listing, Read, Row, Slice, listing, slices
from web_console.showing.decoding import line
from web_console.showing.trying import Position, Tried, slices_of, tried

_READS_MAX: Final = 8
"""Partitions that are read at the same time, for all sessions: each may have a batch of bytes in flight."""
_BATCH_BYTES: Final = 128 << 10
_PAGE_S: Final = 15.0
_WAIT_S: Final = 10.0
_reads: Final = Shares(_READS_MAX)
T = TypeVar("T")


class Message(NamedTuple):
    """A stored message, as its producer sent it."""

    content: bytes
    timestamp_ms: int


class SlowError(Exception):
    """A page of events took too long to read."""


class Chosen(NamedTuple):
    """The page of events that a person chose.

    `parts`: the partitions. `where`, `starts`: where the page begins, see `slices`. `sql`: a filter; empty:
    all events.
    """

    log: str
    parts: Sequence[PartitionExtent]
    where: From
    starts: Mapping[str, int]
    events_max: int
    sql: str


async def read_page(client: Client, chosen: Chosen) -> Listing:
    """Read a page of events.

    Raises:
        SlowError; LinkRefusedError and other errors of the client.
    """
    _, parts, where, starts, count, sql = chosen
    wanted = slices(parts, where, starts, count=count, filtered=bool(sql))
    last = where in {From.LATEST, From.BEFORE}
    async with _in_time():
        reads = await _together(_read(client, chosen, each, last=last) for each in wanted)
    return listing(reads, parts, where, count=count)


async def try_filter(client: Client, chosen: Chosen) -> Tried | None:
    """Read a page of events without the filter, and which of them match it. None: no filter is given.

    Raises:
        SlowError; LinkRefusedError and other errors of the client.
    """
    log, sql = chosen.log, chosen.sql
    if not sql:
        return None
    async with _in_time():
        # Before the page is read: it may have no event, and the filter may not be valid.
        await check_filter(client, log, sql)
        found = await read_page(client, chosen._replace(sql=""))
        wanted = slices_of(found.rows)
        matching = await _matching(client, log, wanted, sql)
        try:
            opposite = await _matching(client, log, wanted, f"NOT ({sql})")
        except LinkRefusedError:
            opposite = None  # with the negation, the filter is larger than the node allows
    return tried(found.rows, matching, opposite)


async def check_filter(client: Client, log: str, sql: str) -> None:
    """Ask the node whether it accepts a filter: its language may be newer than this console.

    Raises:
        LinkRefusedError: the filter is not valid, or the user may not read the log.
    """
    async with client.consumer(log, filters={"where": sql_filter(sql)}, credit=1):
        pass


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Raises SlowError: the block took longer than `_PAGE_S`."""
    try:
        async with asyncio.timeout(_PAGE_S):
            yield
    except TimeoutError as error:
        if isinstance(error, AmqpStreamsError):  # the client has waited for the node for `_WAIT_S`
            raise
        raise SlowError from error


async def _together(reads: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """The results of all reads. If one fails, the others end before its error is raised."""
    tasks = [asyncio.create_task(each) for each in reads]
    try:
        # All partitions have the same fault, for example a filter that is not valid: the first is raised.
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _matching(client: Client, log: str, wanted: Sequence[Slice], sql: str) -> set[Position]:
    return set().union(*await _together(_positions(client, log, each, sql) for each in wanted))


async def _positions(client: Client, log: str, wanted: Slice, sql: str) -> set[Position]:
    async with _reader(client, log, wanted, sql) as reader:
        found = set[Position]()
        while runs := await reader.take():
            found.update((run.partition, offset) for run in runs for offset in run.offsets)
        return found


@asynccontextmanager
async def _reader(
    client: Client, log: str, wanted: Slice, sql: str, *, batch_events: int | None = None
) -> AsyncIterator[RangeReader]:
    async with (
        _reads.place(id(client)),
        client.read_range(
            log,
            wanted.partition,
            wanted.start,
            wanted.end,
            filter=sql or None,
            batch_events=batch_events,
            batch_bytes=_BATCH_BYTES,
            prefetch_bytes=2 * _BATCH_BYTES,
            timeout=_WAIT_S,
        ) as reader,
    ):
        yield reader


async def _read(client: Client, chosen: Chosen, wanted: Slice, *, last: bool) -> Read:
    count = chosen.events_max
    rows: deque[Row] = deque(maxlen=count)
    if wanted.start >= wanted.end:
        return Read(wanted, rows, wanted.start if last else wanted.end)
    matched = 0
    async with _reader(client, chosen.log, wanted, chosen.sql, batch_events=count) as reader:
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
