"""[io] Group commit: one write and one sync for everything appended since the last commit.

Laws: at most one commit is in flight; its records become visible, or fail, only when it ends. A commit with
much data for few partitions is written directly to their segments. Any other commit is one journal record:
one write and one sync for any number of partitions. Why: docs/decisions/0001.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Final

from amqp_streams.config import Sync, SyncMode
from amqp_streams.errors import StorageError
from amqp_streams.storage.commits.ends import EndsFile
from amqp_streams.storage.commits.flushing import Flusher, Outstanding, Tuning
from amqp_streams.storage.commits.journal import Journal, Slot
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.disk.work import Call, Executor, SyncFile, Task, Work, Write
from amqp_streams.storage.formats import journal_record, record
from amqp_streams.storage.formats.chunks import Appends
from amqp_streams.storage.formats.ends import Place
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.segment import Staged
from amqp_streams.storage.ports import Chunk, CommitDone, Partition


@dataclass(slots=True, eq=False)
class _Part:
    """A partition's share of a commit."""

    partition: PartitionLog
    records: Appends
    size: int
    staged: Staged | None = None
    fault: str | None = None
    """Why its records cannot be encoded."""

    @property
    def end(self) -> tuple[tuple[int, int], int]:
        """The partition, and the number after the last record of its share."""
        return (self.partition.uid, self.partition.index), self.records.end


@dataclass(slots=True, eq=False)
class _Commit:
    sequence: int
    began: float
    parts: list[_Part] = field(default_factory=list)
    """First the partitions of the journal record, then those written directly, each in its own work."""
    works: list[Work] = field(default_factory=list)
    slot: Slot | None = None
    place: Place | None = None
    journaled: int = 0
    record_bytes: int = 0
    failures: dict[Partition, StorageError] = field(default_factory=dict)
    lost: dict[PartitionLog, StorageError] = field(default_factory=dict)
    """Partitions with a failure whose next records were already pending."""
    refusing: list[PartitionLog] = field(default_factory=list)
    """Partitions that gave up their records before the commit began, and take none until it has ended."""
    events: int = 0
    bytes: int = 0


