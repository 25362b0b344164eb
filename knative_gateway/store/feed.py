"""The watch feed: the changes by all processes, in the order of their commits. [io]

One reader of the table of changes holds the latest changes in memory for all watches. A watch that is further
behind reads the table. The reader reads after each write of this process, after each notification of
PostgreSQL or of another worker, and every `poll_s` in case a notification was lost.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

import structlog
from sqlalchemy import Connection, Row, bindparam, select

from knative_gateway.errors import GoneError, UnavailableError
from knative_gateway.ports import Change, Key
from knative_gateway.resources.documents.large import INLINE_CHARACTERS
from knative_gateway.running.supervising import Supervisor
from knative_gateway.store.database import Database
from knative_gateway.store.documents import read
from knative_gateway.store.tables import CHANGES, COUNTERS
from knative_gateway.store.waking import Waking

NOTICES: Final = "knative_gateway"
"""The channel on which PostgreSQL notifies of writes."""
TAIL_MAX: Final = 1_000
"""Changes that are held in memory."""
TAIL_CHARACTERS_MAX: Final = 64 << 20
"""Characters of the documents of these changes."""
BATCH: Final = 100
"""Changes read at once."""
PAST_CHARACTERS: Final = 16 << 10
"""Characters of the documents that a watch reads at once from the table, except of a single change. It holds
those that its client has not read yet.
"""
NEWEST_CHARACTERS: Final = 8 << 20
"""The same, of the reader for all watches."""
POLL_S: Final = 2.0
_AGAIN_S: Final = 1.0
CLOSE_S: Final = 5.0
"""How long a read in flight may take when the feed is closed."""

# Built once, because they are executed after every write.
_NEWEST: Final = select(COUNTERS.c.version)
_TRIMMED: Final = select(COUNTERS.c.trimmed)
_NEXT: Final = (
    select(CHANGES).where(CHANGES.c.version > bindparam("after")).order_by(CHANGES.c.version).limit(BATCH)
)

_STREAMED: Final = {"stream_results": True, "max_row_buffer": 4}

_log: Final = structlog.get_logger("knative_gateway.store")
ChangeRow: TypeAlias = Row[tuple[object, ...]]
Rows: TypeAlias = list[ChangeRow]


class Feed:
    """The changes of one store, from `start` to `close`."""

    def __init__(
        self,
        database: Database,
        *,
        poll_s: float = POLL_S,
        tail_max: int = TAIL_MAX,
        tasks: Supervisor | None = None,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        """`wrote` is called after each write of this process."""
        self._wrote: Final = wrote
        self._database: Final = database
        self._poll_s: Final = poll_s
        self._tail: Final[deque[Change]] = deque()
        self._tail_max: Final = tail_max
        self._supervisor: Final = tasks or Supervisor()
        self._reach = 0
        """The tail contains all changes after this version, up to `_newest`."""
        self._size = 0
        """Characters of the changes in the tail."""
        self._newest = 0
        self._wake: Final = asyncio.Event()
        self._waking: Final = Waking()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: Final = asyncio.Event()
        self._closed = False

    async def start(self) -> None:
        """Begin with the changes that are written from now on."""
        self._newest = self._reach = await self._database.read(_version)
        self._tasks.append(self._supervisor.keep("store.feed", self._follow, finished=self._closing.is_set))
        if self._database.postgresql:
            self._tasks.append(
                self._supervisor.keep("store.notices", self._listen, finished=self._closing.is_set),
            )

    async def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._closing.set()
        self._wake.set()
        self._waking.wake()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in left:
                task.cancel()

    def wake(self) -> None:
        """Report that this process has written."""
        self._wake.set()
        self._wrote()

    def notice(self) -> None:
        """Report that another process may have written."""
        self._wake.set()

    async def watch(
        self, group: str, kind: str, after: int, *, in_turns: bool = False
    ) -> AsyncIterator[Change]:
        """See `SqlResources.watch`."""
        newest = await self._database.read(_version)
        if after > newest:
            message = f"resource version {after} does not exist yet: this store is at {newest}"
            raise GoneError(message)
        position = after
        while not self._closed:
            # While its caller is busy, a watch holds its position and a few small rows. A thousand slow
            # watches would otherwise hold a thousand different parts of the past.
            if position < self._reach:
                rows, position = await self._past(position)
                while rows:
                    # Decoded one by one, because a document has up to 1.5 MB.
                    changes = await _changes([rows.popleft()], group, kind)
                    while changes:
                        yield changes.pop()
            elif position < self._newest:
                changes = self._next(position, group, kind)
                position = changes[0].version if changes else self._newest
                while changes:
                    yield changes.pop()
            else:
                await self._waking.wait(in_turns=in_turns)

    def _next(self, after: int, group: str, kind: str) -> list[Change]:
        """The next change of the tail that matches, if there is one."""
        start = bisect_right(self._tail, after, key=lambda change: change.version)
        matching = (change for change in islice(self._tail, start, None) if _matches(change.key, group, kind))
        return list(islice(matching, 1))

    async def _past(self, after: int) -> tuple[deque[ChangeRow], int]:
        """Return changes from the table, and the last version that they include."""
        rows, trimmed = await self._read(after, PAST_CHARACTERS)
        if after < trimmed:
            message = f"too old resource version: {after} ({trimmed})"
            raise GoneError(message)
        return deque(rows), rows[-1].version if rows else self._reach

    async def _read(self, after: int, characters_max: int) -> tuple[Rows, int]:
        """Return the next changes, and the version up to which changes were removed.

        `characters_max`: of the documents, except of a single change.
        """

        def read_(connection: Connection) -> tuple[Rows, int]:
            trimmed = connection.execute(_TRIMMED).scalar_one()
            rows: Rows = []
            characters = 0
            # A result that is not streamed is in memory as a whole, with PostgreSQL: up to 300 MB.
            with connection.execute(_NEXT, {"after": after}, execution_options=_STREAMED) as result:
                for row in result:
                    characters += _size(row)
                    if rows and characters > characters_max:
                        break
                    rows.append(row)
            return rows, trimmed

        return await self._database.read(read_)

    async def _follow(self) -> None:
        """Keep the tail up to date."""
        while not self._closed:
            self._wake.clear()
            try:
                await self._catch_up()
            except UnavailableError as error:
                _log.warning("feed_interrupted", error=str(error))
                await self._pause()
                continue
            with suppress(TimeoutError):
                # The poll is for notifications that were lost with their connection.
                await asyncio.wait_for(self._wake.wait(), self._poll_s)

    async def _catch_up(self) -> None:
        while True:
            rows, trimmed = await self._read(self._newest, NEWEST_CHARACTERS)
            if self._newest < trimmed:
                # Changes were removed while the database was not available. Watches get GoneError from the
                # table.
                self._tail.clear()
                self._size = 0
                self._reach = self._newest = trimmed
                self._waking.wake()
                continue
            if not rows:
                return
            for change in await _changes(rows):
                self._remember(change)
            self._newest = rows[-1].version
            self._waking.wake()

    def _remember(self, change: Change) -> None:
        self._tail.append(change)
        self._size += change.characters
        while len(self._tail) > self._tail_max or (self._size > TAIL_CHARACTERS_MAX and len(self._tail) > 1):
            # From here on, watches that are further behind read the table.
            removed = self._tail.popleft()
            self._reach = removed.version
            self._size -= removed.characters

    def _noticed(self, *_notice: object) -> None:
        self._wake.set()

    async def _listen(self) -> None:
        """Wake the reader when PostgreSQL notifies. Reconnects if the connection is lost.

        This task is never cancelled, because a connection that is being opened would leak.
        """
        while not self._closed:
            ended = asyncio.Event()
            closing = asyncio.create_task(self._closing.wait())
            closing.add_done_callback(partial(_set, ended))
            try:
                async with self._database.connection() as connection:
                    driver = (await connection.get_raw_connection()).driver_connection
                    assert driver is not None
                    driver.add_termination_listener(partial(_set, ended))
                    await driver.add_listener(NOTICES, self._noticed)
                    self._wake.set()  # changes before `add_listener` were not notified
                    await ended.wait()
                    if not driver.is_closed():  # it returns to the pool
                        await driver.remove_listener(NOTICES, self._noticed)
            except UnavailableError as error:
                _log.warning("notices_interrupted", error=str(error))
            finally:
                closing.cancel()
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), _AGAIN_S)


def _version(connection: Connection) -> int:
    version: int = connection.execute(_NEWEST).scalar_one()
    return version


def _set(event: asyncio.Event, _by: object) -> None:
    event.set()


def _key(row: ChangeRow) -> Key:
    return Key(row.api_group, row.kind, row.namespace, row.name)


def _matches(key: Key, group: str, kind: str) -> bool:
    return not kind or (key.kind == kind and key.group == group)


def _size(row: ChangeRow) -> int:
    return len(row.document) + len(row.previous or "")


async def _changes(rows: Rows, group: str = "", kind: str = "") -> list[Change]:
    """The changes in these rows that match. A thread decodes them if that takes long."""
    matching = [row for row in rows if _matches(_key(row), group, kind)]
    if sum(map(_size, matching)) <= INLINE_CHARACTERS:
        return list(map(_change, matching))
    return await asyncio.to_thread(list, map(_change, matching))


def _change(row: ChangeRow) -> Change:
    previous = None if row.previous is None else read(row.previous)
    return Change(row.type, row.version, _key(row), read(row.document), previous, _size(row))
