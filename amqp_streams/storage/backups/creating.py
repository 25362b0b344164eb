"""[io] Makes a backup of a data directory whose node runs, or does not run.

Laws: every event that was accepted before the backup began is in it, unless retention removed it meanwhile.
No position of a cursor is beyond the copied events, because states are read first. The data directory is only
read. Until the backup has its name, the folder has all earlier backups and not this one.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import gmtime, strftime, time
from typing import Final

from amqp_streams import __version__
from amqp_streams.errors import StorageError
from amqp_streams.storage.backups.folder import BACKUPS_MAX, JOURNAL_FILE, STATES_FILE, Folder
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.backups.pool import Pool, Spot
from amqp_streams.storage.backups.source import LogGoneError, Looked, Source, Spool, Spooled, Start, retried
from amqp_streams.storage.catalog import LogRecord
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.formats import producers, record, state_record
from amqp_streams.storage.formats.chunks import cut, part
from amqp_streams.storage.formats.manifest import (
    NAME,
    CopiedLog,
    CopiedPartition,
    Manifest,
    Piece,
    Tail,
)
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.opening import bounds_of
from amqp_streams.storage.partitions.sources import open_while_replaced
from amqp_streams.storage.plans.backup import continued, latest, outdated

_TRIES: Final = 10
"""How often a partition is looked at again because retention removed a segment that was to be copied."""
_SPOOL_BYTES: Final = 32 << 20
"""More of the journal is kept in a file of the backup folder while the backup runs."""

Progress = Callable[[int, int], None]
"""Called with the bytes copied so far, and about how many will be."""


@dataclass(slots=True)
class Made:
    """A backup that was made. `copied`: bytes of segments that the folder did not have. `events`: in it.

    `deleted`: logs that were deleted while they were copied. `removed`: names of older backups.
    """

    manifest: Manifest
    copied: int = 0
    deleted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def create(
    files: Files,
    root: Path,
    target: Path,
    *,
    name: str | None = None,
    keep: int | None = None,
    pace: Pace | None = None,
    progress: Progress | None = None,
    now_ms: Callable[[], int] | None = None,
) -> Made:
    """Back the data directory `root` up to the backup folder `target`, and remove outdated backups.

    `name`: of the backup, which `keep` then never removes; None: the time.

    Raises:
        DirectoryLockedError: another command writes to the folder.
        StorageError: names the file and what to do. The folder has its earlier backups.
    """
    _must_be_apart(root, target)
    source, folder = Source(files, root), Folder(files, target)
    try:
        folder.create(source.format().directory_id)
        try:
            backup = _Backup(
                source,
                folder,
                name,
                pace=pace or Pace(),
                progress=progress or _ignore,
                now_ms=now_ms or _wall_clock_ms,
            )
            made = backup.run()
            _remove_outdated(folder, keep, made)
            return made
        except OSError as error:
            if error.errno in FULL:
                # A full disk is not left full: what no backup needs is removed.
                _collect(folder)
            raise
        finally:
            folder.unlock()
    except OSError as error:
        raise _storage_error(target, error) from error


class _Backup:
    """One backup in the making."""

    def __init__(
        self,
        source: Source,
        folder: Folder,
        name: str | None,
        *,
        pace: Pace,
        progress: Progress,
        now_ms: Callable[[], int],
    ) -> None:
        self._source: Final = source
        self._folder: Final = folder
        self._progress: Final = progress
        self._now_ms: Final = now_ms
        self._pace: Final = pace
        self._manifests, self._unreadable = folder.manifests()
        self._name: Final = _free_name(folder, name, now_ms())
        self._automatic: Final = name is None
        self._made: Final = folder.begin(self._name)
        self._pool: Final = Pool(folder, latest(self._manifests), pace=pace, copied=self._copied)
        self._done = self._total = 0
        self._damage: list[str] = []
        self._tails: list[bytes] = []
        self._tail_bytes = 0

    def run(self) -> Made:
        began_ms = self._now_ms()
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=self._spool_folder()) as spool:
            start = self._source.start(spool)
            self._damage += [str(each) for each in start.damage]
            looks = self._look_ahead(start)
            self._total = sum(
                self._pool.missing((log.uid, index), seen)
                for log, parts in looks
                for index, looked in enumerate(parts)
                for seen in looked.seen
            )
            self._progress(0, self._total)
            logs: list[CopiedLog] = []
            deleted: list[str] = []
            for log, parts in looks:
                try:
                    copied = [
                        self._partition(log, index, each, start, spool) for index, each in enumerate(parts)
                    ]
                except LogGoneError:
                    deleted.append(log.name)
                    continue
                if self._source.still_has(log):
                    logs.append(CopiedLog(log.as_json(), tuple(copied)))
                else:
                    deleted.append(log.name)
        return self._complete(start, logs, deleted, began_ms)

    def _complete(self, start: Start, logs: Sequence[CopiedLog], deleted: list[str], began_ms: int) -> Made:
        folder, made = self._folder, self._made
        # Afterwards: what was copied may need the format that the directory got meanwhile.
        format_ = self._source.format()
        if format_.directory_id != start.format_.directory_id:
            message = f"{self._source.root} was replaced by another data directory during the backup"
            raise StorageError(message)
        states = state_record.encode_file(start.states, start.format_.directory_id)
        manifest = Manifest(
            self._name,
            self._automatic,
            format_.directory_id,
            format_.number,
            __version__,
            began_ms,
            self._now_ms(),
            tuple(logs),
            folder.write_small(made / STATES_FILE, [states]),
            folder.write_small(made / JOURNAL_FILE, self._tails),
            tuple(self._damage),
        )
        folder.files.fsync_dir(made)
        folder.complete(manifest)
        return Made(manifest, self._done, deleted, notes=[str(error) for error in self._unreadable])

    def _spool_folder(self) -> str | None:
        # A simulated disk has no folder for a real file.
        return str(self._made) if self._made.is_dir() else None

    def _look_ahead(self, start: Start) -> list[tuple[LogRecord, list[Looked]]]:
        """Look at all partitions before the first byte is copied: a backup is of one moment, nearly."""
        found: list[tuple[LogRecord, list[Looked]]] = []
        for log in start.logs:
            parts: list[Looked] = []
            for index in range(log.settings.partitions):
                try:
                    parts.append(self._look(log, index, start))
                except (LogGoneError, FileNotFoundError):
                    parts.append(Looked([]))  # it is looked at again
            found.append((log, parts))
        return found

    def _look(self, log: LogRecord, index: int, start: Start) -> Looked:
        found: list[Looked] = []

        def look() -> None:
            found[:] = [self._source.look(log, index, start)]

        retried(look, lambda: self._source.still_has(log), tries=_TRIES)
        return found[0]

    def _partition(
        self, log: LogRecord, index: int, looked: Looked, start: Start, spool: Spool
    ) -> CopiedPartition:
        found: list[tuple[Looked, list[Piece]]] = []
        first = looked if looked.seen else None

        def copy() -> None:
            nonlocal first
            # Again after a removal by retention: the segments have other starts then.
            latest_look = first or self._source.look(log, index, start)
            first = None
            found[:] = [(latest_look, self._pieces(log, index, latest_look))]

        try:
            retried(copy, lambda: self._source.still_has(log), tries=_TRIES)
        except FileNotFoundError as error:
            self._damage.append(f"{error.filename}: is missing")
            found[:] = [(Looked([]), [])]
        part, (looked, pieces) = _Part(log, index, start), found[0]
        tails = partial(self._take_tail, part, spool)
        return self._joined(part, looked, pieces, tails)

    def _pieces(self, log: LogRecord, index: int, looked: Looked) -> list[Piece]:
        spot = Spot((log.uid, index), log.seed(index))
        pieces: list[Piece] = []
        for seen in looked.seen:
            path = looked.paths[seen.base]
            file = open_while_replaced(self._source.files, path, seen.base, log.seed(index))
            try:
                brought = self._pool.bring(file, seen, spot)
            except FileNotFoundError as error:
                # Retention only removes files of the node, and this one is open.
                message = f"{error.filename}: was removed by another program during the backup"
                raise StorageError(message) from error
            if brought.fault:
                self._damage.append(f"{file.path}: {brought.fault}")
            pieces.append(brought.piece)
        return pieces

    def _joined(
        self, part: "_Part", looked: Looked, pieces: list[Piece], take_tail: Callable[[int], int]
    ) -> CopiedPartition:
        """The segments and what the journal had after them, checked against what the node had accepted."""
        while len(pieces) > 1 and not pieces[-1].bytes:
            pieces.pop()  # its first batch was being written
        known_start, known_end = part.bounds
        if pieces:
            # Retention may have removed more than the checkpoint says.
            first, at = max(known_start, pieces[0].base), pieces[-1].end
        else:
            first = at = max(known_start, min((each.base for each in part.batches), default=known_end))
        for before, after in pairwise(pieces):
            if before.end != after.base:
                self._damage.append(f"{part.where}: records {before.end} to {after.base - 1} are missing")
        if lost := sum(piece.lost for piece in pieces):
            self._damage.append(f"{part.where}: {lost} records in its segments are damaged")
        position = self._tail_bytes
        end = take_tail(at)
        reached = max(end, known_end, looked.index[1].coverage.end if looked.index else 0)
        if reached > end:
            self._damage.append(f"{part.where}: records {end} to {reached - 1} are missing")
        tail = Tail(position, self._tail_bytes - position)
        table = self._producers(part.spot, looked, pieces)
        return CopiedPartition(first, end, reached, tuple(pieces), tail, table)

    def _take_tail(self, part: "_Part", spool: Spool, at: int) -> int:
        """Take the records from number `at` on that only the journal had; returns the number after them."""
        for taken in continued([(each.base, each.end) for each in part.batches], at):
            found = part.batches[taken.entry]
            spool.seek(found.position)
            data = spool.read(found.length)
            parts = [data] if taken.first == found.base else _cut(data, taken.first, part.spot.seed)
            self._tails += parts
            self._tail_bytes += sum(map(len, parts))
            at = taken.after
        return at

    def _producers(self, spot: Spot, looked: Looked, pieces: Sequence[Piece]) -> Table:
        """The table of producers at the end of the pieces."""
        begun = self._table_before(spot, pieces) or _table_of(looked, pieces)
        table: Table = dict(begun.table) if begun else {}
        for piece in pieces:
            if begun and piece.base < begun.base:
                continue
            inside = begun if begun and piece.base == begun.base else None
            position, expected = (inside.position, inside.expected) if inside else (0, piece.base)
            if position < piece.bytes:
                table = self._pool.producers(piece, spot, position, expected, table)
        return table

    def _table_before(self, spot: Spot, pieces: Sequence[Piece]) -> "_TableAt | None":
        """The table of the last backup, if the partition continues where the backup ended."""
        uid, index = spot.key
        log = (
            next((log for log in self._manifests[-1].logs if log.uid == uid), None)
            if self._manifests
            else None
        )
        if log is None or not log.partitions[index].pieces:
            return None
        last = log.partitions[index].pieces[-1]
        for piece in pieces:
            if (piece.base, piece.version) == (last.base, last.version) and piece.bytes >= last.bytes:
                return _TableAt(last.base, last.bytes, last.end, log.partitions[index].producers)
        return None

    def _copied(self, count: int) -> None:
        self._done += count
        self._progress(self._done, max(self._total, self._done))


@dataclass(frozen=True, slots=True)
class _Part:
    """A partition."""

    log: LogRecord
    index: int
    start: Start

    @property
    def spot(self) -> Spot:
        return Spot((self.log.uid, self.index), self.log.seed(self.index))

    @property
    def where(self) -> str:
        return f"logs/{self.log.name}/{self.index}"

    @property
    def bounds(self) -> tuple[int, int]:
        """Its start and end as far as the node had stored them before the backup."""
        return bounds_of(self.log, self.index, self.start.checkpoint, self.start.ends)

    @property
    def batches(self) -> list[Spooled]:
        """What the journal had of it."""
        return self.start.batches.get((self.log.uid, self.index), [])


@dataclass(frozen=True, slots=True)
class _TableAt:
    """The table of producers before the batch at a position of a segment, which begins with `expected`."""

    base: int
    position: int
    expected: int
    table: Table


def _table_of(looked: Looked, pieces: Sequence[Piece]) -> _TableAt | None:
    """The table of the node's latest index, if the copied segment has all that it covers."""
    if looked.index is None:
        return None
    base, decoded = looked.index
    cover = decoded.coverage
    if any(piece.base == base and piece.bytes >= cover.bytes for piece in pieces):
        return _TableAt(base, cover.bytes, cover.end, decoded.producers)
    # An empty segment is not copied. Its index has the table of all records before it.
    if pieces and not cover.bytes and pieces[-1].end == base:
        return _TableAt(base, 0, base, decoded.producers)
    return None


