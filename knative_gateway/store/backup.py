"""A copy of the SQLite file of a gateway that runs. [io]

Law: the copy has its name when it is whole, checked and on the disk. The gateway is not disturbed: it writes
while the copy is made.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy.engine import make_url

from knative_gateway.errors import ConfigError, UnavailableError

_TEMPORARY: Final = ".tmp"
_MODE: Final = 0o600


def sqlite_file(url: str) -> Path:
    """The file of a store with this URL.

    Raises:
        ConfigError: the store is in PostgreSQL.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        message = (
            "store: this command copies SQLite files only: back up a PostgreSQL database with pg_dump, before"
            " the log node"
        )
        raise ConfigError(message)
    return Path(parsed.database)


def back_up(source: Path, target: Path, *, overwrite: bool = False) -> int:
    """Copy the state at one moment to `target`; returns its bytes.

    Raises:
        ConfigError: `target` exists and `overwrite` is not set, or `source` does not exist.
        UnavailableError: a disk failed, or the file is damaged. `target` is as before.
    """
    if target.exists() and not overwrite:
        message = f"{target} exists: use another name, or --overwrite"
        raise ConfigError(message)
    if not source.is_file():
        message = f"{source} does not exist: no gateway has used this state directory"
        raise ConfigError(message)
    temporary = target.with_name(target.name + _TEMPORARY)
    try:
        # Created here and not by SQLite, so that only its user may read it. A file or a link that is there
        # already may be another user's, who could read or redirect the copy.
        temporary.unlink(missing_ok=True)
        os.close(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        )
        _copy(source, temporary)
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        where = (error.filename if isinstance(error, OSError) else None) or target
        message = f"{where}: the copy failed, and an earlier one is as before: {reason}"
        raise UnavailableError(message) from error
    return target.stat().st_size


def _copy(source: Path, target: Path) -> None:
    # Read-only: closing the last writing connection would remove the write-ahead log of the gateway.
    origin = sqlite3.connect(f"file:{quote(str(source.absolute()))}?mode=ro", uri=True, isolation_level=None)
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        # All pages in one step: SQLite begins again when another process writes between two steps.
        origin.backup(copy, pages=-1)
        # One file, without a write-ahead log of its own.
        copy.execute("PRAGMA journal_mode = DELETE")
        [(verdict,)] = copy.execute("PRAGMA integrity_check(1)").fetchall()
        if verdict != "ok":
            message = f"{source} is damaged: {verdict}"
            raise sqlite3.DatabaseError(message)
    finally:
        copy.close()
        origin.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
