"""[io] Opening a data directory: lock, format, logs, journal, and each partition's recovery."""

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from errno import EACCES, EINVAL, EOPNOTSUPP, EPERM, EROFS
from itertools import chain, islice
from pathlib import Path
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog, states
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits import ends
from amqp_streams.storage.commits.ends import EndsFile
from amqp_streams.storage.commits.flushing import Tuning
from amqp_streams.storage.commits.journal import FOLDER, Journal, JournalContents, Slot, prepare, read_all
from amqp_streams.storage.disk.files import Files, OpenFile
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import journal_record
from amqp_streams.storage.formats.ends import Ends, Place
from amqp_streams.storage.partitions.reading import Reading
from amqp_streams.storage.restore import PartitionRestorer, Restored

RESTORED_AT_ONCE: Final = 8
"""How many partitions are recovered at once. They wait for reads and syncs of the disk most of the time."""
_NOT_OURS: Final = frozenset({EACCES, EPERM, EINVAL, EOPNOTSUPP, EROFS})


@dataclass(slots=True, eq=False)
class Opened:
    """A locked and recovered data directory."""

    files: Files
    root: Path
    lock: int
    directory_id: int
    tuning: Tuning
    reading: Reading
    journal: Journal
    ends: EndsFile
    logs: list[tuple[LogRecord, list[Restored]]]
    states: states.OpenedStates
    format_: catalog.Format
    findings: list[Finding]


def open_directory(files: Files, root: Path, tuning: Tuning, *, threads: bool) -> Opened:
    """Lock and recover a data directory. `threads`: recover partitions in threads.

    Raises:
        DirectoryLockedError: another process holds the lock.
        StorageError: names the file and what to do.
    """
    try:
        _make_root(files, root)
        lock = catalog.lock(files, root)
    except OSError as error:
        raise storage_error(root, error) from error
    try:
        return _open_locked(files, root, lock, tuning, threads=threads)
    # BaseException: Ctrl-C during a long recovery must release the lock as well.
    except BaseException as error:
        files.close(lock)
        if isinstance(error, OSError):
            raise storage_error(root, error) from error
        raise


def _make_root(files: Files, root: Path) -> None:
    """Make the data directory, and the folders above it, durable: a power loss must not take away accepted
    events with their folder.

    Raises:
        OSError: a folder cannot be created.
    """
    for path in (*reversed(root.absolute().parents), root):
        if not files.is_dir(path):
            files.mkdir(path)
            files.fsync_dir(path.parent)
    if catalog.FORMAT_FILE not in files.listdir(root):
        # An earlier first start may have been killed after it created folders, before it synced their names.
        for path in root.absolute().parents:
            try:
                files.fsync_dir(path)
            except OSError as error:
                # Folders above may belong to others, or to a file system that cannot sync folders.
                if error.errno not in _NOT_OURS:
                    raise


def raise_format(files: Files, root: Path, known: catalog.Format, number: int) -> catalog.Format:
    """Raise the directory's format, so that older versions refuse to open it.

    Raises StorageError: the disk failed.
    """
    if known.number >= number:
        return known
    raised = catalog.Format(known.directory_id, number)
    try:
        catalog.write_format(files, root, raised)
    except OSError as error:
        raise storage_error(root, error) from error
    return raised


def storage_error(path: Path, error: OSError) -> StorageError:
    """The StorageError for an error of the operating system."""
    if error.errno in FULL:
        where = error.filename or path
        words = "free space on it, or move the data directory to a larger disk, and try again"
        return StorageError(f"{where}: the disk is full: {words}")
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return StorageError(f"{error.filename or path} is a file, not a directory: choose another directory")
    return StorageError(f"{error.filename or path}: {error.strerror or error}")


def raise_unless_full(path: Path, error: OSError) -> bool:
    """Return False, for a stop that is not clean, if the disk is full.

    Without a new checkpoint, the next start recovers as after a crash: nothing that was accepted is lost.

    Raises:
        StorageError: the disk failed.
    """
    if error.errno in FULL:
        return False
    raise storage_error(path, error) from error


