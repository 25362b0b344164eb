"""[io] Checks a backup folder: each byte that its backups need, against the CRCs of the manifests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.storage.backups.folder import (
    BACKUPS,
    DAMAGED,
    JOURNAL_FILE,
    MANIFEST_FILE,
    SEGMENTS,
    STATES_FILE,
    Folder,
    crc_of,
)
from amqp_streams.storage.backups.pace import Pace
from amqp_streams.storage.backups.pool import segment_file
from amqp_streams.storage.disk.files import OpenFile
from amqp_streams.storage.formats import state_record
from amqp_streams.storage.formats.manifest import Key, Manifest, Small

_STEP_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged file of the folder, and the names of the backups that need it."""

    file: str
    words: str
    backups: tuple[str, ...]

    def __str__(self) -> str:
        return f"damage: {self.file}: {self.words} (needed by {', '.join(self.backups)})"


@dataclass(slots=True)
class Checked:
    """What was checked. `whole`: the names of the backups without damage."""

    backups: int = 0
    files: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)


def check(
    folder: Folder,
    names: Sequence[str] = (),
    *,
    pace: Pace | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Checked:
    """Check the backups with these names; without names, all.

    Raises:
        OSError: the disk failed.
        StorageError: a backup does not exist, or it is not a backup folder.
    """
    folder.directory_id()
    found = Checked()
    if names:
        manifests = [folder.manifest(name) for name in names]
    else:
        manifests, _ = folder.manifests()
        readable = {each.name for each in manifests}
        for name in folder.names():
            if name not in readable:
                file = f"{BACKUPS}/{name}/{MANIFEST_FILE}"
                found.faults.append(Fault(file, "is missing, damaged or of a later version", (name,)))
    found.backups = len(manifests) + len(found.faults)
    return _Check(folder, found, pace or Pace(), progress or _ignore).run(manifests)


def set_aside(folder: Folder, faults: Iterable[Fault]) -> list[str]:
    """Rename damaged segments, so that the next backup copies them again, if the node still has them.

    Returns their new names. The backups that need them stay damaged.

    Raises:
        DirectoryLockedError: another command writes to the folder.
        OSError: the disk failed.
    """
    folder.lock()
    try:
        moved: list[str] = []
        for fault in faults:
            path = folder.root / fault.file
            if fault.file.startswith(f"{SEGMENTS}/") and path.name in folder.files.listdir(path.parent):
                folder.files.rename(path, path.with_name(path.name + DAMAGED))
                folder.files.fsync_dir(path.parent)
                moved.append(fault.file + DAMAGED)
        return moved
    finally:
        folder.unlock()


@dataclass(slots=True)
class _Check:
    folder: Folder
    found: Checked
    pace: Pace
    progress: Callable[[int, int], None]
    total: int = 0

    def run(self, manifests: Sequence[Manifest]) -> Checked:
        segments = _segments(manifests)
        self.total = sum(max(lengths) for lengths in segments.values())
        self.total += sum(each.states.bytes + each.journal.bytes for each in manifests)
        for manifest in manifests:
            self._small(manifest, STATES_FILE, manifest.states)
            self._small(manifest, JOURNAL_FILE, manifest.journal)
            self._states(manifest)
        for (key, base, version), lengths in segments.items():
            self._segment(key, base, version, lengths)
        spoilt = {name for fault in self.found.faults for name in fault.backups}
        self.found.whole = [each.name for each in manifests if each.name not in spoilt]
        return self.found

    def _small(self, manifest: Manifest, name: str, expected: Small) -> None:
        relative = f"{BACKUPS}/{manifest.name}/{name}"
        self.found.files += 1
        self._advance(expected.bytes)
        try:
            file = OpenFile(self.folder.files, self.folder.path_of(manifest.name) / name)
        except FileNotFoundError:
            self.found.faults.append(Fault(relative, "is missing", (manifest.name,)))
            return
        size = file.size()
        if size != expected.bytes:
            words = f"has {size} bytes instead of {expected.bytes}"
        elif crc_of(file, size) != expected.crc:
            words = "its bytes were changed: the checksum is another one"
        else:
            return
        self.found.faults.append(Fault(relative, words, (manifest.name,)))

    def _states(self, manifest: Manifest) -> None:
        """The states as `restore` reads them, also if the CRC of the file is right."""
        path = self.folder.path_of(manifest.name) / STATES_FILE
        try:
            file = OpenFile(self.folder.files, path)
        except FileNotFoundError:
            return
        data = file.read(file.size(), 0)
        relative = f"{BACKUPS}/{manifest.name}/{STATES_FILE}"
        if state_record.read(data, manifest.directory_id).holes:
            self.found.faults.append(Fault(relative, "has damaged records", (manifest.name,)))

    def _segment(self, key: Key, base: int, version: int, lengths: "dict[int, dict[int, list[str]]]") -> None:
        path = segment_file(self.folder.root, key, base, version)
        relative = str(path.relative_to(self.folder.root / SEGMENTS).as_posix())
        self.found.files += 1
        try:
            file = OpenFile(self.folder.files, path)
        except FileNotFoundError:
            everyone = tuple(name for crcs in lengths.values() for names in crcs.values() for name in names)
            self.found.faults.append(Fault(f"{SEGMENTS}/{relative}", "is missing", everyone))
            self._advance(max(lengths))
            return
        size, position, crc = file.size(), 0, 0
        words, spoilt = "", list[str]()
        for length in sorted(lengths):
            while position < length and crc >= 0:
                until = min(length, position + _STEP_BYTES)
                crc = crc_of(file, until, crc, position)
                self.pace(until - position)
                self._advance(until - position)
                position = until
            for expected, names in lengths[length].items():
                if crc != expected:
                    words = words or (
                        f"has {size} bytes, and {length} are needed"
                        if size < length
                        else f"its first {length} bytes were changed: the checksum is another one"
                    )
                    spoilt += names
        if spoilt:
            self.found.faults.append(Fault(f"{SEGMENTS}/{relative}", words, tuple(spoilt)))

    def _advance(self, count: int) -> None:
        self.found.bytes += count
        self.progress(self.found.bytes, max(self.total, self.found.bytes))


def _segments(
    manifests: Iterable[Manifest],
) -> dict[tuple[Key, int, int], dict[int, dict[int, list[str]]]]:
    """By file, the prefixes that are needed: by length and CRC, the names of the backups."""
    found: dict[tuple[Key, int, int], dict[int, dict[int, list[str]]]] = {}
    for manifest in manifests:
        for key, piece in manifest.pieces():
            if piece.bytes:
                lengths = found.setdefault((key, piece.base, piece.version), {})
                lengths.setdefault(piece.bytes, {}).setdefault(piece.crc, []).append(manifest.name)
    return found


def _ignore(done: int, total: int) -> None:
    """Used if the caller wants no progress."""
