"""The interface between the node and the storage of its events.

One law: **durable before visible**. `Partition.end` (the high-water mark) moves only when the commit that
holds the records is as safe as the sync mode promises; only records below it are ever read. All methods are
called from one thread (the event loop's).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeAlias, overload

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.questions import Figure, Foreign, Others, Question

STATE_KEY_BYTES_MAX: Final = 2048
"""The longest key of `States`, in UTF-8."""
STATE_VALUE_BYTES_MAX: Final = 1 << 20
STATE_KEYS_MAX: Final = 1 << 18
"""The most keys of a data directory: all of them are in memory."""
RETAINED_A_CALL: Final = 1000
"""The most partitions that one call of `Store.apply_retention` examines: about 5 ms of work."""
Formats: TypeAlias = "array[int] | None"
"""The message-formats of a run of records or messages (AMQP 2.7.5), one for each; None: all of them are 0."""
PRODUCER_ID_BYTES_MAX: Final = 256
"""The longest id of an idempotent producer, in UTF-8; the shortest has one byte."""


class Reached(NamedTuple):
    """An idempotent producer in a partition: its highest durable sequence, and when it was stored, in ms."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The sequences of records that `producer` appends together: one for each, ascending, u64.

    `forgotten`: producers that are removed from the table when these records are durable.
    """

    producer: str
    sequences: "array[int]"
    forgotten: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Sequences of a part of a chunk: record `base` + i has `sequences[i]`; None: forgotten at `base`."""

    base: int
    producer: str
    sequences: "array[int] | None"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A run of records of one partition, as read or as appended. No record between them is missing.

    `base` is the offset number of the first record; record i has number base + i, or `offsets[i]` if the
    numbers have gaps. `messages[i]` is the producer's message without its delivery annotations: the header
    section (its first `header_sizes[i]` bytes, mostly 0), then everything from the message annotations on.
    `timestamps[i]` is the append time in ms since the epoch; it never decreases within a partition, unless
    `Partition.times_may_fall`. `marks` are the sequences of idempotent producers; only chunks to be written
    have them.
    """

    base: int
    timestamps: "array[int]"
    header_sizes: bytes
    messages: Sequence[bytes]
    marks: Sequence[Mark] = ()
    formats: Formats = None
    offsets: "array[int] | None" = None
    """The numbers of the records, ascending, with at least one gap; None: without gaps."""

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def end(self) -> int:
        """One past the number of the last record."""
        return self.base + len(self.messages) if self.offsets is None else self.offsets[-1] + 1

    def number(self, index: int) -> int:
        """The number of a record."""
        return self.base + index if self.offsets is None else self.offsets[index]

    def index(self, number: int) -> int:
        """The index of the first record that has at least this number. Not below the first record."""
        return number - self.base if self.offsets is None else bisect_left(self.offsets, number)

    def adjacent(self, first: int, last: int) -> int:
        """The index up to which the numbers from index `first` on follow each other; at most `last`."""
        offsets = self.offsets
        if offsets is None or offsets[last - 1] - offsets[first] == last - 1 - first:
            return last
        # The difference of number and index grows at each gap.
        shift = offsets[first] - first
        return bisect_right(range(first, last), shift, key=lambda index: offsets[index] - index) + first


class Later(Enum):
    """What a store answers while it waits for the disk, or for another machine."""

    LATER = auto()


LATER: Final = Later.LATER


class PendingRead(Protocol):
    """An answer that a store has begun for a `ReadRequest`."""

    def cancel(self) -> None:
        """Forget the request: `ready` is not called any more."""


@dataclass(slots=True, eq=False)
class ReadRequest:
    """A caller that can wait for an answer. It has at most one question that is not answered.

    `owner`: the reads of all owners take turns, for example of connections. `ready`: called on the event
    loop's thread, when the same read or question is answered at once. `pending`: belongs to the store.
    """

    owner: Hashable
    ready: Callable[[], None]
    pending: PendingRead | None = None

    def cancel(self) -> None:
        """Give up the answer. Has no effect if the request waits for none."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.cancel()


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The current figures of one partition, for `$info`, metrics and people."""

    start: int
    end: int
    bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    failure: str | None


class CommitQueue(Protocol):
    """The partitions whose records become durable together, commit by commit.

    The commits of a queue end in the order of their numbers, and do not wait for those of another queue.
    """

    @property
    def sequence(self) -> int:
        """The number of the commit that takes the next append: more than that of a commit in flight."""

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet committed, those in flight included."""

    @property
    def alone(self) -> bool:
        """Whether it has the records of one partition, or one producer, only. It never changes."""


