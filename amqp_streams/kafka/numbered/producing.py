"""One idempotent producer at the node to which its links came. Pure.

The phases, in the order of an attach:

1. FENCING: the transactional producer is opened. From then on, no other node can commit for it.
2. READING: the topic of numbers is read up to the end that it has after the fence: the truth.
3. CLAIMING: a record with this node is written, so that the node before learns that it has lost the producer.
4. READY, or COMMITTING: the producer is open. One transaction at a time.
5. RESTING: it has sent nothing for a while, so its thread is given back.
6. OVER.

PAUSED: it begins again a moment later. CHECKING: a node that was fenced reads first who has the producer.

Laws:
1. Events and the highest numbers are one transaction, so both are stored or neither is.
2. Batches end in their order. After a batch that was not stored, everything that was appended before this was
   known ends with it: no event is stored after a number that is missing.
3. After a transaction whose outcome is not certain, the next one does not begin before a fence and a reading.
   They tell the outcome: the transaction was committed if the numbers that are stored cover its own.
4. A node that finds another node in the record has lost the producer: it closes its links, and does not take
   it back, unless for an attach that waits. A node that was fenced, and finds itself in the record, may.
5. What was not answered within `OPEN_MS` is refused, with a reason.
6. An attach is answered after a reading, or a transaction, that began after it, and when everything that was
   appended before it is decided: the numbers that it gets are those of all events that any node accepted
   before, and of no event that may still be refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from amqp_streams.kafka.numbered.batches import Batch, Share
from amqp_streams.kafka.numbered.records import ProducerKey, ProducerRecord

OPEN_MS: Final = 30_000
"""How long a producer may take to be ready, before what waits for it is refused."""
PAUSE_MS: Final = 300
"""Before the next attempt after a failure."""
FENCED_MS: Final = 1000
"""How long a node that was fenced waits for the record of another one, before it takes the producer back."""
REST_MS: Final = 60_000
"""A producer that has sent nothing for this time gives its thread back."""


class Phase(Enum):
    """See the module."""

    RESTING = auto()
    FENCING = auto()
    READING = auto()
    CLAIMING = auto()
    READY = auto()
    COMMITTING = auto()
    PAUSED = auto()
    CHECKING = auto()
    LEAVING = auto()
    OVER = auto()


class Outcome(Enum):
    """How a transaction ended. FENCED: another producer has fenced this one, or it took too long."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    FENCED = auto()


# -- effects, which the shell performs in their order


