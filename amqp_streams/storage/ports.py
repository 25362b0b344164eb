"""The seam between the node and whatever keeps its events.

One law: **durable before visible**. `Partition.end` (the high-water mark) moves only when the commit that holds the records is as
safe as the sync mode promises; only records below it are ever read. All methods are called from one thread (the event loop's).
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError

STATE_KEY_BYTES_MAX: Final = 2048
"""Of one key of `States`, in UTF-8."""
STATE_VALUE_BYTES_MAX: Final = 1 << 20
STATE_KEYS_MAX: Final = 1 << 18
"""Keys of one data directory: all of them are in memory."""
RETAINED_A_CALL: Final = 1000
"""Partitions that one call of `Store.apply_retention` examines: about 5 ms of work."""
Formats: TypeAlias = "array[int] | None"
"""The message-formats of a run of records or messages (AMQP 2.7.5), one each; None: they are all 0."""
PRODUCER_ID_BYTES_MAX: Final = 256
"""Of the id of a producer that numbers its events, in UTF-8; at least one."""


class Reached(NamedTuple):
    """How far a producer that numbers its events has come in a partition: its highest durable sequence, and when that was stored, ms."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The sequences that `producer` gave to records appended together: one for each, ascending, unsigned 64 bits.

    `forgotten`: producers of which nothing is known any more when these records are durable.
    """

    producer: str
    sequences: "array[int]"
    forgotten: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Part of a chunk's records has numbers: record `base` + i has `sequences[i]`. None: from `base` on the producer is forgotten."""

    base: int
    producer: str
    sequences: "array[int] | None"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A contiguous run of records of one partition, as read or as appended.

    `base` is the offset number of the first record; record i has number base + i. `messages[i]` is what the producer sent less its
    delivery annotations: header section (its first `header_sizes[i]` bytes, mostly 0) and then everything from the message
    annotations on. `timestamps[i]` is the append time in ms since the epoch, never decreasing within a partition. `marks`, on the way to
    the disk only: records whose producers number them.
    """

    base: int
    timestamps: "array[int]"
    header_sizes: bytes
    messages: Sequence[bytes]
    marks: Sequence[Mark] = ()
    formats: Formats = None

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A moment's figures of one partition, for `$info`, metrics and people."""

    start: int
    end: int
    bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class CommitDone:
    """One commit came back. `failures` holds, for each partition whose records it could not make safe, why."""

    sequence: int
    events: int
    bytes: int
    seconds: float
    failures: Mapping["Partition", StorageError]


class Use(NamedTuple):
    """How much of a bound is used."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A moment's figures of a whole store.

    `full`: why no events are taken (the disk is full), None: they are. `commit_ms`: how long the commit in flight has taken so far, 0
    without one. `ahead_ms`: the logs whose last timestamp is ahead of the clock by more than a minute, and by how much. `uses`: its
    bounds, by name.
    """

    full: str | None = None
    commit_ms: int = 0
    ahead_ms: Mapping[str, int] = field(default_factory=dict)
    uses: Mapping[str, Use] = field(default_factory=dict)


class Partition(Protocol):
    """One ordered sequence of records."""

    @property
    def log(self) -> str:
        """Name of the log it belongs to."""

    @property
    def index(self) -> int:
        """Its number in the log, from 0."""

    @property
    def start(self) -> int:
        """Number of the earliest retained record; equals `end` when there is none."""

    @property
    def end(self) -> int:
        """One past the latest durable record: the high-water mark."""

    @property
    def producers(self) -> Mapping[str, Reached]:
        """Producers that number their events, by id: durable with the events themselves. Whoever stored something last is last."""

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> int:
        """Take records into the next commit; returns the number of the first.

        `messages` belongs to the store from now on: it is not copied, and must not change any more. At least one.
        A clock that went back does not count: timestamps never decrease. `numbers`, once `Store.allow_numbers` was called: one for each
        record, higher than those before; they are in `producers` when the records are durable, and never without them. `formats`, once
        `Store.allow_formats` was called, are not all 0.

        Raises:
            DiskFullError: there is no space; try again when there is.
            StorageError: this partition stopped after a failed write or sync.
        """

    def read(self, at: int, bytes_max: int) -> Chunk | None:
        """Records from number `at` on, at least one, about `bytes_max` bytes; None when `at` is `end` or beyond.

        `at` below `start` reads from `start` (the caller compares). Pure in effect: any number of readers, any order.

        Raises:
            CorruptionError: the stored bytes there are damaged; names file and position.
            StorageError: the disk failed.
        """

    def seek_timestamp(self, after_ms: int) -> int:
        """Number of the first record whose timestamp is greater than `after_ms`; `end` if there is none. O(log n)."""

    def facts(self) -> PartitionFacts:
        """Figures of this moment. Cheap: touches no file."""


