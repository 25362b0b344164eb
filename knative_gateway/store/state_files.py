"""[io] The files of a SQLite database, which must stay the files that the gateway opened.

A process that has opened a file uses it also after the file was removed or replaced: its changes would be
acknowledged, and lost at the next start. A process that opens the database later would use other files.

The identity of a file is its device and inode. The process that locks the database notes the database and the
lock; its workers get these from it. Each process notes the files of the write-ahead log itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from knative_gateway.errors import UnavailableError

LOCK: Final = ".lock"
_OPENED_WITH: Final = ("-wal", "-shm")
"""SQLite creates these when the database is opened, and removes them when the last connection is closed."""

log = structlog.get_logger("knative_gateway.store")

Identities = Mapping[str, Sequence[int]]
"""By the end of the file's name: device and inode."""


class StateFiles:
    """The files of one database. Until files are noted, everything is right."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.problem: str | None = None
        """Which file was removed or replaced, and what to do; None if all files were the same when `look` was
        called last.
        """
        self._known: dict[str, tuple[int, int]] = {}
        self._looking: Final = Lock()

    @property
    def known(self) -> Identities:
        """The files that were noted, for another process."""
        return dict(self._known)

    def expect(self, known: Identities) -> None:
        """Note the files that another process has noted."""
        self._known = {end: (device, inode) for end, (device, inode) in known.items()}

    def locked(self) -> None:
        """Note the database and its lock."""
        self._note("", LOCK)

    def opened(self) -> None:
        """Note the files of the write-ahead log, while a connection is open."""
        self._note(*_OPENED_WITH)

    def look(self) -> None:
        """Compare the files with those that were noted, and set `problem`."""
        # The threads of the store look at the same time, and the log gets one line.
        with self._looking:
            found = self._found()
            is_new = found is not None and found != self.problem
            self.problem = found
        if is_new:
            log.error("state_file_gone", reason=found)

    def require(self) -> None:
        """Raise UnavailableError if there is a problem now."""
        self.look()
        if self.problem is not None:
            raise UnavailableError(self.problem)

    def _found(self) -> str | None:
        for end, before in self._known.items():
            now = self._identity(end)
            if now != before:
                what = "does not exist any more" if now is None else "was replaced"
                return (
                    f"the state database: {self.path}{end} {what}: put it back, or restore {self.path} "
                    "from a backup and restart the gateway"
                )
        return None

    def _note(self, *ends: str) -> None:
        found = ((end, self._identity(end)) for end in ends)
        self._known.update({end: identity for end, identity in found if identity is not None})

    def _identity(self, end: str) -> tuple[int, int] | None:
        try:
            found = Path(self.path + end).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
