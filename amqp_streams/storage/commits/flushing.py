"""[io] Moving records from memory and the journal into segments, in the background of commits.

Laws: a record that only the journal has stays in memory until a segment has it. A journal file is free when
each of its records is synced in a segment. A failed sync is never repeated (the kernel may have dropped the
pages): the partition stops, and its journal files stay unchanged until the store is opened again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.commits.journal import FOLDER, Journal, Slot, create
from amqp_streams.storage.disk.files import Files, OpenFile
from amqp_streams.storage.disk.space import FULL, Space
from amqp_streams.storage.disk.work import Call, Executor, Step, SyncFile, SyncFolder, Task, Work
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.recent import Recent
from amqp_streams.storage.partitions.segment import Segment, Staged
from amqp_streams.storage.ports import Use

# Failures may pin journal files: at most 8 x 64 MiB with the default size.
_JOURNAL_FILES_MAX: Final = 8
_DUE_SHARE: Final = 16
"""Each commit writes one partition that is due, and one more for each so many: docs/decisions/0001."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes that trade memory for speed. The defaults were measured: docs/decisions/0001."""

    journal_files: int = 2
    journal_bytes: int = 64 << 20
    """Size of each journal file."""
    direct_partitions_max: int = 2
    direct_bytes_min: int = 48 << 10
    """A commit of few partitions that is at least this large is written directly to the segments."""
    direct_large_bytes: int = 512 << 10
    """A partition's part of a commit of at least this size is always written directly to its segment."""
    flush_bytes: int = 256 << 10
    """A partition's records are moved to its segment when they have this many bytes."""
    recent_bytes: int = 16 << 20
    """Records in memory: those not yet in a segment, and the latest ones for readers at the end."""
    recent_overhead_bytes: int = 512
    """Memory of a run of records in addition to its messages."""
    sync_bytes: int = 4 << 20
    """A segment is synced in the background after this many bytes were moved to it."""
    index_bytes: int = 8 << 20
    """A segment's index is written after each growth by this: bounds the scan after a crash."""
    cache_bytes: int = 12 << 20
    """Decoded batches and indexes kept for readers."""
    open_files: int = 512
    blocks_bytes: int = 4 << 20
    """Decompressed blocks of compressed segments, kept for readers that go on."""
    compress_block_bytes: int = 256 << 10
    """Bytes of a segment that are compressed together: docs/decisions/0020."""
    compress_piece_bytes: int = 512 << 10
    """Bytes of a segment that are compressed, or read back, before the keeper does something else."""
    compress_call_bytes: int = 4 << 20
    """The most bytes that are compressed or read back in half a second."""
    compress_bytes_min: int = 64 << 10
    """Smaller segments are not compressed."""
    reserve_bytes: int = 16 << 20
    """An append is refused when less than this is free on the disk."""
    states_bytes: int = 4 << 20
    """A states file larger than this is rewritten when less than half of it is current."""


class Outstanding:
    """Submits tasks to executors and counts those that have not ended."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, executor: Executor, works: Sequence[Work], ended: Callable[[Task], None]) -> Task:
        """Submit a task; `ended` is called on the loop's thread. Returns the task."""
        self.count += 1
        task = Task(works, partial(self._ended, ended))
        executor.submit(task)
        return task

    def _ended(self, ended: Callable[[Task], None], task: Task) -> None:
        self.count -= 1
        ended(task)


