"""Opening: what is kept over restarts, who may use a file, and what is said when it cannot be."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import insert

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.ports import Key
from knative_gateway.store import open_store, sqlite_url
from knative_gateway.store.database import Database
from knative_gateway.store.tables import SCHEMA

KEY = Key("", "ConfigMap", "default", "a")


async def test_everything_is_there_again_when_it_is_opened_again(url: str) -> None:
    async with open_store(url) as store:
        await store.resources.write(KEY, {"data": {"a": "b"}}, expected_version=0)
        await store.checkpoints.save({("one", 0): "01"})
    async with open_store(url) as store:
        version, [object_] = await store.resources.list("", "ConfigMap")
        assert (version, object_["data"]) == (2, {"a": "b"})
        assert await store.checkpoints.load("one") == {0: "01"}
        assert store.shared is url.startswith("postgresql")


async def test_the_file_syncs_each_commit_and_is_its_owners_only(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)) as store:
        await store.resources.write(KEY, {}, expected_version=0)
        assert {(tmp_path / name).stat().st_mode & 0o077 for name in os.listdir(tmp_path)} == {0}  # noqa: PTH208  # three files
    database = Database(sqlite_url(tmp_path))
    async with database.read() as connection:
        values = [(await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one() for name in ("journal_mode", "synchronous")]
    await database.close()
    assert values == ["wal", 2]


async def test_a_file_is_one_process_s(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)):
        with pytest.raises(ConfigError, match="in use by another process"):
            async with open_store(sqlite_url(tmp_path)):
                pass
    async with open_store(sqlite_url(tmp_path)):
        pass


async def test_a_newer_gateway_s_state_is_left_alone(url: str) -> None:
    async with open_store(url):
        pass
    database = Database(url)
    async with database.write() as connection:
        await connection.execute(insert(SCHEMA).values(version=99))
        await connection.commit()
    await database.close()
    with pytest.raises(ConfigError, match="schema 99"):
        async with open_store(url):
            pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://localhost/x", "not mysql"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:////proc/nowhere/x.db", "cannot be opened"),
    ],
)
async def test_a_url_that_cannot_be_is_told(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with open_store(url):
            pass


async def test_a_server_that_is_away_is_unavailable_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the state database: ") as caught:
        async with open_store(f"postgresql://user:hunter2@/x?host={tmp_path}"):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "gateway.db").write_bytes(b"no database" * 1000)
    with pytest.raises(UnavailableError, match="not a database"):
        async with open_store(sqlite_url(tmp_path)):
            pass


async def test_a_start_that_is_called_off_leaves_no_thread_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """Called off at any of its turns: the file is free at once, and whole."""
    others = set(threading.enumerate())
    for turns in range(12):
        url = sqlite_url(tmp_path)

        async def use(url: str = url) -> None:
            async with open_store(url):
                await asyncio.Event().wait()

        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert not [thread for thread in set(threading.enumerate()) - others if "_connection_worker_thread" in thread.name]
        async with open_store(url):
            pass
