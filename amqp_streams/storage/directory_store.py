"""[io] The embedded store: all logs of one data directory. All methods run on the event loop's thread.

The writer thread commits and moves records to segments. The keeper thread syncs segments, writes indexes and
removes files. A third thread writes states. `work.py` returns their results through `loop_call`.
"""

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.config import LogSettings, Sync
from amqp_streams.errors import LogDeletedError
from amqp_streams.log_settings import log_name
from amqp_streams.storage import catalog, opening, states
from amqp_streams.storage.answering import at_once
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits.closing import move_to_segments
from amqp_streams.storage.commits.commits import Committer
from amqp_streams.storage.commits.flushing import Flusher, Outstanding, Tuning
from amqp_streams.storage.disk.files import Files, OpenFile, RealFiles
from amqp_streams.storage.disk.work import (
    Call,
    Executor,
    InlineExecutor,
    LoopCall,
    Replace,
    Results,
    Task,
    ThreadExecutor,
    Work,
)
from amqp_streams.storage.findings import Finding
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.segments import Segment, Segments, segment_path
from amqp_streams.storage.plans.retention import AHEAD_MS
from amqp_streams.storage.ports import (
    RETAINED_A_CALL,
    STATE_KEYS_MAX,
    CommitDone,
    CommitQueue,
    Later,
    Partition,
    ReadRequest,
    StoredLog,
    StoreFacts,
    Use,
)
from amqp_streams.storage.questions import Question
from amqp_streams.storage.removing import Checkpoints, Removal
from amqp_streams.storage.restore import Restored
from amqp_streams.storage.retaining import has_retention, retain