class Flusher:
    """Every write outside of commits.

    `freed` is called when a journal file or a busy partition becomes free.
    """

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        journal: Journal,
        writer: Executor,
        keeper: Executor,
        outstanding: Outstanding,
        tuning: Tuning,
        now_ms: Callable[[], int],
        freed: Callable[[], None],
    ) -> None:
        self.space: Final = Space(files, root, reserve_bytes=tuning.reserve_bytes, on_free=self._retry)
        self._files: Final = files
        self._root: Final = root
        self._journal: Final = journal
        self._writer: Final = writer
        self._keeper: Final = keeper
        self._outstanding: Final = outstanding
        self._tuning: Final = tuning
        self._now_ms: Final = now_ms
        self._freed: Final = freed
        self.recent: Final = Recent()
        # Partitions with enough records for a write to their segment, in the order in which they became
        # due.
        self._due: dict[PartitionLog, None] = {}
        # Partitions whose write failed on a full disk: `_retry` writes them when space is free.
        self._held_back: dict[PartitionLog, None] = {}
        self._growing = False
        self._growth_error: OSError | None = None
        """Why the last journal file could not be added."""

    # -- memory

    def keep(self, partition: PartitionLog, base: int, size: int) -> None:
        """The run of `size` bytes from `base` on became visible and is in the partition's memory."""
        self.recent.add(partition, base, size + self._tuning.recent_overhead_bytes)
        if partition.unflushed_bytes >= self._tuning.flush_bytes:
            self._due[partition] = None

    def pace(self) -> None:
        """Write some of what is due, after a commit.

        Evenly filled partitions are all due at the same time, and a commit must not wait for all of them.
        """
        for partition in list(self._due)[: 1 + len(self._due) // _DUE_SHARE]:
            del self._due[partition]
            self.flush(partition)
        self._evict()

    def hurry(self) -> None:
        """Commits wait for a journal file: write everything that is due."""
        for partition in list(self._due):
            del self._due[partition]
            self.flush(partition)

    def forget(self, partition: PartitionLog, start: int) -> None:
        """Everything below `start` was removed from the partition; its runs in memory go as well."""
        self.recent.drop(partition, partition.forget_below(start))

    def resume(self, partition: PartitionLog) -> None:
        """Write the records of the partition to segments again: its log could not be deleted."""
        runs = partition.cancel_deletion()
        self.recent.drop(partition, [base for base, _ in runs])
        for base, size in runs:
            self.recent.add(partition, base, size + self._tuning.recent_overhead_bytes)
        self._due[partition] = None
        # A sync that became due meanwhile was not begun, and commits may wait for its journal file.
        self.settle(partition)

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        held = sum(1 for slot in self._journal.slots if slot.holds)
        return {
            "storage_recent_bytes": Use(self.recent.bytes, self._tuning.recent_bytes),
            "journal_files": Use(held, len(self._journal.slots)),
        }

    def _evict(self) -> None:
        """Drop the oldest runs while memory is above the limit.

        A run that is not in a segment is written first; `_flush_ended` then calls this method again.
        """
        while self.recent.bytes > self._tuning.recent_bytes and (partition := self.recent.oldest()):
            # A stopped partition never writes its runs to a segment, and readers need them: they leave the
            # list but stay in memory. So do those of a log whose deletion is in flight: see `resume`.
            if not partition.evict_first() and partition.writable:
                self.flush(partition)
                return
            self.recent.drop_oldest()

    # -- writing

    def flush(self, partition: PartitionLog) -> None:
        """Write all records that are not yet in a segment, unless a write is in flight."""
        if partition.busy or not partition.writable or not (chunks := partition.unflushed()):
            return
        try:
            # No sync: the journal still has the records. The keeper syncs the segment later, for many
            # writes at once.
            staged = partition.segments.stage(
                chunks, partition.unflushed_bytes, partition.settings, sync=False
            )
        except OSError as error:
            self._not_flushed(partition, error, again=True)
            return
        partition.begin_write()
        self._outstanding.submit(
            self._writer, [Work(staged.steps)], partial(self._flush_ended, partition, staged)
        )

    def _flush_ended(self, partition: PartitionLog, staged: Staged, task: Task) -> None:
        work = task.works[0]
        partition.end_write()
        if work.error:
            partition.segments.forget(staged)
            # Only a write that was undone can be repeated: the segment then ends where it ended before.
            self._not_flushed(partition, work.error, again=work.undone)
        else:
            self._held_back.pop(partition, None)
            self.settle(partition, partition.flushed(staged, synced=False))
            self._evict()
        # After a failure too: a commit may wait for this partition, which is not busy now.
        self._freed()

    def _not_flushed(self, partition: PartitionLog, error: OSError, *, again: bool) -> None:
        if again and error.errno in FULL:
            self.ran_out()
            self._held_back[partition] = None
        else:
            self.stop(partition, error)

    def _retry(self) -> None:
        # A copy: a write that fails at once puts its partition back.
        for partition in list(self._held_back):
            self._held_back.pop(partition, None)
            self.flush(partition)
        self._freed()

    # -- syncing

    def settle(self, partition: PartitionLog, closed: Sequence[Segment] = ()) -> None:
        """After a write: start the indexes of the partition's closed segments, or a sync, if one is due."""
        if partition.failure:
            return
        self._journal.release(partition, partition.synced_end)
        steps = [partition.segments.index_step(segment) for segment in closed if segment.bytes]
        if steps:
            self._outstanding.submit(self._keeper, [Work(steps)], partial(_saved, closed))
        needed = self._journal.needs(partition)
        # A full journal file waits for records that are only in memory: write them after one of the next
        # commits.
        if needed > partition.flushed_end:
            self._due[partition] = None
        active = partition.segments.active
        grown = active.bytes - active.covered
        # A sync is due if a journal file waits for records that are written but not synced, if the index is
        # due, or if much was written since the last sync.
        if (
            partition.synced_end < min(needed, partition.flushed_end)
            or grown >= self._tuning.index_bytes
            or partition.unsynced_bytes >= self._tuning.sync_bytes
        ):
            self.sync(partition, with_index=grown >= self._tuning.index_bytes)

    def sync(self, partition: PartitionLog, *, with_index: bool) -> None:
        """Sync what was written to the active segment so far, unless a sync is in flight."""
        active = partition.segments.active
        # An empty segment has nothing to sync, but its index may have to keep the table of producers.
        if partition.syncing or not partition.writable:
            return
        if not (active.bytes or (with_index and active.exists)):
            return
        try:
            steps: list[Step] = [SyncFile(partition.segments.file(active))]
            if with_index:
                steps.append(partition.segments.index_step(active))
        except OSError as error:
            self.stop(partition, error)
            return
        partition.begin_sync()
        # The sync covers what is written at this moment: the end is a value, not read again later.
        ended = partial(self._sync_ended, partition, partition.flushed_end, [active] if with_index else [])
        self._outstanding.submit(self._keeper, [Work(steps)], ended)

    def _sync_ended(self, partition: PartitionLog, end: int, indexed: Sequence[Segment], task: Task) -> None:
        work = task.works[0]
        partition.end_sync()
        _saved(indexed, task)
        # A failed index costs a scan. A failed sync means that written records may be lost.
        if work.error and isinstance(work.failed, SyncFile):
            self.stop(partition, work.error)
        elif not partition.failure:
            # A commit that went directly to the segments may have moved it further meanwhile.
            partition.synced_end = max(partition.synced_end, end)
            self.settle(partition)
        self._freed()

    def seal(self, partition: PartitionLog) -> bool:
        """Close the active segment and sync it with its index.

        False if a new segment cannot be created now.
        """
        segments = partition.segments
        try:
            file = segments.file(segments.active)
            closed = segments.close_active(partition.flushed_end)
        except OSError:
            # The segment stays active.
            return False
        # The data before the index: an index must not cover bytes that a power loss can take away.
        steps = [SyncFile(file), segments.index_step(closed), SyncFolder(segments.folder)]
        self._outstanding.submit(
            self._keeper, [Work(steps)], partial(self._sealed, partition, partition.flushed_end, closed)
        )
        return True

    def _sealed(self, partition: PartitionLog, end: int, closed: Segment, task: Task) -> None:
        if not isinstance(task.works[0].failed, SyncFile):
            partition.segments.release(closed.path)
        self._sync_ended(partition, end, [closed], task)

    def spare_producers(self, partition: PartitionLog, count: int) -> int:
        """How many of its first `count` segments retention may drop.

        A remaining segment must have an index with the producers' sequences; otherwise they would be lost.
        """
        row = partition.segments.row
        # The index is written in the background: a later call may drop the other segments.
        if partition.producers and not any(segment.saved for segment in row[count:]):
            self.sync(partition, with_index=True)
            while count and not any(segment.saved for segment in row[count:]):
                count -= 1
        return count

    def catch_up(self) -> None:
        """Move the records of a full journal file to segments, a few partitions after each commit."""
        for partition in self._journal.waiting():
            self.settle(partition)

    # -- failing

    def ran_out(self) -> None:
        """A write failed for lack of space."""
        self.space.ran_out(self._now_ms())

    def stop(self, partition: PartitionLog, error: OSError) -> None:
        """Stop appends to the partition until the store is opened again. Durable records stay readable."""
        if partition.failure is None:
            words = f"log {partition.log} partition {partition.index} stopped: {error.strerror or error}"
            partition.stop(StorageError(f"{words}; repair the disk and start the node again"))
            # Its records pin their journal files until then.
            self.grow_journal()

    def break_slot(self, slot: Slot, error: OSError) -> None:
        """A journal file failed: never write it again, and stop each partition with records in it."""
        slot.broken = True
        for partition in list(slot.holds):
            self.stop(partition, error)
        self.grow_journal()

    def grow_journal(self) -> None:
        """Add a journal file if failures pin so many files that the remaining ones cannot alternate."""
        # Two: one file is written while the other waits for its segments.
        if self._usable_slots() >= 2 or self._growing or len(self._journal.slots) >= _JOURNAL_FILES_MAX:
            return
        self._growing, self._growth_error = True, None
        path = self._root / FOLDER / f"{len(self._journal.slots)}.journal"
        made: list[OpenFile] = []

        # On the keeper's thread: writing 64 MiB of zeros would stop the event loop.
        def add() -> None:
            made.append(create(self._files, path, self._tuning.journal_bytes, self._journal.seed))

        self._outstanding.submit(
            self._keeper, [Work([Call(add), SyncFolder(path.parent)])], partial(self._grown, made)
        )

    def _usable_slots(self) -> int:
        """Return the number of journal files that failures do not pin."""
        return sum(
            not slot.broken and not any(held.failure for held in slot.holds) for slot in self._journal.slots
        )

    def _grown(self, made: list[OpenFile], task: Task) -> None:
        self._growing = False
        error = self._growth_error = task.works[0].error
        if error is None:
            self._journal.slots.append(Slot(made[0], self._tuning.journal_bytes))
        elif error.errno in FULL:
            self.ran_out()
        # After a failure too: a commit may wait for this file, and must learn that it does not come.
        self._freed()

    def no_journal(self) -> StorageError | None:
        """Return why no journal file will take a record that has no room now; None: one will.

        An error of a new file is returned once: the next record tries to add a file again.
        """
        # On a full disk, no segment can be written, so the journal stays full.
        if self.space.full:
            return self.space.error()
        if self._usable_slots() or self._growing:
            return None
        if error := self._growth_error:
            self._growth_error = None
            return StorageError(f"no journal file can be written: {error.strerror or error}")
        if len(self._journal.slots) < _JOURNAL_FILES_MAX:
            return None
        words = f"all {_JOURNAL_FILES_MAX} journal files hold records of partitions that failed"
        return StorageError(f"{words}; repair the disk and start the node again")


def _saved(segments: Sequence[Segment], task: Task) -> None:
    """Log a failed write of an index, which costs only a scan: indexes are derived.

    If the disk is bad, the next sync reports it.
    """
    for segment in segments:
        segment.saved = segment.saved or task.works[0].error is None
