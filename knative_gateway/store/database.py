"""The connection to SQLite or PostgreSQL: transactions, and what becomes of their errors. [io]

Laws: one writer at a time in a process (SQLite has no more); a read sees one snapshot; what was committed is on disk.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import structlog
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.store.engines import Engine, PostgresqlEngine, SqliteEngine, Work
from knative_gateway.store.migrations import migrate
from knative_gateway.store.writing import Writer

WRITE_WAIT_S: Final = 3.0
"""How long a write waits for those of this process that are before it."""
CLOSE_S: Final = 5.0
"""How long connections may take to close; what is left then ends with the process."""
_DRIVERS: Final = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
T = TypeVar("T")
log = structlog.get_logger("knative_gateway.store")


class Database:
    """One database; made once, opened once, closed once."""

    def __init__(self, url: str, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """Know where it is; nothing is connected yet.

        Raises:
            ConfigError: the URL is none of a database that is known here.
        """
        self.url: Final = _url(url)
        self.postgresql: Final = self.url.get_backend_name() == "postgresql"
        self._engine: Final[Engine] = PostgresqlEngine(self.url) if self.postgresql else SqliteEngine(self.url)
        self._writer: Final = Writer(self._engine, write_wait_s)

    async def open(self) -> None:
        """Connect, and bring the schema up to date.

        Raises:
            ConfigError: the database is a newer gateway's.
            UnavailableError: it cannot be reached.
        """
        await self.write(migrate)

    async def close(self) -> None:
        """Give back the connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.close()
                await self._engine.close()
        except TimeoutError:
            log.warning("connections_not_closed", after_s=CLOSE_S)

    async def read(self, work: Work[T]) -> T:
        """What the work finds in one snapshot.

        Raises:
            UnavailableError: the database is away.
        """
        with _translated():
            return await self._engine.read(work)

    async def write(self, work: Work[T], *, together: bool = False) -> T:
        """Carry out work in a transaction, the only one of this process, and commit it; undone if it raises.

        `together`: it may share the transaction with other such work, which must take its locks in the same order. With SQLite, which has
        one writer and no locks of rows, all work may.

        Raises:
            UnavailableError: the database is away; nothing is known of a commit that was under way.
        """
        with _translated():
            return await self._writer.write(work, together=together or not self.postgresql)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection to PostgreSQL of the caller's own.

        Raises:
            UnavailableError: the database is away.
        """
        assert isinstance(self._engine, PostgresqlEngine), "SQLite has no notices"
        with _translated():
            async with self._engine.connect() as connection:
                yield connection


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