def _open_locked(files: Files, root: Path, lock: int, tuning: Tuning, *, threads: bool) -> Opened:
    findings: list[Finding] = []
    checkpoint = catalog.read_checkpoint(files, root, findings)
    format_ = catalog.read_format(files, root, checkpoint, findings, repair=True)
    if format_ is None:
        format_ = catalog.Format(int.from_bytes(os.urandom(8), "little"), catalog.FORMAT)
        catalog.write_format(files, root, format_)
    directory_id = format_.directory_id
    for folder in (FOLDER, "logs", "trash"):
        files.mkdir(root / folder)
    files.fsync_dir(root)
    trash = _empty_trash(files, root, checkpoint)
    _report_unknown_files(files, root, findings)
    seed = journal_record.seed_of(directory_id)
    # Without a checkpoint, an earlier start may have ended while it created the journal: its files may be
    # unfinished.
    known_ends = ends.find(files, root, seed, findings)
    synced = last_synced(checkpoint, known_ends)
    found = read_all(files, root, seed, findings if checkpoint else [], synced=synced)
    _report_journal(files, root, checkpoint, tuning, findings)
    restoring: list[tuple[LogRecord, list[PartitionRestorer]]] = []
    of_logs: list[list[Finding]] = []
    for name in files.listdir(root / "logs"):
        of_logs.append([])
        if not files.is_dir(root / "logs" / name):
            words = "is not a folder of the store; ignored"
            of_logs[-1].append(Finding(Severity.WARNING, f"logs/{name}", None, words))
            continue
        log = catalog.read_log(files, root, name, checkpoint=checkpoint, findings=of_logs[-1], repair=True)
        restorers = _restorers(files, root, log, checkpoint=checkpoint, found=found, ends=known_ends)
        of_logs += [each.findings for each in restorers]
        restoring.append((log, restorers))
    restored = iter(_restored([each for _, all_ in restoring for each in all_], threads=threads))
    logs = [(log, list(islice(restored, len(restorers)))) for log, restorers in restoring]
    # In the order of logs and partitions, whichever was recovered first.
    findings += chain.from_iterable(of_logs)
    _report_missing_logs({log.name for log, _ in logs}, trash, checkpoint, findings)
    # Only after every partition is recovered: from here on, journal files may be overwritten.
    journal = _open_journal(files, root, tuning, found=found, known_ends=known_ends, seed=seed)
    reading = Reading(
        files,
        cache_bytes=tuning.cache_bytes,
        open_files=tuning.open_files,
        blocks_bytes=tuning.blocks_bytes,
    )
    kept = states.open_states(files, root, directory_id, checkpoint, findings)
    named = EndsFile(ends.prepare(files, root), known_ends, seed)
    return Opened(
        files, root, lock, directory_id, tuning, reading, journal, named, logs, kept, format_, findings
    )


def _open_journal(
    files: Files, root: Path, tuning: Tuning, *, found: JournalContents, known_ends: Ends, seed: int
) -> Journal:
    journal_files = prepare(files, root, count=tuning.journal_files, size=tuning.journal_bytes, seed=seed)
    slots = [
        Slot(file, file.size(), generation=found.generations.get(file.path.name, 0)) for file in journal_files
    ]
    for name in found.generations.keys() - {slot.file.path.name for slot in slots}:
        # Added while a failure pinned other files; segments have its records now.
        files.unlink(root / FOLDER / name)
    # A generation that only `ends` knows is not used again: its records were in a file that is damaged.
    generation = max([known_ends.journal.generation, *found.generations.values()])
    return Journal(slots, generation=generation, seed=seed)


def _restorers(
    files: Files,
    root: Path,
    log: LogRecord,
    *,
    checkpoint: Checkpoint | None,
    found: JournalContents,
    ends: Ends,
) -> list[PartitionRestorer]:
    return [
        PartitionRestorer(
            files,
            root,
            root / "logs" / log.name / str(index),
            seed=log.seed(index),
            bounds=bounds_of(log, index, checkpoint, ends),
            entries=found.entries.get((log.uid, index), []),
        )
        for index in range(log.settings.partitions)
    ]


