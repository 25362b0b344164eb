"""[io] The embedded store: all logs of one data directory. All methods run on the event loop's thread.

The writer thread commits and moves records to segments. The keeper thread syncs segments, writes indexes and
removes files. A third thread writes states. `work.py` returns their results through `loop_call`.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.config import LogSettings, Sync
from amqp_streams.storage import catalog, opening, states
from amqp_streams.storage.answering import at_once
from amqp_streams.storage.catalog import Checkpoint
from amqp_streams.storage.changes.changes import Changes
from amqp_streams.storage.changes.logs import Logs, Parts
from amqp_streams.storage.commits.closing import move_to_segments
from amqp_streams.storage.commits.commits import Committer
from amqp_streams.storage.commits.flushing import Flusher, Outstanding, Tuning
from amqp_streams.storage.compression.codecs import load
from amqp_streams.storage.compression.compressing import Compressing
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
from amqp_streams.storage.questions import Create, Delete, Question, Update
from amqp_streams.storage.removing import Checkpoints, Removal
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
        self.states: Final = self._new_states(opened)
        self._flusher: Final = self._new_flusher(opened.tuning, now_ms)
        self._committer: Final = self._new_committer(opened)
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
        self._logs: Final = self._new_logs()
        self._changes: Final = Changes(self._files, self._outstanding, wait=self._wait_for_threads)
        self._compressing: Final = Compressing(
            self._files,
            keeper=self._keeper,
            outstanding=self._outstanding,
            space=self._flusher.space,
            tuning=opened.tuning,
            partitions=self._logs.compressing,
            allow=self._allow_compressed,
        )
        for log, parts in opened.logs:
            load(log.settings)
            self._logs.add(log, [self._logs.partition(log, index, part) for index, part in enumerate(parts)])
        # Not clean from now on: after a crash, the next start must not find the mark of the last stop.
        self._write_checkpoint(clean=False)

    def _new_states(self, opened: opening.Opened) -> states.DirectoryStates:
        return states.DirectoryStates(
            opened.files,
            opened.root,
            opened.directory_id,
            opened.states,
            sync=self.sync,
            executor=self._states_writer,
            outstanding=self._outstanding,
            compact_bytes=opened.tuning.states_bytes,
        )

    def _new_committer(self, opened: opening.Opened) -> Committer:
        return Committer(
            self.sync,
            journal=self._journal,
            ends=opened.ends,
            flusher=self._flusher,
            writer=self._writer,
            outstanding=self._outstanding,
            tuning=opened.tuning,
            done=self._committed,
        )

    def _new_logs(self) -> Logs:
        return Logs(
            Parts(
                files=self._files,
                root=self.path,
                reading=self._reading,
                journal=self._journal,
                flusher=self._flusher,
                queue=self._committer,
                admit=self._admit,
                writer=self._writer,
                keeper=self._keeper,
                checkpoints=self._checkpoints,
                deleted=self._forget,
                can_commit=self._start,
            )
        )

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
        return self._logs.stored

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
            reserve_bytes=space.reserve_bytes,
            uses=self._flusher.uses()
            | self._reading.uses()
            | {"states": Use(self.states.count, STATE_KEYS_MAX)},
        )

    # -- logs

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """See `Store.create`."""
        stored = self._changes.finish(name, self._logs.creating(Create(name, settings, incarnation)))
        assert stored is not None, "the answer to a creation is the log"
        return stored

    def update(self, name: str, settings: LogSettings) -> StoredLog:
        """See `Store.update`."""
        stored = self._changes.finish(name, self._logs.updating(Update(name, settings)))
        assert stored is not None, "the answer to an update is the log"
        return stored

    def delete(self, name: str) -> None:
        """See `Store.delete`."""
        self._changes.finish(name, self._logs.deleting(name))

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`. Changes are made in the keeper's thread."""
        match question:
            case Create(name):
                begin = partial(self._logs.creating, question)
            case Update(name):
                begin = partial(self._logs.updating, question)
            case Delete(name):
                begin = partial(self._logs.deleting, name)
            case _:
                return at_once(self, question)
        return self._changes.answer(name, question, request, begin)

    def _forget(self, name: str) -> None:
        self._ahead_ms.pop(name, None)

    def allow_numbers(self) -> None:
        """See `Store.allow_numbers`."""
        self._format = opening.raise_format(self._files, self.path, self._format, catalog.FORMAT_NUMBERED)

    def allow_formats(self) -> None:
        """See `Store.allow_formats`."""
        self._format = opening.raise_format(self._files, self.path, self._format, catalog.FORMAT_FORMATS)

    def _allow_compressed(self) -> None:
        number = catalog.FORMAT_COMPRESSED
        self._format = opening.raise_format(self._files, self.path, self._format, number)

    def compress(self) -> None:
        """See `Store.compress`."""
        self._compressing.go_on()

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
            self._ahead_ms[name] = (
                max(partition.last_ms for partition in self._logs.partitions(name)) - now_ms
            )
            if self._ahead_ms[name] <= AHEAD_MS:
                del self._ahead_ms[name]
        moved: list[tuple[Partition, int]] = []
        gone: list[Removal] = []
        if not self._to_retain:
            kept = [name for name, log in self._logs.records.items() if has_retention(log.settings)]
            self._to_retain.extend(each for name in kept for each in self._logs.partitions(name))
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
        self._compressing.stop()
        self._changes.finish_all()
        while self._committer.dirty or self._committer.in_flight:
            self._committer.commit()
            if not self._outstanding.count:
                break  # no task can free space: the pending records are lost, and were not accepted
            self._results.wait()
        self.states.finish()
        # The remaining tasks only move records that were reported before.
        self.on_commit = _ignore
        everything = self._logs.all_partitions()
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
        for partition in self._logs.all_partitions():
            # By folder, not by file: the segment may have been closed or dropped since.
            if partition.segments.folder == file.path.parent:
                self._flusher.stop(partition, error)

    def _checkpoint(self, *, clean: bool) -> Checkpoint:
        bounds = {
            name: tuple((part.start, part.end) for part in log.partitions)
            for name, log in self._logs.stored.items()
        }
        records = dict(self._logs.records)
        return Checkpoint(clean, self._format.directory_id, records, bounds, states=self.states.bytes)

    def _write_checkpoint(self, *, clean: bool) -> None:
        data = self._checkpoint(clean=clean).encode()
        Replace(self.path / catalog.CHECKPOINT_FILE, data).run(self._files)


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


def _ignore(done: CommitDone) -> None:
    """Used until the owner sets `on_commit`."""


def _forget(task: Task) -> None:
    """If a file could not be removed, the next opening finds and removes it."""
