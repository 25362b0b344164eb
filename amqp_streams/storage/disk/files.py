"""[io] Every file operation of the store, behind one small interface: tests can make each operation fail."""

import copy
import fcntl
import os
from collections.abc import Sequence
from errno import EAGAIN, EINVAL, ELOOP, EOPNOTSUPP, EWOULDBLOCK
from pathlib import Path
from typing import Final, Protocol, Self

_BUFFERS_MAX: Final = 1024  # IOV_MAX of Linux: more buffers in one pwritev fail
_ZEROS: Final = bytes(1 << 20)
_PROBE: Final = bytearray(1)
_PROBE_BYTES: Final = 64 << 10
"""Half of what Linux reads ahead by default: the pages in between are rarely missing alone."""
_AHEAD_BYTES: Final = 128 << 10


class Files(Protocol):
    """The operations that the store needs from the operating system.

    Descriptors are numbers; errors are `OSError`.
    """

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """Open a file, or create it with `create`; FileNotFoundError if it does not exist."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write the buffers; returns the bytes written, which may be fewer than requested."""

    def pread(self, fd: int, count: int, position: int) -> bytes:
        """Read up to `count` bytes."""

    def is_cached(self, fd: int, count: int, position: int) -> bool | None:
        """Whether reading these bytes does not wait for the disk. None: the system does not tell."""

    def will_need(self, fd: int, count: int, position: int) -> None:
        """Ask the system to read these bytes into its cache, without waiting for them if possible."""

    def wont_need(self, fd: int, count: int, position: int) -> None:
        """Let the system drop these bytes from its cache. Bytes that are not on the disk yet stay."""

    def fdatasync(self, fd: int) -> None:
        """Return when the file's data and its size are on the disk."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self, fd: int) -> int:
        """Size of the file in bytes."""

    def stamp(self, fd: int) -> tuple[int, int]:
        """A file with the same path, stamp and size as before has the same bytes: it was not written."""

    def fsync_dir(self, path: Path) -> None:
        """Return when the names in the folder are on the disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""

    def mkdir(self, path: Path) -> None:
        """Create a folder if it does not exist."""

    def listdir(self, path: Path) -> list[str]:
        """Names in a folder, sorted."""

    def is_dir(self, path: Path) -> bool:
        """Whether the path is a folder."""

    def is_link(self, path: Path) -> bool:
        """Whether the path is a symbolic link."""

    def owner(self, path: Path) -> int:
        """The number of the user who owns the path itself, not what a symbolic link names."""

    def not_following(self) -> Self:
        """The same operations, which fail if the last name of a path is a symbolic link.

        They may still read and write what a folder above is a link to.
        """

    def free_bytes(self, path: Path) -> int:
        """Bytes that this process may still allocate."""

    def lock(self, path: Path) -> int | None:
        """Open and lock a file exclusively; None if another process holds the lock."""


