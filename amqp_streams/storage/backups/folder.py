"""[io] A backup folder: its format, lock, manifests and small files.

Layout: `formats/manifest.py`. Law: a backup gets its name when everything that it names is on the disk.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.storage import catalog
from amqp_streams.storage.disk.files import Files, OpenFile, read_file, replace_file
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.storage.formats.manifest import NAME, VERSION, Key, Manifest, Small, number_of
from amqp_streams.storage.plans.backup import needed

FORMAT_FILE: Final = "backup.json"
LOCK_FILE: Final = "lock"
BACKUPS: Final = "backups"
SEGMENTS: Final = "segments"
MANIFEST_FILE: Final = "manifest.json"
STATES_FILE: Final = "states"
JOURNAL_FILE: Final = "journal"
UNFINISHED: Final = ".tmp"
DAMAGED: Final = ".damaged"
"""The suffix of segments that `backup verify --set-aside` renamed. No command reads or removes them."""
BACKUPS_MAX: Final = 10_000
"""The most backups of a folder: each backup and each removal reads all their manifests."""
SEGMENT: Final = re.compile(r"[0-9]{16,19}-[0-9]{1,9}\.log")
"""The name of a file of a segment."""
_UID: Final = re.compile(r"[0-9a-f]{16}")
_PARTITION: Final = re.compile(r"[0-9]{1,9}")
_OURS: Final = (BACKUPS, SEGMENTS, FORMAT_FILE, LOCK_FILE)
RESERVE_BYTES: Final = 64 << 20
"""A backup ends when less than this is free: the folder may be on the disk of a node, which needs 16 MiB."""


class Folder:
    """The backup folder `root`."""

    def __init__(self, files: Files, root: Path) -> None:
        self.files: Final = files.not_following()
        self.root: Final = root
        self._lock: int | None = None

    # -- the folder

    def create(self, directory_id: int) -> None:
        """Create it for backups of this data directory, or check that it is for them, and lock it.

        Raises:
            DirectoryLockedError: another command writes to it.
            OSError: the disk failed.
            StorageError: it has other files, or backups of another data directory.
        """
        files, root = self.files, self.root
        for path in (*reversed(root.absolute().parents), root):
            if not files.is_dir(path):
                files.mkdir(path)
                files.fsync_dir(path.parent)
        catalog.require_own(files, root, *_OURS)
        # Also if it exists: a killed backup may have created it, and not synced its name.
        files.fsync_dir(root.parent)
        present = set(files.listdir(root))
        names = present - {"lost+found", LOCK_FILE, FORMAT_FILE, FORMAT_FILE + UNFINISHED}
        if others := names - {BACKUPS, SEGMENTS}:
            message = f"{root} is not a backup folder: it has {min(others)!r}; use an empty folder"
            raise StorageError(message)
        self.lock()
        if not names:
            self._write_format(directory_id)
        if self.directory_id() != directory_id:
            message = (
                f"{root} has backups of another data directory (with the id {self.directory_id():016x}; this"
                f" one has {directory_id:016x}): use another backup folder"
            )
            raise StorageError(message)
        if self._format() is None:
            self._write_format(directory_id)
        for name in (BACKUPS, SEGMENTS):
            files.mkdir(root / name)
        files.fsync_dir(root)

    def directory_id(self) -> int:
        """The id of the data directory whose backups it has.

        Raises:
            StorageError: it is not a backup folder, or one of a later version.
        """
        content = self._format()
        if content is not None:
            return number_of(content["directory"])
        # The file is missing or damaged: each manifest has the id as well.
        manifests, _ = self.manifests()
        if not manifests:
            message = f"{self.root} is not a backup folder: {FORMAT_FILE} is missing or damaged"
            raise StorageError(message)
        return manifests[-1].directory_id

    def _format(self) -> dict[str, Any] | None:
        path = self.root / FORMAT_FILE
        try:
            content = catalog.unseal(read_file(self.files, path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if content is not None and content.get("backup") != VERSION:
            message = (
                f"{path} has version {content.get('backup')!r}, but this program reads version {VERSION}: use"
                " the version that wrote the backups"
            )
            raise StorageError(message)
        try:
            number_of((content or {})["directory"])
        except (ValueError, KeyError, TypeError):
            return None
        return content

    def _write_format(self, directory_id: int) -> None:
        content = {"backup": VERSION, "directory": f"{directory_id:016x}"}
        replace_file(self.files, self.root / FORMAT_FILE, catalog.seal(content), sync=True)

    def lock(self) -> None:
        """Exclude other commands that write to the folder.

        Raises:
            DirectoryLockedError: one is running.
            StorageError: the folder belongs to another user.
        """
        if self.files.is_dir(self.root):
            catalog.require_own(self.files, self.root, *_OURS)
        self._lock = self.files.lock(self.root / LOCK_FILE)
        if self._lock is None:
            message = f"another backup command writes to {self.root}: wait until it ends"
            raise DirectoryLockedError(message)

    def unlock(self) -> None:
        """End the exclusion, if there is one."""
        if self._lock is not None:
            self.files.close(self._lock)
            self._lock = None

    # -- backups

    def path_of(self, name: str) -> Path:
        """The folder of a backup."""
        return self.root / BACKUPS / name

    def names(self) -> list[str]:
        """The names of all complete backups."""
        if not self.files.is_dir(self.root / BACKUPS):
            return []
        return [name for name in self.files.listdir(self.root / BACKUPS) if not name.endswith(UNFINISHED)]

    def manifest(self, name: str) -> Manifest:
        """The manifest of a backup.

        Raises:
            StorageError: the backup does not exist, is damaged, or belongs to a later version.
        """
        path = self.path_of(name) / MANIFEST_FILE
        try:
            if not NAME.fullmatch(name):
                raise FileNotFoundError
            content = catalog.unseal(read_file(self.files, path))
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            message = f"{self.root} has no backup {name!r}; its backups are {known}"
            raise StorageError(message) from None
        if content is not None and content.get("backup") != VERSION:
            message = (
                f"{path} has version {content.get('backup')!r}, but this program reads version {VERSION}: use"
                " the version that wrote it"
            )
            raise StorageError(message)
        try:
            if content is not None and (manifest := Manifest.from_json(content)).name == name:
                return manifest
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
            pass  # the CRC matched, but the content is not one that this program writes
        message = f"{path} is damaged: use another backup, and remove this one with 'backup remove'"
        raise StorageError(message)

    def manifests(self) -> tuple[list[Manifest], list[StorageError]]:
        """The readable manifests, the oldest first, and why others are not readable."""
        found: list[Manifest] = []
        errors: list[StorageError] = []
        for name in self.names():
            try:
                found.append(self.manifest(name))
            except StorageError as error:
                errors.append(error)
        return sorted(found, key=lambda each: (each.began_ms, each.ended_ms, each.name)), errors

    def begin(self, name: str) -> Path:
        """An empty folder for the small files of a new backup. Removes what killed backups left."""
        files, backups = self.files, self.root / BACKUPS
        for left in files.listdir(backups):
            if left.endswith(UNFINISHED):
                catalog.remove_tree(files, backups / left)
        made = self.path_of(name + UNFINISHED)
        files.mkdir(made)
        return made

    def complete(self, manifest: Manifest) -> None:
        """Write the manifest of the backup that was begun, and give the backup its name, durably."""
        made = self.path_of(manifest.name + UNFINISHED)
        replace_file(self.files, made / MANIFEST_FILE, catalog.seal(manifest.as_json()), sync=True)
        written = catalog.unseal(read_file(self.files, made / MANIFEST_FILE))
        if written != manifest.as_json():
            raise OSError(5, "the manifest is not what was written", str(made / MANIFEST_FILE))
        self.files.rename(made, self.path_of(manifest.name))
        self.files.fsync_dir(self.root / BACKUPS)

    def remove(self, name: str) -> None:
        """Remove a backup, but not the segments that it needed: see `collect`."""
        if name not in self.names():
            message = f"{self.root} has no backup {name!r}"
            raise StorageError(message)
        gone = self.path_of(name + UNFINISHED)
        self.files.rename(self.path_of(name), gone)
        self.files.fsync_dir(self.root / BACKUPS)
        catalog.remove_tree(self.files, gone)

    def remove_all(self, names: Iterable[str]) -> list[str]:
        """Remove backups and what no other backup needs; returns the names of the backups that remain.

        Raises:
            DirectoryLockedError: another command writes to the folder.
            OSError: the disk failed.
        """
        self.lock()
        try:
            for name in names:
                self.remove(name)
            manifests, unreadable = self.manifests()
            # What a backup with an unreadable manifest needs is not known.
            if not unreadable:
                self.collect(manifests)
            return self.names()
        finally:
            self.unlock()

    def collect(self, manifests: Iterable[Manifest]) -> None:
        """Remove what no backup needs. `manifests`: of all backups of the folder."""
        files, root = self.files, self.root / SEGMENTS
        wanted = needed(manifests)
        for uid in self._folders(root, _UID):
            for partition in self._folders(root / uid, _PARTITION):
                folder = root / uid / partition
                for name in files.listdir(folder):
                    if SEGMENT.fullmatch(name):
                        self._trim(folder / name, (int(uid, 16), int(partition)), wanted)
                if not files.listdir(folder):
                    files.rmdir(folder)
            if not files.listdir(root / uid):
                files.rmdir(root / uid)

    def _folders(self, path: Path, pattern: re.Pattern[str]) -> list[str]:
        """The folders of segments in a folder. Links and what other programs put there are not touched."""
        names = [name for name in self.files.listdir(path) if pattern.fullmatch(name)]
        return [
            name for name in names if self.files.is_dir(path / name) and not self.files.is_link(path / name)
        ]

    def _trim(self, path: Path, key: Key, wanted: Mapping[tuple[Key, int, int], int]) -> None:
        base, _, version = path.stem.partition("-")
        most = wanted.get((key, int(base), int(version)), 0)
        if not most:
            self.files.unlink(path)
            return
        file = OpenFile(self.files, path, write=True)
        if file.size() > most:
            file.truncate(most)

    # -- small files

    def write_small(self, path: Path, parts: Iterable[bytes]) -> Small:
        """Write a file, sync it, read it back, and return its size and CRC.

        Raises:
            OSError: the disk failed, or returned other bytes.
        """
        file, position, crc = OpenFile(self.files, path, create=True), 0, 0
        for data in parts:
            file.write([data], position)
            position, crc = position + len(data), crc32(data, crc)
        file.sync()
        file.wont_need(position, 0)
        if crc_of(file, position) != crc:
            raise OSError(5, "the file has other bytes than were written to it", str(path))
        return Small(position, crc)

    def has_room(self) -> None:
        """Raise OSError (the disk is full) if less than the reserve is free."""
        if self.files.free_bytes(self.root) < RESERVE_BYTES:
            raise OSError(min(FULL), os.strerror(min(FULL)), str(self.root))


_BLOCK_BYTES: Final = 1 << 20


def crc_of(file: OpenFile, until: int, crc: int = 0, position: int = 0) -> int:
    """The CRC-32 of the bytes from `position` to `until`, continued from `crc`."""
    while position < until:
        data = file.read(min(_BLOCK_BYTES, until - position), position)
        if not data:
            # Shorter than it should be: no CRC of other bytes is returned.
            return -1
        crc, position = crc32(data, crc), position + len(data)
    return crc
