"""A log as the events of one idempotent producer are appended to it.

Its partitions are those of the log, but what is appended is in the producer's next transaction, and a commit
of their queue is such a transaction: it has the events of all partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, overload

from amqp_streams.errors import StorageError
from amqp_streams.kafka.numbered.batches import Batch
from amqp_streams.kafka.numbered.producing import NumberedProducer, Phase
from amqp_streams.storage.ports import (
    Chunk,
    CommitDone,
    Formats,
    Later,
    Numbers,
    Partition,
    PartitionFacts,
    Reached,
    ReadRequest,
    StoredLog,
)


class Room(Protocol):
    """What such a partition needs of its store."""

    def append_numbered(  # noqa: PLR0917  as of `Partition.append`
        self,
        producer: NumberedProducer,
        partition: Partition,
        messages: Sequence[bytes],
        header_sizes: bytes,
        last: int,
        formats: Formats,
    ) -> None:
        """Add events to the producer's next transaction. Raises like `Partition.append`."""


class NumberedQueue:
    """The transactions of a producer, one after another."""

    def __init__(self, producer: NumberedProducer) -> None:
        self._producer: Final = producer

    @property
    def sequence(self) -> int:
        """See `CommitQueue.sequence`."""
        return self._producer.next.sequence

    @property
    def pending_bytes(self) -> int:
        """See `CommitQueue.pending_bytes`."""
        return self._producer.pending_bytes

    @property
    def alone(self) -> bool:
        """See `CommitQueue.alone`: only the links of this producer wait for it."""
        return True


class NumberedPartition:
    """See the module and `Partition`."""

    def __init__(
        self, room: Room, producer: NumberedProducer, partition: Partition, queue: NumberedQueue
    ) -> None:
        self.partition: Final = partition
        self.queue: Final = queue
        self.producer: Final = producer
        self._room: Final = room

    @property
    def log(self) -> str:
        """See `Partition.log`."""
        return self.partition.log

    @property
    def index(self) -> int:
        """See `Partition.index`."""
        return self.partition.index

    @property
    def failure(self) -> StorageError | None:
        """Why the log is gone; None: it is not."""
        failure: StorageError | None = getattr(self.partition, "failure", None)
        return failure

    @property
    def start(self) -> int:
        """See `Partition.start`."""
        return self.partition.start

    @property
    def end(self) -> int:
        """See `Partition.end`."""
        return self.partition.end

    @property
    def times_may_fall(self) -> bool:
        """See `Partition.times_may_fall`."""
        return self.partition.times_may_fall

    @property
    def gaps(self) -> bool:
        """See `Partition.gaps`."""
        return self.partition.gaps

    @property
    def producers(self) -> Mapping[str, Reached]:
        """See `Partition.producers`: only this producer."""
        number = self.producer.record.reached.get(self.index)
        if number is None:
            return {}
        # The time would decide when it is forgotten; here the topic of numbers decides.
        return {self.producer.key.producer: Reached(number, 0)}

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,  # noqa: ARG002  the brokers give the times
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> None:
        """See `Partition.append`."""
        assert numbers is not None, "these are the partitions of an idempotent producer"
        if self.producer.phase is Phase.OVER:
            message = f"producer {self.producer.key.producer!r} is not here any more: attach again"
            raise StorageError(message)
        last = numbers.sequences[-1]
        self._room.append_numbered(self.producer, self.partition, messages, header_sizes, last, formats)

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:
        """See `Partition.read`."""
        return self.partition.read(at, bytes_max, request)

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:
        """See `Partition.seek_timestamp`."""
        return self.partition.seek_timestamp(after_ms, request)

    def follow(self) -> None:
        """See `Partition.follow`."""
        self.partition.follow()

    def facts(self) -> PartitionFacts:
        """See `Partition.facts`."""
        return self.partition.facts()


def numbered_log(log: StoredLog, producer: NumberedProducer, room: Room) -> StoredLog:
    """The log as this producer appends to it."""
    queue = NumberedQueue(producer)
    partitions = tuple(NumberedPartition(room, producer, each, queue) for each in log.partitions)
    return replace(log, partitions=partitions)


def commit_done(log: StoredLog, batch: Batch, seconds: float, error: StorageError | None) -> CommitDone:
    """The end of a transaction of a producer. `log`: as the producer appends to it."""
    partitions: Iterable[Partition] = () if error is None else map(log.partitions.__getitem__, batch.highest)
    failures = {} if error is None else dict.fromkeys(partitions, error)
    return CommitDone(log.partitions[0].queue, batch.sequence, batch.events, batch.bytes, seconds, failures)