class Committer:
    """Takes the pending records of partitions and makes them durable: the only `CommitQueue` of its store.

    `done` is called with each commit that ended.
    """

    def __init__(
        self,
        sync: Sync,
        *,
        journal: Journal,
        ends: EndsFile,
        flusher: Flusher,
        writer: Executor,
        outstanding: Outstanding,
        tuning: Tuning,
        done: Callable[[CommitDone], None],
    ) -> None:
        self.sequence = 0
        self.pending_bytes = 0
        self.alone: Final = False
        self.in_flight = False
        self.wanted = False
        self.dirty: dict[PartitionLog, None] = {}
        self._always: Final = sync.mode is SyncMode.ALWAYS
        self._journal: Final = journal
        self._ends: Final = ends
        self._flusher: Final = flusher
        self._writer: Final = writer
        self._outstanding: Final = outstanding
        self._tuning: Final = tuning
        self._done: Final = done
        self._began = 0.0
        self._task: Task | None = None
        """The works of the commit in flight."""

    @property
    def commit_ms(self) -> int:
        """How long the disk has worked on the commit in flight; 0 if it does not work on one."""
        # A busy loop handles the end of a commit late. That says nothing about the disk.
        if self._task is None or self._task.has_run:
            return 0
        return int((perf_counter() - self._began) * 1000)

    def appended(self, partition: PartitionLog, size: int) -> None:
        """Called after each append to a partition, with the appended bytes."""
        self.pending_bytes += size
        self.dirty[partition] = None

    def commit(self) -> None:
        """See `Store.commit`."""
        self.wanted = True
        self.start()

    def start(self) -> None:
        """Start the next commit if one is needed, none is in flight, and the journal has space for it."""
        if not self.wanted or self.in_flight:
            return
        if not self.dirty:
            self.wanted = False
            return
        # The other partitions take part in the commit as well: `_submit` fails their pending records.
        able = [partition for partition in self.dirty if not partition.refused]
        direct = self._choose_direct(able)
        journaled = [partition for partition in able if partition not in direct]
        if journaled and not self._room(journaled):
            reason = self._flusher.no_journal()
            if reason is None:
                self._flusher.hurry()
                self._flusher.grow_journal()
                return  # the next journal file is full and waits for its segments, or is being added
            # Without an end, these records and all that follow would never get an answer: fail them.
            for partition in journaled:
                partition.refuse_appends(reason)
            journaled = []
        if any(partition.busy for partition in direct):
            return  # the write to its segments ends soon, and calls start again
        self._submit(journaled, direct)

    def _choose_direct(self, able: list[PartitionLog]) -> dict[PartitionLog, None]:
        """The partitions whose records are written directly to their segments."""
        tuning = self._tuning
        total = sum([_pending_bytes(partition) for partition in able])
        # Writing a large share twice costs more than a sync of its own segment: docs/decisions/0001.
        large = {
            partition: None for partition in able if _pending_bytes(partition) >= tuning.direct_large_bytes
        }
        # The journal takes one batch of each partition.
        unfit = {partition: None for partition in able if not partition.fits_one_batch}
        if len(able) <= tuning.direct_partitions_max and total >= tuning.direct_bytes_min:
            # A busy partition would delay the commit, so the journal takes its records if they fit.
            if total > self._journal.record_bytes_max or not any(partition.busy for partition in able):
                return dict.fromkeys(able)
            return unfit
        direct = large | unfit
        total -= sum([_pending_bytes(partition) for partition in direct])
        # The journal takes the other records, up to half of its largest record: take the largest parts out.
        for partition in (
            sorted(able, key=_pending_bytes, reverse=True)
            if total > self._journal.record_bytes_max // 2
            else ()
        ):
            if total <= self._journal.record_bytes_max // 2:
                break
            if partition not in direct:
                direct[partition] = None
                total -= _pending_bytes(partition)
        return direct

    def _room(self, partitions: list[PartitionLog]) -> bool:
        batches = sum(
            [
                _pending_bytes(partition) + partition.pending_tables_bytes + record.HEAD_BYTES
                for partition in partitions
            ]
        )
        before = self._journal.current
        has_room = self._journal.room(journal_record.bytes_needed(len(partitions), batches))
        # The file that was left is free when its records are in segments. Move them now, so that it is free
        # before this file is full.
        if self._journal.current is not before:
            self._flusher.catch_up()
        return has_room

    def _submit(self, journaled: list[PartitionLog], direct: dict[PartitionLog, None]) -> None:
        commit = _Commit(self.sequence, perf_counter())
        self._began = commit.began
        self.sequence += 1
        self.in_flight, self.wanted = True, False
        dirty, self.dirty = self.dirty, {}
        # Partitions that cannot take part count as well: `_ended` subtracts these bytes from
        # `pending_bytes`.
        for partition in dirty:
            commit.bytes += partition.pending_bytes
            commit.events += partition.pending_count
            if error := partition.refused:
                commit.failures[partition] = error
                partition.give_up_pending()
                # Until the failure is reported: events that follow lost ones must not be stored before it.
                partition.refuse_appends(error)
                commit.refusing.append(partition)
        works = commit.works
        if journaled:
            works.append(self._journal_work(commit, journaled))
        works += filter(None, [self._direct_work(commit, partition) for partition in direct])
        # A write that is not synced proves nothing, so only synced commits are named.
        naming = [Work([Call(partial(self._name_ends, commit))])] if self._always else []
        ended = partial(self._ended, commit)
        self._task = self._outstanding.submit(self._writer, [*works, *naming], ended)

    def _name_ends(self, commit: _Commit) -> None:
        """In the writer's thread, after the works of the commit and before it is accepted."""
        works, journaled = iter(commit.works), commit.parts[: commit.journaled]
        is_journaled = commit.slot is not None and next(works).error is None
        parts = [part for part in journaled if part.fault is None] if is_journaled else []
        parts += [
            part
            for part, work in zip(commit.parts[commit.journaled :], works, strict=True)
            if work.error is None
        ]
        if parts:
            self._ends.synced(commit.place if is_journaled else None, [part.end for part in parts])

    def _journal_work(self, commit: _Commit, partitions: list[PartitionLog]) -> Work:
        slot = self._journal.current
        commit.slot, commit.place = slot, Place(slot.generation, slot.sequence)
        for partition in partitions:
            size = partition.pending_bytes
            # Taken even if the encoding fails: otherwise the same records would fail in every later commit.
            commit.parts.append(_Part(partition, partition.take(), size))
        commit.journaled = len(commit.parts)
        buffers: list[bytes | memoryview] = []
        encode = Call(partial(self._encode, commit, slot, buffers))
        write = Write(slot.file, buffers, slot.position)
        # With `sync = interval`, the timer of the writer's thread syncs the file.
        return (
            Work([encode, write, SyncFile(slot.file)])
            if self._always
            else Work([encode, write], lazy=[slot.file])
        )

    def _encode(self, commit: _Commit, slot: Slot, buffers: list[bytes | memoryview]) -> None:
        """In the writer's thread, because a megabyte takes a millisecond: fill `buffers` with the record."""
        # The first buffer is the record's header. It is encoded last, because it has the lengths of all
        # batches.
        buffers.append(b"")
        entries: list[tuple[int, int, int]] = []
        for part in commit.parts[: commit.journaled]:
            partition = part.partition
            try:
                head, body = record.encode(part.records.joined(), partition.segments.seed)
            except Exception as error:  # noqa: BLE001
                # A fault of our own costs these records, not every commit of the node.
                part.fault = f"{type(error).__name__}: {error}"
                continue
            buffers += (head, body)
            entries.append((partition.uid, partition.index, len(head) + len(body)))
        if not entries:
            message = "no records to write"
            raise ValueError(message)
        batches_bytes = sum(length for _, _, length in entries)
        buffers[0] = self._journal.head(slot, entries, batches_bytes)
        commit.record_bytes = len(buffers[0]) + batches_bytes

    def _direct_work(self, commit: _Commit, partition: PartitionLog) -> Work | None:
        size = partition.pending_bytes
        records = partition.take()
        # A segment has its records in order: first those that only the journal has so far.
        chunks: list[Chunk | Appends] = [*partition.unflushed(), records]
        try:
            staged = partition.segments.stage(
                chunks, size + partition.unflushed_bytes, partition.settings, sync=self._always
            )
        # Staging opens files but writes no bytes, so the failure leaves nothing to undo.
        except OSError as error:
            self._fail(commit, partition, error, undone=True)
            return None
        partition.begin_write()
        commit.parts.append(_Part(partition, records, size, staged))
        return Work(staged.steps, lazy=() if self._always else staged.written)

    def _ended(self, commit: _Commit, _: Task) -> None:
        # The works have the order in which `_submit` made them: the journal record first.
        works = iter(commit.works)
        if commit.slot:
            self._journal_ended(commit, commit.slot, next(works))
        for part, work in zip(commit.parts[commit.journaled :], works, strict=True):
            self._direct_ended(commit, part, work)
        self.pending_bytes -= commit.bytes
        # Before the next commit starts: records that follow lost ones must fail in it.
        for failed, error in commit.lost.items():
            if failed.lose(error):
                self.wanted = True
        for partition in commit.refusing:
            partition.take_appends()
        # The next commit starts first, so that the disk is busy while the results are processed.
        self.in_flight = False
        self._task = None  # its works hold files, whose space is not free while they are open
        self.start()
        for part in commit.parts:
            if part.partition not in commit.failures:
                self._flusher.keep(part.partition, part.records.base, part.size)
                if part.staged:
                    self._flusher.settle(part.partition, part.staged.closed)
        self._flusher.pace()
        self._done(
            CommitDone(
                self,
                commit.sequence,
                commit.events,
                commit.bytes,
                perf_counter() - commit.began,
                commit.failures,
            )
        )

    def _journal_ended(self, commit: _Commit, slot: Slot, work: Work) -> None:
        # Before its write, nothing of the record is on the disk.
        fault = work.error.strerror if work.error and isinstance(work.failed, Call) else None
        parts: list[_Part] = []
        for part in commit.parts[: commit.journaled]:
            if reason := part.fault or fault:
                self._give_up(commit, part.partition, reason)
                continue
            parts.append(part)
            if part.partition.failure:  # stopped or deleted in the meantime
                # The record is on the disk, but a stopped partition shows nothing more. If the next start
                # finds it, an event exists that was not accepted: the producer may send it twice.
                commit.failures[part.partition] = commit.lost[part.partition] = part.partition.failure
            elif work.error is None:
                part.partition.accept(part.records.joined(), part.size, on_segment=False)
                slot.holds[part.partition] = part.partition.end
        if work.error is None:
            self._journal.written(slot, commit.record_bytes)
            return
        if not parts:
            return
        # Only a write that failed for lack of space can be repeated. After any other failure, it is not known
        # what the file contains.
        if not (isinstance(work.failed, Write) and work.error.errno in FULL):
            for part in parts:
                # Recovery may find these records in the file, so the file is kept for them as well.
                slot.holds.setdefault(part.partition, part.partition.end)
            self._flusher.break_slot(slot, work.error)
        for part in parts:
            # A torn record does not match its CRC, so a failed write counts as undone. A failed sync does
            # not.
            self._fail(commit, part.partition, work.error, undone=isinstance(work.failed, Write))

    def _direct_ended(self, commit: _Commit, part: _Part, work: Work) -> None:
        partition, staged = part.partition, part.staged
        assert staged is not None, "direct parts are staged"
        partition.end_write()
        if work.error:
            partition.segments.forget(staged)
            if work.is_fault and work.undone:
                self._give_up(commit, partition, str(work.error.strerror))
            else:
                self._fail(commit, partition, work.error, undone=work.undone)
        elif partition.failure:
            commit.failures[partition] = commit.lost[partition] = partition.failure
        else:
            staged.closed = partition.flushed(staged, synced=self._always)
            partition.accept(part.records.joined(), part.size, on_segment=True)

    def _give_up(self, commit: _Commit, partition: PartitionLog, reason: str) -> None:
        """Fail the appends of records that cannot be encoded.

        Nothing was written, so the partition continues.
        """
        words = f"log {partition.log} partition {partition.index}: events cannot be stored ({reason})"
        # A partition that stopped or was deleted meanwhile keeps its reason.
        failure = partition.failure or StorageError(words)
        commit.failures[partition] = commit.lost[partition] = failure

    def _fail(self, commit: _Commit, partition: PartitionLog, error: OSError, *, undone: bool) -> None:
        # Only a full disk passes by itself. After any other failure, the partition must be repaired.
        if partition.failure is None and undone and error.errno in FULL:
            self._flusher.ran_out()
            failure: StorageError = self._flusher.space.error()
        else:
            self._flusher.stop(partition, error)
            assert partition.failure is not None, "it just stopped"
            failure = partition.failure
        commit.failures[partition] = commit.lost[partition] = failure


def _pending_bytes(partition: PartitionLog) -> int:
    return partition.pending_bytes + partition.pending_producers_bytes
