"""A copy of the state of a running gateway is whole, or the earlier copy stays."""

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.ports import Key, StoredCursor
from knative_gateway.store import open_store, sqlite_url
from knative_gateway.store.backup import back_up, sqlite_file

KEY = Key("", "ConfigMap", "default", "a")


async def test_a_copy_has_what_was_written_while_the_gateway_writes_on(tmp_path: Path) -> None:
    source, copies = tmp_path / "gateway.db", tmp_path / "copies"
    copies.mkdir()
    async with open_store(sqlite_url(tmp_path)) as store:
        await store.resources.write(KEY, {"data": {"a": "b"}}, expected_version=0)
        ended = False
        number = 0

        async def write() -> None:
            nonlocal number
            while not ended:
                number += 1
                await store.cursors.save({("one", 0): f"{number:09d}", ("two", 0): f"{number:09d}"})

        writer = asyncio.create_task(write())
        for copied in range(5):
            known = number
            await asyncio.to_thread(back_up, source, copies / f"{copied}.db")
            async with open_store(f"sqlite:///{copies}/{copied}.db") as copy:
                _, [object_] = await copy.resources.list("", "ConfigMap")
                assert object_["data"] == {"a": "b"}
                positions = await copy.cursors.load(["one", "two"])
                # What one write stored together is there together.
                assert positions.get("one") == positions.get("two")
                if known > 1:
                    [text] = positions["one"].positions.values()
                    assert int(text) >= known - 1
        ended = True
        await writer
        assert store.problem() is None
        assert await store.cursors.load(["one"]) == {"one": StoredCursor({0: f"{number:09d}"})}
    assert number > 5


async def test_a_copy_is_one_file_that_only_its_user_may_read(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)):
        target = tmp_path / "copy" / "gateway.db"
        target.parent.mkdir()
        assert back_up(tmp_path / "gateway.db", target) == target.stat().st_size
        assert [path.name for path in target.parent.iterdir()] == ["gateway.db"]
        assert stat.S_IMODE(target.stat().st_mode) == 0o600


async def test_a_copy_is_replaced_on_request_only(tmp_path: Path) -> None:
    async with open_store(sqlite_url(tmp_path)):
        target = tmp_path / "copy.db"
        target.write_text("mine")
        with pytest.raises(ConfigError, match="exists: use another name, or --overwrite"):
            back_up(tmp_path / "gateway.db", target)
        assert target.read_text() == "mine"
        back_up(tmp_path / "gateway.db", target, overwrite=True)
        with sqlite3.connect(target) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


async def test_a_damaged_file_is_not_copied_over_a_good_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "gateway.db", tmp_path / "copy.db"
    async with open_store(sqlite_url(tmp_path)) as store:
        for number in range(50):
            key = Key("", "ConfigMap", "default", f"n{number}")
            await store.resources.write(key, {"data": {"a": "b" * 500}}, expected_version=0)
    back_up(source, target)
    good = target.read_bytes()
    data = bytearray(source.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    source.write_bytes(data)
    with pytest.raises(UnavailableError, match="the copy failed, and an earlier one is as before"):
        back_up(source, target, overwrite=True)
    assert target.read_bytes() == good
    assert not (tmp_path / "copy.db.tmp").exists()


def test_a_state_directory_that_no_gateway_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no gateway has used this state directory"):
        back_up(tmp_path / "gateway.db", tmp_path / "copy.db")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "gateway.db").close()
    with pytest.raises(UnavailableError, match="No such file or directory"):
        back_up(tmp_path / "gateway.db", tmp_path / "none" / "copy.db")


def test_a_store_in_postgresql_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="pg_dump, before the log node"):
        sqlite_file("postgresql://gateway:secret@host/db")
    assert sqlite_file("sqlite:////var/lib/g.db") == Path("/var/lib/g.db")


@pytest.mark.parametrize("planted", ["file", "link", "dangling link"])
async def test_a_file_that_is_at_the_temporary_name_gets_nothing(tmp_path: Path, planted: str) -> None:
    other = tmp_path / "other"
    temporary = tmp_path / "copy.db.tmp"
    if planted == "file":
        temporary.write_text("mine")
        temporary.chmod(0o666)
    else:
        temporary.symlink_to(other)
        if planted == "link":
            other.write_text("mine")
    async with open_store(sqlite_url(tmp_path)):
        # A user who has the file open reads nothing of the copy.
        reader = temporary.open("rb") if temporary.exists() else None
        back_up(tmp_path / "gateway.db", tmp_path / "copy.db")
    if reader is not None:
        with reader:
            assert reader.read() == b"mine"
    assert stat.S_IMODE((tmp_path / "copy.db").lstat().st_mode) == 0o600
    assert stat.S_ISREG((tmp_path / "copy.db").lstat().st_mode)
    assert other.exists() == (planted == "link")
