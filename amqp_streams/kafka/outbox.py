"""What one partition sends to Kafka: batches in order, and how each of them ended. Pure.

Everything that was appended before a `take` is one batch, and one commit of the partition's queue. The caller
hands a batch to librdkafka, which may take only its first records (its queue is full), and reports the end of
the batch later. Several batches are in flight at once.

Laws:
1. Records are offered in the order of their appends. While the rest of a batch waits, no later record is
   offered: a record is never handed over after one that was appended later.
2. Each batch ends once, and batches end in their order, whatever the order of the reports.
3. A batch whose record could not be handed over has failed. What was handed over of it may be in the log: the
   outcome of such a batch is unknown, and its producers may send again.
4. After a failure nothing is handed over until every batch that was begun has ended (`settled`): a later
   record must not be accepted while its producer does not know the outcome of an earlier one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from amqp_streams.errors import StorageError
from amqp_streams.kafka.records.plain import PlainRecord


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that end together. `sequence`: the number of its commit.

    `values`: the values of records, or whole records with headers.
    """

    sequence: int
    values: Sequence[bytes | PlainRecord]
    keys: Sequence[bytes | None]
    bytes: int
    handed: int = 0
    """How many records were handed over, from the first."""
    last_number: int | None = None
    """The number of the last record, when it was delivered; None: Kafka did not say."""
    _ended: bool = field(default=False, init=False)
    _failure: StorageError | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def failed(self) -> bool:
        """Whether it has failed, although batches before it may not have ended."""
        return self._failure is not None


class Ended(NamedTuple):
    """A batch that ended: its records are durable, or `failure` says why that is not certain."""

    batch: Batch
    failure: StorageError | None


class Outbox:
    """The records of one partition that are not yet durable."""

    def __init__(self) -> None:
        self.sequence = 0
        """The number of the batch that takes the next append."""
        self.pending_bytes = 0
        """Bytes of all records that have not ended."""
        self._values: list[bytes | PlainRecord] = []
        self._keys: list[bytes | None] = []
        self._bytes = 0
        self._flights: Final[deque[Batch]] = deque()
        self._failed = False

    @property
    def idle(self) -> bool:
        """Whether every append has ended."""
        return not self._values and not self._flights

    @property
    def settled(self) -> bool:
        """Whether records may be handed over: no failure, or every batch that was begun has ended since."""
        return not self._failed

    def append(self, values: Sequence[bytes | PlainRecord], keys: Sequence[bytes | None], size: int) -> None:
        """Add records to the next batch. `size`: their bytes, as the node counts them."""
        assert len(values) == len(keys) > 0
        self._values.extend(values)
        self._keys.extend(keys)
        self._bytes += size
        self.pending_bytes += size

    def take(self) -> None:
        """Make a batch of what was appended since the last call, if anything was."""
        if not self._values:
            return
        batch = Batch(self.sequence, self._values, self._keys, self._bytes)
        self._flights.append(batch)
        self._values, self._keys, self._bytes = [], [], 0
        self.sequence += 1

    def next_to_hand(self) -> Batch | None:
        """The first batch with records that were not handed over; None if nothing may be handed over now."""
        if self._failed:
            return None
        # From the last on: nearly always nothing waits but the last batch.
        waiting = None
        for batch in reversed(self._flights):
            if batch.handed == len(batch) or batch._ended:
                break
            waiting = batch
        return waiting

    def handed(self, batch: Batch, errors: Sequence[str | None], *, full: str) -> list[Ended]:
        """Note what librdkafka said of each record of the batch from `batch.handed` on; None: it was taken.

        The records from the first that got `full` on wait and are offered again. Any other error fails the
        batch. Returns the batches that ended.
        """
        assert self.next_to_hand() is batch, "batches are handed over in their order"
        assert len(errors) == len(batch) - batch.handed
        if errors.count(None) == len(errors):
            batch.handed += len(errors)
            return []
        taken = next(index for index, error in enumerate(errors) if error is not None)
        batch.handed += taken
        rest = errors[taken:]
        # A record was taken after one that was not: the order is lost, so the batch cannot be offered again.
        if any(error is None for error in rest) or rest[0] != full:
            reason = next(error for error in rest if error is not None)
            return self._end(batch, StorageError(f"Kafka did not take the events: {reason}"))
        return []

    def delivered(self, batch: Batch, failure: str | None = None) -> list[Ended]:
        """Note the report on the last record of a batch. Returns the batches that ended, in order."""
        if batch._ended:
            return []
        assert failure is not None or batch.handed == len(batch), "the last record was handed over"
        error = None if failure is None else StorageError(f"the events may not be in Kafka: {failure}")
        return self._end(batch, error)

    def fail(self, reason: str) -> list[Ended]:
        """Fail all records that have not ended, those that wait for a batch included. In order."""
        self.take()
        ended: list[Ended] = []
        for batch in tuple(self._flights):
            if not batch._ended:
                ended += self._end(batch, StorageError(reason))
        return ended

    def _end(self, batch: Batch, failure: StorageError | None) -> list[Ended]:
        batch._ended, batch._failure = True, failure
        if failure is not None:
            self._failed = True
            # The rest of a later batch would follow records that may be missing: it ends with the same error.
            for later in self._flights:
                if later.sequence > batch.sequence and later.handed < len(later):
                    later._ended, later._failure = True, failure
        ended: list[Ended] = []
        while self._flights and self._flights[0]._ended:
            first = self._flights.popleft()
            self.pending_bytes -= first.bytes
            ended.append(Ended(first, first._failure))
        # Batches that are not begun came after the failure.
        if not self._flights or not self._flights[0].handed:
            self._failed = False
        return ended
