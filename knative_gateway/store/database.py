"""The connection to SQLite or PostgreSQL: transactions, and what becomes of their errors. [io]

Laws: one writer at a time in a process (SQLite has no more); a read sees one snapshot; what was committed is on disk.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.store.migrations import migrate

CONNECT_S: Final = 10
"""Time limit of a connection to PostgreSQL."""
COMMAND_S: Final = 10
"""Time limit of one statement there."""
BUSY_MS: Final = 2_000
"""How long SQLite waits for another process that writes to the file."""
WRITE_WAIT_S: Final = 3.0
"""How long a write waits for those of this process that are before it."""
CLOSE_S: Final = 5.0
"""How long connections may take to close; what is left then ends with the process."""
CONNECTIONS_SQLITE: Final = 3
CONNECTIONS_POSTGRESQL: Final = 10
_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
log = structlog.get_logger("knative_gateway.store")

_PRAGMAS: Final = ("journal_mode = WAL", "synchronous = FULL", f"busy_timeout = {BUSY_MS}")


class Database:
    """One database; made once, opened once, closed once."""

    def __init__(self, url: str, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """Know where it is; nothing is connected yet.

        Raises:
            ConfigError: the URL is none of a database that is known here.
        """
        self.url: Final = _url(url)
        self.postgresql: Final = self.url.get_backend_name() == "postgresql"
        self.engine: Final = _postgresql(self.url) if self.postgresql else _sqlite(self.url)
        self._writing: Final = asyncio.Lock()
        self._write_wait_s: Final = write_wait_s

    async def open(self) -> None:
        """Connect, and bring the schema up to date.

        Raises:
            ConfigError: the database is a newer gateway's.
            UnavailableError: it cannot be reached.
        """
        async with self.write() as connection:
            await connection.run_sync(migrate)
            await connection.commit()

    async def close(self) -> None:
        """Give back the connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.engine.dispose()
        except TimeoutError:
            log.warning("connections_not_closed", after_s=CLOSE_S)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One snapshot.

        Raises:
            UnavailableError: the database is away.
        """
        with _translated():
            async with self.engine.connect() as connection:
                if self.postgresql:
                    await connection.execution_options(isolation_level="REPEATABLE READ")
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction, the only one of this process; undone unless it is committed.

        Raises:
            UnavailableError: the database is away; nothing is known of a commit that was under way.
        """
        await self._next_writer()
        try:
            with _translated():
                async with self.engine.connect() as connection:
                    yield connection
        finally:
            self._writing.release()

    async def _next_writer(self) -> None:
        try:
            async with asyncio.timeout(self._write_wait_s):
                await self._writing.acquire()
        except TimeoutError:
            message = f"the state database: other writes take longer than {self._write_wait_s:g} s"
            raise UnavailableError(message) from None


class _translated:  # noqa: N801  # used as a function
    """What the drivers raise becomes UnavailableError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SQLAlchemyError | sqlite3.Error | OSError | TimeoutError):
            words = str(getattr(error, "orig", None) or error).splitlines()
            message = f"the state database: {(words or [type(error).__name__])[0][:300]}"
            raise UnavailableError(message) from error


def _url(written: str) -> URL:
    try:
        url = make_url(written)
    except ArgumentError:
        message = "the state database's URL cannot be read; expected sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise ConfigError(message) from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        message = f"the state database is SQLite or PostgreSQL, not {url.get_backend_name()}"
        raise ConfigError(message)
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        message = "the state database needs a file: sqlite:///FILE"
        raise ConfigError(message)
    return url.set(drivername=driver)


def _postgresql(url: URL) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=CONNECTIONS_POSTGRESQL,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"timeout": CONNECT_S, "command_timeout": COMMAND_S},
    )


def _sqlite(url: URL) -> AsyncEngine:
    engine = create_async_engine(url, pool_size=CONNECTIONS_SQLITE, max_overflow=0)

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below: the driver's own would not hold a snapshot for reads
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine
