"""Work on a connection needs one switch to a thread with SQLite, for any number of statements."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from knative_gateway.store import sqlite_url
from knative_gateway.store.engines import SqliteEngine


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(make_url(sqlite_url(tmp_path)))


async def test_work_of_many_statements_is_one_hop(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    hops = 0
    run_in_executor = loop.run_in_executor

    def counted(executor: Any, function: Callable[..., Any], *given: object) -> asyncio.Future[Any]:
        nonlocal hops
        hops += 1
        return run_in_executor(executor, function, *given)

    monkeypatch.setattr(loop, "run_in_executor", counted)

    def many(connection: Connection) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return sum(int(connection.execute(text("SELECT 1")).scalar_one()) for _ in range(20))

    assert await engine.read(many) == 20
    assert await engine.write(many) == 20
    assert hops == 2
    await engine.close()


async def test_a_read_runs_during_a_write(engine: SqliteEngine) -> None:
    was_read = threading.Event()
    writing = asyncio.create_task(engine.write(lambda _connection: was_read.wait(30)))
    await engine.read(lambda _connection: was_read.set())
    assert await writing
    await engine.close()


async def test_a_read_sees_one_snapshot(engine: SqliteEngine) -> None:
    written = threading.Event()
    began = threading.Event()

    def make(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE IF NOT EXISTS numbers (number)"))
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
        connection.commit()

    def count(connection: Connection) -> list[int]:
        query = text("SELECT COUNT(*) FROM numbers")
        first = connection.execute(query).scalar_one()
        began.set()
        assert written.wait(30)
        return [first, connection.execute(query).scalar_one()]

    await engine.write(make)
    reading = asyncio.create_task(engine.read(count))
    await asyncio.to_thread(began.wait, 30)
    await engine.write(make)
    written.set()
    assert await reading == [1, 1]
    await engine.close()


async def test_close_waits_for_work_that_was_begun(engine: SqliteEngine) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def slow(_connection: Connection) -> str:
        began.set()
        goes_on.wait(30)
        return "done"

    reading = asyncio.create_task(engine.read(slow))
    await asyncio.to_thread(began.wait, 30)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    assert not closing.done()
    goes_on.set()
    await closing
    assert await reading == "done"


async def test_two_processes_that_read_before_they_write_take_turns(tmp_path: Path) -> None:
    """Workers of a gateway share the file. A transaction that began with a read would fail at its first write
    if another process wrote in between.
    """
    engines = [SqliteEngine(make_url(sqlite_url(tmp_path))) for _ in range(2)]

    def make(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE numbers (number)"))
        connection.commit()

    def count(connection: Connection) -> None:
        found = connection.execute(text("SELECT count(*) FROM numbers")).scalar_one()
        connection.execute(text("INSERT INTO numbers VALUES (:number)"), {"number": found})
        connection.commit()

    await engines[0].write(make)

    async def many(engine: SqliteEngine) -> None:
        for _ in range(20):
            await engine.write(count)

    await asyncio.gather(*map(many, engines))
    numbers = await engines[0].read(
        lambda connection: connection.execute(text("SELECT number FROM numbers")).scalars().all()
    )
    assert sorted(numbers) == list(range(40))
    for engine in engines:
        await engine.close()
