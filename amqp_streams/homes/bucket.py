"""One bucket at the node that is its home: fence, load, wait, serve, leave. Pure.

The phases, in their order:

1. FENCING: the transactional producer of the bucket is opened. From then on, no transaction of an earlier
   home can be committed.
2. LOADING: the partition of the state topic is read up to the end that it has after the fence.
3. WAITING: the home writes its record with a greater term, so that nodes report to it. It waits until the
   lease of the home before it is over, unless that home left a record that it let go.
4. SERVING: it decides, while its lease is in force.
5. DRAINING: it is asked to leave. It calls its grants back, writes what it knows, and lets go.
6. OVER.

Laws: the lease begins when the last committed transaction began, so no lease is in force that began after a
later home has fenced. Without a lease, the home decides nothing, and its answers grant nothing.
After a transaction whose outcome is unknown, it fences again before the next one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from amqp_streams.homes.counts import Counts
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Answer, Report
from amqp_streams.homes.records import KEY, HomeRecord, decoded, encoded
from amqp_streams.homes.serving import NODES_MAX, Serving
from amqp_streams.homes.states import BucketStates


class Phase(Enum):
    """See the module."""

    FENCING = auto()
    LOADING = auto()
    WAITING = auto()
    SERVING = auto()
    DRAINING = auto()
    OVER = auto()


class Outcome(Enum):
    """How a transaction ended. FENCED: another home has fenced this one."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    FENCED = auto()


# -- effects, which the shell performs in their order


