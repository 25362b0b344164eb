"""[io] The checks of `verify`: every CRC, the order of numbers and times, indexes, journal and checkpoint.

Never writes.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from time import time

from amqp_streams.errors import StorageError
from amqp_streams.storage import states
from amqp_streams.storage.catalog import LogRecord
from amqp_streams.storage.commits.journal import Entry
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.offline import (
    Catalog,
    bases_in,
    read_catalog,
    read_index,
    scan_segment,
    segment_file,
    with_journal,
)
from amqp_streams.storage.opening import bounds_of
from amqp_streams.storage.partitions.sources import COMPRESSED_SUFFIX, SEGMENT_SUFFIXES, CompressedFile
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan
from amqp_streams.storage.plans.retention import AHEAD_MS

Progress = Callable[[int, int], None]
"""Called from time to time with the bytes of segments checked so far, and the bytes of all segments."""


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


def findings_of(files: Files, root: Path, progress: Progress, counts: Verified) -> Iterator[Finding]:
    """Check the whole directory and fill `counts`; yields each problem."""
    findings: list[Finding] = []
    found = read_catalog(files, root, findings)
    counts.states = len(read_states(files, root, found, findings))
    yield from findings
    files_of_segments = [path for path in (root / "logs").glob("*/*/*") if path.suffix in SEGMENT_SUFFIXES]
    total, known = sum(map(_bytes_of, files_of_segments)), found.checkpoint
    for log in found.logs:
        counts.logs += 1
        for index in range(log.settings.partitions):
            counts.partitions += 1
            bounds = bounds_of(log, index, known, found.ends)
            entries = found.entries.get((log.uid, index), [])
            for finding in _verify_partition(
                files, root, log, index, bounds=bounds, entries=entries, counts=counts
            ):
                yield finding
                progress(counts.bytes, total)
            progress(counts.bytes, total)
    for name in sorted(set(known.logs) - {log.name for log in found.logs}) if known else ():
        yield Finding(Severity.DAMAGE, f"logs/{name}", None, "the log's folder is missing")


def read_states(files: Files, root: Path, found: Catalog, findings: list[Finding]) -> dict[str, bytes]:
    """The stored states by key; adds a finding for each problem."""
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


@dataclass(slots=True)
class _Extent:
    """What the segments of a partition have, as far as they were checked."""

    producers: Table = field(default_factory=dict)
    last_ms: int = 0
    stretches: list[recovery.Stretch] = field(default_factory=list)


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
    bases = bases_in(folder)
    extent = _Extent()
    for base in bases:
        path = segment_file(folder, base)
        yield from _verify_segment(
            files, root, path, base, log.seed(index), is_last=base == bases[-1], extent=extent, counts=counts
        )
    stretches, expected = extent.stretches, bounds[0]
    counts.producers += len(with_journal(extent.producers, entries, stretches[-1].end if stretches else 0))
    journal = [(entry.base, entry.end) for entry in entries]
    plan = recovery.plan(
        stretches, journal, base=expected if not bases else max(expected, min(bases)), end_at_least=bounds[1]
    )
    counts.records += sum(
        piece.after - piece.first for piece in plan.pieces if isinstance(piece, recovery.Replay)
    )
    relative = str(folder.relative_to(root))
    if bases and bases[0] > expected:
        yield Finding(Severity.DAMAGE, relative, None, f"records {expected} to {bases[0] - 1} are missing")
    ahead_ms = extent.last_ms - int(time() * 1000)
    if ahead_ms > AHEAD_MS:
        words = (
            f"its last timestamp is {ahead_ms // 1000} s ahead of the clock: the timestamp or the clock is"
            " wrong (docs/operations.md, timestamps_ahead)"
        )
        yield Finding(Severity.NOTE, relative, None, words)
    for first, after in plan.lost:
        words = f"records {first} to {after - 1} are damaged or missing"
        yield Finding(Severity.DAMAGE, relative, None, words)


def _verify_segment(
    files: Files,
    root: Path,
    path: Path,
    base: int,
    seed: int,
    *,
    is_last: bool,
    extent: _Extent,
    counts: Verified,
) -> Iterator[Finding]:
    """Check one segment with its index, and add what it has to `extent` and `counts`."""
    relative = str(path.relative_to(root))
    decoded = read_index(path, base, seed)
    scan = scan_segment(files, path, base, seed, decoded[2] if decoded else extent.producers)
    extent.producers = scan.producers
    counts.segments += 1
    counts.bytes += _bytes_of(path)
    if path.suffix == COMPRESSED_SUFFIX:
        for words in CompressedFile(files, path, base, seed).faults():
            yield Finding(Severity.WARNING, relative, None, words)
    counts.records += sum(stretch.end - stretch.base for stretch in scan.stretches)
    for damage in scan.damage:
        words = (
            f"{damage.until - damage.position} bytes are not valid records; "
            f"records {damage.first} to {damage.after - 1} should be there"
        )
        yield Finding(Severity.DAMAGE, relative, damage.position, words)
    if scan.until < scan.size:
        # Bytes that the index covers were synced: if they are damaged, it is not a torn tail.
        torn = is_last and scan.until >= (decoded[0].bytes if decoded else 0)
        words = "the bytes at the end are not whole records" + (
            "; the next start cuts them off" if torn else ""
        )
        yield Finding(Severity.NOTE if torn else Severity.DAMAGE, relative, scan.until, words)
    if scan.stretches and scan.first_timestamp_ms < extent.last_ms:
        yield Finding(Severity.DAMAGE, relative, 0, "its first record is older than the record before it")
    extent.last_ms = max(extent.last_ms, scan.last_timestamp_ms)
    yield from _verify_index(path, relative, decoded, scan)
    extent.stretches += scan.stretches


def _verify_index(
    path: Path, relative: str, decoded: index_file.Decoded | None, scan: Scan
) -> Iterator[Finding]:
    name = str(PurePath(relative).with_suffix(".idx"))
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


def _bytes_of(path: Path) -> int:
    # With `force`, a node may compress or remove it meanwhile.
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _sequences(table: Table) -> dict[str, int]:
    return {producer: reached.sequence for producer, reached in table.items()}
