"""[io] Reading a data directory without a node: `verify` checks it, `dump` shows records. Never writes."""

import contextlib
import fcntl
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time

from amqp_streams.errors import CorruptionError, DirectoryLockedError, StorageError
from amqp_streams.storage import catalog, states
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits.journal import Entry, read_all
from amqp_streams.storage.disk.files import Files, OpenFile, RealFiles, read_file
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import journal_record, producers, record
from amqp_streams.storage.formats.chunks import cut
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.segments import segment_path
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan
from amqp_streams.storage.plans.retention import AHEAD_MS
from amqp_streams.storage.ports import Chunk

Progress = Callable[[int, int], None]
"""Called from time to time with the bytes of segments checked so far, and the bytes of all segments."""


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One stored record. `message` is laid out as in `Chunk.messages`: first `header_bytes` of header."""

    partition: int
    number: int
    timestamp_ms: int
    header_bytes: int
    message: bytes
    message_format: int = 0


@dataclass(slots=True)
class Verified:
    """Counts of what was checked. `records` includes those that only the journal holds until the next start.

    `producers`: idempotent producers, counted once in each partition that has them.
    """

    logs: int = 0
    partitions: int = 0
    segments: int = 0
    records: int = 0
    states: int = 0
    producers: int = 0
    bytes: int = 0
    notes: int = 0
    warnings: int = 0
    damages: int = 0


@dataclass(frozen=True, slots=True)
class _Catalog:
    directory_id: int
    checkpoint: Checkpoint | None
    logs: tuple[LogRecord, ...]
    entries: dict[tuple[int, int], list[Entry]]


def verify(
    path: Path, *, force: bool = False, progress: Progress | None = None, counts: Verified | None = None
) -> Iterator[Finding]:
    """Check every CRC, the order of numbers and times, indexes, journal and checkpoint; yields each problem.

    `counts`, if given, is filled. Records that only the journal has after a crash are not damage.

    Raises:
        DirectoryLockedError: a node has the directory open and `force` is not set. With `force`, records that
            the node is writing may look torn.
        StorageError: the path is not a data directory, or cannot be read.
    """
    counts = counts if counts is not None else Verified()
    tally = {Severity.NOTE: "notes", Severity.WARNING: "warnings", Severity.DAMAGE: "damages"}
    with unlocked(path, force=force):
        for finding in _verify(RealFiles(), path, progress or _ignore, counts):
            name = tally[finding.severity]
            setattr(counts, name, getattr(counts, name) + 1)
            yield finding


def dump(
    path: Path,
    log: str,
    *,
    partition: int | None = None,
    start: int = 0,
    after_ms: int | None = None,
    count: int | None = None,
    force: bool = False,
) -> Iterator[DumpedRecord]:
    """The records of a log, partition by partition, at most `count` in all, those in the journal included.

    Begins at number `start`; with `after_ms`, only records with a greater timestamp.

    Raises:
        CorruptionError: the next records are damaged; continue at its `after`.
        DirectoryLockedError: see `verify`.
        KeyError: the log or the partition does not exist.
        StorageError: the path is not a data directory, or cannot be read.
    """
    files, left = RealFiles(), count
    with unlocked(path, force=force):
        found = _read_catalog(files, path, [])
        logged, indexes = _wanted(found, log, partition)
        for index in indexes:
            entries = found.entries.get((logged.uid, index), [])
            for chunk in _chunks(
                files, path / "logs" / log / str(index), seed=logged.seed(index), entries=entries, start=start
            ):
                later = bisect_right(chunk.timestamps, after_ms) if after_ms is not None else 0
                for place, message in enumerate(chunk.messages[later:], later):
                    if left is not None and left <= 0:
                        return
                    left = None if left is None else left - 1
                    number, stamp, header = (
                        chunk.base + place,
                        chunk.timestamps[place],
                        chunk.header_sizes[place],
                    )
                    yield DumpedRecord(
                        index,
                        number,
                        stamp,
                        header,
                        message,
                        0 if chunk.formats is None else chunk.formats[place],
                    )


def dump_states(path: Path, *, force: bool = False) -> dict[str, bytes]:
    """The stored states by key: cursors, epochs. Damaged ones are omitted.

    Raises:
        DirectoryLockedError: see `verify`.
        StorageError: the path is not a data directory, or cannot be read.
    """
    with unlocked(path, force=force):
        files = RealFiles()
        return dict(sorted(_states(files, path, _read_catalog(files, path, []), []).items()))


def dump_producers(
    path: Path, log: str, *, partition: int | None = None, force: bool = False
) -> Iterator[tuple[int, Table]]:
    """The table of idempotent producers of each partition. Damaged records are skipped.

    Raises:
        DirectoryLockedError: see `verify`.
        KeyError: the log or the partition does not exist.
        StorageError: the path is not a data directory, or cannot be read.
    """
    files = RealFiles()
    with unlocked(path, force=force):
        found = _read_catalog(files, path, [])
        logged, indexes = _wanted(found, log, partition)
        for index in indexes:
            folder, table, end = path / "logs" / log / str(index), Table(), 0
            for base in _bases(folder):
                decoded = _index(segment_path(folder, base), base, logged.seed(index))
                scan = _scan(
                    files,
                    segment_path(folder, base),
                    base,
                    logged.seed(index),
                    decoded[2] if decoded else table,
                )
                table, end = scan.producers, max([end, *(stretch.end for stretch in scan.stretches)])
            yield index, _with_journal(table, found.entries.get((logged.uid, index), []), end)


def log_names(path: Path) -> list[str]:
    """The names of the logs in a data directory.

    Raises:
        StorageError: the path is not a data directory.
    """
    must_be_ours(path)
    return sorted(entry.name for entry in (path / "logs").iterdir() if entry.is_dir())


# -- verify


def _verify(files: Files, root: Path, progress: Progress, counts: Verified) -> Iterator[Finding]:
    findings: list[Finding] = []
    found = _read_catalog(files, root, findings)
    counts.states = len(_states(files, root, found, findings))
    yield from findings
    sizes = {file: file.stat().st_size for file in sorted((root / "logs").glob("*/*/*.log"))}
    total, known = sum(sizes.values()), found.checkpoint
    for log in found.logs:
        counts.logs += 1
        for index in range(log.settings.partitions):
            counts.partitions += 1
            same = known is not None and log.name in known.logs and known.logs[log.name].uid == log.uid
            bounds = (
                known.bounds[log.name][index]
                if known and same and index < len(known.bounds[log.name])
                else (0, 0)
            )
            entries = found.entries.get((log.uid, index), [])
            for finding in _verify_partition(
                files, root, log, index, bounds=bounds, entries=entries, counts=counts
            ):
                yield finding
                progress(counts.bytes, total)
            progress(counts.bytes, total)
    for name in sorted(set(known.logs) - {log.name for log in found.logs}) if known else ():
        yield Finding(Severity.DAMAGE, f"logs/{name}", None, "the log's folder is missing")


def _states(files: Files, root: Path, found: _Catalog, findings: list[Finding]) -> dict[str, bytes]:
    try:
        data = states.find(files, root, found.checkpoint, findings)
    except OSError as error:
        message = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(message) from error
    return (
        states.look(data, root / states.FILE, found.directory_id, found.checkpoint, findings).values
        if data is not None
        else {}
    )


def _verify_partition(
    files: Files,
    root: Path,
    log: LogRecord,
    index: int,
    *,
    bounds: tuple[int, int],
    entries: Sequence[Entry],
    counts: Verified,
) -> Iterator[Finding]:
    folder = root / "logs" / log.name / str(index)
    bases = _bases(folder)
    expected, last_ms = bounds[0], 0
    stretches: list[recovery.Stretch] = []
    known: Table = {}
    for base in bases:
        path = segment_path(folder, base)
        relative = str(path.relative_to(root))
        decoded = _index(path, base, log.seed(index))
        scan = _scan(files, path, base, log.seed(index), decoded[2] if decoded else known)
        known = scan.producers
        counts.segments += 1
        counts.bytes += scan.size
        counts.records += sum(stretch.end - stretch.base for stretch in scan.stretches)
        for damage in scan.damage:
            words = (
                f"{damage.until - damage.position} bytes are not valid records; "
                f"records {damage.first} to {damage.after - 1} should be there"
            )
            yield Finding(Severity.DAMAGE, relative, damage.position, words)
        if scan.until < scan.size:
            torn = base == bases[-1] and scan.until >= (decoded[0].bytes if decoded else 0)
            words = "the bytes at the end are not whole records" + (
                "; the next start cuts them off" if torn else ""
            )
            yield Finding(Severity.NOTE if torn else Severity.DAMAGE, relative, scan.until, words)
        if scan.stretches and scan.first_timestamp_ms < last_ms:
            yield Finding(Severity.DAMAGE, relative, 0, "its first record is older than the record before it")
        last_ms = max(last_ms, scan.last_timestamp_ms)
        yield from _verify_index(path, relative, decoded, scan)
        stretches += scan.stretches
    counts.producers += len(_with_journal(known, entries, stretches[-1].end if stretches else 0))
    journal = [(entry.base, entry.end) for entry in entries]
    plan = recovery.plan(
        stretches, journal, base=expected if not bases else max(expected, min(bases)), end_at_least=bounds[1]
    )
    counts.records += sum(
        piece.after - piece.first for piece in plan.pieces if isinstance(piece, recovery.Replay)
    )
    if bases and bases[0] > expected:
        yield Finding(
            Severity.DAMAGE,
            str(folder.relative_to(root)),
            None,
            f"records {expected} to {bases[0] - 1} are missing",
        )
    ahead_ms = last_ms - int(time() * 1000)
    if ahead_ms > AHEAD_MS:
        words = (
            f"its last timestamp is {ahead_ms // 1000} s ahead of the clock: the timestamp or the clock is"
            " wrong (docs/operations.md, timestamps_ahead)"
        )
        yield Finding(Severity.NOTE, str(folder.relative_to(root)), None, words)
    for first, after in plan.lost:
        words = f"records {first} to {after - 1} are damaged or missing"
        yield Finding(Severity.DAMAGE, str(folder.relative_to(root)), None, words)


def _verify_index(
    path: Path, relative: str, decoded: index_file.Decoded | None, scan: Scan
) -> Iterator[Finding]:
    name = relative.removesuffix(".log") + ".idx"
    if decoded is None:
        if path.with_suffix(".idx").exists():  # a missing index costs a scan; a new segment has none
            yield Finding(Severity.WARNING, name, None, "is damaged; opening the store recreates it")
        return
    coverage, index, reached = decoded
    count = len(index.positions)
    same = index.positions == scan.index.positions[:count] and index.bases == scan.index.bases[:count]
    if coverage.bytes == scan.until:  # its producers are those of its segment and of segments before it
        same = same and _sequences(reached) == _sequences(scan.producers)
    if coverage.bytes > scan.size:
        yield Finding(
            Severity.DAMAGE, relative, scan.size, f"it was cut: its index covers {coverage.bytes} bytes"
        )
    elif not same and not scan.damage:
        yield Finding(Severity.WARNING, name, None, "does not agree with its segment")


# -- dump


def _chunks(
    files: Files, folder: Path, *, seed: int, entries: Sequence[Entry], start: int
) -> Iterator[Chunk]:
    bases = _bases(folder)
    at = max(start, min(bases, default=0))
    for place, base in enumerate(bases):
        if place + 1 < len(bases) and bases[place + 1] <= start:
            continue
        file = OpenFile(files, segment_path(folder, base))
        for chunk in _segment_chunks(file, base, seed):
            if chunk.base + len(chunk) > at:
                if chunk.base > at:
                    message = f"{file.path}: records {at} to {chunk.base - 1} are damaged or missing"
                    raise CorruptionError(message, first=at, after=chunk.base)
                yield cut(chunk, max(at, chunk.base), 1 << 62)
                at = chunk.base + len(chunk)
    for entry in sorted(entries, key=lambda entry: entry.base):
        if entry.end > at:
            batches, _ = recovery.batches_in(
                entry.file.read(entry.length, entry.position), seed=seed, base_position=0
            )
            yield cut(batches[0].all(), max(at, entry.base), 1 << 62)
            at = entry.end


def _segment_chunks(file: OpenFile, base: int, seed: int) -> Iterator[Chunk]:
    size = file.size()
    scan = recovery.scan(file.read, size, seed=seed, into=Scan(size), expected=base)
    for position, until in pairwise([*scan.index.positions, scan.until]):
        for batch in recovery.batches_in(
            file.read(until - position, position), seed=seed, base_position=position
        )[0]:
            yield batch.all()


# -- both


def _read_catalog(files: Files, root: Path, findings: list[Finding]) -> _Catalog:
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
        journal = read_all(files, root, journal_record.seed_of(directory_id), findings)
    except OSError as error:
        message = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(message) from error
    return _Catalog(directory_id, checkpoint, logs, journal.entries)


def _wanted(found: _Catalog, log: str, partition: int | None) -> tuple[LogRecord, Sequence[int]]:
    logged = next((one for one in found.logs if one.name == log), None)
    if logged is None or (partition is not None and not 0 <= partition < logged.settings.partitions):
        raise KeyError(log if logged is None else partition)
    return logged, range(logged.settings.partitions) if partition is None else [partition]


def _scan(files: Files, path: Path, base: int, seed: int, known: Table) -> Scan:
    """Scan the whole segment. If `known` includes its own producers, the latest entry wins."""
    file = OpenFile(files, path)
    return recovery.scan(
        file.read, file.size(), seed=seed, into=Scan(file.size(), producers=known.copy()), expected=base
    )


def _index(path: Path, base: int, seed: int) -> index_file.Decoded | None:
    try:
        return index_file.decode(path.with_suffix(".idx").read_bytes(), base, seed)
    except FileNotFoundError:
        return None


def _with_journal(table: Table, entries: Sequence[Entry], end: int) -> Table:
    """The table after the next start has written the journal's records from number `end` on."""
    for entry in sorted(entries, key=lambda entry: (entry.base, entry.end)):
        if entry.end > end:
            data = entry.file.read(entry.length, entry.position)
            head = record.head_at(data, 0)
            assert head is not None, "the journal's record was whole when it was found"
            producers.apply(table, record.entries_at(data, 0, head), head.first_timestamp_ms)
    return table


def _sequences(table: Table) -> dict[str, int]:
    return {producer: reached.sequence for producer, reached in table.items()}


def must_be_ours(root: Path) -> None:
    if not (root / "logs").is_dir() or not (root / "journal").is_dir():
        message = f"{root} is not a data directory: it does not contain 'logs' and 'journal'"
        raise StorageError(message)


def _bases(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    bases = sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())
    # An empty last segment was created for records that were never written.
    return bases[:-1] if len(bases) > 1 and not segment_path(folder, bases[-1]).stat().st_size else bases


@contextlib.contextmanager
def unlocked(root: Path, *, force: bool) -> Iterator[None]:
    """Lock the directory against nodes; with `force`, continue even if a node has it open."""
    try:
        with (root / catalog.LOCK_FILE).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if not force:
                    pid = (
                        read_file(RealFiles(), root / catalog.LOCK_FILE).decode(errors="replace").strip()
                        or "unknown"
                    )
                    message = (
                        f"{root} is in use by process {pid}: stop that process, or read anyway with --force"
                    )
                    raise DirectoryLockedError(message) from None
            yield
    except FileNotFoundError:
        yield


def _ignore(done: int, total: int) -> None:
    """Used if the caller wants no progress."""
