"""Databases of earlier schemas, as their gateways left them, are upgraded.

`schema_2.sqlite.sql` and `schema_2.postgresql.sql` are dumps of databases that the last gateway with schema 2
wrote.
"""

import sqlite3
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import select

from knative_gateway.ports import Key, StoredCursor
from knative_gateway.store import open_store
from knative_gateway.store.database import Database
from knative_gateway.store.tables import POSITIONS, SCHEMA

FOLDER = Path(__file__).parent


@pytest.fixture
async def schema_2(url: str, tmp_path: Path) -> str:
    """The URL of a database with schema 2."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(tmp_path / "gateway.db")
        connection.executescript((FOLDER / "schema_2.sqlite.sql").read_text())
        connection.close()
    else:
        server = await asyncpg.connect(url)
        await server.execute((FOLDER / "schema_2.postgresql.sql").read_text())
        await server.close()
    return url


async def test_schema_2_keeps_its_cursors_replays_and_histories(schema_2: str) -> None:
    async with open_store(schema_2) as store:
        assert await store.cursors.load(["plain", "asked", "old", "unknown"]) == {
            "plain": StoredCursor({0: at(5), 1: ""}, "log-1"),
            "asked": StoredCursor({0: at(7), 1: at(9), 2: at(0)}, "log-1", {0: "", 1: at(2)}),
            "old": StoredCursor({0: at(3)}),
            "unknown": StoredCursor({0: at(5)}, ""),
        }
        assert await store.cursors.replays() == {"asked": {0: "", 1: at(2)}}
        assert await store.cursors.done(["plain"]) == {("plain", 0): [(at(6), at(8))]}
        assert [failure.event_id for failure in await store.cursors.history("plain")] == ["id"]
        assert await store.resources.get(Key("", "ConfigMap", "default", "a")) is not None


async def test_no_negative_partition_is_left_and_the_next_start_changes_nothing(schema_2: str) -> None:
    for _ in range(2):
        async with open_store(schema_2):
            pass
    database = Database(schema_2)
    partitions = await database.read(
        lambda connection: connection.execute(select(POSITIONS.c.log_partition)).all()
    )
    versions = await database.read(
        lambda connection: connection.execute(select(SCHEMA.c.version)).scalars().all()
    )
    await database.close()
    assert min(row.log_partition for row in partitions) == 0
    assert sorted(versions) == [1, 2, 3]


def at(number: int) -> str:
    return f"{number:016d}"