@dataclass(frozen=True, slots=True)
class CommitDone:
    """A commit of a queue that ended. `failures`: by partition, why its records could not be made durable."""

    queue: CommitQueue
    sequence: int
    events: int
    bytes: int
    seconds: float
    failures: Mapping["Partition", StorageError]


class Use(NamedTuple):
    """How much of a bound is in use."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The current figures of a whole store.

    `full`: why appends are refused: less than `reserve_bytes` is free. `away`: why the store does not answer.
    `commit_ms`: of the commit in flight. `ahead_ms`: by log, how far its last timestamp is ahead of the
    clock, if by more than a minute. `uses`: the store's bounds, by name.
    """

    full: str | None = None
    away: str | None = None
    commit_ms: int = 0
    ahead_ms: Mapping[str, int] = field(default_factory=dict)
    uses: Mapping[str, Use] = field(default_factory=dict)
    problems: Sequence[str] = ()
    """What keeps idempotent producers from sending, in words."""
    figures: Sequence[Figure] = ()
    reserve_bytes: int = 0


class Partition(Protocol):
    """One ordered sequence of records."""

    @property
    def queue(self) -> CommitQueue:
        """Whose commits make its records durable. It never changes."""

    @property
    def log(self) -> str:
        """Name of the log it belongs to."""

    @property
    def index(self) -> int:
        """Its number in the log, from 0."""

    @property
    def start(self) -> int:
        """The number of the earliest retained record; equal to `end` if the partition has no records.

        If `gaps`, it may belong to no record; then it is less than that of the earliest one.
        """

    @property
    def end(self) -> int:
        """Greater than the numbers of all durable records, by one unless `gaps`: the high-water mark."""

    @property
    def times_may_fall(self) -> bool:
        """Whether a record may have an earlier append time than the record before it. It never changes."""

    @property
    def gaps(self) -> bool:
        """Whether numbers between `start` and `end` may belong to no record. It never changes."""

    @property
    def producers(self) -> Mapping[str, Reached]:
        """Idempotent producers by id, as durable as their events.

        The producer with the latest record is last.
        """

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> int | None:
        """Add records to the next commit.

        Returns the number of the first; None if the store gives numbers when the records are durable.

        The store takes ownership of `messages`: they are not copied and must not change. At least one. If the
        clock steps back, the timestamp of the record before is used, unless `times_may_fall`. `numbers` has
        one sequence for each record, higher than those before, and needs `Store.allow_numbers`; `producers`
        shows them when the records are durable, not earlier. `formats` must not all be 0, and need
        `Store.allow_formats`.

        Raises:
            DiskFullError: the disk has no space; retry later.
            StorageError: this partition stopped after a failed write or sync.
        """

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:
        """Record from number `at` on, at least one, about `bytes_max` bytes.

        None if no record from `at` on is durable: `at` is `end` or greater, or the numbers from `at` to `end`
        belong to no record. `LATER` if the store does not have the record in memory: then it calls
        `request.ready` when the same read with the same request answers with the records, or raises. It
        never calls `ready` after `request.cancel` or after a read of another position. Without a request, the
        read waits for the disk and never answers `LATER`.

        If `at` is below `start`, reads from `start` (the caller compares). Any number of readers may read in
        any order.

        Raises:
            CorruptionError: the stored bytes are damaged; names file and position.
            StorageError: the disk failed.
        """

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:
        """The number of the first record whose timestamp is greater than `after_ms`, or else `end`.

        O(log n). If `times_may_fall`, later records may have timestamps that are not greater. `LATER`,
        `request`: as in `read`.

        Raises:
            CorruptionError, StorageError: as in `read`.
        """

    def follow(self) -> None:
        """A reader waits at `end`: notice records of other nodes (`Store.others`). Cheap, called often."""

    def facts(self) -> PartitionFacts:
        """The current figures. Cheap: reads no file."""


