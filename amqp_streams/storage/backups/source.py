"""[io] A data directory that is read while a node writes to it, without the node's help.

Law: in the order states, journal, segments, everything is found that was accepted before the first of them
was read. A record leaves the journal only when a segment has it, and a position is stored after the events
before it. Never writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog, states
from amqp_streams.storage.catalog import Checkpoint, LogRecord
from amqp_streams.storage.commits import ends, journal
from amqp_streams.storage.disk.files import Files, OpenFile, read_file
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import journal_record, record
from amqp_streams.storage.formats.ends import Ends
from amqp_streams.storage.formats.manifest import Key
from amqp_streams.storage.opening import bounds_of
from amqp_streams.storage.partitions.segment import segment_path
from amqp_streams.storage.partitions.sources import SEGMENT_SUFFIXES, open_while_replaced
from amqp_streams.storage.plans.backup import Seen, looked

_NAME_DIGITS: Final = 16


class LogGoneError(Exception):
    """The log was deleted while it was copied."""


class Spool(Protocol):
    """A file for the journal's batches. The node overwrites the journal while the segments are copied."""

    def write(self, data: bytes, /) -> int:
        """Write at the end."""

    def seek(self, position: int, /) -> int:
        """Go to a position."""

    def read(self, count: int, /) -> bytes:
        """Read."""


