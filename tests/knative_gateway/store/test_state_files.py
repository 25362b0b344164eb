"""The files of SQLite must stay the files that were opened. Workers: tests/acceptance/test_workers.py."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Key
from knative_gateway.store import state_files
from knative_gateway.store.opening import open_store, sqlite_url, store_lock
from knative_gateway.store.state_files import StateFiles

KEY = Key("", "ConfigMap", "default", "a")
FILES = ("gateway.db", "gateway.db.lock", "gateway.db-wal", "gateway.db-shm")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("replaced", [True, False])
async def test_changes_are_refused_when_a_file_was_removed_or_replaced(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    """They would be acknowledged, and lost at the next start."""
    path, aside = tmp_path / name, tmp_path / "aside"
    with capture_logs() as lines:
        async with open_store(sqlite_url(tmp_path), poll_s=0.01) as store:
            await store.resources.write(KEY, {}, expected_version=0)
            aside.hardlink_to(path)
            if replaced:
                (tmp_path / "other").write_bytes(path.read_bytes())
                (tmp_path / "other").replace(path)  # at once: the feed looks at any time
            else:
                path.unlink()
            what = "was replaced" if replaced else "does not exist any more"
            with pytest.raises(UnavailableError, match=f"{path} {what}: put it back"):
                await store.resources.write(KEY, {"a": 1}, expected_version=None)
            await until(lambda: f"{path} {what}" in (store.problem() or ""))
            aside.replace(path)
            await until(lambda: store.problem() is None)
            await store.resources.write(KEY, {"a": 2}, expected_version=None)
    errors = [line for line in lines if line["log_level"] == "error"]
    assert [line["event"] for line in errors] == ["state_file_gone"], "once"


async def test_a_worker_does_not_create_the_file_or_use_another_one(tmp_path: Path) -> None:
    with store_lock(sqlite_url(tmp_path)) as held:
        assert held is not None
        path = tmp_path / "gateway.db"
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(UnavailableError, match="does not exist any more"):
            async with open_store(sqlite_url(tmp_path), files=held.files):
                pass
        assert not path.exists()
        (tmp_path / "other").write_bytes(content)
        (tmp_path / "other").rename(path)
        with pytest.raises(UnavailableError, match="was replaced"):
            async with open_store(sqlite_url(tmp_path), files=held.files):
                pass


async def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    """SQLite gets the path as a URI."""
    folder = tmp_path / "a %41?mode=ro#x"
    async with open_store(sqlite_url(folder)) as store:
        await store.resources.write(KEY, {}, expected_version=0)
    assert {"gateway.db", "gateway.db.lock"} == {each.name for each in folder.iterdir()}


def test_files_that_were_not_noted_are_right(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path / "none"))
    files.locked()
    files.require()
    assert (files.problem, files.known) == (None, {})


def test_threads_that_look_at_the_same_time_report_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.touch()
    files = StateFiles(str(path))
    files.locked()
    path.unlink()
    both, events = threading.Barrier(2), list[str]()

    class SlowLog:
        def error(self, event: str, **_: object) -> None:
            events.append(event)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)

    monkeypatch.setattr(state_files, "log", SlowLog())
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: files.look(), range(2)))
    assert events == ["state_file_gone"]


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  the store has no event for this
            await asyncio.sleep(0.01)
