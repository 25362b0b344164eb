"""Opens and closes the store. [io]"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from knative_gateway.errors import ConfigError, InUseError
from knative_gateway.running.supervising import Supervisor
from knative_gateway.store.cursors import SqlCursorStore
from knative_gateway.store.database import Database
from knative_gateway.store.feed import POLL_S, Feed
from knative_gateway.store.resources import CHANGES_MAX, SqlResources
from knative_gateway.store.state_files import Identities

FILE_NAME: Final = "gateway.db"
"""The name of the SQLite file in the state directory."""
_CALLED_OFF_S: Final = 5.0
"""How long a step of opening may continue after the start was cancelled."""


@dataclass(frozen=True, slots=True)
class Store:
    """The parts of the store. `shared`: other replicas may use the store at the same time (PostgreSQL).

    `notice` reports that another process may have written. `problem` returns why the store takes no changes,
    as the last read or write found; None if it takes changes.
    """

    resources: SqlResources
    cursors: SqlCursorStore
    shared: bool
    notice: Callable[[], None]
    problem: Callable[[], str | None]


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
    files: Identities | None = None,
    wrote: Callable[[], None] = lambda: None,
) -> AsyncIterator[Store]:
    """Open the store at a URL (`sqlite:///FILE`, `postgresql://…`), and create or upgrade its schema.

    `files`: the files of `store_lock`, which the parent of this process holds for its workers. `wrote` is
    called after each write of objects by this process.

    Raises:
        ConfigError: the URL is not valid, the file is in use, or a newer gateway wrote the schema.
        UnavailableError: the database cannot be reached.
    """
    database = Database(url)
    if files is not None:
        database.files.expect(files)
    with nullcontext() if files is not None else _alone(database):
        feed = Feed(database, poll_s=poll_s, tasks=tasks, wrote=wrote)
        try:
            await _to_its_end(database.open())
            await _to_its_end(feed.start())
            resources = SqlResources(database, feed, changes_max=changes_max)
            shared = database.postgresql
            yield Store(
                resources,
                SqlCursorStore(database),
                shared=shared,
                notice=feed.notice,
                problem=lambda: database.files.problem,
            )
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


@dataclass(frozen=True, slots=True)
class Held:
    """A locked SQLite file. A worker that inherits `descriptor` keeps the lock until it ends, even if its
    parent is killed.
    """

    descriptor: int
    files: Identities


@contextmanager
def store_lock(url: str) -> Iterator[Held | None]:
    """Lock the store of a gateway with several workers. Yields None for PostgreSQL, which gateways share.

    Raises:
        ConfigError: the URL is not valid.
        InUseError: another gateway uses the file.
    """
    database = Database(url)
    with _alone(database) as descriptor:
        yield None if descriptor is None else Held(descriptor, database.files.known)


@contextmanager
def _alone(database: Database) -> Iterator[int | None]:
    """Lock a SQLite file for this gateway: another gateway would not notice writes at once. Only the file's
    user may read the file.
    """
    if database.postgresql:
        yield None
        return
    path = database.files.path
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
    # Both stay open: the inode of a file that is removed is not used again while a descriptor has it. They
    # are closed last, because closing any descriptor of a file drops all locks of the process on it.
    try:
        try:
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"the state database {path} is in use by another process"
            raise InUseError(message) from None
        database.files.locked()
        yield descriptors[0]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def create_folder(state_dir: Path) -> None:
    """Create the directory of the gateway's state if it does not exist.

    Raises:
        ConfigError: it cannot be created.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        taken = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "is a file, not a directory" if taken else f"cannot be created: {error.strerror}"
        message = f"state_dir: {error.filename or state_dir} {reason}"
        raise ConfigError(message) from error
