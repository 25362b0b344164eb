"""[io] Reading segments: caches of open files and of decoded batches and indexes, both bounded."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.storage.disk.files import Files, OpenFile, read_file
from amqp_streams.storage.disk.work import Executor
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats.index import Index
from amqp_streams.storage.formats.record import Batch
from amqp_streams.storage.partitions.fetching import Fetch, Fetching
from amqp_streams.storage.partitions.sources import COMPRESSED_SUFFIX, Blocks, CompressedFile, Source
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.ports import LATER, Later, ReadRequest, Use

# Memory of an entry in addition to its bytes: many small entries must count as well.
_ENTRY_BYTES: Final = 256
_Key = tuple[Path, int, int, int]
"""Path, seed, position, until.

The seed is needed because a deleted log of the same name had the same paths.
"""
Stretch = tuple[list[Batch], list[recovery.Damage]]
_AHEAD_BYTES: Final = 1 << 20
"""How many bytes the system is asked to read behind a stretch that was not in its cache: readers go on there,
and then find the next stretches in the cache.
"""
_INDEX_BYTES: Final = 1 << 20
"""The most bytes of an index, about: it has 24 bytes for 16 KiB of its segment."""


class Reading:
    """The read caches of a store, shared by all its partitions."""

    def __init__(self, files: Files, *, cache_bytes: int, open_files: int, blocks_bytes: int) -> None:
        self.files: Final = files
        self._blocks: Final = Blocks(blocks_bytes)
        self._cache_bytes: Final = cache_bytes
        self._open_files: Final = open_files
        self._open: OrderedDict[Path, OpenFile | CompressedFile] = OrderedDict()
        self._cache: OrderedDict[_Key, tuple[int, Stretch | Index]] = OrderedDict()
        self._cached = 0
        self._fetching: Fetching | None = None

    def read_with(self, thread: Callable[[int], Executor]) -> None:
        """Read in threads what is not in the system's cache, if the reader can wait.

        `thread`: see `Fetching`.
        """
        self._fetching = Fetching(thread)

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return {
            "storage_cache_bytes": Use(self._cached, self._cache_bytes),
            "storage_block_bytes": Use(self._blocks.bytes, self._blocks.bytes_max),
            "storage_open_files": Use(len(self._open), self._open_files),
            **(self._fetching.uses() if self._fetching else {}),
        }

    def file(self, path: Path, *, create: bool = False) -> OpenFile:
        """The file, open for reading and writing. It stays open while the caller keeps the object."""
        file = self._open.get(path)
        if file is None:
            file = OpenFile(self.files, path, create=create, write=True)
            self.keep(file)
        else:
            self._open.move_to_end(path)
        assert isinstance(file, OpenFile), "only segments that are not compressed are written and synced"
        return file

    def source(self, path: Path, base: int, seed: int) -> Source:
        """The bytes of a segment. They stay readable while the caller keeps the object."""
        if path.suffix != COMPRESSED_SUFFIX:
            return self.file(path)
        file = self._open.get(path)
        if file is None:
            file = CompressedFile(self.files, path, base, seed, self._blocks)
            self.keep(file)
        else:
            self._open.move_to_end(path)
        return file

    def keep(self, file: OpenFile | CompressedFile) -> None:
        """Keep a file that was just opened."""
        self._open[file.path] = file
        if len(self._open) > self._open_files:
            # A read that still has the file keeps it open: see `OpenFile`.
            self._open.popitem(last=False)

    def forget(self, *paths: Path) -> None:
        """Drop files that will be removed from both caches."""
        for path in paths:
            self._open.pop(path, None)
        # Searches the whole cache once: only retention and deletion call this.
        gone = frozenset(paths)
        for key in [key for key in self._cache if key[0] in gone]:
            self._cached -= self._cache.pop(key)[0]

    def close(self) -> None:
        """End the threads, close all files and empty the caches."""
        if self._fetching is not None:
            self._fetching.stop()
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._cache.clear()
        self._cached = 0

    def batches(
        self,
        path: Path,
        base: int,
        seed: int,
        extent: tuple[int, int],
        request: ReadRequest | None = None,
        *,
        recent: bool = True,
    ) -> Stretch | Later:
        """All batches of a segment in an extent, checked and decoded, and the damage among them.

        `LATER` only with a request, see `Partition.read`. `recent`: the bytes are probably in the system's
        cache, which counts if the system does not tell.

        Raises:
            OSError: the disk failed.
        """
        position, until = extent
        key = (path, seed, position, until)
        found = self._get(key)
        if found is None:
            file, size = self.source(path, base, seed), until - position
            if request is not None:
                # Without `until`: the last stretch of the active segment grows with each write. A reader
                # whose read has ended must not wait for the new bytes, which are in the system's cache.
                asked = key[:3]
                if _asks(request, asked) or not _is_cached(file, size, position, recent=recent):
                    load = partial(_read_cold, file, size, position)
                    if self._must_wait(Fetch(request, asked, size, load, partial(self._decode, key))):
                        return LATER
                    found = self._get(key)
            # What a thread has read may have left the cache again: then it is read here, so that the reader
            # gets on.
            found = found or self._decode(key, file.read(size, position))
        if request is not None:
            request.cancel()  # what it asked for is here
        assert isinstance(found, tuple)
        return found

    def _decode(self, key: _Key, buffer: bytes) -> Stretch:
        _, seed, position, until = key
        batches, damage = recovery.batches_in(buffer, seed=seed, base_position=position)
        # The file is shorter than its index says: it was cut.
        if len(buffer) < until - position:
            damage.append(recovery.Damage(position + len(buffer), until, 0, 0))
        self._put(key, len(buffer), (batches, damage))
        return batches, damage

    def index(self, path: Path, base: int, seed: int, request: ReadRequest | None = None) -> Index | Later:
        """The index of a closed segment, from its index file or by scanning the segment.

        `LATER` only with a request, see `Partition.read`.

        Raises:
            OSError: the disk failed.
        """
        key = (path, seed, -1, -1)
        found = self._get(key)
        if found is None:
            load = partial(self._load_index, self.source(path, base, seed), path, base, seed)
            # Rare: once for a segment. Its index is seldom in the system's cache. If the records that a
            # reader waited for drove the index out, the index is read here: otherwise each would drive out
            # the other again and again.
            if request is not None and not _has_waited_for_records(request, path, seed):
                if self._must_wait(
                    Fetch(request, key[:3], _INDEX_BYTES, load, partial(self._keep_index, key))
                ):
                    return LATER
                found = self._get(key)
            found = found or self._keep_index(key, load())
        assert isinstance(found, Index)
        return found

    def _keep_index(self, key: _Key, index: Index) -> Index:
        self._put(key, 24 * len(index.bases), index)
        return index

    def _must_wait(self, fetch: Fetch) -> bool:
        """Begin a read, unless its request waits for the same one already. Returns whether it has not ended.

        Raises:
            OSError: the read failed.
        """
        if self._fetching is None:
            return False
        pending = _asks(fetch.request, fetch.key)
        if pending is None:
            pending = fetch
            self._fetching.begin(fetch)
        if not pending.ended:
            return True
        fetch.request.pending = None
        if pending.error is not None:
            raise pending.error
        return False

    def _load_index(self, file: Source, path: Path, base: int, seed: int) -> Index:
        """May run in a thread: it changes nothing of this object."""
        try:
            decoded = index_file.decode(read_file(self.files, path.with_suffix(".idx")), base, seed)
        except FileNotFoundError:
            decoded = None
        if decoded is not None:
            return decoded[1]
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
        # Two readers may have waited for the same stretch.
        self._cached -= self._cache.pop(key, (0, None))[0]
        self._cache[key] = (size, value)
        self._cached += size
        # The last entry stays: without it, a stretch larger than the cache would be decoded for each read.
        while self._cached > self._cache_bytes and len(self._cache) > 1:
            self._cached -= self._cache.popitem(last=False)[1][0]


def _asks(request: ReadRequest, key: Hashable) -> Fetch | None:
    """The read of this key that the request has begun."""
    pending = request.pending
    return pending if isinstance(pending, Fetch) and pending.key == key else None


def _has_waited_for_records(request: ReadRequest, path: Path, seed: int) -> bool:
    """Whether the last read of the request has ended and was one of records of this segment."""
    pending = request.pending
    if not isinstance(pending, Fetch) or not pending.ended:
        return False
    return isinstance(pending.key, tuple) and pending.key[:2] == (path, seed) and pending.key[2] >= 0


def _read_cold(file: Source, count: int, position: int) -> bytes:
    """Read bytes, and ask the system to read those behind them."""
    data = file.read(count, position)
    file.will_need(_AHEAD_BYTES, position + count)
    return data


def _is_cached(file: Source, count: int, position: int, *, recent: bool) -> bool:
    cached = file.is_cached(count, position)
    return recent if cached is None else cached
