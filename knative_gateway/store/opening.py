"""Opens and closes the store. [io]"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from knative_gateway.errors import ConfigError
from knative_gateway.running.supervising import Supervisor
from knative_gateway.store.cursors import SqlCursorStore
from knative_gateway.store.database import Database
from knative_gateway.store.feed import POLL_S, Feed
from knative_gateway.store.resources import CHANGES_MAX, SqlResources

FILE_NAME: Final = "gateway.db"
"""The name of the SQLite file in the state directory."""
_CALLED_OFF_S: Final = 5.0
"""How long a step of opening may continue after the start was cancelled."""


@dataclass(frozen=True, slots=True)
class Store:
    """The parts of the store. `shared`: other replicas may use the store at the same time (PostgreSQL)."""

    resources: SqlResources
    cursors: SqlCursorStore
    shared: bool


def sqlite_url(state_dir: Path) -> str:
    """Return the URL of the SQLite file in a state directory."""
    return URL.create("sqlite", database=str(state_dir / FILE_NAME)).render_as_string(hide_password=False)


@asynccontextmanager
async def open_store(
    url: str,
    *,
    changes_max: int = CHANGES_MAX,
    poll_s: float = POLL_S,
    tasks: Supervisor | None = None,
) -> AsyncIterator[Store]:
    """Open the store at a URL (`sqlite:///FILE`, `postgresql://…`), and create or upgrade its schema.

    Raises:
        ConfigError: the URL is not valid, the file is in use, or a newer gateway wrote the schema.
        UnavailableError: the database cannot be reached.
    """
    database = Database(url)
    with _alone(database):
        feed = Feed(database, poll_s=poll_s, tasks=tasks)
        try:
            await _to_its_end(database.open())
            await _to_its_end(feed.start())
            resources = SqlResources(database, feed, changes_max=changes_max)
            yield Store(resources, SqlCursorStore(database), shared=database.postgresql)
        finally:
            await feed.close()
            await database.close()


async def _to_its_end(step: Coroutine[None, None, None]) -> None:
    """Finish a step even if the start is cancelled.

    The thread of the step would continue, and use a closed database.
    """
    task = asyncio.create_task(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait({task}, timeout=_CALLED_OFF_S)
        task.cancel()
        raise


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    """Lock a SQLite file for this process: another would not notice writes at once. Only the file's user may
    read it.
    """
    if database.postgresql:
        yield
        return
    path = database.url.database
    assert path, "checked when the URL was read"
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        descriptors = [
            # The file is created here and not by SQLite, so that only its user may read it.
            os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            for name in (f"{path}.lock", path)
        ]
    except OSError as error:
        message = f"the state database {path} cannot be opened: {error.strerror}"
        raise ConfigError(message) from None
    # Close this descriptor before SQLite opens the file: closing any descriptor of a file drops all locks of
    # the process on it.
    os.close(descriptors[1])
    try:
        try:
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"the state database {path} is in use by another process"
            raise ConfigError(message) from None
        yield
    finally:
        os.close(descriptors[0])
