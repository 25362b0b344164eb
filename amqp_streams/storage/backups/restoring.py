"""[io] Restores a backup to a data directory.

Laws: until everything is restored and synced, `format.json` names a format that no node opens. A restore that
was interrupted continues when it is run again. What a directory had before is moved, never removed. Offsets,
times, ids and incarnations are those of the original.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import strftime
from typing import Any, Final

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog, states
from amqp_streams.storage.backups.folder import JOURNAL_FILE, STATES_FILE, Folder, crc_of
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.backups.pool import segment_file
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits import ends, journal
from amqp_streams.storage.commits.flushing import Tuning
from amqp_streams.storage.disk.files import Files, OpenFile, read_file, replace_file
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import journal_record, record, state_record
from amqp_streams.storage.formats.index import Coverage
from amqp_streams.storage.formats.manifest import CopiedLog, CopiedPartition, Manifest, Piece, Small
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan

_BLOCK_BYTES: Final = 1 << 20
_SYNC_BYTES: Final = 8 << 20
_OURS: Final = (
    catalog.CHECKPOINT_FILE,
    states.FILE,
    states.DAMAGED_FILE,
    ends.FILE,
    journal.FOLDER,
    "logs",
    "trash",
)
"""What is moved to the quarantine before a directory gets other content. `format.json` is replaced first."""
_ASIDE: Final = re.compile(r"restore-[0-9A-Z-]{1,200}")
_APART: Final = ("cursor", "epoch", "ending")
"""States whose key has the incarnation of a log after this word."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Restored:
    """What was restored. `moved`: where the earlier content of the directory is."""

    manifest: Manifest
    logs: list[str] = field(default_factory=list)
    events: int = 0
    bytes: int = 0
    states: int = 0
    continued: bool = False
    moved: Path | None = None