class States(Protocol):
    """Small values beside the logs, by key: cursors, epochs. Few and rarely written, so they are all in memory."""

    on_written: Callable[[int, StorageError | None], None]
    """Called on the event loop's thread with the number of a write that ended, and why it failed if it did. Set by the owner."""

    def get(self, key: str) -> bytes | None:
        """The value last written, durable or on its way; None if there is none."""

    def items(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """Keys that begin with `prefix` and their values, by key."""

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """Write these values together, all or none after a crash; None removes. Seen by `get` at once.

        Returns the number of the write, rising by one: `on_written` is called with it when it is as safe as the sync mode promises, never
        from within this call. A write that failed stays seen here and goes with the next one.

        Raises:
            ValueError: a key has no or more than STATE_KEY_BYTES_MAX bytes, a value more than STATE_VALUE_BYTES_MAX, or there would be more
                than STATE_KEYS_MAX keys. Nothing is changed.
        """


class Store(Protocol):
    """All logs of one data directory."""

    @property
    def states(self) -> States:
        """What is kept beside the logs. Deleting a log leaves its states to their owner."""

    on_commit: Callable[[CommitDone], None]
    """Called on the event loop's thread when a commit ended, after the high-water marks moved. Set by the owner."""

    @property
    def logs(self) -> Mapping[str, "StoredLog"]:
        """The logs by name."""

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> "StoredLog":
        """Make a log; durable when this returns. `incarnation` is a random id that tells it from a namesake deleted earlier.

        Raises:
            ValueError: it exists.
            StorageError: the disk failed.
        """

    def update(self, name: str, settings: LogSettings) -> "StoredLog":
        """Give a log other settings for retention and segments; durable when this returns. The partitions stay the same objects.

        Raises:
            KeyError: there is no such log.
            ValueError: the number of partitions differs.
            StorageError: the disk failed.
        """

    def delete(self, name: str) -> None:
        """Remove a log and its events; durable when this returns. Pending appends to it fail. Raises KeyError if unknown."""

    def allow_numbers(self) -> None:
        """Call before appends with `Numbers`: marks the data directory as one that older programs must not open. Durable when it returns.

        Raises StorageError: the disk failed.
        """

    def allow_formats(self) -> None:
        """Call before appends with `formats`. Otherwise as `allow_numbers`."""

    @property
    def sequence(self) -> int:
        """Number of the commit that the next append goes into: one higher than that of a commit in flight."""

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet committed, in flight included."""

    def commit(self) -> None:
        """Start a commit of everything appended, unless one is in flight (then the next starts by itself when that ends)."""

    def apply_retention(self, now_ms: int) -> list[tuple["Partition", int]]:
        """Drop whole segments that are past their log's retention; the partitions whose `start` moved, and the old start.

        Looks at `RETAINED_A_CALL` partitions at most, and at the next ones when it is called again.
        """

    def facts(self) -> StoreFacts:
        """Figures of this moment. Cheap: walks no partitions, touches no file."""

    def close(self) -> None:
        """Commit what is pending, sync everything, release the lock. No `on_commit` after this returns."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredLog:
    """A log and its partitions, in order: partition i is addressed as the symbol str(i)."""

    name: str
    settings: LogSettings
    incarnation: str
    partitions: tuple[Partition, ...]
