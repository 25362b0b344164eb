"""Answers of the store that come later, so that nothing else waits for them.

Laws: a lookup advances with each answer of the store, however little the store keeps in memory; a cancelled
lookup calls nothing. A change that has begun is completed, with all that follows from it.
"""

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from amqp_streams.node.writes import Wait
from amqp_streams.storage.answering import at_once
from amqp_streams.storage.ports import LATER, Later, Partition, ReadRequest, Store, StoredLog
from amqp_streams.storage.questions import Question, Refresh

T = TypeVar("T")
Answering = Generator[Wait, None, T]


class Begun(Wait):
    """The end of a change that has begun. The change ends, also if its client leaves."""


def asked(store: Store, question: Question, connection: Hashable) -> Answering[StoredLog | None]:
    """The answer of the store; raises like `Store.ask`. None as `connection`: the caller cannot wait."""
    if connection is None:
        return at_once(store, question)
    return (yield from _answer(partial(store.ask, question), connection))


def refreshed(store: Store, log: StoredLog, connection: Hashable) -> Answering[None]:
    """Let the store learn what other nodes did with a log, also whether they deleted it.

    Raises:
        StorageError: the store cannot learn it now.
    """
    yield from asked(store, Refresh(log.name, tuple(range(len(log.partitions)))), connection)


def sought(
    partitions: Iterable[Partition], after_ms: int | None, connection: Hashable
) -> Answering[dict[int, int]]:
    """The first position after a time, by partition. Empty without a time, or if the caller cannot wait.

    Raises:
        StorageError: the disk failed.
    """
    found: dict[int, int] = {}
    if after_ms is not None and connection is not None:
        for partition in partitions:
            found[partition.index] = yield from _answer(
                partial(partition.seek_timestamp, after_ms), connection
            )
    return found


def _answer(call: Callable[[ReadRequest], T | Later], connection: Hashable) -> Answering[T]:
    request = ReadRequest(connection, lambda: None)
    try:
        while True:
            wait = Wait()
            request.ready = partial(wait.ended, None, 0)
            answer = call(request)
            if answer is not LATER:
                return answer
            yield wait
    finally:
        request.cancel()


def carried_out(change: Answering[T], then: Callable[[], None]) -> Answering[T]:
    """What `change` returns or raises. It continues to its end, also if the caller stops waiting for it.

    `then`: called when the change has ended.
    """
    carried = _Carried(change, then)
    carried.proceed()
    if not carried.end.over:
        yield carried.end
    return carried.outcome()


class _Carried(Generic[T]):
    """A change that continues without its caller. `end`: when it has ended."""

    def __init__(self, change: Answering[T], then: Callable[[], None]) -> None:
        self.end: Final = Begun()
        self._change: Final = change
        self._then: Final = then
        self._results: Final[list[T]] = []
        self._error: Exception | None = None

    def proceed(self) -> None:
        """Do the change up to its next wait, and continue after this wait."""
        try:
            wait = next(self._change)
        except StopIteration as end:
            self._results.append(end.value)
        except Exception as error:  # noqa: BLE001  `outcome` raises it
            self._error = error
        else:
            wait.then(self.proceed)
            return
        # First the caller: it is answered before the callers of later changes.
        self.end.ended(None, 0)
        self._then()

    def outcome(self) -> T:
        """Return or raise what the change returned or raised. It has ended."""
        if self._error is not None:
            raise self._error
        return self._results[0]


@dataclass(slots=True, eq=False)
class Lookup:
    """A lookup for an attach. `found`: the positions that the store has answered, by partition."""

    after_ms: int
    request: ReadRequest
    found: dict[int, int] = field(default_factory=dict)

    def waits(self, partitions: Iterable[Partition]) -> bool:
        """Whether the store will answer later. If it has no more to read, the attach can continue.

        Raises:
            StorageError: the disk failed.
        """
        for partition in partitions:
            if partition.index not in self.found:
                position = partition.seek_timestamp(self.after_ms, self.request)
                if position is LATER:
                    return True
                self.found[partition.index] = position
        return False


class Lookups:
    """The attaches that wait for answers.

    `on_answer`: set by the shell, called for each attach whose question was answered; for each call, the
    shell calls `proceed` once. None: the shell cannot wait.
    """

    def __init__(self) -> None:
        self.on_answer: Callable[[], None] | None = None
        self._answered: dict[Hashable, Callable[[int], None]] = {}

    def begin(self, after_ms: int | None, connection: Hashable, then: Callable[[int], None]) -> Lookup | None:
        """A lookup that calls `then` with the time of the node after each answer. None: nothing can wait."""
        if after_ms is None or self.on_answer is None:
            return None
        request = ReadRequest(connection, lambda: None)
        lookup = Lookup(after_ms, request)
        request.ready = partial(self.ready, lookup, then)
        return lookup

    def cancel(self, lookup: Lookup | None) -> None:
        """Forget a lookup."""
        if lookup is not None:
            lookup.request.cancel()
            self._answered.pop(lookup, None)

    def forget(self, key: Hashable) -> None:
        """Do not call what `ready` was given for `key`."""
        self._answered.pop(key, None)

    def proceed(self, now_ms: int) -> None:
        """Continue the attach whose question was answered first, if one is left.

        One at a time: many may wait for one answer, and each may read a thousand partitions.
        """
        if self._answered:
            key = next(iter(self._answered))
            self._answered.pop(key)(now_ms)

    def ready(self, key: Hashable, then: Callable[[int], None]) -> None:
        """The store has answered `key`: call `then` in `proceed`."""
        self._answered[key] = then
        if self.on_answer is not None:
            self.on_answer()
