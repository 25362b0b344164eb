"""The connection to SQLite or PostgreSQL: transactions and their errors. [io]

A process writes in one transaction at a time, because SQLite allows only one writer. A read sees one
snapshot. A committed write is on the disk.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import structlog
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util import await_only

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.store.engines import Engine, PostgresqlEngine, SqliteEngine, Work
from knative_gateway.store.migrations import migrate
from knative_gateway.store.state_files import StateFiles
from knative_gateway.store.writing import Writer

WRITE_WAIT_S: Final = 3.0
"""How long a write waits for earlier writes of this process."""
CLOSE_S: Final = 5.0
"""How long closing the connections may take. Connections that are still open end with the process."""
_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
_FULL: Final = "database or disk is full"
"""The text of SQLite for an error of any write, also of one that deletes."""
_FULL_REMEDY: Final = "its disk is full: free space on the disk of gateway.db, then try again"
T = TypeVar("T")
log = structlog.get_logger("knative_gateway.store")


class Database:
    """One database. It is opened once and closed once."""

    def __init__(self, url: str, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """Check the URL; does not connect. `write_wait_s`: how long a write waits for earlier writes.

        Raises:
            ConfigError: the URL is not valid, or the database is not supported.
        """
        self.url: Final = _url(url)
        self.postgresql: Final = self.url.get_backend_name() == "postgresql"
        self.files: Final = StateFiles(self.url.database or "")
        """The files of SQLite; empty for PostgreSQL."""
        self._engine: Final[Engine] = (
            PostgresqlEngine(self.url) if self.postgresql else SqliteEngine(self.url, self.files)
        )
        self._writer: Final = Writer(self._engine, write_wait_s)

    async def open(self) -> None:
        """Connect, and upgrade the schema.

        Raises:
            ConfigError: a newer gateway wrote the schema.
            UnavailableError: the database cannot be reached, or its file was removed.
        """
        await self.write(migrate)
        if self.files.known:
            self.files.opened()

    async def close(self) -> None:
        """Close the connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.close()
                await self._engine.close()
        except TimeoutError:
            log.warning("connections_not_closed", after_s=CLOSE_S)

    async def read(self, work: Work[T]) -> T:
        """Return the result of the work, which sees one snapshot.

        Raises:
            UnavailableError: the database is not available.
        """
        with _translated():
            return await self._engine.read(work)

    def compute(self, work: Callable[[], T]) -> T:
        """Return the result of long work, as a part of the work of `read` or `write`.

        With PostgreSQL, a thread does it: the work of `read` and `write` occupies the event loop.
        """
        return await_only(asyncio.to_thread(work)) if self.postgresql else work()

    async def write(self, work: Work[T], *, together: bool = False) -> T:
        """Carry out work in a transaction, and commit it. An exception rolls it back.

        `together`: the work may share its transaction with other such work, if all of them lock rows in the
        same order. With SQLite, which does not lock rows, all work may.

        Raises:
            UnavailableError: the database is not available; a commit in flight may have succeeded.
        """
        with _translated():
            # In PostgreSQL, works that lock rows in different orders could deadlock with those of other
            # replicas.
            return await self._writer.write(work, together=together or not self.postgresql)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection to PostgreSQL for the caller alone.

        Raises:
            UnavailableError: the database is not available.
        """
        assert isinstance(self._engine, PostgresqlEngine), "SQLite does not have notifications"
        with _translated():
            async with self._engine.connect() as connection:
                yield connection


class _translated:  # noqa: N801  # used as a function
    """Raises the errors of the database drivers as UnavailableError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SQLAlchemyError | sqlite3.Error | OSError | TimeoutError):
            words = str(getattr(error, "orig", None) or error).splitlines()
            # One line and 300 characters: drivers add the statement and its parameters, which may contain
            # documents.
            words = [_FULL_REMEDY] if words[:1] == [_FULL] else words
            message = f"the state database: {(words or [type(error).__name__])[0][:300]}"
            raise UnavailableError(message) from error


def _url(written: str) -> URL:
    try:
        url = make_url(written)
    except ArgumentError:
        message = (
            "the state database's URL cannot be read; expected sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
        raise ConfigError(message) from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        message = f"the state database must be SQLite or PostgreSQL, not {url.get_backend_name()}"
        raise ConfigError(message)
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        message = "the state database needs a file: write sqlite:///FILE"
        raise ConfigError(message)
    return url.set(drivername=driver)
