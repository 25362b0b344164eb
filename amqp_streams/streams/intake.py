"""Events in: routes a batch of transfers to partitions, by the link, by hints in the messages, or in turns.

Spec: Event Streams 4.1, 4.2, 4.6.6, 4.6.7; Anonymous Terminus 1.0, 2.2. Law: an invalid message is refused
alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.policy import Right
from amqp_streams.storage.formats.chunks import formats_at
from amqp_streams.storage.ports import Formats, Partition, Store, StoredLog
from amqp_streams.streams.access import Permissions
from amqp_streams.streams.attach import Producing, Relaying, named_partition
from amqp_streams.streams.numbering import Numbered
from amqp_streams.streams.receipts import Part, Receipt
from amqp_streams.streams.redirects import NOWHERE, Redirected, require_here
from amqp_streams.streams.routing import RoundRobin, partition_of_key
from amqp_streams.streams.steps import EVENTS_A_STEP, Steps, finish
from amqp_streams.wire.batched.packed import Packed, pack
from amqp_streams.wire.sections import (
    MessagesRefusedError,
    group_key,
    header_sizes_alike,
    properties_to,
    strip_batch,
    target_partition,
    without_annotations,
)


class AwaitedLogError(PeerError):
    """The log at `address` does not exist, and the caller can wait until it is created."""

    def __init__(self, address: str) -> None:
        super().__init__(names.NOT_FOUND, f"log {address!r} is not created yet: send the message again")
        self.address = address


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Received messages, what is stored of each and in which format, and the time."""

    messages: Sequence[bytes]
    stored: Sequence[bytes]
    header_sizes: bytes
    now_ms: int
    receipt: Receipt
    store: Store
    formats: Formats = None

    def append(self, partition: Partition, indices: Sequence[int]) -> StorageError | None:
        """Append the messages at these indices to a partition."""
        stored, sizes = self.stored, self.header_sizes
        headers, formats = bytes([sizes[index] for index in indices]), formats_at(self.formats, indices)
        return self._append(partition, indices, [stored[index] for index in indices], headers, formats)

    def append_share(self, partition: Partition, share: slice) -> StorageError | None:
        """Append a slice of the batch to a partition."""
        indices, stored = range(len(self.stored))[share], self.stored[share]
        if isinstance(stored, Packed):
            # A copy: a share that stays in memory longer than the others must not keep theirs.
            stored = pack(stored.buffer, stored.ends)
        return self._append(
            partition, indices, stored, self.header_sizes[share], formats_at(self.formats, share)
        )

    def append_all(self, partition: Partition) -> StorageError | None:
        """Append the whole batch to a partition."""
        return self._append(partition, None, self.stored, self.header_sizes, self.formats)

    def _append(
        self,
        partition: Partition,
        indices: Sequence[int] | None,
        messages: Sequence[bytes],
        header_sizes: bytes,
        formats: Formats,
    ) -> StorageError | None:
        before, commit = self.store.pending_bytes, partition.queue.sequence
        try:
            if formats is not None:
                self.store.allow_formats()
            partition.append(messages, header_sizes, self.now_ms, formats=formats)
        except StorageError as error:
            self.receipt.refused += [
                # The whole share: an append takes all of its messages or none.
                (index, error)
                for index in (range(len(messages)) if indices is None else indices)
            ]
            return error
        taken = self.store.pending_bytes - before
        self.receipt.parts.append(Part(partition, indices, len(messages), taken, commit))
        return None


