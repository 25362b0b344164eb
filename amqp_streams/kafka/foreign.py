"""What topics of other programs ask of events. Pure."""

from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.kafka.hashing import partition_of_key
from amqp_streams.kafka.records.plain import PlainRecord, plain_record

HEADER_BYTES: Final = 16
"""What a header takes in addition to its name and value."""


@dataclass(frozen=True, slots=True)
class ForeignTopic:
    """See `Foreign`. `compacted`: records need keys. `message_bytes`: of the largest record."""

    topic: str
    compacted: bool
    message_bytes: int

    def refusal(self, message: bytes) -> PeerError | None:
        """See `Foreign.refusal`."""
        try:
            record = plain_record(message)
        except PeerError as error:
            return error
        if self.compacted and record.key is None:
            return PeerError(
                names.NOT_ALLOWED,
                f"topic {self.topic!r} is compacted, so each event needs a group key",
            )
        size = record_bytes(record)
        if size > self.message_bytes:
            return PeerError(
                names.NOT_ALLOWED,
                f"the event has {size} bytes in topic {self.topic!r}, which takes {self.message_bytes}",
            )
        return None

    def partition_of_key(self, key: str, partition_count: int) -> int:
        """See `Foreign.partition_of_key`: as Kafka's Java clients choose it."""
        return partition_of_key(key.encode(), partition_count)


def record_bytes(record: PlainRecord) -> int:
    """About how many bytes a record takes in its topic."""
    headers = sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
