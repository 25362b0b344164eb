"""[io] Reading a data directory without a node: `verify` checks it, `dump` shows records. Never writes."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from amqp_streams.errors import CorruptionError
from amqp_streams.storage.catalog import LogRecord
from amqp_streams.storage.commits.journal import Entry
from amqp_streams.storage.disk.files import Files, RealFiles
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats.chunks import cut
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.offline import (
    Catalog,
    bases_in,
    must_be_ours,
    read_catalog,
    read_index,
    scan_segment,
    segment_file,
    unlocked,
    with_journal,
)
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.storage.partitions.sources import Source, open_while_replaced
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan
from amqp_streams.storage.ports import Chunk
from amqp_streams.storage.verifying import Progress, Verified, findings_of, read_states

__all__ = [
    "DumpedRecord",
    "Progress",
    "Verified",
    "chunks",
    "dump",
    "dump_producers",
    "dump_states",
    "log_names",
    "log_record",
    "verify",
]


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One stored record. `message` is laid out as in `Chunk.messages`: first `header_bytes` of header."""

    partition: int
    number: int
    timestamp_ms: int
    header_bytes: int
    message: bytes
    message_format: int = 0


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
        for finding in findings_of(RealFiles(), path, progress or _ignore, counts):
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
        found = read_catalog(files, path, [])
        logged, indexes = _wanted(found, log, partition)
        for index in indexes:
            entries = found.entries.get((logged.uid, index), [])
            for chunk in _chunks(
                files, path / "logs" / log / str(index), seed=logged.seed(index), entries=entries, start=start
            ):
                later = bisect_right(chunk.timestamps, after_ms) if after_ms is not None else 0
                for position, message in enumerate(chunk.messages[later:], later):
                    if left is not None and left <= 0:
                        return
                    left = None if left is None else left - 1
                    yield DumpedRecord(
                        index,
                        chunk.base + position,
                        chunk.timestamps[position],
                        chunk.header_sizes[position],
                        message,
                        0 if chunk.formats is None else chunk.formats[position],
                    )


def chunks(path: Path, log: str, partition: int, *, start: int = 0) -> Iterator[Chunk]:
    """The records of a partition from number `start` on, in runs; those in the journal included.

    Raises: like `dump`.
    """
    files = RealFiles()
    with unlocked(path, force=False):
        found = read_catalog(files, path, [])
        logged, _ = _wanted(found, log, partition)
        yield from _chunks(
            files,
            path / "logs" / log / str(partition),
            seed=logged.seed(partition),
            entries=found.entries.get((logged.uid, partition), []),
            start=start,
        )


def log_record(path: Path, log: str) -> LogRecord:
    """Name, settings and ids of a log.

    Raises:
        DirectoryLockedError: a node has the directory open.
        KeyError: the log does not exist.
        StorageError: the path is not a data directory, or cannot be read.
    """
    with unlocked(path, force=False):
        return _wanted(read_catalog(RealFiles(), path, []), log, None)[0]


def dump_states(path: Path, *, force: bool = False) -> dict[str, bytes]:
    """The stored states by key: cursors, epochs. Damaged ones are omitted.

    Raises:
        DirectoryLockedError: see `verify`.
        StorageError: the path is not a data directory, or cannot be read.
    """
    with unlocked(path, force=force):
        files = RealFiles()
        return dict(sorted(read_states(files, path, read_catalog(files, path, []), []).items()))


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
        found = read_catalog(files, path, [])
        logged, indexes = _wanted(found, log, partition)
        for index in indexes:
            folder, table, end = path / "logs" / log / str(index), Table(), 0
            for base in bases_in(folder):
                decoded = read_index(segment_path(folder, base), base, logged.seed(index))
                scan = scan_segment(
                    files,
                    segment_file(folder, base),
                    base,
                    logged.seed(index),
                    decoded[2] if decoded else table,
                )
                table, end = scan.producers, max([end, *(stretch.end for stretch in scan.stretches)])
            yield index, with_journal(table, found.entries.get((logged.uid, index), []), end)


def log_names(path: Path) -> list[str]:
    """The names of the logs in a data directory.

    Raises:
        StorageError: the path is not a data directory.
    """
    must_be_ours(path)
    return sorted(entry.name for entry in (path / "logs").iterdir() if entry.is_dir())


def _chunks(
    files: Files, folder: Path, *, seed: int, entries: Sequence[Entry], start: int
) -> Iterator[Chunk]:
    bases = bases_in(folder)
    at = max(start, min(bases, default=0))
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start:
            continue  # the next segment begins at or before the start: nothing of this one is wanted
        file = open_while_replaced(files, segment_file(folder, base), base, seed)
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


def _segment_chunks(file: Source, base: int, seed: int) -> Iterator[Chunk]:
    size = file.size()
    scan = recovery.scan(file.read, size, seed=seed, into=Scan(size), expected=base)
    for position, until in pairwise([*scan.index.positions, scan.until]):
        for batch in recovery.batches_in(
            file.read(until - position, position), seed=seed, base_position=position
        )[0]:
            yield batch.all()


def _wanted(found: Catalog, log: str, partition: int | None) -> tuple[LogRecord, Sequence[int]]:
    logged = next((one for one in found.logs if one.name == log), None)
    if logged is None or (partition is not None and not 0 <= partition < logged.settings.partitions):
        raise KeyError(log if logged is None else partition)
    return logged, range(logged.settings.partitions) if partition is None else [partition]


def _ignore(done: int, total: int) -> None:
    """Used if the caller wants no progress."""