@dataclass(frozen=True, slots=True)
class Fence:
    """Open the transactional producer of the bucket; then call `Bucket.fenced`, or again `Bucket.failed`."""

    bucket: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Load:
    """Read the bucket's partition up to the end that it has now, with all transactions in it ended.

    Then call `Bucket.loaded`, or `Bucket.failed`.
    """

    bucket: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Write these records in one transaction, then call `Bucket.ended`."""

    bucket: int
    attempt: int
    changes: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """Send this answer to the node."""

    node: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Left:
    """The bucket can have another home."""

    bucket: int


Effect: TypeAlias = Fence | Load | Commit | Reply | Left


class Bucket:
    """A bucket at its home.

    `record`: of this node, with any term. `open_serving`: makes what decides, from the states and the term.
    `attempts`: gives each attempt to fence a number that the node never used, so that a late result of an
    earlier attempt is recognised.
    """

    def __init__(
        self,
        bucket: int,
        record: HomeRecord,
        open_serving: Callable[[BucketStates, int], Serving],
        times: Times,
        attempts: Iterator[int],
        *,
        counts: Counts | None = None,
    ) -> None:
        self.phase = Phase.FENCING
        self.attempt = 0
        self._attempts: Final = attempts
        self._counts: Final = counts or Counts()
        self.lease_end_ms = 0
        self.effects: Final[list[Effect]] = []
        self.record = record
        self._bucket: Final = bucket
        self._open_serving: Final = open_serving
        self._times: Final = times
        self._fenced_ms = 0
        self._outlasted_ms = 0
        """When no grant of an earlier home can be in force any more."""
        self._gathered_ms: int | None = None
        """When nodes have had the time to report; None: they do not know the home yet."""
        self._fence_ms: int | None = None
        """When it fences again."""
        self._drain_ms = 0
        self._letting_go = False
        self._flushed_ms = 0
        self._began_ms: int | None = None
        """When the transaction in flight began."""
        self._committed_ms = 0
        """When the last committed transaction began."""
        self._retry_ms = 0
        """When the next transaction may begin, after one that was aborted."""
        self._in_flight: Mapping[str, bytes | None] = {}
        self._reports: dict[str, tuple[Report, int]] = {}
        """Reports that wait for the lease, and when they came."""
        self.states = BucketStates({})
        self.serving: Serving | None = None

    # -- from the shell

    def begin(self) -> None:
        """Fence."""
        self.phase, self._fence_ms = Phase.FENCING, None
        self.attempt = next(self._attempts)
        self.lease_end_ms = self._committed_ms = 0
        self._began_ms = self._gathered_ms = None
        self._letting_go = False
        self.serving = None
        self._reports.clear()
        self._counts.fences += 1
        self.effects.append(Fence(self._bucket, self.attempt))

    def fenced(self, attempt: int, now_ms: int) -> None:
        """The producer was opened: no earlier one can commit from now on."""
        if attempt == self.attempt and self.phase is Phase.FENCING:
            self.phase, self._fenced_ms = Phase.LOADING, now_ms
            self.effects.append(Load(self._bucket, attempt))

    def failed(self, attempt: int, now_ms: int) -> None:
        """Kafka did not answer: fence again later."""
        if attempt == self.attempt and self.phase in {Phase.FENCING, Phase.LOADING}:
            self._again(now_ms)

    def loaded(self, attempt: int, values: Mapping[str, bytes], followed_term: int, now_ms: int) -> None:
        """The states of the bucket were read.

        `followed_term`: the greatest term of the bucket that this node has seen before.

        Raises:
            StorageError: a later version wrote one of them.
        """
        if attempt != self.attempt or self.phase is not Phase.LOADING:
            return
        before = decoded(values[KEY]) if KEY in values else HomeRecord(0, "", "", let_go=True)
        self.record = replace(self.record, term=max(before.term, followed_term) + 1)
        self.states = BucketStates(values)
        self.serving = self._open_serving(self.states, self.record.term)
        self.phase = Phase.WAITING
        if before.term and before.node != self.record.node:
            self._counts.in_order += before.let_go
            self._counts.after_loss += not before.let_go
        self._outlasted_ms = now_ms if before.let_go else self._fenced_ms + self._times.outlasting_ms
        self._work(now_ms)

    def ended(self, attempt: int, outcome: Outcome, now_ms: int) -> None:
        """The transaction in flight ended."""
        if attempt != self.attempt or self._began_ms is None or self.serving is None:
            return
        began_ms, self._began_ms = self._began_ms, None
        if outcome is Outcome.COMMITTED:
            if self._gathered_ms is None:
                self._gathered_ms = now_ms + self._times.gather_ms
            self._committed_ms = began_ms
            self.lease_end_ms = began_ms + self._times.lease_ms
            if self._letting_go:
                self._leave()
                return
            self.serving.written(now_ms, self.states.committed)
        elif self.phase is Phase.DRAINING:
            self._leave()
            return
        elif outcome is Outcome.ABORTED:
            self.states.put_back(self._in_flight)
            self._retry_ms = now_ms + self._times.retry_ms
        else:
            self._again(now_ms)
            return
        self._work(now_ms)

    def report(self, report: Report, now_ms: int) -> None:
        """A node reports to this home. A report to another home changes nothing."""
        if report.term != self.record.term or self.serving is None:
            return
        known = self._reports.get(report.node)
        if known is None and len(self._reports) >= NODES_MAX:
            return
        if known is None or known[0].number < report.number:
            self._reports[report.node] = report, now_ms
        if not self._decides(now_ms):
            waits = Answer(self._bucket, self.record.term, report.number, processed=False, remaining_ms=0)
            self.effects.append(Reply(report.node, waits))
        self._work(now_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Called several times a second."""
        if self._fence_ms is not None and now_ms >= self._fence_ms:
            self.begin()
            return
        if self.serving is not None:
            self.serving.wall_ms = wall_ms
            self._work(now_ms, ticks=True)

    @property
    def deciding(self) -> Serving | None:
        """What decides, after the lease of the home before is over, until this home is asked to leave.

        What it writes is written only if no later home has fenced, whether the lease is in force or not.
        """
        return self.serving if self.phase is Phase.SERVING else None

    def current(self, now_ms: int) -> Serving | None:
        """What decides, if it knows who owns what. Without a lease it does if it has granted nothing: a home
        that no node reports to does not renew its lease.
        """
        serving = self.deciding
        return serving if serving is not None and (self._holds(now_ms) or not serving.sessions) else None

    def drain(self, now_ms: int) -> None:
        """Leave the bucket to another home."""
        if self.phase is Phase.OVER or self.phase is Phase.DRAINING:
            return
        if self.serving is None or now_ms < self._outlasted_ms:
            # It has granted nothing, and the next home waits as this one does.
            self._leave()
            return
        self.phase = Phase.DRAINING
        self._drain_ms = now_ms + self._times.drain_ms
        self.serving.withdraw(now_ms)
        self._work(now_ms)

    # -- work

    def _holds(self, now_ms: int) -> bool:
        """Whether the lease is in force."""
        return now_ms < self.lease_end_ms

    def _decides(self, now_ms: int) -> bool:
        return self.phase in {Phase.SERVING, Phase.DRAINING} and self._holds(now_ms)

    def _again(self, now_ms: int) -> None:
        """Fence again after a while. Nothing is decided until then."""
        self.phase, self.serving = Phase.FENCING, None
        self._began_ms, self.lease_end_ms = None, 0
        self._fence_ms = now_ms + self._times.retry_ms
        # An answer of the attempt before counts nothing.
        self.attempt = next(self._attempts)

    def _leave(self) -> None:
        self.phase, self.serving, self._fence_ms = Phase.OVER, None, None
        self.lease_end_ms = 0
        self.attempt = next(self._attempts)
        self.effects.append(Left(self._bucket))

    def _work(self, now_ms: int, *, ticks: bool = False) -> None:
        """Act on what has come, and write what must be written."""
        serving = self.serving
        if serving is None:
            return
        if self._decides(now_ms):
            reports, self._reports = self._reports, {}
            for report, came_ms in reports.values():
                serving.report(report, came_ms, now_ms)
            if ticks:
                serving.tick(now_ms)
        elif self.phase is Phase.WAITING and self._holds(now_ms) and self._may_open(now_ms):
            self.phase = Phase.SERVING
            serving.resume(self._reports.values(), now_ms)
            self._work(now_ms)
            return
        if self.phase is Phase.DRAINING and now_ms >= self._drain_ms + self._times.drain_ms:
            # Kafka does not answer: the next home waits a lease.
            self._leave()
            return
        if self.phase is Phase.DRAINING and self._began_ms is None:
            gone = serving.settled(now_ms)
            if gone or now_ms >= self._drain_ms:
                self._let_go(serving, now_ms, let_go=gone)
                return
        self._commit(serving, now_ms)
        if self._decides(now_ms):
            for session in serving.take_dirty():
                answer = session.answer(
                    self._bucket, self.record.term, now_ms, self.lease_end_ms, withdrawn=serving.withdrawn
                )
                self.effects.append(Reply(session.node, answer))

    def _may_open(self, now_ms: int) -> bool:
        return self._gathered_ms is not None and now_ms >= max(self._gathered_ms, self._outlasted_ms)

    def _commit(self, serving: Serving, now_ms: int) -> None:
        if self._began_ms is not None or now_ms < self._retry_ms:
            return
        if serving.moved and (serving.urgent or now_ms - self._flushed_ms >= self._times.positions_ms):
            serving.flush()
            self._flushed_ms = now_ms
        used = bool(serving.sessions or self._reports) or (
            self.phase is Phase.WAITING and self._may_open(now_ms)
        )
        renews = used and now_ms - self._committed_ms >= self._times.renew_ms
        if self.states.unwritten or renews or not self._committed_ms:
            self._begin_commit(self.states.take() or {KEY: encoded(self.record)}, now_ms)

    def _begin_commit(self, changes: Mapping[str, bytes | None], now_ms: int) -> None:
        if not self._committed_ms:
            changes = {**changes, KEY: encoded(self.record)}
        self._began_ms, self._in_flight = now_ms, changes
        self.effects.append(Commit(self._bucket, self.attempt, changes))

    def _let_go(self, serving: Serving, now_ms: int, *, let_go: bool) -> None:
        """Write the last transaction. The next home need not wait if no grant can be in force."""
        serving.flush()
        record = replace(self.record, let_go=let_go)
        self._letting_go = True
        self._begin_commit({**self.states.take(), KEY: encoded(record)}, now_ms)
