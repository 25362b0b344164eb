"""[io] The segments of a backup folder: each is a prefix of a segment of the node, and only grows.

Laws: bytes that a backup needs are never changed. What was appended is synced and read back, and its CRC and
the CRC of each batch are checked, before a backup names it. What a killed backup appended is used again, if
it agrees with the node's file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from amqp_streams.storage.backups.folder import SEGMENT, SEGMENTS, Folder, crc_of
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.disk.files import OpenFile
from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.storage.formats.manifest import Key, Piece
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.sources import Source
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.backup import Seen, is_same
from amqp_streams.storage.plans.recovery import Scan

_BLOCK_BYTES: Final = 1 << 20
_SYNC_BYTES: Final = 1 << 20
"""More unsynced bytes would make a node on the same disk wait longer for its own syncs."""
_COMPARED_BYTES: Final = 64 << 10
"""Histories that differ never have the same last batch: its timestamps and its CRC differ."""


class Spot(NamedTuple):
    """A partition: where its segments are in the folder, and the seed of its CRCs."""

    key: Key
    seed: int


@dataclass(frozen=True, slots=True)
class Brought:
    """A segment that was copied. `fault`: why the rest of the node's file cannot be read."""

    piece: Piece
    fault: str | None = None


class _Copied(NamedTuple):
    """How far a file was copied, and the CRC of its bytes. `fault`: why the source cannot be read further."""

    position: int
    crc: int
    fault: str | None = None


