"""The events of an idempotent producer that are not yet durable, in batches. Pure.

Everything that was appended while a transaction was in work is one batch, which is the next transaction. Its
number is that of a commit: see `CommitQueue`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from amqp_streams.kafka.records.plain import PlainRecord


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Records for one partition of the log, in their order."""

    partition: int
    values: Sequence[bytes | PlainRecord]
    keys: Sequence[bytes | None]


@dataclass(slots=True, eq=False)
class Batch:
    """The events of one transaction. `highest`: the highest number of each partition. `bytes`: of events."""

    sequence: int
    shares: list[Share] = field(default_factory=list)
    highest: dict[int, int] = field(default_factory=dict)
    events: int = 0
    bytes: int = 0

    def add(self, share: Share, last: int, size: int) -> None:
        """Add events. `last`: the highest number of them. `size`: their bytes."""
        self.shares.append(share)
        self.highest[share.partition] = last
        self.events += len(share.values)
        self.bytes += size