class States(Protocol):
    """Small values that are stored in addition to the logs, by key, and kept in memory: cursors, epochs."""

    on_written: Callable[[int, StorageError | None], None]
    """Called on the event loop's thread with the number of a write that ended, and its error if it failed."""

    def get(self, key: str) -> bytes | None:
        """The value written last, durable or not yet; None if the key does not exist."""

    def items(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """The keys that begin with `prefix`, and their values, sorted by key."""

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """Write these values together: after a crash, all of them or none.

        None removes a key. `get` sees them at once.

        Returns the number of the write, which increases by one. `on_written` is called with it, never from
        within this call, when the write is as safe as the sync mode promises. A failed write is repeated with
        the next one.

        Raises:
            ValueError: a key is empty or longer than STATE_KEY_BYTES_MAX bytes, a value is longer than
                STATE_VALUE_BYTES_MAX, or the number of keys exceeds STATE_KEYS_MAX. Nothing is changed.
        """


class Store(Protocol):
    """All logs of one data directory."""

    @property
    def states(self) -> States:
        """The stored states. Deleting a log does not change them: the node removes those of the log."""

    @property
    def identity(self) -> str | None:
        """Differs between stores, never changes, is the same on all nodes with these logs. None: unknown."""

    on_commit: Callable[[CommitDone], None]
    """Set by the owner. Called on the loop's thread when a commit ended, after high-water marks moved."""

    @property
    def others(self) -> "Others[Partition, StoredLog] | None":
        """What other nodes do with these logs; None: they belong to this node alone. It never changes."""

    @property
    def logs(self) -> Mapping[str, "StoredLog"]:
        """The logs by name."""

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> "StoredLog":
        """Create a log; durable on return.

        The random `incarnation` distinguishes it from a deleted log of that name.

        Raises:
            ValueError: the log already exists.
            StorageError: the disk failed.
        """

    def update(self, name: str, settings: LogSettings) -> "StoredLog":
        """Change settings of retention and segments; durable on return. Partitions stay the same objects.

        Raises:
            KeyError: the log does not exist.
            ValueError: the number of partitions differs.
            StorageError: the disk failed.
        """

    def delete(self, name: str) -> None:
        """Delete a log and its events; durable on return. Pending appends to it fail.

        Raises:
            KeyError: unknown.
        """

    def ask(self, question: Question, request: ReadRequest) -> "StoredLog | Later | None":
        """The answer to a question about logs: see `questions.py`.

        `LATER`: the store calls `request.ready` when the same question with the same request is answered or
        raises. A change happens although its request is cancelled. Appends may fail during a deletion.

        Raises:
            ValueError: the log to create already exists, or `update` raises it.
            KeyError: the log to change or to delete does not exist.
            StorageError: the disk failed, or the other machine does not answer.
        """

    def allow_numbers(self) -> None:
        """Required before appends with `Numbers`: older versions can then not open the directory.

        Durable on return. Raises StorageError: the disk failed.
        """

    def allow_formats(self) -> None:
        """Required before appends with `formats`. Otherwise like `allow_numbers`."""

    @property
    def pending_bytes(self) -> int:
        """The pending bytes of all queues."""

    def commit(self) -> None:
        """Start a commit of all pending records, in each queue that has some.

        If a commit of the queue is in flight, its next one starts when that one ends.
        """

    def apply_retention(self, now_ms: int) -> list[tuple["Partition", int]]:
        """Drop whole segments that are past retention.

        Returns the partitions whose `start` moved, with the old start. Examines at most `RETAINED_A_CALL`
        partitions; the next call continues after them.
        """

    def compress(self) -> None:
        """Go on compressing stored events, if the store does so for a log. Called twice a second."""

    def facts(self) -> StoreFacts:
        """The current figures. Cheap: does not iterate over partitions and reads no file."""

    def close(self, *, within_s: float | None = None) -> bool:
        """Commit what is pending, sync everything, release the lock. No `on_commit` after this returns.

        `within_s`: about how many seconds this may take; None: as many as it needs. What does not fit stays
        as a kill -9 leaves it: durable, and recovered by the next start. Returns whether the next start needs
        no recovery.
        """


@dataclass(frozen=True, slots=True, eq=False)
class StoredLog:
    """A log and its partitions in order: the AMQP address of partition i has the symbol str(i).

    `refusal`: why producers are refused. `promise`: what `accepted` means; None: what the sync mode says.
    """

    name: str
    settings: LogSettings
    incarnation: str
    partitions: tuple[Partition, ...]
    refusal: str | None = None
    promise: str | None = None
    foreign: Foreign | None = None
