"""Batched sends: many events in one transfer with one outcome. An extension: docs/batched-sends.md.

Laws: a batch is accepted when all its events are durable. If one of its events is not valid, nothing of the
batch is stored. After such a rejection, a link that negotiated batched sends is suspended: until a batch says
that it `resumes`, the node takes nothing from the link, so that later events do not overtake those of the
rejected batch.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.storage.ports import Formats
from amqp_streams.streams.attach import AttachRequest, Producing, Relaying
from amqp_streams.streams.intake import Intake, target
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.receipts import Receipt
from amqp_streams.wire.batched.sends import SentBatch, TooManyEventsError, read_sent_batch, rejection_text


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of a batch of `count` events.

    `receipt`: what must become durable before the outcome is sent. `refused`: the error of the outcome; None:
    accepted. `released`: the link is suspended, so the outcome is released.
    """

    receipt: Receipt
    count: int = 0
    refused: PeerError | StorageError | None = None
    released: bool = False


class Sends:
    """Takes batches of at most `events_max` events."""

    def __init__(self, intake: Intake, numbered: NumberedIntake, events_max: int) -> None:
        self._intake: Final = intake
        self._numbered: Final = numbered
        self._events_max: Final = events_max

    def granted(self, request: AttachRequest) -> int:
        """The most events of a batch on a link with this attach; 0: it asks for no batches."""
        return self._events_max if names.CAPABILITY_BATCHED_SENDS in request.capabilities else 0

    def receive(self, grant: Producing | Relaying, message: bytes, now_ms: int) -> Taken:
        """Add the events of a batch to the next commit. `message`: the whole transfer.

        Never raises for a peer's data.
        """
        nothing = Receipt()
        try:
            batch = read_sent_batch(message, self._events_max)
        except TooManyEventsError as error:
            return self._rejected(grant, nothing, PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, str(error)), 2)
        except WireError as error:
            return self._rejected(grant, nothing, PeerError(names.DECODE_ERROR, str(error)), 2)
        count = len(batch.messages)
        if isinstance(grant, Producing) and grant.suspended:
            if not batch.resumes:
                return Taken(nothing, count, released=True)
            grant.suspended = False
        try:
            producing = self._intake.relayed_to(grant, message) if isinstance(grant, Relaying) else grant
            if producing.numbered is not None and not producing.batch_events:
                raise PeerError(names.NOT_ALLOWED, _NOT_NEGOTIATED)
            wanted = target(producing, message)
        except (PeerError, StorageError) as error:
            return self._rejected(grant, nothing, error, count)
        receipt = self._taken(producing, batch, wanted, now_ms)
        if receipt.invalid is not None:
            index, reason = receipt.invalid
            return self._rejected(grant, nothing, reason, count, index)
        refused = receipt.refused[0][1] if receipt.refused else None
        return Taken(receipt, count, refused)

    def _taken(self, grant: Producing, batch: SentBatch, wanted: int | None, now_ms: int) -> Receipt:
        formats = _formats(batch.formats, len(batch.messages))
        if formats is not None and names.BATCH_MESSAGE_FORMAT in formats:
            receipt = Receipt()
            error = PeerError(names.INVALID_FIELD, "a batch cannot be an event of a batch")
            receipt.invalid = formats.index(names.BATCH_MESSAGE_FORMAT), error
            return receipt
        if grant.numbered is not None:
            return self._numbered.receive(
                grant, grant.numbered, batch.messages, now_ms, formats, together=True
            )
        return self._intake.receive_together(grant, batch.messages, now_ms, formats, wanted)

    def _rejected(
        self,
        grant: Producing | Relaying,
        nothing: Receipt,
        error: PeerError | StorageError,
        count: int,
        index: int | None = None,
    ) -> Taken:
        """Reject a batch: nothing of it was stored. `index`: of the event that is not valid."""
        # The sender of a single event has nothing to send again before later events, so it is not stopped.
        if isinstance(grant, Producing) and grant.batch_events and count > 1:
            grant.suspended = True
        if index is not None and isinstance(error, PeerError):
            description = rejection_text(index, error.description)
            error = PeerError(error.condition, description, {**error.info, names.EVENT_INDEX: index})
        return Taken(nothing, count, error)


_NOT_NEGOTIATED: Final = (
    f"an idempotent producer that sends batches must ask for {names.CAPABILITY_BATCHED_SENDS} at its attach"
)


def _formats(formats: Mapping[int, int], count: int) -> Formats:
    if not any(formats.values()):
        return None
    every = array("I", bytes(4 * count))
    for index, number in formats.items():
        every[index] = number
    return every