class RealFiles:
    """The file operations of the operating system."""

    _no_follow = 0

    def not_following(self) -> Self:
        """See `Files.not_following`."""
        files = copy.copy(self)
        files._no_follow = os.O_NOFOLLOW
        return files

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        """See `Files.open`."""
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return self._opened(path, flags)

    def close(self, fd: int) -> None:
        """See `Files.close`."""
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """See `Files.pwritev`."""
        return os.pwritev(fd, buffers, position)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        """See `Files.pread`."""
        return os.pread(fd, count, position)

    def is_cached(self, fd: int, count: int, position: int) -> bool | None:
        """See `Files.is_cached`. Looks at one byte in `_PROBE_BYTES`, and at the last one."""
        try:
            for at in range(position, position + count, _PROBE_BYTES):
                os.preadv(fd, (_PROBE,), at, os.RWF_NOWAIT)
            os.preadv(fd, (_PROBE,), position + count - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # Any other error is found again by the read itself.
            return None if error.errno in (EOPNOTSUPP, EINVAL) else False
        return True

    def will_need(self, fd: int, count: int, position: int) -> None:
        """See `Files.will_need`."""
        # The kernel reads at most this many bytes for one call.
        for at in range(position, position + count, _AHEAD_BYTES):
            os.posix_fadvise(fd, at, min(_AHEAD_BYTES, position + count - at), os.POSIX_FADV_WILLNEED)

    def wont_need(self, fd: int, count: int, position: int) -> None:
        """See `Files.wont_need`."""
        os.posix_fadvise(fd, position, count, os.POSIX_FADV_DONTNEED)

    def fdatasync(self, fd: int) -> None:
        """See `Files.fdatasync`."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """See `Files.truncate`."""
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        """See `Files.size`."""
        return os.fstat(fd).st_size

    def stamp(self, fd: int) -> tuple[int, int]:
        """See `Files.stamp`: the number of the file, and the time of its last write."""
        status = os.fstat(fd)
        return status.st_ino, status.st_mtime_ns

    def fsync_dir(self, path: Path) -> None:
        """See `Files.fsync_dir`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """See `Files.rename`."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """See `Files.unlink`."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """See `Files.rmdir`."""
        path.rmdir()

    def mkdir(self, path: Path) -> None:
        """See `Files.mkdir`."""
        path.mkdir(mode=0o750, exist_ok=True)
        if self._no_follow and path.is_symlink():
            raise _link_error(path)

    def listdir(self, path: Path) -> list[str]:
        """See `Files.listdir`."""
        return sorted(entry.name for entry in path.iterdir())

    def is_dir(self, path: Path) -> bool:
        """See `Files.is_dir`."""
        return path.is_dir()

    def is_link(self, path: Path) -> bool:
        """See `Files.is_link`."""
        return path.is_symlink()

    def owner(self, path: Path) -> int:
        """See `Files.owner`."""
        return path.lstat().st_uid

    def free_bytes(self, path: Path) -> int:
        """See `Files.free_bytes`."""
        figures = os.statvfs(path)
        # f_bavail, not f_bfree: only root may use the reserved blocks.
        return figures.f_bavail * figures.f_frsize

    def lock(self, path: Path) -> int | None:
        """See `Files.lock`."""
        fd = self._opened(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            # The lock belongs to the open file: it ends with the process, even after kill -9.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (EAGAIN, EWOULDBLOCK):
                return None
            raise
        return fd

    def _opened(self, path: Path, flags: int) -> int:
        try:
            return os.open(path, flags | self._no_follow, 0o640)
        except OSError as error:
            if self._no_follow and error.errno == ELOOP:
                raise _link_error(path) from None
            raise


def _link_error(path: Path) -> OSError:
    return OSError(ELOOP, "is a symbolic link, which is not followed here: remove the link", str(path))


class OpenFile:
    """A descriptor that closes with its last reference: a read may still use a removed segment."""

    __slots__ = ("_files", "fd", "path")

    def __init__(self, files: Files, path: Path, *, create: bool = False, write: bool = False) -> None:
        # `__del__` runs even if `open` below fails.
        self.fd = -1
        self._files = files
        self.path = path
        self.fd = files.open(path, create=create, write=write)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor now."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._files.close(fd)

    def read(self, count: int, position: int) -> bytes:
        """Up to `count` bytes, fewer only at the end of the file."""
        data = self._files.pread(self.fd, count, position)
        if len(data) == count:
            return data
        parts = [data]
        # A short read is not yet the end of the file; only an empty one is.
        while data and (missing := count - sum(map(len, parts))):
            data = self._files.pread(self.fd, missing, position + count - missing)
            parts.append(data)
        return b"".join(parts)

    def is_cached(self, count: int, position: int) -> bool | None:
        """See `Files.is_cached`."""
        return self._files.is_cached(self.fd, count, position)

    def will_need(self, count: int, position: int) -> None:
        """See `Files.will_need`."""
        self._files.will_need(self.fd, count, position)

    def wont_need(self, count: int, position: int) -> None:
        """See `Files.wont_need`."""
        self._files.wont_need(self.fd, count, position)

    def size(self) -> int:
        """Size of the file in bytes."""
        return self._files.size(self.fd)

    def stamp(self) -> tuple[int, int]:
        """See `Files.stamp`."""
        return self._files.stamp(self.fd)

    def write(self, buffers: Sequence[bytes | memoryview], position: int) -> None:
        """Write all buffers, repeating short writes."""
        total = sum(map(len, buffers))
        if (
            len(buffers) <= _BUFFERS_MAX
            and (written := self._files.pwritev(self.fd, buffers, position)) == total
        ):
            return
        if len(buffers) > _BUFFERS_MAX:
            written = 0
        # Rare, so one copy is enough: finding the buffer in which the write stopped is not worth the code.
        rest = memoryview(b"".join(buffers))[written:]
        position += written
        while rest:
            written = self._files.pwritev(self.fd, [rest], position)
            rest, position = rest[written:], position + written

    def sync(self) -> None:
        """Return when the data is on the disk."""
        self._files.fdatasync(self.fd)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._files.truncate(self.fd, size)


def fill_with_zeros(file: OpenFile, size: int) -> None:
    """Allocate the file's blocks: later writes then change no metadata, so a sync is one disk write."""
    for position in range(0, size, len(_ZEROS)):
        file.write([_ZEROS[: size - position]], position)
    file.sync()


def read_file(files: Files, path: Path) -> bytes:
    """The whole file."""
    file = OpenFile(files, path)
    return file.read(file.size(), 0)


def replace_file(files: Files, path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a small file with new content, atomically; with `sync`, it is on the disk when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    file = OpenFile(files, temporary, create=True)
    # A crash may have left a longer temporary file of the same name.
    file.truncate(0)
    file.write([data], 0)
    # Before the rename: otherwise a power loss may leave the new name with incomplete content.
    if sync:
        file.sync()
    files.rename(temporary, path)
    if sync:
        files.fsync_dir(path.parent)