def _cut(data: bytes, first: int, seed: int) -> list[bytes]:
    """A batch of the journal without its records before `first`, which a segment has."""
    head = record.head_at(data, 0)
    batch = record.decode(data, 0, head, seed) if head else None
    assert head is not None, "the journal's record was whole when it was read"
    assert batch is not None, "the journal's record was whole when it was read"
    chunk = cut(batch.all(), first, 1 << 62)
    # The whole table of producers: the segment already has the batch's other records.
    marks = producers.marks_again(first, record.entries_at(data, 0, head))
    start, body = record.encode(part(chunk, 0, len(chunk), marks), seed)
    return [start, bytes(body)]


def _remove_outdated(folder: Folder, keep: int | None, made: Made) -> None:
    manifests, unreadable = folder.manifests()
    for each in outdated(manifests, keep):
        if each.name != made.manifest.name:
            folder.remove(each.name)
            made.removed.append(each.name)
    # What a backup with an unreadable manifest needs is not known.
    if made.removed and not unreadable:
        folder.collect([each for each in manifests if each.name not in made.removed])


def _collect(folder: Folder) -> None:
    manifests, unreadable = folder.manifests()
    if not unreadable:
        folder.collect(manifests)


def _free_name(folder: Folder, name: str | None, now_ms: int) -> str:
    known = folder.names()
    if len(known) >= BACKUPS_MAX:
        message = f"{folder.root} has {BACKUPS_MAX} backups: remove some with 'backup remove' or --keep"
        raise StorageError(message)
    if name is not None:
        if not NAME.fullmatch(name):
            message = (
                f"{name!r} is not a valid name of a backup: use 1 to 64 letters, digits, '-' and '_',"
                " beginning with a letter or a digit"
            )
            raise StorageError(message)
        if name in known:
            message = f"{folder.root} has a backup {name!r} already: use another name"
            raise StorageError(message)
        return name
    stem, number = strftime("%Y%m%dT%H%M%SZ", gmtime(now_ms / 1000)), 1
    chosen = stem
    while chosen in known:
        number += 1
        chosen = f"{stem}-{number}"
    return chosen


def _must_be_apart(root: Path, target: Path) -> None:
    ours, theirs = root.resolve(), target.resolve()
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        message = f"the backup folder {target} and the data directory {root} must not contain each other"
        raise StorageError(message)


def _storage_error(target: Path, error: OSError) -> StorageError:
    where = error.filename or target
    if error.errno in FULL:
        return StorageError(
            f"{target}: the disk is full: free space on it, use --keep, or use another disk. The earlier"
            " backups are complete, and the node is not affected"
        )
    if isinstance(error, PermissionError):
        words = "run the command as the user of the node"
        return StorageError(f"{where}: {error.strerror}: {words}")
    return StorageError(f"{where}: {error.strerror or error}")


def _wall_clock_ms() -> int:
    return int(time() * 1000)


def _ignore(done: int, total: int) -> None:
    """Used if the caller wants no progress."""
