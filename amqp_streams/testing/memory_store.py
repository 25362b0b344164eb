"""Logs in memory, which keep every promise of `storage/ports.py` but one.

Nothing is left when the process ends. `Uneven` makes the numbers and times like those of a store on a
replicated log, whose partitions change their leaders.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from amqp_streams.config import LogSettings
from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.log_settings import log_name
from amqp_streams.storage.answering import at_once
from amqp_streams.storage.ports import Chunk, CommitDone, Later, Partition, ReadRequest, StoredLog, StoreFacts
from amqp_streams.storage.questions import Find, Question, Refresh
from amqp_streams.testing.lateness import Lateness, LatePartition
from amqp_streams.testing.memory_partition import MemoryCommitQueue, MemoryPartition, Uneven
from amqp_streams.testing.memory_states import MemoryStates


class MemoryStore:
    """All logs in memory.

    `commit()` completes at once, or with `auto=False` when the test says `complete()`.

    `states` are those of a store before this one, or new ones. With `separate`, each partition has a commit
    queue of its own; otherwise all partitions share one. With `uneven`, numbers have gaps and times may fall.
    With `late`, requests are answered later.
    """

    def __init__(
        self,
        *,
        auto: bool = True,
        states: MemoryStates | None = None,
        separate: bool = False,
        uneven: Uneven | None = None,
        late: Lateness | None = None,
    ) -> None:
        self._identity = uuid4().hex
        self._uneven: Final = uneven
        self._late: Final = late
        self._unseen: Final[dict[str, StoredLog]] = {}
        self._arrived: Final[dict[str, list[tuple[MemoryPartition, Chunk]]]] = {}
        self.states: Final = states or MemoryStates()
        self.others: Final = None
        self.on_commit: Callable[[CommitDone], None] = _ignore
        self.auto = auto
        self.closed = False
        self.full: str | None = None
        self._logs: dict[str, StoredLog] = {}
        self._shared: Final = None if separate else MemoryCommitQueue(self)
        # Also those of deleted logs whose appends have not failed yet.
        self._queues: dict[MemoryCommitQueue, None] = {} if self._shared is None else {self._shared: None}

    def reopened(self) -> "MemoryStore":
        """Return a store with these states and visible records, as after a restart. This one is then gone."""
        store = MemoryStore(
            auto=self.auto,
            states=self.states,
            separate=self._shared is None,
            uneven=self._uneven,
            late=self._late,
        )
        store._identity = self._identity
        store._logs = self._logs
        for log in self._logs.values():
            for partition in log.partitions:
                assert isinstance(partition, MemoryPartition)
                partition.queue = store._shared or MemoryCommitQueue(store, alone=True)
                partition.forget_uncommitted()
                store._queues[partition.queue] = None
        return store

    @property
    def identity(self) -> str:
        """See `Store.identity`."""
        return self._identity

    @property
    def logs(self) -> Mapping[str, StoredLog]:
        """See `Store.logs`."""
        return self._logs

    @property
    def queue(self) -> MemoryCommitQueue:
        """The queue that all partitions share."""
        assert self._shared is not None, "the partitions share a queue"
        return self._shared

    @property
    def pending_bytes(self) -> int:
        """See `Store.pending_bytes`."""
        return sum([queue.pending_bytes for queue in self._queues])

    @property
    def in_flight(self) -> bool:
        """Whether a commit waits for `complete()`."""
        return any(queue.in_flight for queue in self._queues)

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """See `Store.create`."""
        if log_name(name) in self._logs:
            message = f"log {name} exists"
            raise ValueError(message)
        queues = [self._shared or MemoryCommitQueue(self, alone=True) for _ in range(settings.partitions)]
        self._queues |= dict.fromkeys(queues)
        kind = MemoryPartition if self._late is None else partial(LatePartition, self._late)
        partitions = tuple(
            kind(queue, name, index, settings, self._uneven) for index, queue in enumerate(queues)
        )
        self._logs[name] = StoredLog(name, settings, incarnation, partitions)
        return self._logs[name]

    def update(self, name: str, settings: LogSettings) -> StoredLog:
        """See `Store.update`."""
        log = self._logs[name]
        if settings.partitions != len(log.partitions):
            message = f"log {name} has {len(log.partitions)} partitions forever"
            raise ValueError(message)
        for partition in log.partitions:
            assert isinstance(partition, MemoryPartition)
            partition.settings = settings
        self._logs[name] = StoredLog(name, settings, log.incarnation, log.partitions)
        return self._logs[name]

    def delete(self, name: str) -> None:
        """See `Store.delete`."""
        for partition in self._logs.pop(name).partitions:
            assert isinstance(partition, MemoryPartition)
            partition.failure = LogDeletedError(f"log {name} was deleted")

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`."""
        answer = partial(self._answered, question)
        return answer() if self._late is None else self._late.answer(request, question, answer)

    def _answered(self, question: Question) -> StoredLog | None:
        match question:
            case Find(name) if name in self._unseen:
                self._logs[name] = self._unseen.pop(name)
            case Refresh(name):
                for partition, chunk in self._arrived.pop(name, ()):
                    partition.make_visible(chunk)
        return at_once(self, question)

    def create_elsewhere(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        """Create a log as another node does: this store learns of it when it is asked for the log."""
        self._unseen[name] = self.create(name, settings, incarnation=incarnation)
        del self._logs[name]
        return self._unseen[name]

    def append_elsewhere(self, partition: Partition, messages: Sequence[bytes], now_ms: int) -> None:
        """Append records as another node does: this store learns of them at the next `Refresh` of the log.

        Until then, nothing else is appended to the partition.
        """
        assert isinstance(partition, MemoryPartition)
        self._arrived.setdefault(partition.log, []).append((partition, partition.taken(messages, now_ms)))

    def allow_numbers(self) -> None:
        """See `Store.allow_numbers`."""

    def allow_formats(self) -> None:
        """See `Store.allow_formats`."""

    def commit(self) -> None:
        """See `Store.commit`."""
        for queue in list(self._queues):
            queue.commit()

    def complete(self) -> CommitDone:
        """End the commit in flight of the shared queue: see `MemoryCommitQueue.complete`."""
        return self.queue.complete()

    def fail(self, partition: Partition, error: StorageError, *, stop: bool = True) -> None:
        """Make `partition` lose what it has in the commit in flight or, without one, in the next.

        With `stop` it takes no more.
        """
        assert isinstance(partition, MemoryPartition)
        partition.queue.fail(partition, error)
        if stop:
            partition.failure = error

    def compress(self) -> None:
        """See `Store.compress`: it does not compress."""

    def apply_retention(self, now_ms: int) -> list[tuple[Partition, int]]:
        """See `Store.apply_retention`."""
        moved: list[tuple[Partition, int]] = []
        for log in self._logs.values():
            for partition in log.partitions:
                assert isinstance(partition, MemoryPartition)
                before = partition.start
                if partition.retain(now_ms):
                    moved.append((partition, before))
        return moved

    def facts(self) -> StoreFacts:
        """See `Store.facts`; `full` is for the test to set."""
        return StoreFacts(full=self.full)

    def close(self, *, within_s: float | None = None) -> bool:  # noqa: ARG002  memory is fast
        """See `Store.close`."""
        for queue in self._queues:
            while not queue.idle:
                queue.commit()
                if queue.in_flight:
                    queue.complete()
        self.closed = True
        self.on_commit = _ignore
        return True


def _ignore(done: CommitDone) -> None:
    pass
