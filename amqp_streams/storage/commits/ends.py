"""[io] The file that names the last commits after their sync. Layout and use: `formats/ends.py`.

Law: a write that fails costs nothing but what the file would show: commits do not depend on it.
"""

import contextlib
from pathlib import Path
from typing import Final

from amqp_streams.storage.disk.files import Files, OpenFile, read_file
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import ends
from amqp_streams.storage.formats.ends import COPIES, COPY_BYTES, Copy, Ends, Key, Place

FILE: Final = "ends"


class EndsFile:
    """The open file. Only the thread that commits uses it."""

    def __init__(self, file: OpenFile | None, known: Ends, seed: int) -> None:
        self._file: Final = file
        self._copy: Final = Copy(known, seed)

    def synced(self, journal: Place | None, partitions: list[tuple[Key, int]]) -> None:
        """Name what a commit synced: its record of the journal, and the new ends of partitions.

        Raises:
            OSError: the file could not be written.
        """
        copy = self._copy
        if journal:
            copy.journal = journal
        for key, end in partitions:
            copy.put(key, end)
        data = copy.encode()
        if self._file:
            self._file.write([data], copy.count % COPIES * COPY_BYTES)


def find(files: Files, root: Path, seed: int, findings: list[Finding]) -> Ends:
    """What the file names; nothing if it does not exist. A damaged file is a finding.

    Raises:
        OSError: the disk failed.
    """
    try:
        data = read_file(files, root / FILE)
    except FileNotFoundError:  # an earlier version wrote the directory
        return Ends()
    found = ends.read(data, seed)
    if found is None and any(data):
        words = (
            "is damaged; damage to the last record of a file cannot be distinguished from a write that was"
            " cut off"
        )
        findings.append(Finding(Severity.WARNING, FILE, None, words))
    return found or Ends()


def prepare(files: Files, root: Path) -> OpenFile | None:
    """Open the file with its whole size, so that later writes need no space; None on a full disk."""
    with contextlib.suppress(OSError):
        file = OpenFile(files, root / FILE, create=True)
        if (size := file.size()) < COPIES * COPY_BYTES:
            file.write([bytes(COPIES * COPY_BYTES - size)], size)
        return file
    return None