def restore(
    folder: Folder,
    target: Path,
    *,
    name: str | None = None,
    logs: Sequence[str] = (),
    replace: bool = False,
    tuning: Tuning | None = None,
    pace: Pace | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Restore the backup `name` (None: the latest) to the data directory `target`.

    `logs`: only these; none: all. `replace`: move what the directory has to its quarantine first.

    Raises:
        DirectoryLockedError: a node has the directory open.
        StorageError: names the file and what to do. No node opens the directory then.
    """
    files = folder.files
    try:
        manifest = _chosen(folder, name)
        wanted = _wanted(manifest, logs)
        _refuse_foreign(files, target)
        _refuse_records(manifest, wanted)
        lock = _locked(files, target)
        try:
            restoring = _Restore(
                folder, target, manifest, wanted, pace=pace or Pace(), progress=progress or _ignore
            )
            restoring.prepare(replace=replace, named=sorted(logs))
            return restoring.run(tuning or Tuning())
        finally:
            files.close(lock)
    except OSError as error:
        where = error.filename or target
        if error.errno in FULL:
            words = f"{target}: the disk is full: free space and run the restore again; it continues"
            raise StorageError(words) from error
        raise StorageError(f"{where}: {error.strerror or error}") from error


class _Restore:
    """One restore."""

    def __init__(
        self,
        folder: Folder,
        target: Path,
        manifest: Manifest,
        wanted: Sequence[CopiedLog],
        *,
        pace: Pace,
        progress: Progress,
    ) -> None:
        self._files: Final = folder.files
        self._folder: Final = folder
        self._target: Final = target
        self._manifest: Final = manifest
        self._wanted: Final = wanted
        self._pace: Final = pace
        self._progress: Final = progress
        self._total: Final = sum(
            part.tail.bytes + sum(piece.bytes for piece in part.pieces)
            for log in wanted
            for part in log.partitions
        )
        self._result: Final = Restored(manifest, [log.name for log in wanted])

    def prepare(self, *, replace: bool, named: Sequence[str]) -> None:
        """Make the directory one that no node opens. From here on, a restore can be continued."""
        files, root = self._files, self._target
        marker = {
            "format": catalog.RESTORING,
            "id": f"{self._manifest.directory_id:016x}",
            "backup": self._manifest.name,
            "logs": list(named),
            "aside": None,
        }
        found = _marker(files, root)
        if found and found.get("aside"):
            # A restore was interrupted while it moved what the directory had.
            if not _ASIDE.fullmatch(str(found["aside"])):
                message = f"{root / catalog.FORMAT_FILE} is damaged: it names the folder {found['aside']!r}"
                raise StorageError(message)
            self._move_to(files, root / catalog.QUARANTINE / str(found["aside"]))
            found["aside"] = None
            replace_file(files, root / catalog.FORMAT_FILE, catalog.seal(found), sync=True)
        self._result.continued = found == marker
        if not self._result.continued:
            present = _present(files, root)
            if present and not replace:
                message = (
                    f"{root} has an unfinished restore of backup {found.get('backup')!r}: run that restore"
                    " again, or use --replace to restore this one"
                    if found
                    else f"{root} is not empty: use another directory, or --replace, which moves its data to"
                    f" {root / catalog.QUARANTINE}"
                )
                raise StorageError(message)
            self._move_aside(marker, present)
        for name in (journal.FOLDER, "logs", "trash"):
            files.mkdir(root / name)
        files.fsync_dir(root)

    def run(self, tuning: Tuning) -> Restored:
        """Restore everything; the last step makes it a data directory."""
        files, root, manifest = self._files, self._target, self._manifest
        self._progress(0, self._total)
        tails = self._small(JOURNAL_FILE, manifest.journal)
        for log in self._wanted:
            self._log(log, tails)
        values = self._states()
        directory_id = manifest.directory_id
        replace_file(files, root / states.FILE, state_record.encode_file(values, directory_id), sync=True)
        size = OpenFile(files, root / states.FILE).size()
        seed = journal_record.seed_of(directory_id)
        for file in journal.prepare(
            files, root, count=tuning.journal_files, size=tuning.journal_bytes, seed=seed
        ):
            file.close()
        records = {log.name: LogRecord.from_json(log.record) for log in self._wanted}
        bounds = {
            log.name: tuple((part.start, part.reached) for part in log.partitions) for log in self._wanted
        }
        checkpoint = Checkpoint(True, directory_id, records, bounds, states=size)
        replace_file(files, root / catalog.CHECKPOINT_FILE, checkpoint.encode(), sync=True)
        files.fsync_dir(root / "logs")
        catalog.write_format(files, root, catalog.Format(directory_id, manifest.format_number))
        self._result.states = len(values)
        return self._result

    # -- inside

    def _move_aside(self, marker: dict[str, Any], present: set[str]) -> None:
        files, root = self._files, self._target
        aside: Path | None = None
        if present:
            files.mkdir(root / catalog.QUARANTINE)
            aside = root / catalog.QUARANTINE / strftime("restore-%Y%m%dT%H%M%S")
            while files.is_dir(aside):
                aside = aside.with_name(aside.name + "-2")
            files.mkdir(aside)
            if catalog.FORMAT_FILE in present:
                data = read_file(files, root / catalog.FORMAT_FILE)
                replace_file(files, aside / catalog.FORMAT_FILE, data, sync=True)
            files.fsync_dir(root / catalog.QUARANTINE)
            self._result.moved = aside
            # From here on, no node opens the directory, whatever is moved already.
            moving = marker | {"aside": aside.name}
            replace_file(files, root / catalog.FORMAT_FILE, catalog.seal(moving), sync=True)
            self._move_to(files, aside)
        replace_file(files, root / catalog.FORMAT_FILE, catalog.seal(marker), sync=True)

    def _move_to(self, files: Files, aside: Path) -> None:
        for name in set(files.listdir(self._target)) & set(_OURS):
            files.rename(self._target / name, aside / name)
        files.fsync_dir(aside)
        files.fsync_dir(self._target)

    def _log(self, copied: CopiedLog, tails: bytes) -> None:
        files, folder = self._files, self._target / "logs" / copied.name
        log = LogRecord.from_json(copied.record)
        files.mkdir(folder)
        for index, part in enumerate(copied.partitions):
            files.mkdir(folder / str(index))
            self._partition(copied, index, part, log.seed(index), tails)
            self._result.events += part.end - part.start
        catalog.write_log(files, folder, log)

    def _partition(self, log: CopiedLog, index: int, part: CopiedPartition, seed: int, tails: bytes) -> None:
        files, folder = self._files, self._target / "logs" / log.name / str(index)
        tail = tails[part.tail.position : part.tail.position + part.tail.bytes]
        pieces = list(part.pieces)
        if not pieces and (tail or part.reached):
            # All its records were in the journal only, or retention has removed all.
            pieces = [Piece(part.start, 1, 0, 0, part.start, 0)]
        table = _older_than(part.producers, self._first_ms(log, index, pieces))
        for piece in pieces:
            file = self._copy(log, index, piece, segment_path(folder, piece.base))
            size = piece.bytes
            if piece is pieces[-1]:
                file.write([tail], size)
                size += len(tail)
                self._advance(len(tail))
            file.sync()
            scan = Scan(size, producers=table)
            recovery.scan(file.read, size, seed=seed, into=scan, expected=piece.base)
            if scan.until != size:
                message = f"{file.path}: the batches of the backup are not whole at byte {scan.until}"
                raise StorageError(message)
            table = scan.producers
            if piece is pieces[-1]:
                # Exact, also if some batches are damaged: the table of the backup, and then the tail.
                last = Scan(size, producers=dict(part.producers), last_timestamp_ms=piece.last_ms)
                at = piece.bytes
                recovery.scan(file.read, size, seed=seed, into=last, expected=piece.end, position=at)
                table = last.producers
            self._write_index(piece, scan, file.path, seed, table)
        files.fsync_dir(folder)

    def _first_ms(self, log: CopiedLog, index: int, pieces: Sequence[Piece]) -> int:
        """The time of the first record; 0 without one."""
        if not pieces or not pieces[0].bytes:
            return 0
        data = self._origin(log, index, pieces[0]).read(record.HEAD_BYTES, 0)
        head = record.head_at(data, 0)
        return head.first_timestamp_ms if head else 0

    def _write_index(self, piece: Piece, scan: Scan, path: Path, seed: int, table: Table) -> None:
        end = scan.stretches[-1].end if scan.stretches else piece.base
        if not scan.size and not table:
            return
        coverage = Coverage(piece.base, end, scan.first_timestamp_ms, scan.last_timestamp_ms, scan.size)
        data = index_file.encode(coverage, scan.index, seed, table)
        replace_file(self._files, path.with_suffix(".idx"), data, sync=True)

    def _copy(self, log: CopiedLog, index: int, piece: Piece, path: Path) -> OpenFile:
        """Copy a piece, unless an interrupted restore has done it; compares the CRC."""
        target = OpenFile(self._files, path, create=True)
        if target.size() >= piece.bytes and crc_of(target, piece.bytes) == piece.crc:
            target.truncate(piece.bytes)
            self._advance(piece.bytes)
            return target
        target.truncate(0)
        position = unsynced = 0
        source = self._origin(log, index, piece) if piece.bytes else target
        while position < piece.bytes:
            data = source.read(min(_BLOCK_BYTES, piece.bytes - position), position)
            if not data:
                break
            self._pace(len(data))
            target.write([data], position)
            position, unsynced = position + len(data), unsynced + len(data)
            self._advance(len(data))
            if unsynced >= _SYNC_BYTES:
                target.sync()
                unsynced = 0
        target.sync()
        target.wont_need(position, 0)
        # Of what was written: a fault of either disk is found.
        if position < piece.bytes or crc_of(target, piece.bytes) != piece.crc:
            message = (
                f"{source.path} is damaged: restore another backup ('backup verify' shows which are whole)"
            )
            raise StorageError(message)
        return target

    def _origin(self, log: CopiedLog, index: int, piece: Piece) -> OpenFile:
        path = segment_file(self._folder.root, (log.uid, index), piece.base, piece.version)
        try:
            return OpenFile(self._files, path)
        except FileNotFoundError:
            message = f"{path} is missing: restore another backup ('backup verify' shows which are whole)"
            raise StorageError(message) from None

    def _small(self, name: str, expected: Small) -> bytes:
        path = self._folder.path_of(self._manifest.name) / name
        file = OpenFile(self._files, path)
        if file.size() != expected.bytes or crc_of(file, expected.bytes) != expected.crc:
            message = f"{path} is damaged: restore another backup ('backup verify' shows which are whole)"
            raise StorageError(message)
        return file.read(expected.bytes, 0)

    def _states(self) -> dict[str, bytes]:
        """The states of the restored logs."""
        data = self._small(STATES_FILE, self._manifest.states)
        values = state_record.read(data, self._manifest.directory_id).values
        incarnations = {log.incarnation for log in self._wanted}
        return {key: value for key, value in values.items() if _is_of(key, incarnations)}

    def _advance(self, count: int) -> None:
        self._result.bytes += count
        self._progress(self._result.bytes, max(self._total, self._result.bytes))


def _is_of(key: str, incarnations: set[str]) -> bool:
    kind, _, rest = key.partition("/")
    return kind not in _APART or rest.partition("/")[0] in incarnations


def _older_than(table: Table, first_ms: int) -> Table:
    """The producers whose last event is in no segment any more: the first index must have them."""
    return {name: reached for name, reached in table.items() if reached.at_ms <= first_ms}


def _chosen(folder: Folder, name: str | None) -> Manifest:
    if name is not None:
        return folder.manifest(name)
    manifests, errors = folder.manifests()
    if not manifests:
        if errors:
            raise errors[-1]
        message = f"{folder.root} is not a backup folder, or has no complete backup"
        raise StorageError(message)
    if errors:
        # Not silently an earlier one: the user decides.
        message = f"{errors[-1]}. The latest readable backup is {manifests[-1].name!r}: name it with --backup"
        raise StorageError(message)
    return manifests[-1]


def _wanted(manifest: Manifest, names: Sequence[str]) -> list[CopiedLog]:
    known = {log.name: log for log in manifest.logs}
    for name in names:
        if name not in known:
            message = (
                f"backup {manifest.name!r} has no log {name!r}; its logs are {', '.join(known) or 'none'}"
            )
            raise StorageError(message)
    return [log for log in manifest.logs if not names or log.name in names]


def _refuse_records(manifest: Manifest, wanted: Sequence[CopiedLog]) -> None:
    for log in wanted:
        try:
            LogRecord.from_json(log.record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"the manifest of backup {manifest.name!r} is damaged at log {log.name!r}: use another backup"
            )
            raise StorageError(message) from error


def _present(files: Files, root: Path) -> set[str]:
    """What a directory has that belongs to a data directory."""
    return set(files.listdir(root)) & {*_OURS, catalog.FORMAT_FILE}


def _refuse_foreign(files: Files, root: Path) -> None:
    """Refuse a directory that has files of other programs, before anything is written to it."""
    if not files.is_dir(root):
        return
    ours = {*_OURS, catalog.FORMAT_FILE, catalog.LOCK_FILE, catalog.QUARANTINE, "lost+found"}
    catalog.require_own(files, root, *(ours - {"lost+found"}))
    others = [name for name in files.listdir(root) if name not in ours and not name.endswith(".tmp")]
    if others:
        message = f"{root} is not empty and not a data directory: it has {others[0]!r}; use another directory"
        raise StorageError(message)


def _locked(files: Files, target: Path) -> int:
    for path in (*reversed(target.absolute().parents), target):
        if not files.is_dir(path):
            files.mkdir(path)
            files.fsync_dir(path.parent)
    return catalog.lock(files, target)


def _marker(files: Files, root: Path) -> dict[str, Any] | None:
    """What an unfinished restore has left in `format.json`."""
    try:
        content = catalog.unseal(read_file(files, root / catalog.FORMAT_FILE))
    except FileNotFoundError:
        return None
    return content if content and content.get("format") == catalog.RESTORING else None


def _ignore(done: int, total: int) -> None:
    """Used if the caller wants no progress."""
