"""[io] What `verify` and `dump` share: the lock, the catalog, and single segments of a data directory.

Never writes.
"""

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits import ends
from amqp_streams.storage.commits.journal import Entry, read_all
from amqp_streams.storage.disk.files import Files, RealFiles, read_file
from amqp_streams.storage.findings import Finding
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import journal_record, producers, record
from amqp_streams.storage.formats.ends import Ends
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.opening import last_synced
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.storage.partitions.sources import SEGMENT_SUFFIXES, open_while_replaced, stored_path
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan


@dataclass(frozen=True, slots=True)
class Catalog:
    """The logs of a data directory, and by (uid, partition) the batches that the journal has."""

    directory_id: int
    checkpoint: Checkpoint | None
    logs: tuple[LogRecord, ...]
    entries: dict[tuple[int, int], list[Entry]]
    ends: Ends


def read_catalog(files: Files, root: Path, findings: list[Finding]) -> Catalog:
    """Read everything but segments and states; adds a finding for each problem."""
    # First: nothing of another program's folder is read as ours.
    must_be_ours(root)
    try:
        checkpoint = catalog.read_checkpoint(files, root, findings)
        format_ = catalog.read_format(files, root, checkpoint, findings, repair=False)
        directory_id = format_.directory_id if format_ else 0
        names = [name for name in files.listdir(root / "logs") if files.is_dir(root / "logs" / name)]
        logs = tuple(
            catalog.read_log(files, root, name, checkpoint=checkpoint, findings=findings, repair=False)
            for name in names
        )
        seed = journal_record.seed_of(directory_id)
        # Before everything that it bounds: with `force`, a node may be writing.
        known_ends = ends.find(files, root, seed, findings)
        journal = read_all(files, root, seed, findings, synced=last_synced(checkpoint, known_ends))
    # With the file's name: the command shows this message only.
    except OSError as error:
        message = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(message) from error
    return Catalog(directory_id, checkpoint, logs, journal.entries, known_ends)


def scan_segment(files: Files, path: Path, base: int, seed: int, known: Table) -> Scan:
    """Scan the whole segment. If `known` includes its own producers, the latest entry wins."""
    file = open_while_replaced(files, path, base, seed)
    return recovery.scan(
        file.read, file.size(), seed=seed, into=Scan(file.size(), producers=known.copy()), expected=base
    )


def read_index(path: Path, base: int, seed: int) -> index_file.Decoded | None:
    """The index of a segment; None if it is missing or damaged."""
    try:
        return index_file.decode(path.with_suffix(".idx").read_bytes(), base, seed)
    except FileNotFoundError:
        # An index is derived: the next start writes it anew.
        return None


def with_journal(table: Table, entries: Sequence[Entry], end: int) -> Table:
    """The table after the next start has written the journal's records from number `end` on."""
    for entry in sorted(entries, key=lambda entry: (entry.base, entry.end)):
        if entry.end > end:
            data = entry.file.read(entry.length, entry.position)
            head = record.head_at(data, 0)
            assert head is not None, "the journal's record was whole when it was found"
            producers.apply(table, record.entries_at(data, 0, head), head.first_timestamp_ms)
    return table


def must_be_ours(root: Path) -> None:
    """Raise StorageError if the path is not a data directory."""
    if not (root / "logs").is_dir() or not (root / "journal").is_dir():
        message = f"{root} is not a data directory: it does not contain 'logs' and 'journal'"
        raise StorageError(message)


def check_format(root: Path) -> None:
    """Check that this version can open a data directory.

    Raises:
        StorageError: its format is unknown, or the files that say so are damaged.
    """
    findings: list[Finding] = []
    checkpoint = catalog.read_checkpoint(RealFiles(), root, findings)
    catalog.read_format(RealFiles(), root, checkpoint, findings, repair=False)


def bases_in(folder: Path) -> list[int]:
    """The numbers of the first records of a partition's segments, in order."""
    if not folder.is_dir():
        return []
    found = {
        int(path.stem)
        for path in folder.iterdir()
        if path.suffix in SEGMENT_SUFFIXES and path.stem.isdecimal()
    }
    bases = sorted(found)
    return recovery.with_records(
        bases, lambda base: segment_file(folder, base).stat().st_size, start=min(bases, default=0)
    )


def segment_file(folder: Path, base: int) -> Path:
    """The file of a segment, compressed or not."""
    return stored_path(segment_path(folder, base))


@contextlib.contextmanager
def unlocked(root: Path, *, force: bool) -> Iterator[None]:
    """Lock the directory against nodes; with `force`, continue even if a node has it open."""
    with contextlib.ExitStack() as stack:
        # A directory without the file was never opened by a node. Only this error is meant: one that the
        # caller's block raises is the caller's.
        with contextlib.suppress(FileNotFoundError):
            lock = stack.enter_context((root / catalog.LOCK_FILE).open("rb"))
            _lock_shared(lock, root, force=force)
        yield


def _lock_shared(lock: BinaryIO, root: Path, *, force: bool) -> None:
    try:
        # Shared: several commands may read at once. The lock of a node is exclusive.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        if not force:
            pid = read_file(RealFiles(), root / catalog.LOCK_FILE).decode(errors="replace").strip()
            message = (
                f"{root} is in use by process {pid or 'unknown'}: stop that process, or read anyway with"
                " --force"
            )
            raise DirectoryLockedError(message) from None
