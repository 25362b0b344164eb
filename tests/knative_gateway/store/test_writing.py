"""Writes that wait at the same time share a transaction, and nothing else. Each test with SQLite and with
PostgreSQL.
"""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, select

from knative_gateway.errors import UnavailableError
from knative_gateway.store.database import Database
from knative_gateway.store.engines import Work
from knative_gateway.store.tables import POSITIONS
from knative_gateway.store.writing import TOGETHER_MAX, Undone
from tests.knative_gateway.store.counting import counted


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = Database(url)
    await opened.open()
    yield opened
    await opened.close()


def add(name: str) -> Work[str]:
    def work(connection: Connection) -> str:
        connection.execute(POSITIONS.insert().values(uid=name, log_partition=0, log_offset=""))
        return name

    return work


def fail(connection: Connection) -> str:
    add("failed")(connection)
    raise LookupError


def undo(connection: Connection) -> str:
    add("undone")(connection)
    raise Undone("nothing to do")


async def names(database: Database) -> list[str]:
    query = select(POSITIONS.c.uid).order_by(POSITIONS.c.uid)
    return await database.read(lambda connection: list(connection.execute(query).scalars()))


async def test_writes_that_come_at_once_share_one_commit(database: Database) -> None:
    wanted = [f"{number:03}" for number in range(TOGETHER_MAX)]
    with counted() as asked:
        assert await asyncio.gather(*(database.write(add(name), together=True) for name in wanted)) == wanted
    assert asked["commits"] == 1
    assert await names(database) == wanted


async def test_no_transaction_is_larger_than_the_limit(database: Database) -> None:
    with counted() as asked:
        await asyncio.gather(
            *(database.write(add(f"{number:03}"), together=True) for number in range(2 * TOGETHER_MAX + 1))
        )
    assert asked["commits"] == 3


async def test_a_write_that_may_not_share_is_alone_and_has_its_turn(database: Database) -> None:
    """In PostgreSQL its locks have another order than those of other writes, and replicas could deadlock."""
    ended: list[str] = []

    async def write(name: str, *, together: bool) -> None:
        ended.append(await database.write(add(name), together=together))

    with counted() as asked:
        await asyncio.gather(*(write(name, together=name not in {"c", "f"}) for name in "abcdef"))
    assert ended == list("abcdef")
    assert asked["commits"] == (4 if database.postgresql else 1), (
        "a b, c, d e, f: SQLite has no locks of rows"
    )


async def test_a_write_that_fails_undoes_itself_and_no_other(database: Database) -> None:
    works = [add("a"), fail, add("b"), undo, add("a"), add("c")]
    found = await asyncio.gather(
        *(database.write(work, together=True) for work in works), return_exceptions=True
    )
    assert [each if isinstance(each, str) else type(each) for each in found] == [
        "a",
        LookupError,
        "b",
        "nothing to do",
        UnavailableError,
        "c",
    ]
    assert await names(database) == ["a", "b", "c"]


async def test_a_write_that_has_nothing_to_do_is_undone(database: Database) -> None:
    assert await database.write(undo) == "nothing to do"
    assert await names(database) == []


async def test_a_write_that_is_called_off_while_it_waits_is_not_carried_out(database: Database) -> None:
    goes_on = threading.Event()

    def slow(connection: Connection) -> str:
        goes_on.wait(0 if database.postgresql else 30)  # there it runs in the loop
        return add("slow")(connection)

    writing = [asyncio.create_task(database.write(slow))]
    for _ in range(3):  # it is queued, and taken from the queue
        await asyncio.sleep(0)
    writing += [asyncio.create_task(database.write(add(name))) for name in "ab"]
    await asyncio.sleep(0)
    writing[1].cancel()
    goes_on.set()
    await asyncio.wait(writing)
    assert await names(database) == ["b", "slow"]
