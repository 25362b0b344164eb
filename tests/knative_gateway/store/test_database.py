"""One transaction at a time, and no caller waits for it without limit."""

import asyncio
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Connection, func, select
from structlog.testing import capture_logs

from knative_gateway.errors import UnavailableError
from knative_gateway.store import sqlite_url
from knative_gateway.store.database import Database
from knative_gateway.store.tables import POSITIONS


async def test_a_write_after_one_that_does_not_end_fails_soon(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path), write_wait_s=0.01)
    await database.open()
    began, goes_on = Event(), Event()

    def wait(_connection: Connection) -> bool:
        began.set()
        return goes_on.wait(30)

    slow = asyncio.create_task(database.write(wait))
    await asyncio.to_thread(began.wait, 30)
    with pytest.raises(UnavailableError, match=r"other writes take longer than 0.01 s"):
        await database.write(_add)
    goes_on.set()
    assert await slow
    await database.write(_add)
    assert await database.read(_count) == 1, "the write that was refused is not carried out later"
    await database.close()


async def test_closing_does_not_wait_for_a_database_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knative_gateway.store.database.CLOSE_S", 0.05)
    database = Database(sqlite_url(tmp_path))
    await database.open()
    began, goes_on = Event(), Event()

    def wait(_connection: Connection) -> bool:
        began.set()
        return goes_on.wait(60)

    hanging = asyncio.create_task(database.write(wait))
    await asyncio.to_thread(began.wait, 30)
    closing = asyncio.create_task(database.close())
    try:
        with capture_logs() as lines:
            await asyncio.wait([closing], timeout=20)
        assert closing.done(), "it is closed while the write hangs"
        assert [line["event"] for line in lines] == ["connections_not_closed"]
    finally:
        goes_on.set()
        await asyncio.gather(hanging, closing, return_exceptions=True)


async def test_uncommitted_changes_are_undone(url: str) -> None:
    database = Database(url)
    await database.open()

    def fail(connection: Connection) -> None:
        _add(connection)
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(fail)
    assert await database.read(_count) == 0
    await database.write(_add)
    assert await database.read(_count) == 1
    await database.close()


async def test_a_refusal_of_the_database_is_unavailable(url: str) -> None:
    database = Database(url)
    await database.open()
    await database.write(_add)
    with pytest.raises(UnavailableError, match="the state database: "):
        await database.write(_add)
    await database.close()


def _add(connection: Connection) -> None:
    connection.execute(POSITIONS.insert().values(uid="one", log_partition=0, log_offset=""))


def _count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(POSITIONS)).scalar_one()


async def test_a_full_disk_is_reported_with_what_to_do(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path))
    await database.open()

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite reports it as a full disk
        connection.exec_driver_sql("CREATE TABLE large AS SELECT randomblob(1000000) AS data")

    with pytest.raises(UnavailableError, match=r"its disk is full: free space on the disk of gateway\.db"):
        await database.write(fill)
    await database.close()
