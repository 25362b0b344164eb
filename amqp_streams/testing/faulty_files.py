"""A file system in memory, for `DirectoryStore.open(files=…)`.

It fails on request, and loses unsynced data at a power loss.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePath
from typing import Final, Self

_SECTOR: Final = 512


@dataclass(slots=True, eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, int]] = field(default_factory=list)
    number: int = field(default_factory=count(1).__next__)
    writes: int = 0


@dataclass(slots=True, eq=False)
class _Folder:
    names: dict[str, "_File | _Folder"] = field(default_factory=dict)
    durable: dict[str, "_File | _Folder"] = field(default_factory=dict)


class FaultyFiles:
    """See `storage.files.Files`.

    `fault(operation, path)` is asked before each operation (its name as in `Files`) and may return an errno
    to fail with, 0 to go on, or for `pwritev` -1 for a short write. `space` bounds the bytes of all files.
    `cold` is asked whether bytes that are read are not in the system's cache.
    """

    def __init__(self, *, space: int | None = None) -> None:
        self.space = space
        self.fault: Callable[[str, Path], int] = lambda operation, path: 0  # noqa: ARG005  # no fault
        self.cold: Callable[[], bool] = lambda: False
        self.operations = 0
        self._root = _Folder()
        self._open: dict[int, tuple[Path, _File]] = {}
        self._locked: set[PurePath] = set()
        self._next_fd = 3

    # -- what a test does

    def power_loss(self, rng: random.Random | None = None) -> None:
        """Lose what was not synced.

        All of it, or with `rng` any part of it, sector by sector and name by name.

        Descriptors of open files become invalid, so the process that uses them must have ended.
        """
        self._open.clear()
        self._locked.clear()
        # After the descriptors: a test that continues with an old one gets an error, not old data.
        self._forget(self._root, rng)

    def kill(self) -> None:
        """The process dies, the machine does not: everything written stays."""
        self._open.clear()
        self._locked.clear()

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to look at or to damage."""
        found = self._find(path)
        assert isinstance(found, _File), "it is a file"
        return found.data

    def damage(self, path: Path, change: Callable[[bytearray], None]) -> None:
        """Change a file behind everybody's back, durably."""
        file = self._find(path)
        assert isinstance(file, _File), "it is a file"
        change(file.data)
        # Durable at once: a later power loss must not repair the damage.
        file.durable = bytearray(file.data)
        file.dirty.clear()

    def opened_path(self, fd: int) -> Path:
        """What a descriptor is of."""
        return self._opened(fd)[0]

    def paths(self) -> list[Path]:
        """All files."""
        return [path for path, node in self._walk(Path("/"), self._root) if isinstance(node, _File)]

    # -- what the store does

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:  # noqa: ARG002  # no permissions here
        """See `Files.open`."""
        self._step("open", path)
        folder = self._folder(path.parent)
        found = folder.names.get(path.name)
        if found is None and create:
            # A new file needs space too, as on a full disk.
            if self.space is not None and self._used() >= self.space:
                raise _error(errno.ENOSPC, path)
            found = folder.names[path.name] = _File()
        if not isinstance(found, _File):
            raise _error(errno.EISDIR if found else errno.ENOENT, path)
        self._next_fd += 1
        self._open[self._next_fd] = (path, found)
        return self._next_fd

    def close(self, fd: int) -> None:
        """See `Files.close`."""
        path, _ = self._open.pop(fd, (None, None))
        if path is not None:
            self._locked.discard(path)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See `Files.pwritev`."""
        path, file = self._opened(fd)
        self.operations += 1
        fault = self.fault("pwritev", path)
        data = b"".join(buffers)
        if fault > 0:
            raise _error(fault, path)
        if fault < 0 and len(data) > 1:
            # A short write, which callers must complete.
            data = data[: len(data) // 2]
        growth = max(0, position + len(data) - len(file.data))
        if growth and self.space is not None and (room := self.space - self._used()) < growth:
            data = data[: max(0, len(data) - growth + room)]
            # As `pwritev`: what fits is written, and only then the disk is full.
            if not data:
                raise _error(errno.ENOSPC, path)
        if position > len(file.data):
            # A hole reads as zeros.
            file.data.extend(bytes(position - len(file.data)))
        file.data[position : position + len(data)] = data
        file.dirty.append((position, position + len(data)))
        file.writes += 1
        return len(data)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        """See `Files.pread`."""
        path, file = self._opened(fd)
        self._step("pread", path)
        return bytes(file.data[position : position + count])

    def is_cached(self, fd: int, count: int, position: int) -> bool | None:
        """See `Files.is_cached`."""
        del fd, count, position
        return not self.cold()

    def will_need(self, fd: int, count: int, position: int) -> None:
        """See `Files.will_need`."""

    def wont_need(self, fd: int, count: int, position: int) -> None:
        """See `Files.wont_need`."""

    def fdatasync(self, fd: int) -> None:
        """See `Files.fdatasync`.

        After a failure the data counts as written, as in the kernel: a second try would lie.
        """
        path, file = self._opened(fd)
        self.operations += 1
        fault = self.fault("fdatasync", path)
        if not fault:
            _make_durable(file, file.dirty, len(file.data))
        file.dirty.clear()
        if fault:
            raise _error(fault, path)

    def truncate(self, fd: int, size: int) -> None:
        """See `Files.truncate`."""
        path, file = self._opened(fd)
        self._step("truncate", path)
        if size > len(file.data):
            file.data.extend(bytes(size - len(file.data)))
        del file.data[size:]
        file.writes += 1
        # An empty range: no bytes are lost, but the size may be.
        file.dirty.append((size, size))

    def size(self, fd: int) -> int:
        """See `Files.size`."""
        return len(self._opened(fd)[1].data)

    def stamp(self, fd: int) -> tuple[int, int]:
        """See `Files.stamp`."""
        file = self._opened(fd)[1]
        return file.number, file.writes

    def fsync_dir(self, path: Path) -> None:
        """See `Files.fsync_dir`."""
        self._step("fsync_dir", path)
        folder = self._folder(path)
        # Names are durable only after this, whatever was synced of the files.
        folder.durable = dict(folder.names)

    def rename(self, source: Path, target: Path) -> None:
        """See `Files.rename`."""
        self._step("rename", target)
        node = self._find(source)
        del self._folder(source.parent).names[source.name]
        self._folder(target.parent).names[target.name] = node
        # A rename is one step on disk: what is lost of it is lost at both ends.
        if self._folder(source.parent) is not self._folder(target.parent):
            self._folder(source.parent).durable.pop(source.name, None)
            self._folder(target.parent).durable[target.name] = node

    def unlink(self, path: Path) -> None:
        """See `Files.unlink`."""
        self._step("unlink", path)
        if not isinstance(self._find(path), _File):
            raise _error(errno.EISDIR, path)
        del self._folder(path.parent).names[path.name]

    def rmdir(self, path: Path) -> None:
        """See `Files.rmdir`."""
        self._step("rmdir", path)
        if self._folder(path).names:
            raise _error(errno.ENOTEMPTY, path)
        del self._folder(path.parent).names[path.name]

    def mkdir(self, path: Path) -> None:
        """See `Files.mkdir`."""
        self._step("mkdir", path)
        if path != path.parent:
            self._folder(path.parent).names.setdefault(path.name, _Folder())

    def listdir(self, path: Path) -> list[str]:
        """See `Files.listdir`."""
        return sorted(self._folder(path).names)

    def is_dir(self, path: Path) -> bool:
        """See `Files.is_dir`."""
        try:
            return isinstance(self._find(path), _Folder)
        except FileNotFoundError:
            return False

    def is_link(self, path: Path) -> bool:
        """See `Files.is_link`: it has no links."""
        self._find(path)
        return False

    def owner(self, path: Path) -> int:
        """See `Files.owner`: all belongs to the user of this process."""
        self._find(path)
        return os.geteuid()

    def not_following(self) -> Self:
        """See `Files.not_following`."""
        return self

    def free_bytes(self, path: Path) -> int:
        """See `Files.free_bytes`."""
        self._folder(path)
        return 1 << 40 if self.space is None else max(0, self.space - self._used())

    def lock(self, path: Path) -> int | None:
        """See `Files.lock`."""
        # Locks belong to the file system here, so that two stores of one process exclude each other.
        if path in self._locked:
            return None
        fd = self.open(path, create=True)
        self._locked.add(path)
        return fd

    # -- inside

    def _step(self, operation: str, path: Path) -> None:
        self.operations += 1
        if fault := self.fault(operation, path):
            raise _error(fault, path)

    def _opened(self, fd: int) -> tuple[Path, _File]:
        if fd not in self._open:
            raise _error(errno.EBADF, Path("?"))
        return self._open[fd]

    def _find(self, path: Path) -> "_File | _Folder":
        node: _File | _Folder = self._root
        for part in path.parts[1:]:
            if not isinstance(node, _Folder) or part not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[part]
        return node

    def _folder(self, path: Path) -> _Folder:
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def _walk(self, path: Path, node: "_File | _Folder") -> list[tuple[Path, "_File | _Folder"]]:
        found: list[tuple[Path, _File | _Folder]] = [(path, node)]
        if isinstance(node, _Folder):
            for name in sorted(node.names):
                found += self._walk(path / name, node.names[name])
        return found

    def _used(self) -> int:
        return sum(len(node.data) for _, node in self._walk(Path("/"), self._root) if isinstance(node, _File))

    def _forget(self, folder: _Folder, rng: random.Random | None) -> None:
        names = dict(folder.durable)
        if rng is not None:
            for name in sorted(folder.names.keys() | folder.durable.keys()):
                # Each unsynced name survives or not, independently of the others.
                if folder.names.get(name) is not folder.durable.get(name) and rng.random() < 0.5:
                    names.pop(name, None)
                    if name in folder.names:
                        names[name] = folder.names[name]
        folder.names, folder.durable = names, dict(names)
        for name in sorted(names):
            node = names[name]
            if isinstance(node, _Folder):
                self._forget(node, rng)
            else:
                _lose_unsynced(node, rng)


def _make_durable(file: _File, ranges: Sequence[tuple[int, int]], size: int) -> None:
    if len(file.durable) < size:
        file.durable.extend(bytes(size - len(file.durable)))
    del file.durable[size:]
    for first, after in ranges:
        file.durable[first : min(after, size)] = file.data[first : min(after, size)]


def _lose_unsynced(file: _File, rng: random.Random | None) -> None:
    if rng is not None and file.dirty:
        kept: list[tuple[int, int]] = []
        for first, after in file.dirty:
            sectors = [
                sector for sector in range(first // _SECTOR, -(-after // _SECTOR)) if rng.random() < 0.5
            ]
            kept += [(max(first, sector * _SECTOR), min(after, (sector + 1) * _SECTOR)) for sector in sectors]
        _make_durable(
            file,
            kept,
            len(file.data) if rng.random() < 0.5 else max([len(file.durable), *(after for _, after in kept)]),
        )
    file.data = bytearray(file.durable)
    file.writes += 1
    file.dirty.clear()


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
