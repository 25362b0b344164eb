"""One partition of a topic as a partition of a log."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, overload

from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.kafka.brokers.administration import Extent
from amqp_streams.kafka.brokers.fetching import OvertakenError, Place
from amqp_streams.kafka.brokers.sending import SendingPartition
from amqp_streams.kafka.outbox import Outbox
from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.plain import PlainRecord, plain_record
from amqp_streams.storage.ports import (
    LATER,
    Chunk,
    Formats,
    Later,
    Numbers,
    PartitionFacts,
    Reached,
    ReadRequest,
)
from amqp_streams.wire.batched.packed import largest_bytes, total_bytes


class KafkaQueue:
    """The commit queue of one partition: a partition without a leader delays only itself."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox: Final = outbox

    @property
    def sequence(self) -> int:
        """See `CommitQueue.sequence`."""
        return self._outbox.sequence

    @property
    def pending_bytes(self) -> int:
        """See `CommitQueue.pending_bytes`."""
        return self._outbox.pending_bytes

    @property
    def alone(self) -> bool:
        """See `CommitQueue.alone`."""
        return True


class Lost(NamedTuple):
    """The numbers of records that were lost: `first` included, `end` excluded."""

    first: int
    end: int


class Room(Protocol):
    """What a partition needs of its store."""

    def send(
        self,
        partition: "KafkaPartition",
        values: Sequence[bytes | PlainRecord],
        keys: Sequence[bytes | None],
        size: int,
    ) -> None:
        """Add records to the next batch of a partition."""

    def fetch(
        self, partition: "KafkaPartition", at: int, bytes_max: int, request: ReadRequest | None
    ) -> Chunk | Later | None:
        """The records from `at` on. Raises like `Fetcher.read`."""

    @overload
    def first_after(self, partition: "KafkaPartition", after_ms: int, request: None) -> int: ...
    @overload
    def first_after(
        self, partition: "KafkaPartition", after_ms: int, request: ReadRequest | None
    ) -> int | Later: ...
    def first_after(
        self, partition: "KafkaPartition", after_ms: int, request: ReadRequest | None
    ) -> int | Later:
        """The number of the first record with a later time, or else `end`. Waits without a request."""

    def follow(self, partition: "KafkaPartition") -> None:
        """A reader waits for records of this partition."""


class KafkaPartition:
    """See `Partition`. `message_bytes`: the largest message that the topic takes. `plain`: see `Catalog`."""

    gaps: Final = True
    times_may_fall: Final = True

    def __init__(
        self,
        room: Room,
        log: str,
        place: Place,
        extent: Extent,
        message_bytes: int,
        *,
        plain: bool = False,
    ) -> None:
        self.plain: Final = plain
        self.log: Final = log
        self.index: Final = place.partition
        self.place: Final = place
        self.start, self.end = extent.start, extent.end
        self.message_bytes = message_bytes
        self.failure: StorageError | None = None
        """Why nothing can be read or appended any more."""
        self.lost: Lost | None = None
        """What Kafka lost last."""
        self.producers: Final[Mapping[str, Reached]] = {}
        self.sending: Final = SendingPartition(place.topic, place.partition)
        self.queue: Final = KafkaQueue(self.sending.outbox)
        self._room: Final = room
        self._accepted = 0

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,  # noqa: ARG002  the brokers give the times
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> None:
        """See `Partition.append`."""
        assert numbers is None, "see `numbered/partitions.py`"
        self._room.send(self, *self.records(messages, header_sizes, formats))

    def records(
        self, messages: Sequence[bytes], header_sizes: bytes, formats: Formats
    ) -> tuple[Sequence[bytes | PlainRecord], Sequence[bytes | None], int]:
        """Messages as values or records, with their keys and the bytes of all. Raises like `append`."""
        assert len(messages) == len(header_sizes) > 0, "each message has one header size"
        if self.failure is not None:
            raise self.failure
        size = total_bytes(messages)
        if self.plain:
            if formats is not None:
                message = f"topic {self.place.topic!r} cannot keep message-formats other than 0"
                raise StorageError(message)
            records = [plain_record(message) for message in messages]
            return records, [None] * len(records), size
        values = amqp.values(messages, header_sizes, formats)
        if (largest := largest_bytes(values)) > self.message_bytes:
            message = (
                f"an event of {largest} bytes is larger than topic {self.place.topic!r} allows"
                f" ({self.message_bytes} bytes): raise its max.message.bytes"
            )
            raise StorageError(message)
        return values, amqp.keys(messages), size

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:
        """See `Partition.read`."""
        if self.failure is not None:
            raise self.failure
        at = max(at, self.start)
        if at >= self.end:
            return None
        try:
            return self._room.fetch(self, at, bytes_max, request)
        except OvertakenError as error:
            # The start that the node knew was older.
            self.start = max(self.start, error.start)
            self.end = max(self.end, self.start)
            return self.read(at, bytes_max, request)

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:
        """See `Partition.seek_timestamp`."""
        found = self._room.first_after(self, after_ms, request)
        return found if found is LATER else max(found, self.start)

    def follow(self) -> None:
        """See `Partition.follow`."""
        self._room.follow(self)

    def facts(self) -> PartitionFacts:
        """See `Partition.facts`. Kafka says neither bytes nor times of a partition cheaply."""
        failure = None if self.failure is None else str(self.failure)
        return PartitionFacts(self.start, self.end, 0, None, None, failure)

    def move(self, extent: Extent) -> bool:
        """Take in what Kafka says of start and end; whether there are more records.

        What it says may be older than what the node knows.
        """
        grown = extent.end > self.end
        self.start = max(self.start, extent.start)
        self.end = max(self.end, extent.end, self.start)
        return grown

    def accepted(self, last: int) -> bool:
        """The record with this number is the last of a batch of this node; whether its number was free.

        Kafka stores the batches of a producer in their order.
        """
        free, self._accepted = last >= self._accepted, last + 1
        return free

    def truncate(self, first: int) -> Lost | None:
        """Kafka lost the records from this number on, and gives their numbers to new ones.

        None: this node knew none of them.
        """
        if first >= self.end:
            return None
        self.lost = Lost(first, self.end)
        self.start, self.end, self._accepted = min(self.start, first), first, 0
        return self.lost

    def gone(self, position: int) -> str | None:
        """Why nothing can be read at a position behind the end; None: it is one of records to come."""
        if self.lost is None or not self.end < position <= self.lost.end:
            return None
        return f"{self.place} ends at {self.end}: Kafka lost the events from {self.lost.first} on"

    def lose(self, reason: str) -> None:
        """Take and give nothing any more: the topic is gone."""
        self.failure = LogDeletedError(reason)
