"""[io] The logs of a data directory, and the steps of their changes.

Laws: a log is in `stored` from the moment when its creation is durable until its deletion is durable. While a
deletion is in flight, the log accepts no events. If the deletion fails, the log continues, except if it is
not certain where its folder is: then its partitions stop until the next start.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.errors import LogDeletedError
from amqp_streams.log_settings import Compression, log_name
from amqp_streams.storage import catalog
from amqp_streams.storage.catalog import LogRecord
from amqp_streams.storage.changes.changes import Change, Stage
from amqp_streams.storage.commits.flushing import Flusher
from amqp_streams.storage.commits.journal import Journal
from amqp_streams.storage.compression.codecs import load, require_codec
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.disk.work import Executor
from amqp_streams.storage.opening import storage_error
from amqp_streams.storage.partitions.partition_log import Admit, PartitionLog
from amqp_streams.storage.partitions.reading import Reading
from amqp_streams.storage.partitions.segment import Segment, segment_path
from amqp_streams.storage.partitions.segments import Segments
from amqp_streams.storage.ports import CommitQueue, StoredLog
from amqp_streams.storage.questions import Create, Update
from amqp_streams.storage.removing import Checkpoints
from amqp_streams.storage.restore import Restored

_STEP: Final = 32
"""How many partitions are made or released before the loop serves others: less than 1 ms of work."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the store that changes of logs need.

    `deleted`: called with the name of a log when it is not in `Logs.stored` any more. `can_commit`: called
    when a commit may start that waited for a deletion. `admit` is that of the store.
    """

    files: Files
    root: Path
    reading: Reading
    journal: Journal
    flusher: Flusher
    queue: CommitQueue
    admit: Admit
    writer: Executor
    keeper: Executor
    checkpoints: Checkpoints
    deleted: Callable[[str], None]
    can_commit: Callable[[], None]


class Logs:
    """The logs by name."""

    def __init__(self, parts: Parts) -> None:
        self.records: Final[dict[str, LogRecord]] = {}
        self.stored: Final[dict[str, StoredLog]] = {}
        self._parts: Final = parts

    def partitions(self, name: str) -> list[PartitionLog]:
        """The partitions of a log."""
        # `StoredLog` has the type of the interface; this store puts only `PartitionLog`s there.
        return [each for each in self.stored[name].partitions if isinstance(each, PartitionLog)]

    def all_partitions(self) -> list[PartitionLog]:
        """The partitions of all logs."""
        return [partition for name in self.stored for partition in self.partitions(name)]

    def compressing(self) -> Iterator[PartitionLog]:
        """The partitions of the logs whose segments are to be compressed. Logs may change meanwhile."""
        none = Compression.NONE
        for name in [name for name, log in self.records.items() if log.settings.compression != none]:
            if name in self.stored:
                yield from self.partitions(name)

    def add(self, log: LogRecord, partitions: Sequence[PartitionLog]) -> StoredLog:
        """Add a log whose files exist."""
        self.records[log.name] = log
        self.stored[log.name] = StoredLog(log.name, log.settings, log.incarnation, tuple(partitions))
        return self.stored[log.name]

    def partition(self, log: LogRecord, index: int, part: Restored | None = None) -> PartitionLog:
        """A partition of a log; without `part`, of a new one."""
        folder = self._folder(log.name) / str(index)
        part = part or Restored([Segment(segment_path(folder, 0), 0, 0)], 0, 0, {})
        segments = Segments(folder, log.seed(index), self._parts.reading, part.row, part.producers)
        admit, queue = self._parts.admit, self._parts.queue
        return PartitionLog(log, index, segments, admit, queue, start=part.start, end=part.end)

    # -- the steps of changes

    def creating(self, question: Create) -> Change:
        """Create a log. Raises ValueError: it exists, or its name is not valid; SettingRefusedError."""
        name, settings, parts = question.name, question.settings, self._parts
        if log_name(name) in self.stored:
            message = f"log {name} already exists"
            raise ValueError(message)
        if settings.compression != Compression.NONE:
            yield Stage(parts.keeper, partial(load, settings))
            require_codec(settings)
        log = LogRecord(name, int.from_bytes(os.urandom(8), "little"), question.incarnation, settings)
        create = partial(catalog.create_log, parts.files, parts.root, log)
        error = yield Stage(parts.keeper, create)
        # On a full disk, the new log needs the space of deleted logs, and their files may still be there.
        if error is not None and error.errno in FULL and parts.checkpoints.hurry():
            yield Stage(parts.keeper, None)
            error = yield Stage(parts.keeper, create)
        self._raise(name, error)
        partitions: list[PartitionLog] = []
        for index in range(settings.partitions):
            partitions.append(self.partition(log, index))
            if len(partitions) % _STEP == 0:
                yield self._pause()
        stored = self.add(log, partitions)
        parts.checkpoints.submit()
        return stored

    def updating(self, question: Update) -> Change:
        """Change settings.

        Raises:
            KeyError: the log does not exist.
            ValueError: the number of partitions differs.
            SettingRefusedError: the library of the compression is missing.
        """
        name, settings, parts = question.name, question.settings, self._parts
        stored, old = self.stored[name], self.records[name]
        if settings.partitions != len(stored.partitions):
            message = (
                f"log {name} has {len(stored.partitions)} partitions, and their number cannot be changed"
            )
            raise ValueError(message)
        # Other settings may change on a node that has lost the library.
        if settings.compression != old.settings.compression:
            yield Stage(parts.keeper, partial(load, settings))
            require_codec(settings)
        log = LogRecord(name, old.uid, old.incarnation, settings)
        # Only after the file is durable: if the write fails, the old settings stay in use.
        write = partial(catalog.update_log, parts.files, self._folder(name), log, old=old)
        self._raise(name, (yield Stage(parts.keeper, write)))
        partitions = self.partitions(name)
        for partition in partitions:
            partition.settings = settings
        stored = self.add(log, partitions)
        parts.checkpoints.submit()
        return stored

    def deleting(self, name: str) -> Change:
        """Delete a log. Raises KeyError: it does not exist."""
        log, partitions, parts = self.records[name], self.partitions(name), self._parts
        deletion = LogDeletedError(f"log {name} is being deleted")
        for partition in partitions:
            partition.begin_deletion(deletion)
        # A commit with records of the log, and writes to its files, may be in flight. No others begin.
        yield Stage(parts.writer, None)
        error = yield Stage(parts.keeper, partial(catalog.delete_log, parts.files, parts.root, log))
        if error is not None:
            self._resume(partitions, error)
        self._raise(name, error)
        del self.records[name], self.stored[name]
        deleted = LogDeletedError(f"log {name} was deleted")
        for partition in partitions:
            partition.stop(deleted)
        parts.checkpoints.forget(self._folder(name))
        parts.deleted(name)
        yield from self._release(partitions)
        # Removing large files takes time, so the keeper does it.
        parts.checkpoints.submit(trash=[catalog.trash_of(parts.root, log)])
        parts.can_commit()
        return None

    def _release(self, partitions: Sequence[PartitionLog]) -> Change:
        """Close the files of a deleted log and drop its records in memory: only then the space is free."""
        parts = self._parts
        for first in range(0, len(partitions), _STEP):
            paths: list[Path] = []
            for partition in partitions[first : first + _STEP]:
                parts.journal.drop(partition)
                parts.flusher.forget(partition, partition.end)
                for segment in partition.segments.row:
                    paths.append(segment.path)
                    partition.segments.release(segment.path)
            parts.reading.forget(*paths)
            if first + _STEP < len(partitions):
                yield self._pause()
        return None

    def _resume(self, partitions: Iterable[PartitionLog], error: OSError) -> None:
        """Continue with partitions whose deletion failed with this error, if the log is certainly kept."""
        for partition in partitions:
            if isinstance(error, catalog.UncertainDeletionError):
                # The next start may find the log in the trash: nothing may be accepted until then.
                self._parts.flusher.stop(partition, error)
            self._parts.flusher.resume(partition)
        self._parts.can_commit()

    def _raise(self, name: str, error: OSError | None) -> None:
        """Raise the error of a stage, if it failed, as a StorageError."""
        if error is not None:
            raise storage_error(self._folder(name), error) from error

    def _pause(self) -> Stage:
        return Stage(self._parts.keeper, _nothing)

    def _folder(self, name: str) -> Path:
        return self._parts.root / "logs" / name


def _nothing() -> None:
    """Take no time: the event loop serves others until the keeper's thread has called this."""