@dataclass(frozen=True, slots=True, eq=False)
class Fence:
    """Open a new transactional producer; then call `fenced`."""

    key: ProducerKey
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """Read the bucket of the producer up to its end of now; then call `read`."""

    key: ProducerKey
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Write a record (None: remove it) and the events of a batch in one transaction; then call `ended`."""

    key: ProducerKey
    attempt: int
    record: ProducerRecord | None
    batch: Batch | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    """Give up the transactional producer, and what is asked of it."""

    key: ProducerKey


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The first `count` attaches that wait are answered. `failure`: why they are refused."""

    key: ProducerKey
    count: int
    failure: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A batch ended. `failure`: why its events are not known to be stored."""

    key: ProducerKey
    batch: Batch
    failure: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """Close the links. `stolen`: another node has the producer now."""

    key: ProducerKey
    reason: str
    stolen: bool


Effect: TypeAlias = Fence | Read | Commit | Close | Opened | Ended | Lost
_WAITING: Final = {Phase.FENCING, Phase.READING, Phase.CLAIMING, Phase.PAUSED, Phase.CHECKING}
_OWNED: Final = {Phase.READY, Phase.COMMITTING, Phase.RESTING, *_WAITING} - {Phase.CLAIMING}


class NumberedProducer:
    """See the module.

    `node`: the id of this process. `home`: for a producer that is not known yet. `attempts`: numbers that are
    used once.
    """

    def __init__(  # noqa: PLR0917  what it shares with the other producers of a node
        self,
        key: ProducerKey,
        node: str,
        home: int,
        effects: list[Effect],
        attempts: Iterator[int],
        now_ms: int,
    ) -> None:
        self.key: Final = key
        self.phase = Phase.RESTING
        self.record = ProducerRecord(node, home)
        """The truth, as far as it is known: of durable events only."""
        self.owned = False
        """Whether a record of this node was the last one that was found or written."""
        self.links = 0
        self.next = Batch(0)
        """What takes the next append."""
        self.pending_bytes = 0
        self.used_ms = now_ms
        """When it was last used."""
        self._node: Final = node
        self._effects: Final = effects
        self._attempts: Final = attempts
        self._attempt = -1
        self._begun_ms = now_ms
        """When the attempts began that have not yet succeeded."""
        self._again_ms = 0
        self._why = ""
        self._asked = 0
        """How many attaches wait."""
        self._proved = 0
        """How many of them came before the reading, or the transaction, in work."""
        self._flight: Batch | None = None
        """What is in a transaction, or was in one whose outcome is not known."""
        self._written: ProducerRecord | None = None
        """The record in the transaction."""
        self._was_fenced = False
        """Perhaps another node has it, which must not be fenced for nothing."""
        self._overtaken = False
        """Another node was found in a record since the reading."""

    # -- from the node

    @property
    def opened(self) -> bool:
        """Whether the numbers are known, and no transaction is in doubt."""
        return self.phase in {Phase.READY, Phase.COMMITTING}

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do, and no link."""
        settled = self.phase in {Phase.READY, Phase.RESTING}
        return settled and not (self.links or self.next.events or self._asked)

    def wait(self) -> None:
        """An attach waits until `begin` is called."""
        self._asked += 1

    def open(self, now_ms: int) -> None:
        """An attach waits for `Opened`."""
        self.wait()
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Begin what shows that an attach may be answered."""
        self.used_ms = now_ms
        if self.phase is Phase.RESTING:
            self._begin(now_ms, first=True)
        elif self.phase is Phase.READY:
            self._transact()

    def cancel(self, index: int) -> None:
        """The attach that waits at this index has left: without another one, nothing is taken over for it."""
        self._asked -= 1
        self._proved -= index < self._proved
        busy = self.links or self._asked or self.next.events or self._flight is not None
        if not busy and self.phase in {Phase.RESTING, *_WAITING}:
            self._end()

    def append(self, share: Share, last: int, size: int) -> None:
        """Add events to the next batch. See `Batch.add`."""
        assert self.phase is not Phase.OVER, "its links are closed"
        self.next.add(share, last, size)
        self.pending_bytes += size

    def commit(self, now_ms: int) -> None:
        """Begin a transaction with what was appended, now or as soon as it can begin."""
        if not (self.next.events or self._asked):
            return
        self.used_ms = now_ms
        if self.phase is Phase.READY:
            self._transact()
        elif self.phase is Phase.RESTING:
            self._begin(now_ms, first=True)

    def leave(self) -> None:
        """Give the producer up: it is idle. A record without numbers is removed."""
        assert self.idle
        if self.phase is Phase.READY and not self.record.reached:
            self.phase = Phase.LEAVING
            self._effects.append(Commit(self.key, self._attempt, None))
        else:
            self._end()

    def give_up(self, reason: str) -> None:
        """End at once: the log was deleted, or the node stops."""
        if self.phase is not Phase.OVER:
            self._fail(reason)

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        if self.phase in _WAITING and now_ms - self._begun_ms >= OPEN_MS:
            why = self._why or "Kafka does not answer"
            self._fail(f"producer {self.key.producer!r} is not ready after {OPEN_MS // 1000} s: {why}")
        elif self.phase is Phase.PAUSED and now_ms >= self._again_ms:
            if self._was_fenced:
                self.phase, self._attempt = Phase.CHECKING, next(self._attempts)
                self._effects.append(Read(self.key, self._attempt))
            else:
                self._begin(now_ms)
        elif self.phase is Phase.READY and now_ms - self.used_ms >= REST_MS:
            self.phase = Phase.RESTING
            self._effects.append(Close(self.key))

    # -- from Kafka

    def fenced(self, attempt: int, failure: str | None, now_ms: int) -> None:
        """The producer is open, or why it is not."""
        if attempt != self._attempt or self.phase is not Phase.FENCING:
            return
        if failure is not None:
            self._pause(failure, PAUSE_MS, now_ms)
            return
        self.phase, self._proved = Phase.READING, self._asked
        self._effects.append(Read(self.key, attempt))

    def read(self, attempt: int, record: ProducerRecord | str | None, now_ms: int) -> None:
        """The record after the fence; None: it does not exist; a text: why it is not known."""
        if attempt != self._attempt or self.phase not in {Phase.READING, Phase.CHECKING}:
            return
        if isinstance(record, str):
            self._pause(record, PAUSE_MS, now_ms)
            return
        mine = record is not None and record.node == self._node
        if self.owned and not mine:
            self._lose(record)
            if not self._asked:
                return  # it is over
        if self.phase is Phase.CHECKING:
            self._begin(now_ms)
            return
        self._judge(record)
        self._overtaken = False
        # It may have been forgotten since an earlier reading.
        self.record = replace(self.record, reached={}) if record is None else record
        if mine:
            # What was appended before an attach came must be decided before it is answered.
            self._proved = 0 if self.next.events else self._proved
            self._ready(now_ms)
            return
        self.phase = Phase.CLAIMING
        self._write(replace(self.record, node=self._node), None)

    def ended(self, attempt: int, outcome: Outcome, reason: str, now_ms: int) -> None:
        """A transaction has ended."""
        if attempt != self._attempt:
            return
        if self.phase is Phase.LEAVING and self._asked:
            self.owned = False
            self._begin(now_ms, first=True)
        elif self.phase is Phase.LEAVING:
            self._end()
        elif self.phase is Phase.CLAIMING:
            self._claimed(outcome, reason, now_ms)
        elif self.phase is Phase.COMMITTING:
            self._transacted(outcome, reason, now_ms)

    def followed(self, record: ProducerRecord | None) -> None:
        """A record of this producer was read from the topic; None: it was removed."""
        if record is not None and record.node == self._node:
            return
        if self.phase is Phase.CLAIMING:
            # It is later than the fence. If the claim is committed nevertheless, it is later than the claim.
            self._overtaken = True
        elif self.owned and self.phase in _OWNED:
            self._lose(record)
            self._take_back()

    # -- private

    def _begin(self, now_ms: int, *, first: bool = False) -> None:
        if first:
            self._begun_ms, self._why = now_ms, ""
        self._attempt = next(self._attempts)
        self.phase, self._was_fenced = Phase.FENCING, False
        self._effects.append(Fence(self.key, self._attempt))

    def _pause(self, why: str, ms: int, now_ms: int) -> None:
        self.phase, self._why, self._again_ms = Phase.PAUSED, why, now_ms + ms

    def _write(self, record: ProducerRecord, batch: Batch | None) -> None:
        self._written, self._flight, self._proved = record, batch, self._asked
        self._effects.append(Commit(self.key, self._attempt, record, batch))

    def _ready(self, now_ms: int) -> None:
        self.owned, self.phase = True, Phase.READY
        if self._overtaken:
            self._lose(None)
            self._take_back()
            return
        self._answer(self._proved)
        self.commit(now_ms)

    def _answer(self, count: int, failure: str | None = None) -> None:
        if count:
            self._effects.append(Opened(self.key, count, failure))
        self._asked -= count
        self._proved = 0

    def _transact(self) -> None:
        """Begin a transaction. Without events it shows that no other node has the producer."""
        self.phase = Phase.COMMITTING
        if not self.next.events:
            self._write(self.record, None)
            return
        batch, self.next = self.next, Batch(self.next.sequence + 1)
        self._write(replace(self.record, reached={**self.record.reached, **batch.highest}), batch)

    def _claimed(self, outcome: Outcome, reason: str, now_ms: int) -> None:
        assert self._written is not None
        if outcome is Outcome.COMMITTED:
            self.record = self._written
            self._ready(now_ms)
        elif outcome is Outcome.UNKNOWN:
            self._why = reason
            self._begin(now_ms)
        else:
            self._pause(reason, PAUSE_MS, now_ms)

    def _transacted(self, outcome: Outcome, reason: str, now_ms: int) -> None:
        if outcome is Outcome.COMMITTED:
            assert self._written is not None
            self.record = self._written
            self._end_flight(None)
            self._ready(now_ms)
        elif outcome is Outcome.ABORTED and self._flight is None:
            self._begun_ms = now_ms
            self._pause(reason, PAUSE_MS, now_ms)
        elif outcome is Outcome.ABORTED:
            self._refuse(f"Kafka did not take the events: {reason}")
            self.phase = Phase.READY
            self.commit(now_ms)
        elif outcome is Outcome.UNKNOWN or self._asked:
            self._begin(now_ms, first=True)
            self._why = reason
        else:
            self._begun_ms, self._was_fenced = now_ms, True
            self._pause(reason, FENCED_MS, now_ms)

    def _judge(self, record: ProducerRecord | None) -> None:
        """Tell the outcome of a transaction that was in doubt by the record after the fence."""
        if self._flight is None:
            return
        if record is not None and record.covers(self._flight.highest):
            self._end_flight(None)
        else:
            self._refuse(f"Kafka did not store the events: {self._why}")

    def _refuse(self, reason: str) -> None:
        """Refuse everything that was appended: it follows a number that is missing."""
        if self._flight is not None:
            self._end_flight(reason)
        if self.next.events:
            batch, self.next = self.next, Batch(self.next.sequence + 1)
            self._ended(batch, reason)

    def _end_flight(self, failure: str | None) -> None:
        batch, self._flight = self._flight, None
        if batch is not None:
            self._ended(batch, failure)

    def _ended(self, batch: Batch, failure: str | None) -> None:
        self.pending_bytes -= batch.bytes
        self._effects.append(Ended(self.key, batch, failure))

    def _lose(self, record: ProducerRecord | None) -> None:
        """Another node has the producer, or has forgotten it. It is over, unless a later attach waits."""
        if self._flight is not None and record is not None and record.covers(self._flight.highest):
            self._end_flight(None)
        who = "was forgotten" if record is None and not self._overtaken else "was attached to another node"
        reason = f"producer {self.key.producer!r} {who}"
        self._close_links(reason, stolen=True)
        self.owned = self._overtaken = False
        if not self._asked:
            self._end()

    def _take_back(self) -> None:
        """An attach waits that is later than that at the other node."""
        if self.phase is not Phase.OVER:
            self._begin(self.used_ms, first=True)

    def _close_links(self, reason: str, *, stolen: bool = False) -> None:
        # The links first: they must not take more, nor number after what is refused now.
        if self.links:
            self._effects.append(Lost(self.key, reason, stolen))
        self._refuse(reason)

    def _fail(self, reason: str) -> None:
        self._close_links(reason)
        self._answer(self._asked, reason)
        self._end()

    def _end(self) -> None:
        self.phase, self._attempt = Phase.OVER, -1
        self._effects.append(Close(self.key))