class Intake:
    """Routes batches.

    `log_at` returns the log of an address, may create it on demand, and raises AwaitedLogError or PeerError.

    `elsewhere` returns the partitions of a log that other containers serve.
    """

    def __init__(
        self,
        store: Store,
        log_at: Callable[[str, Permissions], StoredLog],
        elsewhere: Callable[[StoredLog], Redirected] = lambda _log: NOWHERE,
    ) -> None:
        self._store = store
        self._log_at = log_at
        self._elsewhere = elsewhere
        self._stopped: set[Partition] = set()
        self._turns: dict[str, RoundRobin] = {}

    def producing(
        self,
        log: StoredLog,
        partition: Partition | None,
        elsewhere: Redirected,
        numbered: Numbered | None = None,
        batch_events: int = 0,
    ) -> Producing:
        """The grant of a link.

        All links of a log share one round-robin, so that links with one event each also spread.

        Raises:
            PeerError: the log refuses producers.
        """
        if log.refusal is not None:
            raise PeerError(names.NOT_ALLOWED, log.refusal)
        # By incarnation: a log that is created again begins anew.
        turns = self._turns.setdefault(log.incarnation, RoundRobin())
        return Producing(
            log, partition, turns, elsewhere=elsewhere, numbered=numbered, batch_events=batch_events
        )

    def forget(self, log: StoredLog) -> None:
        """Forget a deleted log."""
        self._turns.pop(log.incarnation, None)

    def receive(
        self, grant: Producing | Relaying, messages: Sequence[bytes], now_ms: int, formats: Formats = None
    ) -> Receipt:
        """Add a batch of transfers to the next commit.

        Never raises for a peer's data: see `Receipt.refused`.
        """
        receipt = Receipt()
        try:
            # Hot path: one call in C speed for the usual batch. Only a batch with an invalid message is taken
            # apart.
            stored, header_sizes = strip_batch(messages)
        except MessagesRefusedError as refused:
            self._receive_others(grant, messages, formats, refused, now_ms=now_ms, receipt=receipt)
            return receipt
        batch = _Batch(messages, stored, header_sizes, now_ms, receipt, self._store, formats)
        if isinstance(grant, Producing):
            self._route(grant, batch)
        else:
            self._relay(grant, batch)
        return receipt

    def receive_together(
        self,
        grant: Producing,
        messages: Sequence[bytes],
        now_ms: int,
        formats: Formats = None,
        partition: int | None = None,
    ) -> Steps[Receipt]:
        """Add all events of one transfer to the next commit, or none if one of them is not valid: see
        `Receipt.invalid`.

        `partition`: of events without a hint of their own; None: they are dealt. After an error of the store
        (`Receipt.refused`), partitions that come later get nothing.
        """
        receipt = Receipt()
        try:
            stored, header_sizes = yield from _stripped(messages)
        except _RefusedError as refused:
            receipt.invalid = refused.index, PeerError(names.DECODE_ERROR, str(refused.reason))
            return receipt
        batch = _Batch(messages, stored, header_sizes, now_ms, receipt, self._store, formats)
        plain, partitions = stored is messages and grant.log.foreign is None, grant.log.partitions
        if plain and (grant.partition is not None or len(partitions) == 1):
            batch.append_all(grant.partition or partitions[0])
            return receipt
        hinted: dict[int, list[int]] = {}
        free: Sequence[int] = range(len(messages))
        if not (plain and without_annotations(messages)):
            hinted, free = yield from self._sort(grant, batch)
            if receipt.spoil():
                return receipt
        shares = [] if not free or partition is None else [(partition, slice(None))]
        shares = shares or grant.round_robin.deal(len(free), self._running(grant))
        if not hinted and all(share.step in (None, 1) for _, share in shares):
            for index, share in shares:
                if not self._appended(partitions[index], batch, None if len(shares) == 1 else share):
                    break
            return receipt
        # Each event by itself: they are cut once, not for each partition.
        batch = replace(batch, stored=list(stored))
        for index, share in shares:
            hinted[index] = sorted([*hinted.get(index, ()), *free[share]])
        for index, indices in hinted.items():
            whole = len(indices) == len(messages)
            if not self._appended(partitions[index], batch, None if whole else indices):
                break
        return receipt

    def _appended(self, partition: Partition, batch: _Batch, share: slice | Sequence[int] | None) -> bool:
        """Append a share of a batch, None: all of it. Returns whether the partition took it."""
        match share:
            case None:
                error = batch.append_all(partition)
            case slice():
                error = batch.append_share(partition, share)
            case _:
                error = batch.append(partition, share)
        self._note(partition, error)
        return error is None

    def _receive_others(
        self,
        grant: Producing | Relaying,
        messages: Sequence[bytes],
        formats: Formats,
        refused: MessagesRefusedError,
        *,
        now_ms: int,
        receipt: Receipt,
    ) -> None:
        """Refuse data that is not a valid message, and take the other messages."""
        receipt.refused += [
            (index, PeerError(names.DECODE_ERROR, str(error))) for index, error in refused.refused.items()
        ]
        kept = [index for index in range(len(messages)) if index not in refused.refused]
        if not kept:
            return
        others = self.receive(grant, [messages[index] for index in kept], now_ms, formats_at(formats, kept))
        for part in others.parts:
            indices = kept if part.indices is None else [kept[index] for index in part.indices]
            receipt.parts.append(replace(part, indices=indices))
        receipt.refused += [(kept[index], reason) for index, reason in others.refused]
        if others.awaited is not None:
            index, address = others.awaited
            receipt.awaited = kept[index], address
            # They are looked at again.
            receipt.refused = [each for each in receipt.refused if each[0] < kept[index]]

    def _route(self, grant: Producing, batch: _Batch) -> None:
        log, bound = grant.log, grant.partition
        # No message has delivery annotations, so none has a hint. Each event of a foreign log is looked at.
        plain = batch.stored is batch.messages and log.foreign is None
        # Hot path: nothing in the messages decides, so no message is looked at.
        if plain and (bound is not None or len(log.partitions) == 1):
            batch.append_all(bound or log.partitions[0])
            return
        # Hot path: a search of the bytes shows that no message can have a group key.
        if plain and without_annotations(batch.messages):
            for index, share in grant.round_robin.deal(len(batch.messages), self._running(grant)):
                self._note(log.partitions[index], batch.append_share(log.partitions[index], share))
            return
        hinted, free = finish(self._sort(grant, batch))
        for index, indices in hinted.items():
            batch.append(log.partitions[index], indices)
        for index, share in grant.round_robin.deal(len(free), self._running(grant)):
            self._note(log.partitions[index], batch.append(log.partitions[index], free[share]))

    def _sort(self, grant: Producing, batch: _Batch) -> Steps[tuple[dict[int, list[int]], list[int]]]:
        """The indices of messages by the partition of their hints, and those of messages without a hint."""
        hinted: dict[int, list[int]] = {}
        free: list[int] = []
        for index, message in enumerate(batch.messages):
            if index % EVENTS_A_STEP == EVENTS_A_STEP - 1:
                yield
            try:
                wanted = target(grant, message)
            except PeerError as error:
                batch.receipt.refused.append((index, error))
                continue
            if wanted is None:
                free.append(index)
            else:
                hinted.setdefault(wanted, []).append(index)
        return hinted, free

    def _running(self, grant: Producing) -> Sequence[int]:
        """The partitions for events without a hint: those here that run, or all here if none runs."""
        log = grant.log
        everyone: Sequence[int] = range(len(log.partitions))
        if grant.elsewhere:
            everyone = [index for index in everyone if index not in grant.elsewhere]
        if not self._stopped:
            return everyone
        # If every partition has stopped, the producer gets the error of one of them.
        return [index for index in everyone if log.partitions[index] not in self._stopped] or everyone

    def _note(self, partition: Partition, error: StorageError | None) -> None:
        # A full disk or a failed commit is temporary.
        if error is not None and partition.facts().failure is not None:
            self._stopped.add(partition)

    def _relay(self, grant: Relaying, batch: _Batch) -> None:
        """Append each message to the log in its `to` field. Spec: Anonymous Terminus 1.0, 2.2."""
        for index, message in enumerate(batch.messages):
            try:
                producing = self.relayed_to(grant, message)
            except AwaitedLogError as error:
                # Later messages wait as well: the messages of a link are stored in their order.
                batch.receipt.awaited = index, error.address
                return
            except (PeerError, StorageError) as error:  # StorageError: a log could not be created on demand
                batch.receipt.refused.append((index, error))
                continue
            receipt = Receipt()
            stored, sizes = [batch.stored[index]], batch.header_sizes[index : index + 1]
            # `_route` recognizes messages without annotations by the identity of the lists.
            same = stored[0] is message
            messages = stored if same else [message]
            formats = formats_at(batch.formats, (index,))
            self._route(
                producing, _Batch(messages, stored, sizes, batch.now_ms, receipt, self._store, formats)
            )
            batch.receipt.parts += [replace(part, indices=(index,)) for part in receipt.parts]
            batch.receipt.refused += [(index, reason) for _, reason in receipt.refused]

    def relayed_to(self, grant: Relaying, message: bytes) -> Producing:
        """The grant for the log in the message's field `to`.

        Raises:
            AwaitedLogError: the log must be created first.
            PeerError: the field is missing, or the log does not exist or may not be used.
            StorageError: the log could not be created on demand.
        """
        try:
            address = properties_to(message)
        except WireError as error:
            raise PeerError(names.DECODE_ERROR, str(error)) from error
        if not address:
            raise PeerError(
                names.INVALID_FIELD, "on a link with a null target, each message must name its log in 'to'"
            )
        known = grant.producing.get(address)
        if known is None:
            grant.permissions.require(Right.SEND, address)
        log = self._log_at(address, grant.permissions)
        elsewhere = self._elsewhere(log)
        # The log may have been created again, or the redirects may have changed.
        if known is None or known.log is not log or known.elsewhere is not elsewhere:
            require_here(log.name, len(log.partitions), elsewhere, None)
            known = grant.producing[address] = self.producing(log, None, elsewhere)
        return known