class Pool:
    """The segments. `known`: see `plans.backup.latest`. `copied` is called with the bytes of each step."""

    def __init__(
        self,
        folder: Folder,
        known: Mapping[tuple[Key, int], Piece],
        *,
        pace: Pace,
        copied: Callable[[int], None],
    ) -> None:
        self._files: Final = folder.files
        self._folder: Final = folder
        self._known: Final = known
        self._durable: Final = {key for (key, _), piece in known.items() if piece.bytes}
        self._pace: Final = pace
        self._copied: Final = copied
        self._listed: dict[Path, set[str]] = {}

    def path(self, key: Key, base: int, version: int) -> Path:
        """The path of a segment."""
        return segment_file(self._folder.root, key, base, version)

    def missing(self, key: Key, seen: Seen) -> int:
        """About how many bytes of a segment must be copied."""
        known = self._known.get((key, seen.base))
        return seen.size - (known.bytes if known and known.bytes <= seen.size else 0)

    def bring(self, source: Source, seen: Seen, spot: Spot) -> Brought:
        """Make the folder have the whole batches of the first `seen.size` bytes of a segment.

        Raises:
            OSError: a disk failed, or the folder's disk is full.
        """
        known = self._known.get((spot.key, seen.base))
        names = self._names(spot.key)
        if known and is_same(seen, known, self._size(spot.key, known, names)):
            return Brought(known)
        if not seen.size:
            # The name of an empty segment is its base. It needs no file.
            return Brought(Piece(seen.base, known.version if known else 1, 0, 0, seen.base, 0))
        begun = self._begin(source, seen, spot, names)
        path = self.path(spot.key, begun.base, begun.version)
        target = OpenFile(self._files, path, create=True)
        copied = self._copy(source, target, begun, seen.size)
        if target.size() > copied.position:
            target.truncate(copied.position)
        target.sync()
        if known is None or known.version != begun.version or not known.bytes:
            # Also if the file exists: a killed backup may have created it, and not synced its name.
            self._files.fsync_dir(path.parent)
            names.add(path.name)
        return Brought(self._checked(target, begun, seen, copied, spot.seed), copied.fault)

    def producers(self, piece: Piece, spot: Spot, position: int, expected: int, table: Table) -> Table:
        """The table of producers after a piece, from the table before its batch at `position`."""
        file = OpenFile(self._files, self.path(spot.key, piece.base, piece.version))
        scan = Scan(piece.bytes, producers=dict(table))
        recovery.scan(file.read, piece.bytes, seed=spot.seed, into=scan, expected=expected, position=position)
        return scan.producers

    # -- inside

    def _names(self, key: Key) -> set[str]:
        folder = self.path(key, 0, 0).parent
        if folder not in self._listed:
            for path in (folder.parent, folder):
                self._files.mkdir(path)
                if key not in self._durable:
                    self._files.fsync_dir(path.parent)
            self._listed[folder] = {name for name in self._files.listdir(folder) if SEGMENT.fullmatch(name)}
        return self._listed[folder]

    def _size(self, key: Key, piece: Piece, names: set[str]) -> int:
        path = self.path(key, piece.base, piece.version)
        return OpenFile(self._files, path).size() if path.name in names else 0

    def _begin(self, source: Source, seen: Seen, spot: Spot, names: set[str]) -> Piece:
        """What the folder has of this segment: where the copy continues. Bytes 0: it begins."""
        prefix = f"{seen.base:016d}-"
        versions = [int(name[len(prefix) : -4]) for name in names if name.startswith(prefix)]
        known = self._known.get((spot.key, seen.base))
        version = max([known.version if known else 1, *versions])
        stored = (
            known if known and known.version == version else Piece(seen.base, version, 0, 0, seen.base, 0)
        )
        size = self._size(spot.key, stored, names)
        if size < stored.bytes:
            # The folder lost bytes that a backup needs. Later backups get a file of their own.
            return Piece(seen.base, version + 1, 0, 0, seen.base, 0)
        if not size:
            return stored
        target = OpenFile(self._files, self.path(spot.key, seen.base, version))
        for begun in (self._continued(target, stored, min(size, seen.size), spot.seed), stored):
            if begun.bytes <= seen.size and _agree(source, target, begun.bytes):
                return begun
        return Piece(seen.base, version + 1, 0, 0, seen.base, 0)

    def _continued(self, target: OpenFile, stored: Piece, size: int, seed: int) -> Piece:
        """With the whole batches that a killed backup appended."""
        if size <= stored.bytes:
            return stored
        scan = Scan(size, last_timestamp_ms=stored.last_ms)
        recovery.scan(target.read, size, seed=seed, into=scan, expected=stored.end, position=stored.bytes)
        self._pace(size - stored.bytes)
        if scan.damage or not scan.stretches:
            return stored
        crc = crc_of(target, scan.until, stored.crc, stored.bytes)
        end = scan.stretches[-1].end
        last_ms = scan.last_timestamp_ms
        return Piece(stored.base, stored.version, scan.until, crc, end, last_ms, stored.lost)

    def _copy(self, source: Source, target: OpenFile, begun: Piece, size: int) -> _Copied:
        """Append the source's bytes up to `size`."""
        position, crc, unsynced = begun.bytes, begun.crc, 0
        self._folder.has_room()
        while position < size:
            count = min(_BLOCK_BYTES, size - position)
            cached = source.is_cached(count, position)
            try:
                data = source.read(count, position)
            except OSError as error:
                # A bad sector costs what is after it in this segment, not the backup.
                fault = f"cannot be read from byte {position} on: {error.strerror or error}"
                return _Copied(position, crc, fault)
            if not data:
                break  # recovery cut the file, or a failed write was undone
            if cached is False:
                # Only what the copy itself has brought into the cache: readers of the node may use the rest.
                source.wont_need(len(data), position)
            self._pace(len(data))
            target.write([data], position)
            crc, position, unsynced = crc32(data, crc), position + len(data), unsynced + len(data)
            self._copied(len(data))
            if unsynced >= _SYNC_BYTES:
                target.sync()
                self._folder.has_room()
                unsynced = 0
        return _Copied(position, crc)

    def _checked(self, target: OpenFile, begun: Piece, seen: Seen, copied: _Copied, seed: int) -> Piece:
        """Read back what was appended, from the disk if the system allows it."""
        position, crc, _ = copied
        target.wont_need(position - begun.bytes, begun.bytes)
        if crc_of(target, position, begun.crc, begun.bytes) != crc:
            raise OSError(5, "the file has other bytes than were written to it", str(target.path))
        scan = Scan(position, last_timestamp_ms=begun.last_ms)
        recovery.scan(target.read, position, seed=seed, into=scan, expected=begun.end, position=begun.bytes)
        until = scan.until or begun.bytes
        if until < position:
            target.truncate(until)
            target.sync()
            crc = crc_of(target, until, begun.crc, begun.bytes)
        target.wont_need(position - begun.bytes, begun.bytes)
        end = scan.stretches[-1].end if scan.stretches else begun.end
        last_ms = scan.last_timestamp_ms
        # A file that was not whole gets no stamp that a later backup could trust.
        stamp = (*seen.stamp, seen.size) if until == seen.size else (0, 0, 0)
        lost = begun.lost + sum(each.after - each.first for each in scan.damage)
        return Piece(begun.base, begun.version, until, crc, end, last_ms, lost, stamp)


def segment_file(root: Path, key: Key, base: int, version: int) -> Path:
    """The path of a segment in the backup folder `root`."""
    uid, partition = key
    return root / SEGMENTS / f"{uid:016x}" / str(partition) / f"{base:016d}-{version}.log"


def _agree(source: Source, target: OpenFile, until: int) -> bool:
    """Whether both files have the same bytes before `until`."""
    count = min(_COMPARED_BYTES, until)
    data = source.read(count, until - count)
    return len(data) == count and data == target.read(count, until - count)