class Spooled(NamedTuple):
    """A batch of the journal in the spool: records `base` to before `end`."""

    position: int
    length: int
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that is read before the segments. `unreadable`: names of logs without a readable file."""

    format_: catalog.Format
    checkpoint: Checkpoint | None
    ends: Ends
    states: Mapping[str, bytes]
    batches: Mapping[Key, list[Spooled]]
    logs: tuple[LogRecord, ...]
    damage: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """The segments of a partition, and the latest of its indexes, which covers nothing after them.

    `paths`: the file of each segment, by its base.
    """

    seen: list[Seen]
    index: tuple[int, index_file.Decoded] | None = field(default=None)
    paths: Mapping[int, Path] = field(default_factory=dict)


class Source:
    """The data directory `root`."""

    def __init__(self, files: Files, root: Path) -> None:
        self.files: Final = files
        self.root: Final = root

    def format(self) -> catalog.Format:
        """The format that the directory has now.

        Raises:
            StorageError: it is not a data directory, or one that this version cannot read.
        """
        found: catalog.Format | None = None
        if self.files.is_dir(self.root):
            checkpoint = catalog.read_checkpoint(self.files, self.root, [])
            found = catalog.read_format(self.files, self.root, checkpoint, [], repair=False)
        if found is None:
            message = f"{self.root} is not a data directory: it has no {catalog.FORMAT_FILE}"
            raise StorageError(message)
        return found

    def start(self, spool: Spool) -> Start:
        """Read everything but the segments, in the order of the law above.

        Raises:
            OSError: the disk failed.
            StorageError: it is not a data directory, or too damaged to know its logs.
        """
        format_ = self.format()
        findings: list[Finding] = []
        checkpoint = catalog.read_checkpoint(self.files, self.root, findings)
        seed = journal_record.seed_of(format_.directory_id)
        known_ends = ends.find(self.files, self.root, seed, findings)
        kept = self._states(format_.directory_id, checkpoint, findings)
        batches = self._journal(seed, spool)
        logs: list[LogRecord] = []
        for name in self.files.listdir(self.root / "logs"):
            if self.files.is_dir(self.root / "logs" / name):
                log = self._log(name, checkpoint, findings)
                logs += [log] if log else []
        damage = tuple(each for each in findings if each.severity is Severity.DAMAGE)
        return Start(format_, checkpoint, known_ends, kept, batches, tuple(logs), damage)

    def look(self, log: LogRecord, index: int, start: Start) -> Looked:
        """The segments of a partition at this moment.

        Raises:
            FileNotFoundError: retention removed one meanwhile, or the log was deleted.
            StorageError: the library of a compressed segment is missing.
        """
        folder = self.root / "logs" / log.name / str(index)
        paths: dict[int, Path] = {}
        for name in self.files.listdir(folder):
            stem, _, suffix = name.partition(".")
            if f".{suffix}" in SEGMENT_SUFFIXES and len(stem) == _NAME_DIGITS and stem.isdecimal():
                # Names come in order, so that of an uncompressed segment is first.
                paths.setdefault(int(stem), folder / name)
        bases = list(paths)
        # Before the sizes: an index that is read later may cover more than the segments have then.
        latest = self._index(log, index, folder, bases)
        seen: list[Seen] = []
        # From the last on: if a segment has bytes, the one before it is complete.
        for base in reversed(bases):
            file = open_while_replaced(self.files, paths[base], base, log.seed(index))
            # The stamp first: a write between the two makes it look old, and the file is read again.
            stamp = file.stamp()
            seen.append(Seen(base, file.size(), stamp))
        first, _ = bounds_of(log, index, start.checkpoint, start.ends)
        return Looked(looked(seen[::-1], first), latest, paths)

    def still_has(self, log: LogRecord) -> bool:
        """Whether the log was neither deleted nor deleted and created again."""
        try:
            content = catalog.unseal(read_file(self.files, self._log_file(log.name)))
        except FileNotFoundError:
            return False
        # A damaged file says nothing; the checkpoint had the log.
        return content is None or content.get("uid") == f"{log.uid:016x}"

    def _log_file(self, name: str) -> Path:
        return self.root / "logs" / name / catalog.LOG_FILE

    def _states(
        self, directory_id: int, checkpoint: Checkpoint | None, findings: list[Finding]
    ) -> Mapping[str, bytes]:
        data = states.find(self.files, self.root, checkpoint, findings)
        if data is None:
            return {}
        return states.look(data, self.root / states.FILE, directory_id, checkpoint, findings).values

    def _journal(self, seed: int, spool: Spool) -> Mapping[Key, list[Spooled]]:
        """Copy all whole records of the journal. What is missing among them is in segments by now."""
        folder, position = self.root / journal.FOLDER, 0
        found: dict[Key, list[Spooled]] = {}
        for name in self.files.listdir(folder):
            if not name.endswith(".journal"):
                continue
            file = OpenFile(self.files, folder / name)
            _, heads = journal.last_use(file, seed)
            for _, head, data in journal.whole_records(file, name, heads, [], newest=False, synced=0):
                at = head.batches_at
                for uid, partition, length in head.entries:
                    batch = record.head_at(data, at)
                    assert batch is not None, "the record was whole"
                    spool.write(data[at : at + length])
                    found.setdefault((uid, partition), []).append(
                        Spooled(position, length, batch.base, batch.end)
                    )
                    at, position = at + length, position + length
        return found

    def _log(self, name: str, checkpoint: Checkpoint | None, findings: list[Finding]) -> LogRecord | None:
        ours: list[Finding] = []
        try:
            log = catalog.read_log(
                self.files, self.root, name, checkpoint=checkpoint, findings=ours, repair=False
            )
        except StorageError:
            # A deletion moves the folder away as a whole. Otherwise the file is damaged.
            if self.files.is_dir(self.root / "logs" / name):
                words = f"{catalog.LOG_FILE} is missing or damaged: the log is not in the backup"
                findings.append(Finding(Severity.DAMAGE, f"logs/{name}", None, words))
            return None
        # The checkpoint may be older than a deletion of the log.
        return None if ours and not self.files.is_dir(self.root / "logs" / name) else log

    def _index(
        self, log: LogRecord, index: int, folder: Path, bases: list[int]
    ) -> tuple[int, index_file.Decoded] | None:
        for base in reversed(bases):
            try:
                data = read_file(self.files, segment_path(folder, base).with_suffix(".idx"))
            except FileNotFoundError:
                continue
            decoded = index_file.decode(data, base, log.seed(index))
            if decoded is not None:
                return base, decoded
        return None


def retried(look: Callable[[], None], is_there: Callable[[], bool], *, tries: int) -> None:
    """Call `look` again while retention removes files that it reads.

    Raises:
        LogGoneError: the log does not exist any more.
        FileNotFoundError: files are missing for another reason.
    """
    for left in range(tries - 1, -1, -1):
        try:
            look()
        except FileNotFoundError:
            if not is_there():
                raise LogGoneError from None
            if not left:
                raise
        else:
            return
