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
from amqp_streams.config import Limits
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.storage.ports import Formats
from amqp_streams.streams.attach import AttachRequest, Producing, Relaying
from amqp_streams.streams.intake import AwaitedLogError, Intake, target
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.receipts import Receipt
from amqp_streams.streams.steps import Steps
from amqp_streams.wire.batched.arrays import SplitSections
from amqp_streams.wire.batched.compression import TooLargeBatchError, UnknownCodecError, available
from amqp_streams.wire.batched.sends import SentBatch, TooManyEventsError, read_in_steps, rejection_text


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of a batch of `count` events and of `bytes` bytes, decompressed; 0: they are not known.

    `receipt`: what must become durable before the outcome is sent. `refused`: the error of the outcome; None:
    accepted. `released`: the link is suspended, so the outcome is released. `awaited`: the address of a log
    that must be created first; nothing was done with the batch.
    """

    receipt: Receipt
    count: int = 0
    bytes: int = 0
    refused: PeerError | StorageError | None = None
    released: bool = False
    awaited: str | None = None


class Sends:
    """Takes batches."""

    def __init__(self, intake: Intake, numbered: NumberedIntake, limits: Limits) -> None:
        self._intake: Final = intake
        self._numbered: Final = numbered
        self._events_max: Final = limits.batch_events
        # An event of a compressed batch must not be larger than one that is sent alone.
        self._bytes_max: Final = min(limits.uncompressed_bytes, limits.message_bytes)
        self.split: SplitSections | None = None
        """See `split_sections`. The shell may set it."""

    def offered(self, request: AttachRequest, grant: Producing) -> Producing:
        """Add to a grant what the attach asks for, and return the grant."""
        if names.CAPABILITY_BATCHED_SENDS in request.capabilities:
            grant.batch_events = self._events_max
            codec = available(request.properties.get(names.BATCH_COMPRESSION))
            if codec is not None:
                grant.compression, grant.uncompressed_bytes = codec.name, self._bytes_max
        return grant

    def receive(self, grant: Producing | Relaying, message: bytes, now_ms: int) -> Steps[Taken]:
        """Add the events of a batch to the next commit, all of them in the last step.

        `message`: the whole transfer. The caller passes no later transfer of the link before the last step.
        Never raises for a peer's data.
        """
        nothing = Receipt()
        try:
            # Each event of an idempotent producer is cut anyway: its number is removed.
            is_numbered = isinstance(grant, Producing) and grant.numbered is not None
            split = None if is_numbered else self.split
            batch = yield from read_in_steps(message, self._events_max, self._bytes_max, split)
        except WireError as error:
            return self._rejected(grant, nothing, _unread(error), 2)
        count, size = len(batch.messages), len(batch.encoded)
        if isinstance(grant, Producing) and grant.suspended:
            if not batch.resumes:
                return Taken(nothing, count, size, released=True)
            grant.suspended = False
        try:
            producing = (
                self._intake.relayed_to(grant, batch.encoded) if isinstance(grant, Relaying) else grant
            )
            if producing.numbered is not None and not producing.batch_events:
                raise PeerError(names.NOT_ALLOWED, _NOT_NEGOTIATED)
            wanted = target(producing, batch.encoded)
        except AwaitedLogError as error:
            return Taken(nothing, awaited=error.address)
        except (PeerError, StorageError) as error:
            return self._rejected(grant, nothing, error, count, size)
        receipt = yield from self._taken(producing, batch, wanted, now_ms)
        if receipt.invalid is not None:
            index, reason = receipt.invalid
            return self._rejected(grant, nothing, reason, count, size, index=index)
        refused = receipt.refused[0][1] if receipt.refused else None
        return Taken(receipt, count, size, refused)

    def _taken(self, grant: Producing, batch: SentBatch, wanted: int | None, now_ms: int) -> Steps[Receipt]:
        formats = yield from _formats(batch.formats, len(batch.messages))
        if formats is not None and names.BATCH_MESSAGE_FORMAT in formats:
            receipt = Receipt()
            error = PeerError(names.INVALID_FIELD, "a batch cannot be an event of a batch")
            receipt.invalid = formats.index(names.BATCH_MESSAGE_FORMAT), error
            return receipt
        if grant.numbered is not None:
            return (
                yield from self._numbered.receive(
                    grant, grant.numbered, batch.messages, now_ms, formats, together=True
                )
            )
        return (yield from self._intake.receive_together(grant, batch.messages, now_ms, formats, wanted))

    def _rejected(
        self,
        grant: Producing | Relaying,
        nothing: Receipt,
        error: PeerError | StorageError,
        count: int,
        size: int = 0,
        *,
        index: int | None = None,
    ) -> Taken:
        """Reject a batch: nothing of it was stored. `index`: of the event that is not valid."""
        # The sender of a single event has nothing to send again before later events, so it is not stopped.
        if isinstance(grant, Producing) and grant.batch_events and count > 1:
            grant.suspended = True
        if index is not None and isinstance(error, PeerError):
            description = rejection_text(index, error.description)
            error = PeerError(error.condition, description, {**error.info, names.EVENT_INDEX: index})
        return Taken(nothing, count, size, error)


_FORMATS_A_STEP: Final = 4096
_BOUND: Final = "(limits.uncompressed_bytes and limits.message_bytes of the node): send smaller batches"
_NOT_NEGOTIATED: Final = (
    f"an idempotent producer that sends batches must ask for {names.CAPABILITY_BATCHED_SENDS} at its attach"
)


def _unread(error: WireError) -> PeerError:
    """Return the error of a batch that could not be read."""
    match error:
        case TooLargeBatchError():
            return PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, f"{error} {_BOUND}")
        case TooManyEventsError():
            return PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, str(error))
        case UnknownCodecError():
            return PeerError(names.NOT_IMPLEMENTED, str(error))
        case _:
            return PeerError(names.DECODE_ERROR, str(error))


def _formats(formats: Mapping[int, int], count: int) -> Steps[Formats]:
    if not any(formats.values()):
        return None
    every = array("I", bytes(4 * count))
    for done, (index, number) in enumerate(formats.items(), 1):
        every[index] = number
        if not done % _FORMATS_A_STEP:
            yield
    return every
