"""[io] The journal: a few files of fixed size that are overwritten in place.

Overwriting changes no metadata, so a sync is one write to the disk.
Law: a file is reused only when each of its records is also synced in a segment. Layout: `journal_record.py`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqp_streams.errors import DiskFullError
from amqp_streams.storage.disk.files import Files, OpenFile, fill_with_zeros
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import journal_record, record
from amqp_streams.storage.formats.ends import Place
from amqp_streams.storage.formats.journal_record import ALIGN, JournalHead
from amqp_streams.storage.partitions.partition_log import PartitionLog

FOLDER: Final = "journal"
# Recovery reads in pieces: a whole file would need 64 MiB of memory.
_BLOCK_BYTES: Final = 4 << 20
_UNFINISHED: Final = ".journal.tmp"
"""The suffix of a journal file that is being created: see `create`."""


@dataclass(slots=True, eq=False)
class Slot:
    """One journal file.

    `holds`: by partition, one past its last record in the file that a segment may not have.
    """

    file: OpenFile
    size: int
    generation: int = 0
    sequence: int = 0
    position: int = 0
    holds: dict[PartitionLog, int] = field(default_factory=dict)
    broken: bool = False


class Journal:
    """The journal files, and which of them is written."""

    def __init__(self, slots: list[Slot], *, generation: int, seed: int) -> None:
        assert len(slots) >= 2, "one file is written while the other waits for its segments"
        self.slots: Final = slots
        self._generation = generation
        self.seed: Final = seed
        # Begin with the oldest: if its first new record is torn, the newest file still shows what was written
        # last.
        self.current: Slot = min(slots, key=lambda slot: slot.generation)
        self._begin(self.current)

    @property
    def record_bytes_max(self) -> int:
        """The largest record that is journaled: half a file."""
        return min(slot.size for slot in self.slots) // 2

    def room(self, needed: int) -> bool:
        """Whether a record of `needed` bytes fits now.

        Changes to the next file if the current one is full.
        """
        if not self.current.broken and self.current.position + needed <= self.current.size:
            return True
        fresh = next(
            (slot for slot in self.slots if slot is not self.current and not slot.holds and not slot.broken),
            None,
        )
        if fresh is None:
            return False
        self.current = fresh
        self._begin(fresh)
        return True

    def head(self, slot: Slot, entries: list[tuple[int, int, int]], batches_bytes: int) -> bytes:
        """The header of the next record of a file. `written` ends this record."""
        return journal_record.encode(
            slot.generation, slot.sequence, entries, batches_bytes=batches_bytes, seed=self.seed
        )

    def written(self, slot: Slot, bytes_: int) -> None:
        """Advance to the next aligned position: the record at the slot's position was written."""
        slot.position += -(-bytes_ // ALIGN) * ALIGN
        slot.sequence += 1

    def release(self, partition: PartitionLog, synced_end: int) -> None:
        """The partition's segments hold every record below `synced_end`, synced."""
        for slot in self.slots:
            # A segment of a stopped partition may not have what its failed sync covered: keep the file.
            if slot.holds.get(partition, synced_end + 1) <= synced_end and partition.failure is None:
                del slot.holds[partition]

    def drop(self, partition: PartitionLog) -> None:
        """Let the records of a deleted partition no longer pin journal files."""
        for slot in self.slots:
            slot.holds.pop(partition, None)

    def waiting(self) -> list[PartitionLog]:
        """Partitions whose records must reach segments before a full file can be reused."""
        return [partition for slot in self.slots if slot is not self.current for partition in slot.holds]

    def needs(self, partition: PartitionLog) -> int:
        """The number below which the partition's records must reach a segment."""
        return max([slot.holds.get(partition, 0) for slot in self.slots if slot is not self.current])

    def close(self) -> None:
        """Close the files."""
        for slot in self.slots:
            slot.file.close()

    def _begin(self, slot: Slot) -> None:
        # Records of the file's last use become invalid by their older generation, without being
        # overwritten.
        self._generation += 1
        slot.generation, slot.sequence, slot.position = self._generation, 0, 0


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a partition's batch is in the journal."""

    file: OpenFile
    position: int
    length: int
    base: int
    end: int


@dataclass(slots=True, eq=False)
class JournalContents:
    """The records that recovery found in the journal files."""

    generations: dict[str, int] = field(default_factory=dict)
    """By file name, the highest generation in the file."""
    entries: dict[tuple[int, int], list[Entry]] = field(default_factory=dict)


def prepare(files: Files, root: Path, *, count: int, size: int, seed: int) -> list[OpenFile]:
    """Open the journal files. Files that are missing or too small are created at full size.

    Recovery runs first: the segments already hold the content of these files.

    Raises:
        DiskFullError: the disk is too full; files that were created here are removed again.
    """
    folder = root / FOLDER
    known = files.listdir(folder)
    for name in known:
        if name.endswith(_UNFINISHED):
            # A crash interrupted its creation, so it has no records.
            files.unlink(folder / name)
    opened: list[OpenFile] = []
    begun: list[OpenFile] = []
    try:
        for number in range(count):
            path = folder / f"{number}.journal"
            if path.name not in known:
                begun.append(create(files, path, size, seed))
                opened.append(begun[-1])
                continue
            file = OpenFile(files, path, create=True)
            if file.size() < size:
                make(file, size, seed)
            opened.append(file)
        files.fsync_dir(folder)
    except OSError as error:
        for file in begun:
            with contextlib.suppress(OSError):
                files.unlink(file.path)
            file.close()
        if error.errno not in FULL:
            raise
        message = (
            f"{folder} needs {count * size >> 20} MiB for the journal, and the disk is full: free space, or"
            " use another disk"
        )
        raise DiskFullError(message) from error
    return opened


def create(files: Files, path: Path, size: int, seed: int) -> OpenFile:
    """Create a journal file; the caller syncs the folder.

    It gets its name when it is whole: a file that an error or a crash left half made is not a damaged one.
    """
    temporary = path.with_suffix(_UNFINISHED)
    file = OpenFile(files, temporary, create=True)
    try:
        make(file, size, seed)
        files.rename(temporary, path)
    except OSError:
        # The first error is the one to report.
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    finally:
        file.close()
    # Opened again, so that `path` is the final name.
    return OpenFile(files, path, write=True)


def make(file: OpenFile, size: int, seed: int) -> None:
    """Fill a file with zeros and one empty record: a file of only zeros is therefore a damaged file."""
    fill_with_zeros(file, size)
    file.write([journal_record.encode(0, 0, [], batches_bytes=0, seed=seed)], 0)
    file.sync()


def read_all(
    files: Files, root: Path, seed: int, findings: list[Finding], *, synced: Place | None = None
) -> JournalContents:
    """Read every complete record of all journal files, the oldest generation first.

    Damage is reported as findings. `synced` is a record that is known to have been synced, with all records
    before it.

    Raises:
        OSError: the disk failed.
    """
    folder = root / FOLDER
    found = JournalContents()
    uses: list[tuple[int, str, OpenFile, list[tuple[int, JournalHead]]]] = []
    for name in files.listdir(folder):
        relative = f"{FOLDER}/{name}"
        if name.endswith(_UNFINISHED):
            continue
        if not name.endswith(".journal"):
            findings.append(Finding(Severity.WARNING, relative, None, "is not a file of the store; ignored"))
            continue
        file = OpenFile(files, folder / name)
        generation, heads = last_use(file, seed)
        found.generations[name] = generation
        # Even a new file has one record, so only damage makes a file blank: see `make`.
        if not heads and _is_blank(file):
            findings.append(
                Finding(Severity.DAMAGE, relative, 0, "contains only zeros: its records are lost")
            )
        elif not heads:
            words = "contains no readable record: its first record was being written, or the file is damaged"
            findings.append(Finding(Severity.WARNING, relative, 0, words))
        uses.append((generation, relative, file, heads))
    newest = max(found.generations.values(), default=0)
    for generation, relative, file, heads in sorted(uses, key=lambda use: use[:2]):
        for position, head, data in whole_records(
            file,
            relative,
            heads,
            findings,
            newest=generation == newest,
            synced=synced.sequence + 1 if synced and synced.generation == generation else 0,
        ):
            for uid, partition, entry in _entries(file, position, head, data):
                found.entries.setdefault((uid, partition), []).append(entry)
    return found


def last_use(file: OpenFile, seed: int) -> tuple[int, list[tuple[int, JournalHead]]]:
    """The highest generation in a journal file, and the verified record headers of it, in order."""
    size = file.size()
    heads: list[tuple[int, JournalHead]] = []
    for start in range(0, size, _BLOCK_BYTES):
        block = file.read(min(_BLOCK_BYTES, size - start), start)
        # Records begin at multiples of ALIGN. Elsewhere the magic can only be a part of a message.
        found = [
            start + at for at in range(0, len(block), ALIGN) if block[at : at + 4] == journal_record.MAGIC
        ]
        heads += [(position, head) for position in found if (head := _head_at(file, position, seed))]
    generation = max((head.generation for _, head in heads), default=0)
    return generation, [(position, head) for position, head in heads if head.generation == generation]


def whole_records(
    file: OpenFile,
    name: str,
    heads: list[tuple[int, JournalHead]],
    findings: list[Finding],
    *,
    newest: bool,
    synced: int,
) -> Iterator[tuple[int, JournalHead, bytes]]:
    """The whole records among `heads`: position, header, bytes. A hole before synced records is reported.

    `synced` records are known to have been synced. So are those before a later header, because a record is
    written after the sync of the record before it.

    A hole at the beginning is certain damage only in the newest file. In an older file it may be the torn
    first record of the next use.
    """
    sequence = end = 0
    torn: tuple[int, JournalHead] | None = None
    for position, head in heads:
        data = file.read(head.length, position)
        if len(data) < head.length or not journal_record.batches_are_whole(data, head):
            torn = position, head
            continue
        if head.sequence != sequence:
            words = _lost(sequence, head.sequence, head) + "; the later records are intact and used"
            findings.append(
                Finding(Severity.DAMAGE if newest or sequence else Severity.WARNING, name, end, words)
            )
        yield position, head, data
        sequence, end, torn = head.sequence + 1, position + head.length, None
    if not heads:
        return
    synced = max(synced, torn[1].sequence if torn else 0)
    if sequence < synced:
        words = _lost(sequence, synced, heads[-1][1]) + ", except those that a segment has"
        findings.append(
            Finding(Severity.DAMAGE if newest or sequence else Severity.WARNING, name, end, words)
        )
    if torn and torn[1].sequence >= synced:
        words = (
            f"the last record is not whole, and its {torn[1].length} bytes are dropped: it was being written"
            " and was not yet accepted, or the disk lost it at a power loss"
        )
        findings.append(Finding(Severity.WARNING, name, torn[0], words))


def _lost(first: int, after: int, head: JournalHead) -> str:
    return f"records {first} to {after - 1} of generation {head.generation} are lost"


def _head_at(file: OpenFile, position: int, seed: int) -> JournalHead | None:
    start = file.read(ALIGN, position)
    wanted = journal_record.head_size(start)
    if wanted is None:
        return None
    return journal_record.decode(start if wanted <= len(start) else file.read(wanted, position), seed)


def _is_blank(file: OpenFile) -> bool:
    size = file.size()
    return all(
        not any(file.read(min(_BLOCK_BYTES, size - start), start)) for start in range(0, size, _BLOCK_BYTES)
    )


def _entries(
    file: OpenFile, position: int, head: JournalHead, data: bytes
) -> Iterator[tuple[int, int, Entry]]:
    at = head.batches_at
    for uid, partition, length in head.entries:
        batch = record.head_at(data, at)
        assert batch is not None, "the record was whole"
        yield uid, partition, Entry(file, position + at, length, batch.base, batch.end)
        at += length
