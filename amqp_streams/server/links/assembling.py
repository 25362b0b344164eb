"""What a consumer's link sends for a record, also again: the stored message with delivery annotations.

Spec: Event Streams 4.4, 4.6.5.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, WireError
from amqp_streams.proton import outcomes
from amqp_streams.proton.records import Returned
from amqp_streams.storage.ports import Chunk
from amqp_streams.streams.consuming import outcome
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.wire.annotations import AnnotationWriter, section
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.sections import with_delivery_count
from amqp_streams.wire.types import Array, Symbol, Timestamp

_OUTCOMES: Final = {
    outcomes.ACCEPTED: outcome.Outcome.ACCEPTED,
    outcomes.REJECTED: outcome.Outcome.REJECTED,
    outcomes.RELEASED: outcome.Outcome.RELEASED,
    outcomes.MODIFIED: outcome.Outcome.MODIFIED,
}


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A record that will be sent again, after `delivery_count` failed deliveries."""

    partition: int
    number: int
    delivery_count: int


def redelivery(returned: Returned) -> Redelivery | None:
    """The record of a delivery that the client gave back; None if it will not be sent again."""
    verdict = outcome.after(
        _OUTCOMES.get(returned.state, outcome.Outcome.NONE),
        delivery_count=returned.attempt,
        failed=returned.failed,
        undeliverable_here=returned.undeliverable_here,
    )
    return (
        None if verdict is None else Redelivery(returned.partition, returned.number, verdict.delivery_count)
    )


class Writers(dict[int, AnnotationWriter]):
    """One writer for each partition, created when the partition is first read.

    The partitions of a link may change (4.6.5).
    """

    def __missing__(self, partition: int) -> AnnotationWriter:
        writer = self[partition] = AnnotationWriter(str(partition))
        return writer


def announcement(run: Run, partitions: Sequence[int] | None) -> bytes:
    """Encode the annotations of the first record of a run, with how many events were skipped before it.

    `partitions`: the partitions of the link, if the client is to be informed of them (4.6.5); else None.
    """
    annotations: dict[str, object] = {
        names.OFFSET: Symbol(offset_text(run.first)),
        names.TIMESTAMP: Timestamp(run.chunk.timestamps[run.start]),
        names.SOURCE_PARTITION: Symbol(str(run.partition.index)),
    }
    if partitions is not None:
        annotations[names.ASSOCIATED_PARTITIONS] = Array(
            Symbol, tuple(Symbol(str(partition)) for partition in partitions)
        )
    if run.skipped:
        annotations[names.EVENTS_SKIPPED] = run.skipped
    return section(annotations)


def single(chunk: Chunk, index: int, annotations: bytes, delivery_count: int) -> bytes:
    """Assemble the message of one record, with a delivery-count in its header if that is not 0."""
    stored, header_size = chunk.messages[index], chunk.header_sizes[index]
    if delivery_count:
        rest = len(stored) - header_size
        # A header that cannot be decoded stays as the producer wrote it.
        with suppress(WireError):
            stored = with_delivery_count(stored, header_size, delivery_count)
        header_size = len(stored) - rest
    return stored[:header_size] + annotations + stored[header_size:]


def too_large(partition: int, number: int, size: int, size_max: int) -> PeerError:
    """Describe a record that is larger than the client accepts: it ends the link."""
    return PeerError(
        names.LINK_MESSAGE_SIZE_EXCEEDED,
        f"the event at offset {number} of partition {partition} has {size} bytes, but this link accepts at"
        f" most {size_max} (AMQP 2.7.3)",
    )
