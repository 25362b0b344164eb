"""What one partition sends to Kafka: batches in order, and how each of them ended. Pure.

What was appended while a batch is in flight is the next batch, and one commit of the partition's queue. The
caller hands a batch to librdkafka, which may take only its first records (its queue is full), and reports the
end of the batch later.

Laws:
1. Records are offered in the order of their appends. While the rest of a batch waits, no later record is
   offered: a record is never handed over after one that was appended later.
2. One batch is in flight at a time. librdkafka would not send the next one either: an idempotent producer
   waits if five records of a partition have no answer. But while it waits, its thread would use a core.
3. Each batch ends once, and batches end in their order.
4. A batch whose record could not be handed over has failed. What was handed over of it may be in the log: the
   outcome of such a batch is unknown, and its producers may send again.
5. A failure is one of everything that was appended before: a later record must not be accepted while its
   producer does not know the outcome of an earlier one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from amqp_streams.errors import StorageError
from amqp_streams.kafka.records.plain import PlainRecord

BATCH_BYTES: Final = 4 << 20
"""The most that a batch has, unless it is one append."""
RECORD_BYTES: Final = 64
"""What a record takes in Kafka in addition to its message, at most, with its group key."""


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
    begun_s: float = 0.0
    """When it was handed over, by the caller's clock."""
    _ended: bool = field(default=False, init=False)
    _failure: StorageError | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def failed(self) -> bool:
        """Whether it has failed."""
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
        self._batches: Final[deque[Batch]] = deque()
        """Those that have not ended. Only the first one may be in flight."""

    @property
    def idle(self) -> bool:
        """Whether every append has ended."""
        return not self._values and not self._batches

    def append(
        self,
        values: Sequence[bytes | PlainRecord],
        keys: Sequence[bytes | None],
        size: int,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Add records to the next batch. `size`: their bytes, as the node counts them.

        `batch_bytes`: the most that a batch may have in Kafka. If they do not fit, the batch is a new one.
        """
        assert len(values) == len(keys) > 0
        after = self._bytes + size + RECORD_BYTES * (len(self._values) + len(values))
        if self._values and after > min(batch_bytes, BATCH_BYTES):
            self._close()
        self._values.extend(values)
        self._keys.extend(keys)
        self._bytes += size
        self.pending_bytes += size

    def next_to_hand(self) -> Batch | None:
        """The batch whose records are next; None if nothing may be handed over now."""
        if not self._batches:
            self._close()
        if not self._batches:
            return None
        first = self._batches[0]
        return first if first.handed < len(first) else None

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
            return self._fail(StorageError(f"Kafka did not take the events: {reason}"))
        return []

    def delivered(self, batch: Batch, failure: str | None = None) -> list[Ended]:
        """Note the report on the last record of a batch. Returns the batches that ended, in order."""
        if batch._ended:
            return []
        assert batch is self._batches[0], "only the first one is in flight"
        if failure is not None:
            return self._fail(StorageError(f"the events may not be in Kafka: {failure}"))
        assert batch.handed == len(batch), "the last record was handed over"
        return [self._end(None)]

    def fail(self, reason: str) -> list[Ended]:
        """Fail all records that have not ended, in order."""
        return self._fail(StorageError(reason))

    def _close(self) -> None:
        """Make a batch of what was appended since the last one, if anything was."""
        if not self._values:
            return
        self._batches.append(Batch(self.sequence, self._values, self._keys, self._bytes))
        self._values, self._keys, self._bytes = [], [], 0
        self.sequence += 1

    def _fail(self, failure: StorageError) -> list[Ended]:
        self._close()
        return [self._end(failure) for _ in range(len(self._batches))]

    def _end(self, failure: StorageError | None) -> Ended:
        batch = self._batches.popleft()
        batch._ended, batch._failure = True, failure
        self.pending_bytes -= batch.bytes
        return Ended(batch, failure)
