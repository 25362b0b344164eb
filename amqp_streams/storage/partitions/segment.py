"""Segments and writes to them, as values."""

from dataclasses import dataclass, field
from pathlib import Path

from amqp_streams.storage.disk.files import OpenFile
from amqp_streams.storage.disk.work import Step
from amqp_streams.storage.formats import producers
from amqp_streams.storage.formats.index import Coverage, Index
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.sources import SUFFIX


@dataclass(slots=True, eq=False)
class Segment:
    """One file of record batches.

    `bytes`, `end`: size of the file and end of its records after the last successful write. `covered`: how
    many of these bytes the index file covers. `saved`: the index file exists. `producers`: in a closed
    segment, the table for the index file. `stored`: the bytes of the compressed file, if it is compressed;
    `bytes` and all positions are those of the uncompressed segment.
    """

    path: Path
    base: int
    end: int
    bytes: int = 0
    first_timestamp_ms: int = 0
    last_timestamp_ms: int = 0
    covered: int = 0
    exists: bool = False
    index: Index | None = None
    saved: bool = False
    producers: Table | None = None
    noticed_ms: int | None = None
    """When a timestamp in the future was first noticed in the segment; None if it has none."""
    stored: int | None = None
    other: Path | None = None
    """The compressed file of a segment that is not, or the other way round, if it may exist: see `files`."""
    unfit: bool = False
    """It is not compressed: this would save nothing, or has failed."""

    @property
    def index_path(self) -> Path:
        """The path of its index file."""
        return self.path.with_suffix(".idx")

    @property
    def files(self) -> list[Path]:
        """The paths of its records: one or two, of which `path` is read."""
        return [self.path] if self.other is None else [self.path, self.other]

    @property
    def file_bytes(self) -> int:
        """The bytes of its file."""
        return self.bytes if self.stored is None else self.stored

    def coverage(self) -> Coverage:
        """What its index file will cover."""
        return Coverage(self.base, self.end, self.first_timestamp_ms, self.last_timestamp_ms, self.bytes)


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch of a write: where it is in its segment, and what it has."""

    segment: Segment
    position: int
    length: int
    base: int
    end: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    entries: producers.Entries | None


@dataclass(slots=True, eq=False)
class Staged:
    """A prepared write: its steps, and the state after them.

    The first step encodes the records in the thread that writes, and adds all that this class has but `end`
    and `closed`. The event loop reads them when the write has ended.
    """

    end: int
    steps: list[Step] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    opened: list[Segment] = field(default_factory=list)
    created: list[Path] = field(default_factory=list)
    files: dict[Path, OpenFile] = field(default_factory=dict)
    """The files of `opened`."""
    written: list[OpenFile] = field(default_factory=list)
    """The files that are written."""
    closed: list[Segment] = field(default_factory=list)
    """Filled by `apply`: the segments that the write closed."""


def segment_path(folder: Path, base: int) -> Path:
    """The path of the segment whose first record is `base`."""
    return folder / f"{base:016d}{SUFFIX}"