class DirectoryStore:
    """The `ports.Store` of the data directory `path`. `open` creates it. Copies have the same `identity`."""

    def __init__(
        self,
        opened: opening.Opened,
        sync: Sync,
        *,
        loop_call: LoopCall,
        now_ms: Callable[[], int],
        threads: bool,
    ) -> None:
        self.others: Final = None
        self.on_commit: Callable[[CommitDone], None] = _ignore
        self.findings: Final[tuple[Finding, ...]] = tuple(opened.findings)
        """What opening found, of every severity, in the order in which it was found."""
        self.sync: Final = sync
        self.path: Final = opened.root
        self._files: Final = opened.files
        self._lock: int | None = opened.lock
        self.identity: Final = f"{opened.directory_id:016x}"
        self._format = opened.format_
        self._reading: Final = opened.reading
        self._journal: Final = opened.journal
        self._results: Final = Results(loop_call)
        self._outstanding: Final = Outstanding()
        self._writer, self._keeper, self._states_writer = self._executors(
            threads=threads, loop_call=loop_call
        )
        self._reading.read_with(partial(self._reader, threads))
        self.states: Final = states.DirectoryStates(
            opened.files,
            opened.root,
            opened.directory_id,
            opened.states,
            sync=sync,
            executor=self._states_writer,
            outstanding=self._outstanding,
            compact_bytes=opened.tuning.states_bytes,
        )
        self._flusher: Final = self._new_flusher(opened.tuning, now_ms)
        self._committer: Final = Committer(
            sync,
            journal=self._journal,
            ends=opened.ends,
            flusher=self._flusher,
            writer=self._writer,
            outstanding=self._outstanding,
            tuning=opened.tuning,
            done=self._committed,
        )
        self._records: Final[dict[str, LogRecord]] = {}
        self._logs: Final[dict[str, StoredLog]] = {}
        # Names of deleted logs whose files the keeper may still be removing: see `create`.
        self._deleted: Final[set[str]] = set()
        self._ahead_ms: Final[dict[str, int]] = {}
        # What the next calls of `apply_retention` examine.
        self._to_retain: Final[deque[PartitionLog]] = deque()
        self._checkpoints: Final = Checkpoints(
            self._files,
            self.path,
            keeper=self._keeper,
            outstanding=self._outstanding,
            snapshot=partial(self._checkpoint, clean=False),
        )
        for log, parts in opened.logs:
            self._add(log, parts)
        # Not clean from now on: after a crash, the next start must not find the mark of the last stop.
        self._write_checkpoint(clean=False)

    def _new_flusher(self, tuning: Tuning, now_ms: Callable[[], int]) -> Flusher:
        return Flusher(
            self._files,
            self.path,
            journal=self._journal,
            writer=self._writer,
            keeper=self._keeper,
            outstanding=self._outstanding,
            tuning=tuning,
            now_ms=now_ms,
            freed=self._start,
        )

    @classmethod
    def open(
        cls,
        path: Path | str,
        sync: Sync | None = None,
        *,
        loop_call: LoopCall,
        now_ms: Callable[[], int] | None = None,
        files: Files | None = None,
        tuning: Tuning | None = None,
        threads: bool = True,
    ) -> "DirectoryStore":
        """Open a data directory and recover it if necessary; create it if it does not exist.

        `loop_call(function, *arguments)` runs a function on the event loop's thread, and any thread calls it.
        Simulations pass `files`, and `threads=False` to run every task at once in the caller's thread.

        Raises:
            DirectoryLockedError: another process has it open.
            StorageError: opening would lose data, or the disk failed; names the file and what to do.
        """
        opened = opening.open_directory(files or RealFiles(), Path(path), tuning or Tuning(), threads=threads)
        try:
            return cls(
                opened, sync or Sync(), loop_call=loop_call, now_ms=now_ms or _wall_clock_ms, threads=threads
            )
        except OSError as error:
            opened.files.close(opened.lock)
            raise opening.storage_error(opened.root, error) from error

    @property
    def logs(self) -> Mapping[str, StoredLog]:
        """See `Store.logs`."""
        return self._logs

    @property
    def queue(self) -> CommitQueue:
        """The queue of all partitions: one commit takes the records of all of them."""
        return self._committer

    @property
    def pending_bytes(self) -> int:
        """See `Store.pending_bytes`."""
        return self._committer.pending_bytes

    def facts(self) -> StoreFacts:
        """See `Store.facts`."""
        space = self._flusher.space
        return StoreFacts(
            full=str(space.error()) if space.full else None,
            commit_ms=self._committer.commit_ms,
            ahead_ms=dict(self._ahead_ms),
            uses=self._flusher.uses()
            | self._reading.uses()
            | {"states": Use(self.states.count, STATE_KEYS_MAX)},
        )

    # -- logs

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """See `Store.create`."""
        if log_name(name) in self._logs:
            message = f"log {name} already exists"
            raise ValueError(message)
        if name in self._deleted:
            self._wait_for_threads()  # first end their work on files of a deleted log of this name
            self._deleted.discard(name)
        log = LogRecord(name, int.from_bytes(os.urandom(8), "little"), incarnation, settings)
        try:
            catalog.create_log(self._files, self.path, log)
        except OSError as error:
            raise opening.storage_error(self._folder(name), error) from error
        folders = [self._folder(name) / str(index) for index in range(settings.partitions)]
        stored = self._add(
            log, [Restored([Segment(segment_path(folder, 0), 0, 0)], 0, 0, {}) for folder in folders]
        )
        self._checkpoints.submit()
        return stored

    def update(self, name: str, settings: LogSettings) -> StoredLog:
        """See `Store.update`."""
        stored, old = self._logs[name], self._records[name]
        if settings.partitions != len(stored.partitions):
            message = (
                f"log {name} has {len(stored.partitions)} partitions, and their number cannot be changed"
            )
            raise ValueError(message)
        log = LogRecord(name, old.uid, old.incarnation, settings)
        try:
            catalog.write_log(self._files, self._folder(name), log)
        except OSError as error:
            raise opening.storage_error(self._folder(name), error) from error
        # Only after the file is durable: if the write fails, the old settings stay in use.
        for partition in self._partitions(name):
            partition.settings = settings
        self._records[name] = log
        self._logs[name] = StoredLog(name, settings, log.incarnation, stored.partitions)
        self._checkpoints.submit()
        return self._logs[name]

    def delete(self, name: str) -> None:
        """See `Store.delete`."""
        log, partitions = self._records[name], self._partitions(name)
        trash = self.path / "trash" / f"{log.uid:016x}"
        self._wait_for_threads()  # the keeper may be writing a checkpoint that still contains the log
        try:
            with contextlib.suppress(OSError):  # also on a full disk; the file is written again below
                # After a crash here, the next start serves the log again: the deletion was not confirmed.
                self._write_checkpoint(clean=False, without=name)
            self._files.rename(self._folder(name), trash)
            self._files.fsync_dir(self.path / "logs")
        except OSError as error:
            raise opening.storage_error(self._folder(name), error) from error
        # The deletion is durable. Release what refers to the files: their disk space is free only then.
        for partition in partitions:
            partition.stop(LogDeletedError(f"log {name} was deleted"))
            self._journal.drop(partition)
            self._flusher.forget(partition, partition.end)
            for segment in partition.segments.row:
                self._reading.forget(segment.path)
                partition.segments.release(segment.path)
        self._ahead_ms.pop(name, None)
        del self._records[name], self._logs[name]
        self._deleted.add(name)
        checkpoint = self._checkpoint(clean=False)
        # Removing large files takes time, so the keeper does it.
        step = Call(partial(catalog.checkpoint_and_delete, self._files, self.path, checkpoint, trash))
        self._outstanding.submit(self._keeper, [Work([step])], _forget)

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:  # noqa: ARG002  no other machine
        """See `Store.ask`."""
        return at_once(self, question)

    def allow_numbers(self) -> None:
        """See `Store.allow_numbers`."""
        self._format = opening.raise_format(self._files, self.path, self._format, catalog.FORMAT_NUMBERED)

    def allow_formats(self) -> None:
        """See `Store.allow_formats`."""
        self._format = opening.raise_format(self._files, self.path, self._format, catalog.FORMAT_FORMATS)

    # -- commits

    def commit(self) -> None:
        """See `Store.commit`."""
        self._committer.commit()

    def _committed(self, done: CommitDone) -> None:
        self.on_commit(done)

    def _start(self) -> None:
        self._committer.start()

    def _admit(self, partition: PartitionLog, size: int, now_ms: int) -> None:
        # First, because it may refuse the append: nothing has changed then.
        self._flusher.space.admit(size, now_ms)
        if partition.last_ms - now_ms > AHEAD_MS:
            self._ahead_ms[partition.log] = partition.last_ms - now_ms
        elif self._ahead_ms:
            self._ahead_ms.pop(partition.log, None)
        self._committer.appended(partition, size)

    # -- retention

    def apply_retention(self, now_ms: int) -> list[tuple[Partition, int]]:
        """See `Store.apply_retention`."""
        if self._flusher.space.full:
            # An append asks as well, but no append may come while the disk is full.
            self._flusher.space.ask(now_ms)
        for name in tuple(self._ahead_ms):
            self._ahead_ms[name] = max(partition.last_ms for partition in self._partitions(name)) - now_ms
            if self._ahead_ms[name] <= AHEAD_MS:
                del self._ahead_ms[name]
        moved: list[tuple[Partition, int]] = []
        gone: list[Removal] = []
        if not self._to_retain:
            kept = [name for name, log in self._records.items() if has_retention(log.settings)]
            self._to_retain.extend(each for name in kept for each in self._partitions(name))
        for _ in range(min(RETAINED_A_CALL, len(self._to_retain))):
            partition = self._to_retain.popleft()
            before = partition.start
            removal = retain(partition, self._flusher, now_ms)
            if removal is not None:
                moved.append((partition, before))
                gone.append(removal)
        if moved:
            # First the checkpoint with the new starts, then the files: a crash in between loses nothing.
            self._checkpoints.submit(gone)
        return moved

    # -- closing

    def close(self, *, within_s: float | None = None) -> bool:
        """See `Store.close`."""
        deadline = time.monotonic() + (math.inf if within_s is None else within_s)
        if self._lock is None:
            return True
        while self._committer.dirty or self._committer.in_flight:
            self._committer.commit()
            if not self._outstanding.count:
                break  # no task can free space: the pending records are lost, and were not accepted
            self._results.wait()
        self.states.finish()
        # The remaining tasks only move records that were reported before.
        self.on_commit = _ignore
        everything = [partition for name in self._logs for partition in self._partitions(name)]
        self._drain()
        move_to_segments(everything, self._flusher, drain=self._drain, deadline=deadline)
        for executor in (self._writer, self._keeper, self._states_writer):
            executor.stop()
        self.states.close()
        clean = self.states.safe and all(
            part.failure is None and part.synced_end == part.end for part in everything
        )
        try:
            self._write_checkpoint(clean=clean)
        except OSError as error:
            clean = opening.raise_unless_full(self.path, error)
        finally:
            # Also if the checkpoint failed: the lock must not outlive the store.
            self._reading.close()
            self._journal.close()
            self._files.close(self._lock)
            self._lock = None
        return clean

    def _wait_for_threads(self) -> None:
        for executor in (self._writer, self._keeper):
            # An executor runs its tasks in order, so all earlier ones have run when this one does.
            reached = threading.Event()
            self._outstanding.submit(executor, [Work([Call(reached.set)])], _forget)
            reached.wait()

    def _drain(self) -> None:
        while self._outstanding.count:
            self._results.wait()

    # -- inside

    def _executors(self, *, threads: bool, loop_call: LoopCall) -> tuple[Executor, Executor, Executor]:
        if not threads:
            inline = InlineExecutor(self._files, self._results)
            return inline, inline, inline
        every = self.sync.interval_ms / 1000 if self.sync.interval_ms else None

        def failed(file: OpenFile, error: OSError) -> None:
            # A writing thread finds the failure, but only the loop's thread changes the store.
            loop_call(self._lazy_sync_failed, file, error)

        def thread(name: str, *, every: float | None = every) -> Executor:
            return ThreadExecutor(
                f"amqp-streams-{name}", self._files, self._results, sync_every_s=every, on_lazy_failure=failed
            )

        # The keeper's tasks contain the syncs that they need.
        return thread("writer"), thread("keeper", every=None), thread("states")

    def _reader(self, threads: bool, number: int) -> Executor:
        if not threads:
            return InlineExecutor(self._files, self._results)
        return ThreadExecutor(f"amqp-streams-reader-{number}", self._files, self._results)

    def _lazy_sync_failed(self, file: OpenFile, error: OSError) -> None:
        """With `sync = interval`: recently accepted records may be lost, so their partitions stop."""
        self.states.sync_failed(file)
        for slot in self._journal.slots:
            if slot.file is file:
                self._flusher.break_slot(slot, error)
        for name in self._logs:
            for partition in self._partitions(name):
                # By folder, not by file: the segment may have been closed or dropped since.
                if partition.segments.folder == file.path.parent:
                    self._flusher.stop(partition, error)

    def _add(self, log: LogRecord, parts: Sequence[Restored]) -> StoredLog:
        partitions: list[Partition] = []
        for index, part in enumerate(parts):
            segments = Segments(
                self._folder(log.name) / str(index), log.seed(index), self._reading, part.row, part.producers
            )
            partitions.append(
                PartitionLog(log, index, segments, self._admit, self.queue, start=part.start, end=part.end)
            )
        self._records[log.name] = log
        self._logs[log.name] = StoredLog(log.name, log.settings, log.incarnation, tuple(partitions))
        return self._logs[log.name]

    def _partitions(self, name: str) -> list[PartitionLog]:
        # `StoredLog` has the type of the interface; this store puts only `PartitionLog`s there.
        return [partition for partition in self._logs[name].partitions if isinstance(partition, PartitionLog)]

    def _folder(self, name: str) -> Path:
        return self.path / "logs" / name

    def _checkpoint(self, *, clean: bool, without: str | None = None) -> Checkpoint:
        logs = {name: log for name, log in self._records.items() if name != without}
        bounds = {
            name: tuple((part.start, part.end) for part in self._logs[name].partitions) for name in logs
        }
        return Checkpoint(clean, self._format.directory_id, logs, bounds, states=self.states.bytes)

    def _write_checkpoint(self, *, clean: bool, without: str | None = None) -> None:
        data = self._checkpoint(clean=clean, without=without).encode()
        Replace(self.path / catalog.CHECKPOINT_FILE, data).run(self._files)


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


def _ignore(done: CommitDone) -> None:
    """Used until the owner sets `on_commit`."""


def _forget(task: Task) -> None:
    """If a file could not be removed, the next opening finds and removes it."""
