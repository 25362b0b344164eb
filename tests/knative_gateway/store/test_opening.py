"""Opening: the state that survives restarts, the rights on the file, and the errors."""

import asyncio
import os
from pathlib import Path

import pytest
from sqlalchemy import insert

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.ports import Key, StoredCursor
from knative_gateway.store import open_store, sqlite_url
from knative_gateway.store.database import Database
from knative_gateway.store.opening import store_lock
from knative_gateway.store.tables import SCHEMA

KEY = Key("", "ConfigMap", "default", "a")


async def test_everything_is_there_again_when_it_is_opened_again(url: str) -> None:
    async with open_store(url) as store:
        await store.resources.write(KEY, {"data": {"a": "b"}}, expected_version=0)
        await store.cursors.save({("one", 0): "01"})
    async with open_store(url) as store:
        version, [object_] = await store.resources.list("", "ConfigMap")
        assert (version, object_["data"]) == (2, {"a": "b"})
        assert await store.cursors.load(["one"]) == {"one": StoredCursor({0: "01"})}
        assert store.shared is url.startswith("postgresql")


async def test_the_file_syncs_each_commit_and_is_its_owners_only(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)) as store:
        await store.resources.write(KEY, {}, expected_version=0)
        # Three files.
        assert {(tmp_path / name).stat().st_mode & 0o077 for name in os.listdir(tmp_path)} == {0}  # noqa: PTH208
    database = Database(sqlite_url(tmp_path))
    values = await database.read(
        lambda connection: [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous")
        ]
    )
    await database.close()
    assert values == ["wal", 2]


async def test_a_file_is_one_process_s(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)):
        with pytest.raises(ConfigError, match="in use by another process"):
            async with open_store(sqlite_url(tmp_path)):
                pass
    async with open_store(sqlite_url(tmp_path)):
        pass


async def test_workers_share_the_file_that_their_parent_has_locked(tmp_path: Path) -> None:
    with store_lock(sqlite_url(tmp_path)) as held:
        assert held is not None
        with pytest.raises(ConfigError, match="in use by another process"):
            async with open_store(sqlite_url(tmp_path)):
                pass
        wrote = asyncio.Event()
        async with (
            open_store(sqlite_url(tmp_path), files=held.files, poll_s=600) as reader,
            open_store(sqlite_url(tmp_path), files=held.files, wrote=wrote.set) as writer,
        ):
            watch = reader.resources.watch("", "ConfigMap", 1)
            change = asyncio.ensure_future(anext(watch))
            await writer.resources.write(KEY, {"data": {}}, expected_version=0)
            await wrote.wait()
            reader.notice()
            assert (await change).key == KEY
            inherited = os.dup(held.descriptor)
    with pytest.raises(ConfigError, match="in use by another process"):
        async with open_store(sqlite_url(tmp_path)):
            pass
    os.close(inherited)
    async with open_store(sqlite_url(tmp_path)):
        pass


def test_replicas_share_a_database_without_a_lock() -> None:
    with store_lock("postgresql://user@/gateway") as held:
        assert held is None


async def test_a_newer_gateway_s_state_is_left_alone(url: str) -> None:
    async with open_store(url):
        pass
    database = Database(url)
    await database.write(lambda connection: connection.execute(insert(SCHEMA).values(version=99)).rowcount)
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
async def test_a_url_that_is_not_valid_is_reported(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with open_store(url):
            pass


async def test_a_server_that_is_away_is_unavailable_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the state database: ") as caught:
        async with open_store(f"postgresql://user:hunter2@/x?host={tmp_path}"):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_file_that_is_not_a_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "gateway.db").write_bytes(b"no database" * 1000)
    with pytest.raises(UnavailableError, match="not a database"):
        async with open_store(sqlite_url(tmp_path)):
            pass


async def test_a_start_that_is_called_off_ends_the_step_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its thread would continue in the file, and have no caller to report to."""
    began, ended = asyncio.Event(), False
    open_database = Database.open

    async def slowly(database: Database) -> None:
        nonlocal ended
        began.set()
        await open_database(database)
        ended = True

    monkeypatch.setattr(Database, "open", slowly)

    async def use() -> None:
        async with open_store(sqlite_url(tmp_path)):
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await began.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert ended
    async with open_store(sqlite_url(tmp_path)):
        pass
