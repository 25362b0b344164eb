"""Commits, from the batch that a link appends to its outcome, and what waits meanwhile.

Laws: commits are answered in the order in which they end; the consumers that wait for the events of a commit
are woken after its producers were answered. However many links a commit concerns, the loop serves its sockets
in between.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from amqp_streams.config import Limits
from amqp_streams.errors import LogDeletedError
from amqp_streams.node import Node
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import Committing, Owner, Pause
from amqp_streams.server.links.turns import OrderedSteps
from amqp_streams.storage.ports import CommitDone, CommitQueue, Partition, Store
from amqp_streams.streams.receipts import Part, Wait

QUEUE_SHARE: Final = 4
"""A commit queue of one partition may have a quarter of `limits.pending_bytes` waiting. Beyond it, the links
of the partition get no credit.
"""

log = structlog.get_logger("amqp_streams")


@dataclass(frozen=True, slots=True)
class _Waiting:
    link: Committing
    deliveries: Sequence[Pointer]
    parts: Sequence[Part]


@dataclass(slots=True, eq=False)
class _Commit:
    """Who waits for a commit, and the partitions of their events."""

    waiting: list[_Waiting] = field(default_factory=list)
    partitions: dict[Partition, None] = field(default_factory=dict)


class Commits:
    """The commits of a node. `soon`: schedules a call for the next loop iteration.

    `wake`: called after the producers of a commit were answered.
    """

    def __init__(
        self,
        store: Store,
        node: Node,
        limits: Limits,
        *,
        soon: Callable[[Callable[[], None]], object],
        wake: Callable[[], None],
    ) -> None:
        self._store: Final = store
        self._node: Final = node
        self._limits: Final = limits
        self._soon: Final = soon
        self._wake: Final = wake
        self._steps: Final = OrderedSteps(soon)
        self.awaited: Final[dict[tuple[CommitQueue, int], _Commit]] = {}
        """The commits that have not ended."""
        self.withheld: dict[Committing, None] = {}
        """The links without credit because too many bytes wait for the disk."""
        self._stalled: Final[dict[CommitQueue, dict[Committing, None]]] = {}
        self._scheduled = False
        self._unanswered = 0
        """How many commits have ended whose producers are not all answered."""
        self._answered: Final = asyncio.Event()

    def wait(self, link: Committing, deliveries: Sequence[Pointer], wait: Wait) -> None:
        """Call `link.committed` when the commit with its records has ended.

        The commit starts at the end of this loop iteration.
        """
        key = wait.queue, wait.commit
        commit = self.awaited.get(key)
        if commit is None:
            commit = self.awaited[key] = _Commit()
        commit.waiting.append(_Waiting(link, deliveries, wait.parts))
        commit.partitions.update([(part.partition, None) for part in wait.parts])
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.begin)

    def begin(self) -> None:
        """Begin the commit that is due, if there is one."""
        if self._scheduled:
            self._scheduled = False
            self._store.commit()

    def overloaded(self, link: Committing) -> bool:
        """Whether more bytes wait for the disk than the limit allows, or the link is stalled.

        In the first case the connection is paused. `link.top_up` is called when half of the limit is free.
        """
        # Bytes that were received count, not bytes that may still arrive: credit alone cannot bound them.
        if self._store.pending_bytes < self._limits.pending_bytes:
            return self.stalls(link)
        self.withheld[link] = None
        link.owner.pause(Pause.DISK)
        return True

    def stall(self, link: Committing, queue: CommitQueue) -> None:
        """Grant no credit to a link while the partition of `queue` has its share of the limit waiting.

        Other links of the connection continue: their partitions may be led by another machine.
        """
        if queue.pending_bytes >= self._limits.pending_bytes // QUEUE_SHARE:
            self._stalled.setdefault(queue, {})[link] = None

    def stalls(self, link: Committing) -> bool:
        """Whether the link gets no credit because its partition has its share of the limit waiting."""
        return bool(self._stalled) and any(link in links for links in self._stalled.values())

    async def quiet(self, timeout_s: float) -> None:
        """Wait until everything that was received is answered, at most `timeout_s`."""
        if self.awaited or self._unanswered:
            self._answered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), timeout_s)

    def ended(self, done: CommitDone) -> None:
        """A commit has ended: answer its producers, then wake the consumers that wait for its events."""
        commit = self.awaited.pop((done.queue, done.sequence), None) or _Commit()
        # At once, because nothing may wait for a commit that has ended. A consumer that reads already may
        # therefore get an event a moment before its producer gets the outcome.
        self._node.committed(done, commit.partitions)
        self._unanswered += 1
        self._steps.add(self._answer(commit, done))

    def _answer(self, commit: _Commit, done: CommitDone) -> Iterator[None]:
        try:
            touched: dict[Owner, None] = {}
            for entry in commit.waiting:
                self._give(entry, done)
                touched[entry.link.owner] = None
                yield
            for partition, failure in done.failures.items():
                if not isinstance(failure, LogDeletedError):
                    reason = str(failure)
                    log.error("commit_failed", log=partition.log, partition=partition.index, reason=reason)
                    yield
            for owner in touched:
                self._guarded(owner.flush, owner, "")
                yield
            self._wake()
            yield from self._release(done.queue)
        finally:
            self._unanswered -= 1
            if not (self.awaited or self._unanswered):
                self._answered.set()

    def _give(self, entry: _Waiting, done: CommitDone) -> None:
        link = entry.link
        self._guarded(partial(link.committed, entry.deliveries, entry.parts, done), link.owner, link.name)
        for part in entry.parts:
            counters = self._node.counters.get(part.partition.log)
            if counters is not None and part.partition not in done.failures:
                counters.events_in += part.count
                counters.bytes_in += part.bytes

    def _guarded(self, call: Callable[[], None], owner: Owner, link: str) -> None:
        try:
            call()
        # One link that fails costs its connection; the other producers get their outcomes.
        except Exception:
            log.exception("connection_failed", link=link, during="committed")
            owner.cut("the node failed to answer a link")

    def _release(self, queue: CommitQueue) -> Iterator[None]:
        """Grant credit to the links that waited for the disk, if there is space."""
        if self._stalled and queue.pending_bytes <= self._limits.pending_bytes // QUEUE_SHARE // 2:
            for link in self._stalled.pop(queue, ()):
                link.top_up()
                link.owner.flush()
                yield
        # Half of the limit: continuing at the limit itself would pause again at the next message.
        if self.withheld and self._store.pending_bytes <= self._limits.pending_bytes // 2:
            withheld, self.withheld = self.withheld, {}
            for link in withheld:
                link.owner.resume(Pause.DISK)  # also when the link is gone: its connection was paused with it
                link.top_up()
                link.owner.flush()
                yield
