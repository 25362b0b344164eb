"""[io] Reading segments: caches of open files and of decoded batches and indexes, both bounded."""

from collections import OrderedDict
from pathlib import Path
from typing import Final

from amqp_streams.storage.disk.files import Files, OpenFile, read_file
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats.index import Index
from amqp_streams.storage.formats.record import Batch
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.ports import Use

# Memory of an entry in addition to its bytes: many small entries must count as well.
_ENTRY_BYTES: Final = 256
_Key = tuple[Path, int, int, int]
"""Path, seed, position, until.

The seed is needed because a deleted log of the same name had the same paths.
"""
Stretch = tuple[list[Batch], list[recovery.Damage]]


class Reading:
    """The read caches of a store, shared by all its partitions."""

    def __init__(self, files: Files, *, cache_bytes: int, open_files: int) -> None:
        self.files: Final = files
        self._cache_bytes: Final = cache_bytes
        self._open_files: Final = open_files
        self._open: OrderedDict[Path, OpenFile] = OrderedDict()
        self._cache: OrderedDict[_Key, tuple[int, Stretch | Index]] = OrderedDict()
        self._cached = 0

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return {
            "storage_cache_bytes": Use(self._cached, self._cache_bytes),
            "storage_open_files": Use(len(self._open), self._open_files),
        }

    def file(self, path: Path, *, create: bool = False) -> OpenFile:
        """The file, open for reading and writing. It stays open while the caller keeps the object."""
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = OpenFile(self.files, path, create=create, write=True)
            if len(self._open) > self._open_files:
                # A read that still has the file keeps it open: see `OpenFile`.
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(path)
        return file

    def forget(self, path: Path) -> None:
        """Drop a file that will be removed from both caches."""
        self._open.pop(path, None)
        # Searches the whole cache: only retention and deletion call this.
        for key in [key for key in self._cache if key[0] == path]:
            self._cached -= self._cache.pop(key)[0]

    def close(self) -> None:
        """Close all files and empty the caches."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._cache.clear()
        self._cached = 0

    def batches(self, path: Path, seed: int, position: int, until: int) -> Stretch:
        """All batches of a segment in position..until, checked and decoded, and the damage among them.

        Raises:
            OSError: the disk failed.
        """
        found = self._get((path, seed, position, until))
        if found is None:
            buffer = self.file(path).read(until - position, position)
            batches, damage = recovery.batches_in(buffer, seed=seed, base_position=position)
            # The file is shorter than its index says: it was cut.
            if len(buffer) < until - position:
                damage.append(recovery.Damage(position + len(buffer), until, 0, 0))
            found = (batches, damage)
            self._put((path, seed, position, until), len(buffer), found)
        assert isinstance(found, tuple)
        return found

    def index(self, path: Path, base: int, seed: int) -> Index:
        """The index of a closed segment, from its index file or by scanning the segment.

        Raises:
            OSError: the disk failed.
        """
        found = self._get((path, seed, -1, -1))
        if found is None:
            found = self._load_index(path, base, seed)
            self._put((path, seed, -1, -1), 24 * len(found.bases), found)
        assert isinstance(found, Index)
        return found

    def _load_index(self, path: Path, base: int, seed: int) -> Index:
        try:
            decoded = index_file.decode(read_file(self.files, path.with_suffix(".idx")), base, seed)
        except FileNotFoundError:
            decoded = None
        if decoded is not None:
            return decoded[1]
        file = self.file(path)
        return recovery.scan(
            file.read, file.size(), seed=seed, into=recovery.Scan(file.size()), expected=base
        ).index

    def _get(self, key: _Key) -> Stretch | Index | None:
        found = self._cache.get(key)
        if found is None:
            return None
        self._cache.move_to_end(key)
        return found[1]

    def _put(self, key: _Key, size: int, value: Stretch | Index) -> None:
        size += _ENTRY_BYTES
        self._cache[key] = (size, value)
        self._cached += size
        # The last entry stays: without it, a stretch larger than the cache would be decoded for each read.
        while self._cached > self._cache_bytes and len(self._cache) > 1:
            self._cached -= self._cache.popitem(last=False)[1][0]
