"""[io] Small values by key, such as cursors: all in memory, and each write is a record in the file `states`.

Laws: one write is in flight at a time; writes that arrive meanwhile become one record, all or none. After a
failed write or sync the file is never written again: the next write replaces it with a new file of all
values. After opening, only the thread of `executor` writes the file, so that cursors and commits do not delay
each other. Layout: `state_record.py`.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.config import Sync, SyncMode
from amqp_streams.errors import StorageError
from amqp_streams.storage.catalog import Checkpoint
from amqp_streams.storage.commits.flushing import Outstanding
from amqp_streams.storage.disk.files import Files, OpenFile, read_file, replace_file
from amqp_streams.storage.disk.work import Call, Executor, Task, Work
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import state_record
from amqp_streams.storage.formats.state_record import Changes
from amqp_streams.storage.formats.state_values import StateValues

FILE: Final = "states"
DAMAGED_FILE: Final = "states.damaged"
"""A copy of the last damaged file."""


@dataclass(slots=True, eq=False)
class OpenedStates:
    """The content of the file. `file` is None if the first write must replace the file."""

    values: dict[str, bytes]
    file: OpenFile | None
    bytes: int


def open_states(
    files: Files, root: Path, directory_id: int, checkpoint: Checkpoint | None, findings: list[Finding]
) -> OpenedStates:
    """Read the file and repair it if necessary; create it if it does not exist.

    Raises:
        StorageError: the file belongs to another data directory.
        OSError: the disk failed.
    """
    path, ours = root / FILE, list[Finding]()
    data = find(files, root, checkpoint, ours)
    if data is None:
        findings += ours
        replace_file(files, path, state_record.encode_head(directory_id), sync=True)
        return OpenedStates({}, OpenFile(files, path, write=True), state_record.FILE_HEAD_BYTES)
    read = look(data, path, directory_id, checkpoint, ours)
    findings += ours
    if any(finding.severity is Severity.DAMAGE for finding in ours):
        # The copy is a convenience: a full disk must not prevent the opening.
        with contextlib.suppress(OSError):
            replace_file(files, root / DAMAGED_FILE, data, sync=True)
    if read.head_damaged or read.holes:
        with contextlib.suppress(OSError):  # on a full disk, the next write repairs the file
            whole = state_record.encode_file(read.values, directory_id)
            replace_file(files, path, whole, sync=True)
            return OpenedStates(read.values, OpenFile(files, path, write=True), len(whole))
        return OpenedStates(read.values, None, len(data))
    file = OpenFile(files, path, write=True)
    if read.end < read.size:
        file.truncate(read.end)
    # What is read here counts from now on. After a failed sync the system shows bytes that it never writes:
    # so they are written again (`test_a_state_in_the_page_cache_after_a_failed_sync_is_durable_once_read`).
    file.write([data[: read.end]], 0)
    file.sync()
    return OpenedStates(read.values, file, read.end)


def find(files: Files, root: Path, checkpoint: Checkpoint | None, findings: list[Finding]) -> bytes | None:
    """The bytes of the file; None if it does not exist."""
    try:
        return read_file(files, root / FILE)
    except FileNotFoundError:
        if checkpoint and checkpoint.states:
            words = "is missing: all cursors and epochs of consumer groups are lost"
            findings.append(Finding(Severity.DAMAGE, FILE, None, words))
        return None


def look(
    data: bytes, path: Path, directory_id: int, checkpoint: Checkpoint | None, findings: list[Finding]
) -> state_record.Read:
    """The content of the bytes; adds a finding for each problem.

    Raises:
        StorageError: they belong to another data directory.
    """
    read = state_record.read(data, directory_id)
    if read.directory_id is not None and read.directory_id != directory_id:
        message = (
            f"{path} belongs to another data directory: restore the right file from a backup, "
            "or remove this one, which loses cursors and epochs"
        )
        raise StorageError(message)
    closed_at = checkpoint.states if checkpoint and checkpoint.clean else 0
    if read.head_damaged:
        severity = Severity.WARNING if read.values else Severity.DAMAGE
        words = "its head is damaged" + (
            "; opening the store recreates it" if read.values else ", and no record is readable"
        )
        findings.append(Finding(severity, FILE, 0, words))
    for hole in read.holes:
        count = hole.after - hole.position
        if hole.torn and not closed_at:
            words = f"{count} bytes were never synced and are not whole records"
            findings.append(Finding(Severity.NOTE, FILE, hole.position, words))
        else:
            words = f"{count} bytes are not whole records: cursors or epochs in them are outdated or lost"
            findings.append(Finding(Severity.DAMAGE, FILE, hole.position, words))
    if read.end < closed_at:
        words = (
            f"whole records end here, and ended at byte {closed_at} before: later cursors or epochs are"
            " outdated or lost"
        )
        findings.append(Finding(Severity.DAMAGE, FILE, read.end, words))
    elif read.end < read.size:
        words = (
            f"{read.size - read.end} bytes at the end are not a whole record; the next start cuts them off"
        )
        findings.append(Finding(Severity.NOTE, FILE, read.end, words))
    return read


@dataclass(slots=True, eq=False)
class _Batch:
    """Writes in flight together, numbers `first` to `last`."""

    first: int
    last: int
    changes: dict[str, bytes | None]


class DirectoryStates(StateValues):
    """See `ports.States`."""

    def __init__(
        self,
        files: Files,
        root: Path,
        directory_id: int,
        opened: OpenedStates,
        *,
        sync: Sync,
        executor: Executor,
        outstanding: Outstanding,
        compact_bytes: int,
    ) -> None:
        super().__init__(opened.values)
        self.on_written: Callable[[int, StorageError | None], None] = ignore
        self._files: Final = files
        self._path: Final = root / FILE
        self._directory_id: Final = directory_id
        self._seed: Final = state_record.seed_of(directory_id)
        self._always: Final = sync.mode is SyncMode.ALWAYS
        self._executor: Final = executor
        self._outstanding: Final = outstanding
        self._compact_bytes: Final = compact_bytes
        self._live_bytes = sum([state_record.live_bytes(key, value) for key, value in opened.values.items()])
        self._file = opened.file
        self.bytes = opened.bytes
        """Size of the file."""
        self._synced = opened.bytes
        self._number = 0
        self._pending: _Batch | None = None
        self._in_flight = False

    @property
    def safe(self) -> bool:
        """Whether every write so far, or a later one, succeeded."""
        return self._file is not None and self._pending is None and not self._in_flight

    @property
    def count(self) -> int:
        """The number of keys."""
        return len(self.values)

    def write(self, changes: Changes) -> int:
        """See `States.write`."""
        for key, value in state_record.checked(changes, self.values).items():
            before = self.values.pop(key, None)
            if before is not None:
                self._live_bytes -= state_record.live_bytes(key, before)
            if value is not None:
                self.values[key] = value
                self._live_bytes += state_record.live_bytes(key, value)
        self._number += 1
        if self._pending is None:
            self._pending = _Batch(self._number, self._number, dict(changes))
        else:
            self._pending.changes.update(changes)
            self._pending.last = self._number
        self._start()
        return self._number

    def finish(self) -> None:
        """Repeat a failed write, if the last one failed. A pending write is in flight already."""
        if self._file is None and self._pending is None and not self._in_flight:
            self._pending = _Batch(self._number + 1, self._number, {})
            self._start()

    def close(self) -> None:
        """Close the file. No write may be in flight."""
        if self._file:
            self._file.close()

    def sync_failed(self, file: OpenFile) -> None:
        """A later sync of the file failed: recent writes may be lost, so the next write replaces the file."""
        if file is self._file:
            self._file = None

    def _start(self) -> None:
        if self._in_flight or self._pending is None:
            return
        batch, self._pending = self._pending, None
        self._in_flight = True
        if self._file is None or self.bytes > max(self._compact_bytes, 2 * self._live_bytes):
            made: list[tuple[OpenFile, int]] = []
            # A copy: the executor's thread encodes it while `write` changes the values.
            steps = [Call(partial(self._rewrite, dict(self.values), made))]
            self._outstanding.submit(self._executor, [Work(steps)], partial(self._rewritten, batch, made))
        else:
            added: list[int] = []
            steps = [Call(partial(self._add, self._file, self.bytes, self._synced, batch.changes, added))]
            lazy = [] if self._always else [self._file]
            self._outstanding.submit(
                self._executor, [Work(steps, lazy=lazy)], partial(self._added, batch, self._file, added)
            )

    # -- on the executor's thread

    def _add(self, file: OpenFile, position: int, synced: int, changes: Changes, added: list[int]) -> None:
        data = state_record.encode(changes, synced=synced, seed=self._seed)
        file.write([data], position)
        if self._always:
            file.sync()
        added.append(len(data))

    def _rewrite(self, values: dict[str, bytes], made: list[tuple[OpenFile, int]]) -> None:
        data = state_record.encode_file(values, self._directory_id)
        try:
            replace_file(self._files, self._path, data, sync=True)
        except OSError:
            # The error of the replacement is the one to report.
            with contextlib.suppress(OSError):
                self._files.unlink(self._path.with_name(FILE + ".tmp"))
            raise
        made.append((OpenFile(self._files, self._path, write=True), len(data)))

    # -- back on the loop's thread

    def _added(self, batch: _Batch, file: OpenFile, added: list[int], task: Task) -> None:
        # A failed sync may have excluded the file meanwhile: see `sync_failed`.
        if added and file is self._file:
            self.bytes += added[0]
            if self._always:
                self._synced = self.bytes
        # It is not known what a failed write left in the file: replace the file.
        elif not added:
            self._file = None
        self._ended(batch, task.works[0].error)

    def _rewritten(self, batch: _Batch, made: list[tuple[OpenFile, int]], task: Task) -> None:
        self._file = None
        if made:
            self._file, self.bytes = made[0]
            self._synced = self.bytes
        self._ended(batch, task.works[0].error)

    def _ended(self, batch: _Batch, error: OSError | None) -> None:
        failure = (
            StorageError(f"{error.filename or self._path}: {error.strerror or error}") if error else None
        )
        self._in_flight = False
        # The next write begins first, so that the disk is busy while the results are processed.
        self._start()
        for number in range(batch.first, batch.last + 1):
            self.on_written(number, failure)


def ignore(number: int, failure: StorageError | None) -> None:
    """Used until the owner sets `on_written`."""
