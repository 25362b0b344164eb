"""[io] Recovers a partition when the store opens, by the plan of `recovery.plan`.

Law: a second crash at any point is harmless: the journal is reused only after everything here is synced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from amqp_streams.storage.commits.journal import Entry
from amqp_streams.storage.disk.files import Files, OpenFile, read_file, replace_file
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import producers, record
from amqp_streams.storage.formats.chunks import cut, part
from amqp_streams.storage.formats.index import Decoded
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.segment import Segment, segment_path
from amqp_streams.storage.partitions.sources import (
    COMPRESSED_SUFFIX,
    SEGMENT_SUFFIXES,
    UNFINISHED_SUFFIX,
    CompressedFile,
    Source,
    open_source,
)
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Keep, Replay, Scan, Stretch
from amqp_streams.storage.ports import Chunk

_COPY_BYTES: Final = 4 << 20
_NAME_DIGITS: Final = 16
_SUFFIXES: Final = SEGMENT_SUFFIXES | {".idx", ".start"}


@dataclass(slots=True, eq=False)
class Restored:
    """A recovered partition: its segments, the numbers of its first and next record, its producers."""

    row: list[Segment]
    start: int
    end: int
    producers: Table


class PartitionRestorer:
    """Recovers one partition's folder. `bounds`: start and end at the last checkpoint."""

    def __init__(
        self,
        files: Files,
        root: Path,
        folder: Path,
        *,
        seed: int,
        bounds: tuple[int, int],
        entries: Sequence[Entry],
    ) -> None:
        self._files: Final = files
        self._root: Final = root
        self._folder: Final = folder
        self._seed: Final = seed
        self._bounds = bounds
        self._entries: Final = entries
        self.findings: Final[list[Finding]] = []
        """What was found, in the order in which it was found."""
        self._paths: Final[dict[int, Path]] = {}
        """By base, the file of each segment that is read."""
        self._others: Final[dict[int, Path]] = {}
        """By base, the other file of a segment, if it has both."""
        self._producers: Table = {}
        """The table of producers up to the segment read last."""

    def restore(self) -> Restored:
        """Recover the partition.

        Raises:
            OSError: the disk failed.
        """
        bases = self._bases()
        # After the look at the folder: it may have a later start.
        start, end = self._bounds
        if bases and bases[0] > start:
            words = f"records {start} to {bases[0] - 1} are lost: their files are missing"
            self._report(bases[0], None, words)
        row = [self._closed(base, following) for base, following in pairwise(bases)]
        if bases and self._paths[bases[-1]].suffix == COMPRESSED_SUFFIX:
            # The segment after it was empty, or is lost. A compressed segment is never written.
            found = self._read_index(self._paths[bases[-1]], bases[-1])
            reached = found.coverage.end if found else None
            row.append(self._closed(bases[-1], reached))
            active, end = self._active(max(row[-1].end, reached or 0), exists=False, end_at_least=end)
            return Restored([*row, active], start, end, self._producers)
        first = bases[-1] if bases else max(start, min((entry.base for entry in self._entries), default=end))
        if not bases and first > start:
            self._report(first, None, f"records {start} to {first - 1} are lost: their files are missing")
        active, end = self._active(first, exists=bool(bases), end_at_least=end)
        return Restored([*row, active], start, end, self._producers)

    def _bases(self) -> list[int]:
        """Return the base offsets of the segments in the folder, beginning with the earliest retained one."""
        if not self._files.is_dir(self._folder):
            self._files.mkdir(self._folder)
            self._files.fsync_dir(self._folder.parent)
            self._add_finding(
                Severity.WARNING, self._folder, None, "the partition's folder was missing; recreated"
            )
        names = self._files.listdir(self._folder)
        for name in names:
            stem, _, suffix = name.partition(".")
            # What was being written was not in use.
            if suffix.endswith("tmp") or name.endswith(UNFINISHED_SUFFIX):
                self._files.unlink(self._folder / name)
            elif len(stem) != _NAME_DIGITS or not stem.isdecimal() or f".{suffix}" not in _SUFFIXES:
                self._add_finding(
                    Severity.WARNING, self._folder / name, None, "is not a file of the store; ignored"
                )
            elif f".{suffix}" in SEGMENT_SUFFIXES:
                self._add(int(stem), self._folder / name)
            elif suffix == "start":
                self._take_start(int(stem), self._folder / name)
            elif not any(stem + each in names for each in SEGMENT_SUFFIXES):
                # Retention removes a segment before its index, and was interrupted in between.
                self._files.unlink(self._folder / name)
        bases = self._retained()
        # The name of the segment before an empty one may be lost too: names that are not synced survive a
        # power loss independently of each other.
        written = recovery.with_records(bases, self._size, start=self._bounds[0])
        for base in bases[len(written) :]:
            path = segment_path(self._folder, base)
            self._files.unlink(path)
            if path.with_suffix(".idx").name in names:
                self._files.unlink(path.with_suffix(".idx"))
        return written

    def _retained(self) -> list[int]:
        """Remove what retention was about to remove, and choose the files of the others; returns these."""
        bases = list(self._paths)
        old = [base for base, following in pairwise(bases) if following <= self._bounds[0]]
        for base in old:  # the checkpoint has the new start
            for path in filter(None, (self._paths[base], self._others.get(base))):
                self._files.unlink(path)
        for base in bases[len(old) :]:
            if base in self._others:
                self._choose(base)
        return bases[len(old) :]

    def _add(self, base: int, path: Path) -> None:
        """Add a file of a segment. Names come in order, so that of an uncompressed segment is first."""
        if base in self._paths:
            self._others[base] = path
        else:
            self._paths[base] = path

    def _choose(self, base: int) -> None:
        """Choose one of the two files of a segment: the node ended when it had compressed the segment.

        The uncompressed file is used, unless it is shorter and the compressed one is certainly whole.
        """
        plain, packed = self._paths[base], self._others[base]
        size = OpenFile(self._files, plain).size()
        file = CompressedFile(self._files, packed, base, self._seed)
        if size >= file.size():
            self._files.unlink(packed)
            # Records may be added to the other file: a power loss must not bring this one back.
            self._files.fsync_dir(self._folder)
            del self._others[base]
            return
        into = Scan(file.size())
        scan = recovery.scan(file.read, file.size(), seed=self._seed, into=into, expected=base)
        if len(scan.stretches) == 1 and not scan.damage and scan.until == scan.size:
            self._paths[base], self._others[base] = packed, plain
        # Nothing is removed: the other file goes with the segment.

    def _size(self, base: int) -> int:
        path = self._paths[base]
        # A compressed segment has records, also if its file is damaged.
        return 1 if path.suffix == COMPRESSED_SUFFIX else OpenFile(self._files, path).size()

    def _take_start(self, start: int, path: Path) -> None:
        """Retention removed all records before `start`, perhaps without a checkpoint: see `removing`."""
        known, end = self._bounds
        if start <= known:
            self._files.unlink(path)
        else:
            self._bounds = start, max(start, end)

    def _closed(self, base: int, following: int | None) -> Segment:
        """A closed segment; `following`: the number of the next segment's first record, if it is known."""
        path = self._paths[base]
        file = open_source(self._files, path, base, self._seed)
        size = file.size()
        found = self._read_index(path, base)
        if found is not None:
            self._producers = found.producers
        # The index covers the whole file and was written after a sync: no scan is needed.
        if found is not None and found.coverage.bytes == size:
            cover = found.coverage
            segment = Segment(
                path,
                base,
                cover.end,
                size,
                cover.first_timestamp_ms,
                cover.last_timestamp_ms,
                covered=size,
                exists=True,
            )
            segment.saved = True
        else:
            segment = self._scan_closed(file, base, had_index=found is not None)
        segment.stored = file.file_bytes() if isinstance(file, CompressedFile) else None
        segment.other = self._others.get(base)
        if following is not None and segment.end != following:
            words = f"records {segment.end} to {following - 1} are lost: their file is missing or was cut"
            self._report(segment.base, segment.bytes, words)
        return segment

    def _scan_closed(self, file: Source, base: int, *, had_index: bool) -> Segment:
        path = file.path
        into = Scan(file.size(), producers=self._producers)
        scan = recovery.scan(file.read, file.size(), seed=self._seed, into=into, expected=base)
        self._report_damage(path, scan)
        if scan.until < scan.size:
            self._report(base, scan.until, f"{scan.size - scan.until} bytes at its end are not valid records")
        if not had_index:
            self._add_finding(
                Severity.NOTE, path.with_suffix(".idx"), None, "was missing, outdated or damaged; recreated"
            )
        segment = self._segment(path, base, scan)
        # Bytes after the last batch stay where they are: nothing is appended to a closed segment.
        segment.bytes = scan.size if scan.stretches else 0
        # A compressed file was synced before it got its name.
        if path.suffix != COMPRESSED_SUFFIX:
            self._write_again(path, 0, segment.bytes)
        self._write_index(segment)
        return segment

    def _active(self, base: int, *, exists: bool, end_at_least: int) -> tuple[Segment, int]:
        path = segment_path(self._folder, base)
        if not (exists or base or end_at_least or self._entries):
            return Segment(path, 0, 0), 0  # nothing was ever written
        file = OpenFile(self._files, path, create=True)
        found = self._read_index(path, base)
        if found is not None:
            self._producers = found.producers
        scan = self._scan_active(file, base, found)
        # An index is written after a sync: what it covers was durable, even if the checkpoint is older.
        end_at_least = max(end_at_least, found.coverage.end if found else 0)
        plan = recovery.plan(
            scan.stretches,
            [(part.base, part.end) for part in self._entries],
            base=base,
            end_at_least=end_at_least,
        )
        kept = [piece for piece in plan.pieces if isinstance(piece, Keep)]
        until = kept[-1].until if kept else 0
        if plan.rewrite:
            self._rewrite(path, file, plan.pieces)
        else:
            if until < scan.size:
                words = (
                    f"{scan.size - until} bytes after the last whole batch were cut off: "
                    "their records were not accepted, or the journal has them"
                )
                self._add_finding(Severity.NOTE, path, until, words)
                file.truncate(until)
            self._append(file, until, [piece for piece in plan.pieces if isinstance(piece, Replay)])
        self._report_damage(path, scan, unrecovered=plan.lost)
        for first, after in plan.lost:
            words = f"records {first} to {after - 1} are damaged or missing; reading them fails"
            self._report(base, until, words)
        if not plan.rewrite and until == scan.size and exists and len(kept) == len(plan.pieces):
            segment = self._segment(path, base, scan)
            segment.exists = True
        else:
            file = OpenFile(self._files, path, write=True)
            file.sync()
            self._files.fsync_dir(self._folder)
            # What the index covers stays where it is, unless the file is written again. This scan reads some
            # batches a second time. That does no harm: the latest entry of a producer wins.
            cover = None if plan.rewrite else self._read_index(path, base)
            segment = self._segment(path, base, self._scan_active(file, base, cover))
            segment.exists = True
        segment.saved = found is not None
        segment.end = plan.end if not segment.bytes else segment.end
        if segment.bytes and segment.covered != segment.bytes:
            known = 0 if found is None else found.coverage.bytes
            self._write_again(path, segment.bytes if plan.rewrite else known, segment.bytes)
            self._write_index(segment)
        return segment, plan.end

    def _write_again(self, path: Path, first: int, until: int) -> None:
        """Make durable what was only read: write the same bytes again at the same position, and sync.

        After a failed sync, the operating system may keep bytes in its cache that it does not write to the
        disk, so a second sync would not help. A torn write is harmless here, because the bytes do not change.
        """
        file = OpenFile(self._files, path, write=True)
        for at in range(first, until, _COPY_BYTES):
            file.write([file.read(min(_COPY_BYTES, until - at), at)], at)
        file.sync()

    def _scan_active(self, file: OpenFile, base: int, found: Decoded | None) -> Scan:
        """Scan only what the index does not cover: the rest was synced before the index was written."""
        size = file.size()
        scan = Scan(size, producers=self._producers)
        if found is None or not 0 < found.coverage.bytes <= size:
            return recovery.scan(file.read, size, seed=self._seed, into=scan, expected=base)
        cover = found.coverage
        scan.index = found.sparse
        scan.stretches.append(Stretch(0, cover.bytes, base, cover.end))
        scan.first_timestamp_ms, scan.last_timestamp_ms = cover.first_timestamp_ms, cover.last_timestamp_ms
        return recovery.scan(
            file.read, size, seed=self._seed, into=scan, expected=cover.end, position=cover.bytes
        )

    def _append(self, file: OpenFile, position: int, pieces: Sequence[Replay]) -> None:
        for piece in pieces:
            for chunk in self._replayed(piece):
                buffers = record.encode(chunk, self._seed)
                file.write(buffers, position)
                position += len(buffers[0]) + len(buffers[1])
        if pieces:
            words = f"records {pieces[0].first} to {pieces[-1].after - 1} were written from the journal"
            self._add_finding(Severity.NOTE, file.path, None, words)

    def _rewrite(self, path: Path, old: OpenFile, pieces: Sequence[Keep | Replay]) -> None:
        """Write the segment as a new file, then replace the old file."""
        temporary = path.with_name(path.name + ".tmp")
        new, position = OpenFile(self._files, temporary, create=True), 0
        for piece in pieces:
            if isinstance(piece, Replay):
                self._append(new, position, [piece])
            else:
                for at in range(piece.position, piece.until, _COPY_BYTES):
                    new.write(
                        [old.read(min(_COPY_BYTES, piece.until - at), at)], position + at - piece.position
                    )
            position = new.size()
        # Before the rename, so that the name never leads to an incomplete file.
        new.sync()
        self._files.rename(temporary, path)
        self._files.fsync_dir(self._folder)
        self._add_finding(
            Severity.NOTE, path, None, "was rewritten: records in its middle were only in the journal"
        )

    def _replayed(self, piece: Replay) -> list[Chunk]:
        chunks: list[Chunk] = []
        at = piece.first
        for entry in sorted(self._entries, key=lambda entry: (entry.base, -entry.end)):
            if entry.base <= at < min(entry.end, piece.after):
                data = entry.file.read(entry.length, entry.position)
                head = record.head_at(data, 0)
                batch = record.decode(data, 0, head, self._seed) if head else None
                assert batch is not None, "the journal's record was whole when it was found"
                assert head is not None, "a decoded batch has a head"
                chunk = cut(batch.all(), at, 1 << 62)
                count = min(entry.end, piece.after) - at
                # Keep the whole table of producers: the segment already has the batch's other records.
                marks = producers.marks_again(at, record.entries_at(data, 0, head))
                chunk = part(chunk, 0, count, marks)
                chunks.append(chunk)
                at += len(chunk)
        assert at == piece.after, "the plan takes only what the journal has"
        return chunks

    def _segment(self, path: Path, base: int, scan: Scan) -> Segment:
        end = scan.stretches[-1].end if scan.stretches else base
        return Segment(
            path,
            base,
            end,
            scan.until,
            scan.first_timestamp_ms,
            scan.last_timestamp_ms,
            exists=True,
            index=scan.index,
        )

    def _read_index(self, path: Path, base: int) -> Decoded | None:
        try:
            return index_file.decode(read_file(self._files, path.with_suffix(".idx")), base, self._seed)
        except FileNotFoundError:
            # An index is derived: a scan of the segment writes it anew.
            return None

    def _write_index(self, segment: Segment) -> None:
        if segment.bytes and segment.index:
            data = index_file.encode(segment.coverage(), segment.index, self._seed, self._producers)
            replace_file(self._files, segment.index_path, data, sync=True)
            segment.covered = segment.bytes
            segment.saved = True

    def _report_damage(
        self, path: Path, scan: Scan, unrecovered: Sequence[tuple[int, int]] | None = None
    ) -> None:
        for damage in scan.damage:
            lost = unrecovered is None or any(
                first < damage.after and after > damage.first for first, after in unrecovered
            )
            words = (
                f"{damage.until - damage.position} bytes are not valid records; "
                f"records {damage.first} to {damage.after - 1} should be there"
            )
            if not lost:
                words += ", and were recovered from the journal"
            self._add_finding(Severity.DAMAGE if lost else Severity.NOTE, path, damage.position, words)

    def _report(self, base: int, position: int | None, words: str) -> None:
        self._add_finding(Severity.DAMAGE, segment_path(self._folder, base), position, words)

    def _add_finding(self, severity: Severity, path: Path, position: int | None, words: str) -> None:
        self.findings.append(Finding(severity, str(path.relative_to(self._root)), position, words))
