"""SQLite in threads, PostgreSQL in the event loop. Both run functions that take a connection. [io]

A function with several statements runs as a whole. With SQLite, this is one switch to a thread: a switch
costs more than a statement.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from knative_gateway.store.state_files import StateFiles

CONNECT_S: Final = 10
"""Time limit for a connection to PostgreSQL."""
COMMAND_S: Final = 10
"""Time limit of one statement in PostgreSQL."""
BUSY_MS: Final = 5_000
"""How long SQLite waits for another process that writes to the file: a worker of the same gateway."""
READERS: Final = 2
"""Threads that read from SQLite. One more thread writes."""
CONNECTIONS_POSTGRESQL: Final = 10
# WAL: readers do not wait for the writer. FULL: a commit is on the disk when it returns, because positions
# and objects must survive a power loss.
_PRAGMAS: Final = (f"busy_timeout = {BUSY_MS}", "journal_mode = WAL", "synchronous = FULL")
_BEGIN: Final = "knative_gateway_begin"
"""The execution option with the statement that begins a transaction."""

T = TypeVar("T")
Work = Callable[[Connection], T]
"""A function of a connection. With SQLite, it runs in a thread."""


class Engine(Protocol):
    """Runs work on its own connections. Changes that the work does not commit are rolled back."""

    async def read(self, work: Work[T]) -> T:
        """Run work that sees one snapshot."""

    async def write(self, work: Work[T]) -> T:
        """Run work that commits. Calls must not overlap."""

    async def close(self) -> None:
        """Close the connections."""


class SqliteEngine:
    """The engine of a SQLite file."""

    def __init__(self, url: URL, files: StateFiles | None = None) -> None:
        """`files`: the files that the database must have."""
        self._files: Final = files or StateFiles(url.database or "")
        self._engine: Final = create_engine(url, pool_size=READERS + 1, max_overflow=0)
        self._readers: Final = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        self._writer: Final = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        event.listen(self._engine, "do_connect", self._connecting)
        event.listen(self._engine, "connect", _connected)
        event.listen(self._engine, "begin", _begun)

    async def read(self, work: Work[T]) -> T:
        """See `Engine`."""
        return await self._run(self._readers, work)

    async def write(self, work: Work[T]) -> T:
        """See `Engine`."""
        # A transaction that reads first and takes the lock at its first write fails at once if another
        # process wrote in between.
        return await self._run(self._writer, partial(self._kept, work), begin="BEGIN IMMEDIATE")

    async def close(self) -> None:
        """See `Engine`. Waits for work that has begun."""
        # Reads that wait are cancelled. The wait for the others is in the thread of the writer and does not
        # block the event loop.
        self._readers.shutdown(wait=False, cancel_futures=True)
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._close)
        finally:
            self._writer.shutdown(wait=False)

    def _close(self) -> None:
        self._readers.shutdown(wait=True)
        self._engine.dispose()

    def _kept(self, work: Work[T], connection: Connection) -> T:
        """Do work that commits. A commit to a file that was removed would be lost."""
        self._files.require()
        result = work(connection)
        self._files.require()
        return result

    def _connecting(self, _dialect: object, _record: object, given: list[Any], options: Any) -> None:
        if self._files.known:
            self._files.require()
            # SQLite must not create the file: another process has checked and locked it, and only its user
            # may read it.
            given[0] = f"file:{quote(self._files.path)}?mode=rw"
            options["uri"] = True

    async def _run(self, threads: Executor, work: Work[T], *, begin: str = "BEGIN") -> T:
        def run() -> T:
            # Here, because this is a thread already. The watch feed reads every two seconds at least.
            self._files.look()
            with self._engine.connect().execution_options(**{_BEGIN: begin}) as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(threads, run)


class PostgresqlEngine:
    """The engine of a PostgreSQL server."""

    def __init__(self, url: URL) -> None:
        self._engine: Final = create_async_engine(
            url,
            pool_size=CONNECTIONS_POSTGRESQL,
            max_overflow=0,
            # A server that was restarted leaves dead connections in the pool. Without the ping, the next
            # request would fail.
            pool_pre_ping=True,
            connect_args={"timeout": CONNECT_S, "command_timeout": COMMAND_S},
        )

    async def read(self, work: Work[T]) -> T:
        """See `Engine`."""
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            return await connection.run_sync(work)

    async def write(self, work: Work[T]) -> T:
        """See `Engine`."""
        async with self._engine.connect() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """See `Engine`."""
        await self._engine.dispose()

    def connect(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a connection for the caller alone, for notifications."""
        return self._engine.connect()


def _connected(connection: Any, _record: object) -> None:
    # `_begun` begins transactions. With those of the driver, reads would not see one snapshot.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begun(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options()[_BEGIN])
