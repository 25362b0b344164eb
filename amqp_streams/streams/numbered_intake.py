"""Events in from idempotent producers: skips events that are already stored.

The other events take the same path as in `intake.py`.

Law: errors of a message itself are reported first, whatever its sequence. Only valid messages are compared.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.storage.formats.chunks import formats_at
from amqp_streams.storage.ports import Formats, Numbers, Partition, Store
from amqp_streams.streams.attach import Producing
from amqp_streams.streams.intake import here, target
from amqp_streams.streams.numbering import Numbered, Numbering
from amqp_streams.streams.receipts import Part, Receipt
from amqp_streams.streams.steps import EVENTS_A_STEP, Steps
from amqp_streams.wire.sections import strip, without_annotations
from amqp_streams.wire.sequences import Split, sequence_of, split_batch


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """The link, its messages, the time, and the results."""

    numbered: Numbered
    now_ms: int
    receipt: Receipt


class NumberedIntake:
    """Routes batches of idempotent producers."""

    def __init__(self, store: Store, numbering: Numbering) -> None:
        self._store: Final = store
        self._numbering: Final = numbering

    def receive(
        self,
        grant: Producing,
        numbered: Numbered,
        messages: Sequence[bytes],
        now_ms: int,
        formats: Formats = None,
        *,
        together: bool = False,
    ) -> Steps[Receipt]:
        """See `Intake.receive`; with `together`, see `Intake.receive_together`.

        Numbers are compared after the last step that yields, so no other link of the producer comes between.
        """
        receipt = Receipt()
        split = split_batch(messages)
        by_partition: dict[int, list[int]] | None = None
        # Not every message has its sequence where the fast path looks: look at each one.
        if split is None:
            split, kept = yield from _taken_apart(messages, receipt)
            by_partition = yield from _routed(grant, numbered, messages, kept, receipt)
        elif (
            grant.partition is None
            and len(grant.log.partitions) > 1
            and not without_annotations(split.stored)
        ):
            by_partition = yield from _routed(grant, numbered, split.stored, range(len(messages)), receipt)
        # The home partition is elsewhere: each message gets the redirect as its error.
        elif numbered.home in grant.elsewhere:
            by_partition = yield from _routed(grant, numbered, messages, range(len(messages)), receipt)
        if together and receipt.spoil():
            return receipt
        if formats is not None:
            split = split._replace(formats=formats)
        batch = _Batch(numbered, now_ms, receipt)
        if by_partition is None:
            self._take(batch, grant.log.partitions[numbered.home], None, split)
        else:
            for index, indices in by_partition.items():
                self._take(batch, grant.log.partitions[index], indices, _picked(split, indices))
        return receipt

    def _take(self, batch: _Batch, partition: Partition, indices: Sequence[int] | None, share: Split) -> None:
        """Append a partition's share of a batch, the messages at `indices` (None: all)."""
        numbered, receipt, commit = batch.numbered, batch.receipt, partition.queue.sequence
        sifted = self._numbering.sift(numbered, partition, share.sequences, commit)
        fresh = sifted.fresh
        whole = len(fresh) == len(share.stored)
        known = range(len(share.stored)) if indices is None else indices
        if fresh:
            taken = share if whole else _picked(share, fresh)
            appended = None if whole and indices is None else [known[at] for at in fresh]
            error = self._append(batch, partition, appended, taken)
            if error is not None:
                # Not stored, so the client must send from here on again.
                numbered.owe(partition, taken.sequences[0], error)
                # A repetition of an event that was refused is refused with it.
                sifted.refused += [(at, error) for at in (*fresh, *sifted.twins)]
                sifted.twins.clear()
            elif sifted.twins:
                sifted.current += sifted.twins
        # Hot path: all events are new.
        if whole and not sifted.refused:
            return
        receipt.refused += [(known[at], reason) for at, reason in sifted.refused]
        receipt.settled = [*receipt.settled, *[known[at] for at in sifted.settled]]
        for repeated, its_commit in (sifted.earlier, commit - 1), (sifted.current, commit):
            if repeated:
                receipt.parts.append(Part(partition, [known[at] for at in repeated], 0, 0, its_commit))

    def _append(
        self, batch: _Batch, partition: Partition, indices: Sequence[int] | None, share: Split
    ) -> PeerError | StorageError | None:
        numbered, receipt = batch.numbered, batch.receipt
        before, commit = self._store.pending_bytes, partition.queue.sequence
        try:
            numbers = Numbers(
                numbered.producer, share.sequences, self._numbering.admit(numbered, partition, batch.now_ms)
            )
            if share.formats is not None:
                self._store.allow_formats()
            partition.append(share.stored, share.header_sizes, batch.now_ms, numbers, share.formats)
        except (PeerError, StorageError) as error:
            # Only this partition refuses: the other parts of the batch are stored.
            return error
        # Only after the append: a refused append must not count as in flight.
        self._numbering.appended(numbered, partition, numbers, commit)
        taken = self._store.pending_bytes - before
        receipt.parts.append(Part(partition, indices, len(share.stored), taken, commit))
        return None


def _taken_apart(messages: Sequence[bytes], receipt: Receipt) -> Steps[tuple[Split, list[int]]]:
    """The valid messages with a sequence, and their indices; the others are refused."""
    sequences, stored, sizes, kept = (
        array("Q", bytes(8 * len(messages))),
        list[bytes](messages),
        bytearray(len(messages)),
        list[int](),
    )
    for index, message in enumerate(messages):
        if index % EVENTS_A_STEP == EVENTS_A_STEP - 1:
            yield
        try:
            sizes[index], stored[index] = strip(message)
            sequence = sequence_of(message)
        except WireError as error:
            receipt.refused.append((index, PeerError(names.DECODE_ERROR, str(error))))
            continue
        if sequence is None:
            description = (
                f"each message on this link needs {names.SEQUENCE} in its delivery annotations, an integer"
                " from 0 on"
            )
            receipt.refused.append((index, PeerError(names.INVALID_FIELD, description)))
            continue
        sequences[index] = sequence
        kept.append(index)
    return Split(sequences, stored, bytes(sizes)), kept


def _routed(
    grant: Producing, numbered: Numbered, messages: Sequence[bytes], kept: Sequence[int], receipt: Receipt
) -> Steps[dict[int, list[int]]]:
    """The messages by partition; those with a partition that they cannot reach are refused."""
    by_partition: dict[int, list[int]] = {}
    for count, index in enumerate(kept, 1):
        if not count % EVENTS_A_STEP:
            yield
        try:
            wanted = target(grant, messages[index])
            partition = here(grant, numbered.home) if wanted is None else wanted
        except PeerError as error:
            receipt.refused.append((index, error))
            continue
        by_partition.setdefault(partition, []).append(index)
    return by_partition


def _picked(split: Split, indices: Sequence[int]) -> Split:
    sequences, stored, sizes = (
        array("Q", map(split.sequences.__getitem__, indices)),
        split.stored,
        split.header_sizes,
    )
    formats = formats_at(split.formats, indices)
    return Split(sequences, [stored[at] for at in indices], bytes([sizes[at] for at in indices]), formats)