class _RefusedError(Exception):
    """The message at `index` of a batch is not valid."""

    def __init__(self, index: int, reason: WireError) -> None:
        super().__init__()
        self.index = index
        self.reason = reason


def _stripped(messages: Sequence[bytes]) -> Steps[tuple[Sequence[bytes], bytes]]:
    """Like `strip_batch`, in steps.

    Raises:
        _RefusedError: for the first message that is not valid.
    """
    sizes = header_sizes_alike(messages)
    if sizes is not None:
        return messages, sizes
    stored, parts = list[bytes](), list[bytes]()
    for first in range(0, len(messages), EVENTS_A_STEP):
        try:
            kept, sizes = strip_batch(messages[first : first + EVENTS_A_STEP])
        except MessagesRefusedError as refused:
            raise _RefusedError(first + refused.index, refused.refused[refused.index]) from None
        stored += kept
        parts.append(sizes)
        yield
    return stored, b"".join(parts)


def target(grant: Producing, message: bytes) -> int | None:
    """The partition that a message must or should be sent to; None: any. Spec: 4.2, 4.6.6, 4.6.7.

    Raises:
        PeerError: it must go to a partition that it cannot reach, or its annotations cannot be decoded.
    """
    foreign = grant.log.foreign
    refusal = None if foreign is None else foreign.refusal(message)
    if refusal is not None:
        raise refusal
    try:
        named = target_partition(message)
        if named is not None:
            partition = named_partition(grant.log, named)
            if grant.partition is not None and partition is not grant.partition:
                description = (
                    f"the link is bound to partition {grant.partition.index}, but {names.TARGET_PARTITION} is"
                    f" {named[:64]!r}"
                )
                raise PeerError(names.NOT_ALLOWED, description)
            return here(grant, partition.index)
        if grant.partition is not None:
            return grant.partition.index
        key = group_key(message)
    except WireError as error:
        raise PeerError(names.DECODE_ERROR, str(error)) from error
    if key is None:
        return None
    partition_of = partition_of_key if foreign is None else foreign.partition_of_key
    return here(grant, partition_of(key, len(grant.log.partitions)))


def here(grant: Producing, index: int) -> int:
    if index in grant.elsewhere:
        raise grant.elsewhere[index].error(grant.log.name, index)
    return index