def _restored(restorers: Sequence[PartitionRestorer], *, threads: bool) -> list[Restored]:
    """Recover partitions, which share nothing but files that are only read."""
    if not threads or len(restorers) < 2:
        return [each.restore() for each in restorers]
    with ThreadPoolExecutor(RESTORED_AT_ONCE, "amqp-streams-opening") as pool:
        return list(pool.map(PartitionRestorer.restore, restorers))


def last_synced(checkpoint: Checkpoint | None, ends: Ends) -> Place | None:
    """The last record of the journal that was synced.

    None after a clean stop, because the segments then have all records of the journal.
    """
    return None if checkpoint and checkpoint.clean else ends.journal


def bounds_of(log: LogRecord, index: int, checkpoint: Checkpoint | None, ends: Ends) -> tuple[int, int]:
    """Start and end of a partition as far as the checkpoint and the file `ends` know them."""
    start = end = 0
    # A log that was deleted and created again has a new uid, and other bounds.
    if checkpoint and log.name in checkpoint.logs and checkpoint.logs[log.name].uid == log.uid:
        known = checkpoint.bounds[log.name]
        start, end = known[index] if index < len(known) else (0, 0)
    return start, max(end, ends.ends.get((log.uid, index), 0))


def _report_unknown_files(files: Files, root: Path, findings: list[Finding]) -> None:
    ours = {
        catalog.FORMAT_FILE,
        catalog.LOCK_FILE,
        catalog.CHECKPOINT_FILE,
        catalog.QUARANTINE,
        FOLDER,
        "logs",
        "trash",
        "lost+found",  # of a file system that is mounted here
    }
    ours |= {states.FILE, states.DAMAGED_FILE, ends.FILE}
    for name in files.listdir(root):
        if name.endswith(".tmp"):
            with contextlib.suppress(FileNotFoundError):
                files.unlink(root / name)
        elif name not in ours:
            findings.append(Finding(Severity.WARNING, name, None, "is not a file of the store; ignored"))


def _report_journal(
    files: Files, root: Path, checkpoint: Checkpoint | None, tuning: Tuning, findings: list[Finding]
) -> None:
    if checkpoint is None:
        return
    names = [name for name in files.listdir(root / FOLDER) if name.endswith(".journal")]
    missing = [
        name for name in (f"{number}.journal" for number in range(tuning.journal_files)) if name not in names
    ]
    for name in missing:
        # At a clean stop, segments have every record of the journal.
        severity = Severity.WARNING if checkpoint.clean else Severity.DAMAGE
        loss = ", and the records that were only in it, if any, are lost"
        words = "is missing" + ("; recreated" if checkpoint.clean else loss)
        findings.append(Finding(severity, f"{FOLDER}/{name}", None, words))
    for name in names:
        size = OpenFile(files, root / FOLDER / name).size()
        if size < tuning.journal_bytes:
            words = (
                f"is {size} bytes long instead of {tuning.journal_bytes}: it was cut, or created with another"
                " size"
            )
            findings.append(Finding(Severity.WARNING, f"{FOLDER}/{name}", size, words))


def _empty_trash(files: Files, root: Path, checkpoint: Checkpoint | None) -> list[str]:
    """Remove what was deleted; the names of what was there.

    The folder of a log that the checkpoint still has stays, without content: it says that the log was
    deleted.
    """
    names = files.listdir(root / "trash")
    known = {f"{log.uid:016x}" for log in checkpoint.logs.values()} if checkpoint else set()
    for name in names:
        remove = catalog.remove_content if name in known else catalog.remove_tree
        remove(files, root / "trash" / name)
    return names


def _report_missing_logs(
    names: set[str], trash: Sequence[str], checkpoint: Checkpoint | None, findings: list[Finding]
) -> None:
    """Report logs of the checkpoint whose folder is neither in its place nor in the trash of deleted logs."""
    known = checkpoint.logs if checkpoint else {}
    gone = sorted(name for name in known.keys() - names if f"{known[name].uid:016x}" not in trash)
    findings += [
        Finding(Severity.DAMAGE, f"logs/{name}", None, "the log's folder is missing") for name in gone
    ]
