"""A producer: sends events without waiting for each outcome, within a window, and sends again what was lost.

At least once: if a connection is lost before the outcome arrives, the event is sent again and may be stored
twice. An accepted event is never lost. With a producer id, exactly once: the node recognizes events by their
sequence numbers.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from amqp_streams import names
from amqp_streams.client.connection.endpoint import log_text
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.errors import (
    ClosedError,
    ConnectionLostError,
    EndpointError,
    LinkRefusedError,
    RejectedError,
    ReleasedError,
    SendError,
    SequenceError,
    TimedOutError,
)
from amqp_streams.client.producing.batching import BYTES_DEFAULT, Batching, Refused, events_of, share_of
from amqp_streams.client.producing.contents import Sent, encode, entries_of, format_of
from amqp_streams.client.producing.encoded import EncodedSends
from amqp_streams.client.producing.lingering import Linger
from amqp_streams.client.producing.numbering import Numbering, Sequences, checked_id, share
from amqp_streams.client.producing.outbox import Entry, LoneEntry, Outbox
from amqp_streams.client.producing.pending import Pending, Receipt, failure_of, outcomes
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.sending import Sendable
from amqp_streams.wire.codec import Symbol

WINDOW_BYTES_MAX: Final = 64 << 20
"""Bytes of events without an outcome that one producer holds in memory, whatever its `window` is. The event
that reaches the limit may exceed it.
"""
NO_NUMBERS: Final = "sequence= needs a producer with an id: client.producer(…, producer_id=…)"
_TURN_MAX: Final = 2000
"""Events that one loop iteration sends or encodes, so that other links of the client are not delayed."""


class Producer(EncodedSends):
    """Sends events to one log, or to one partition of it.

    Created by `Client.producer`. Use it with `async with`, which flushes at the end.
    """

    def __init__(
        self,
        pool: Pool,
        log: str,
        *,
        partition: str | None,
        window: int,
        properties: Mapping[str, object] | None,
        producer_id: str | None = None,
        batch_bytes: int = BYTES_DEFAULT,
        linger_ms: float = 0,
        compression: str | None = None,
    ) -> None:
        super().__init__(pool, log)
        self.partition: Final = partition
        self.window: Final = window
        self._properties = dict(properties or {})
        if partition is not None:
            self._properties[names.PARTITION] = Symbol(partition)
        self.producer_id: Final = producer_id
        self._numbering: Final = None if producer_id is None else Numbering()
        if producer_id is not None:
            self._properties[names.PRODUCER_ID] = checked_id(producer_id)
        self._outbox = Outbox(
            events_max=window, bytes_max=WINDOW_BYTES_MAX, attempts_max=pool.retry.attempts_max
        )
        self._batching = Batching(batch_bytes, compression)
        self._properties |= self._batching.properties
        self._linger = Linger(linger_ms, self._outbox, self._batching, self._pump_soon)
        self._resend_task: asyncio.Task[None] | None = None
        self._releases = 0
        self._refused_by: ReleasedError | None = None

    def __repr__(self) -> str:
        state = "attached" if self.attached else "not attached"
        return (
            f"<Producer for {log_text(self.log, self.partition)}, {state}, {self._outbox.events} events"
            " without an outcome>"
        )

    @property
    def obstacle(self) -> AmqpStreamsError | None:
        """Why events have no outcome, if the reason is known.

        The node's last error, or why the connection is closed.
        """
        return self._obstacle()

    async def send(
        self,
        event: Sent,
        partition: str | int | None = None,
        *,
        sequence: int | None = None,
        timeout: float | None = 30.0,
    ) -> Receipt:
        """Send one event, and wait until the node has accepted it. The event is then durable.

        `sequence`: its number, for a producer with an id; None: the next number. If this call is cancelled or
        times out before the event was sent, the event is not sent. Later, its outcome is unknown.

        Raises:
            RejectedError, ReleasedError, ConnectionLostError, LinkError, TimedOutError, ClosedError,
            SequenceError, WireError.
        """
        self._check()
        entry = LoneEntry(event, encode(event, partition), format_of(event))
        await self._add(entry, sequence, timeout)
        pending = Pending(entry)
        try:
            async with asyncio.timeout(timeout):
                return await pending
        except BaseException as error:
            if entry.outcome is None:
                # Not sent yet: `take` drops it. Already sent: its outcome counts, but it is not sent again.
                entry.cancelled = True
            if isinstance(error, TimeoutError) and not isinstance(error, AmqpStreamsError):
                message = f"waiting for an outcome took longer than {timeout} s"
                raise self._late(TimedOutError(message)) from None
            raise

    async def post(
        self,
        event: Sent,
        partition: str | int | None = None,
        *,
        sequence: int | None = None,
        timeout: float | None = 30.0,
    ) -> Pending:
        """Send one event, and wait only until the window has space.

        Await the result for the outcome, or call `flush`.
        """
        self._check()
        entry = Entry(event, encode(event, partition), format_of(event))
        await self._add(entry, sequence, timeout)
        return Pending(entry)

    async def post_batch(
        self,
        events: Sequence[Sent],
        partition: str | int | None = None,
        *,
        sequence: Sequences = None,
        timeout: float | None = 30.0,
    ) -> None:
        """Send many events, and wait only for space in the window.

        This is the fastest way to send; `flush` waits for the outcomes.

        `timeout` applies to each wait. If this method raises, the first events may have been sent.
        `sequence`, for a producer with an id: the number of the first event, if the others follow by one; or
        a number for each event; None: the next numbers.
        """
        self._check()
        outbox, at = self._outbox, 0
        while True:
            # In portions: encoding many events at once would delay the other links of the client.
            portion = events[at : at + min(max(outbox.room, 0), _TURN_MAX)]
            entries = entries_of(portion, partition, outbox.bytes_left)
            self._number(entries, share(sequence, at, len(entries)))
            outbox.add(entries)
            self._linger.added()
            at += len(entries)
            if at >= len(events):
                return
            await self._room(timeout)
            self._check()

    async def send_many(
        self,
        events: Sequence[Sent],
        partition: str | int | None = None,
        *,
        sequence: Sequences = None,
        timeout: float | None = 30.0,
    ) -> None:
        """Send many events, and wait until the node has accepted all of them. They are then durable.

        An event that the node refuses does not affect the others. If this call is cancelled or times out,
        events that were not sent are not sent. `sequence`: as in `post_batch`. `timeout` applies to each wait
        for space, and to the wait for the outcomes.

        Raises: SendError, which names the events that failed with their indexes; and what `send` raises.
        """
        self._check()
        outbox, entries = self._outbox, list[LoneEntry]()
        try:
            while len(entries) < len(events):
                at = len(entries)
                more = [
                    LoneEntry(event, encode(event, partition), format_of(event))
                    for event in events[at : at + max(1, min(outbox.room, _TURN_MAX))]
                ]
                if outbox.room <= 0:
                    await self._room(timeout)
                    self._check()
                self._number(more, share(sequence, at, len(more)))
                outbox.add(more)
                self._linger.added()
                entries += more
            self._linger.end()
            await outcomes(entries, timeout)
        except BaseException as error:
            for entry in entries:
                entry.cancelled = entry.outcome is None
            if isinstance(error, TimeoutError) and not isinstance(error, AmqpStreamsError):
                message = f"waiting for outcomes took longer than {timeout} s"
                raise self._late(TimedOutError(message)) from None
            raise
        failure = failure_of(entries)
        if failure is not None:
            raise failure

    def post_entries(self, entries: Sequence[Entry], sequences: Sequence[int | None] = ()) -> None:
        """Add entries without a check of the window. For the blocking client, which has its own window.

        `sequences`: a number for each entry, if the producer has an id.
        """
        if self._numbering is None:
            self._outbox.add(entries)
        for entry, sequence in zip(entries, sequences, strict=True) if self._numbering is not None else ():
            try:
                self._number([entry], sequence)
            except AmqpStreamsError as error:
                self._outbox.add_failed(entry, error)
            else:
                self._outbox.add([entry])
        # The producer has failed: no link will follow, so the events get their outcome now.
        if self._failure is not None:
            self._outbox.fail(self._failure)
        self._linger.added()

    async def flush(self, *, timeout: float | None = 30.0) -> None:
        """Wait until all events have an outcome.

        Raises:
            SendError, which names the events that failed since the last flush; TimedOutError, after which the
            remaining events are still sent.
        """
        outbox = self._outbox
        self._linger.end()
        await self._until(lambda: outbox.events == 0 or self._failure is not None, timeout, "flushing")
        # Taken also if the producer has failed: the next `flush` must not report them again.
        failures, count = outbox.take_failures()
        if count:
            raise SendError(failures, count)
        if self._failure is not None and not isinstance(self._failure, ClosedError):
            raise self._failure

    @property
    def unsettled(self) -> int:
        """How many events have no outcome yet."""
        return self._outbox.events

    async def close(self, *, timeout: float | None = 30.0) -> None:
        """Flush, then detach. Raises what `flush` raises; the producer is detached in any case."""
        try:
            await self.flush(timeout=timeout)
        finally:
            self._stop(ClosedError("the producer is closed"))

    # -- room and sending

    def _obstacle(self) -> AmqpStreamsError | None:
        return self._refused_by or super()._obstacle()

    async def _add(self, entry: Entry, sequence: int | None, timeout: float | None) -> None:
        # Only a full window waits: the usual call does not give up the loop.
        if self._outbox.room <= 0:
            await self._room(timeout)
            self._check()
        self._number([entry], sequence)
        self._outbox.add([entry])
        self._linger.added()

    def _number(self, entries: Sequence[Entry], sequences: Sequences) -> None:
        """Assign sequence numbers.

        Call it immediately before `add`, so that numbers follow the order of sending.
        """
        if self._numbering is not None:
            self._numbering.number(entries, sequences)
        elif sequences is not None:
            raise SequenceError(NO_NUMBERS)

    async def _room(self, timeout: float | None) -> None:
        outbox = self._outbox
        await self._until(
            lambda: outbox.room > 0 or self._failure is not None, timeout, "waiting for room in the window"
        )

    def _pump_soon(self) -> None:
        """Send at the end of this loop iteration.

        All events that were posted in one iteration are then written together.
        """
        # Without a link nothing is sent: `_resume` continues when one is attached.
        if self._attachment is not None:
            self._attachment.wire.send_soon(self._attachment)

    def _pump(self) -> None:
        """Send as many events as the credit and the buffers allow."""
        attachment, outbox, batching = self._attachment, self._outbox, self._batching
        if attachment is None or self._linger.waits:
            return
        link = attachment.link
        while outbox.ready and (room := link.room()) > 0:
            if batching.resuming and outbox.in_flight:
                return  # these are released, and are sent again first
            batched = batching.events_max > 0
            taken = outbox.take(share_of(outbox) if batched else min(room, _TURN_MAX))
            # Compared with the largest event first: usually no event is too large, and none is looked at.
            if outbox.largest > (largest := link.message_bytes_max) > 0:
                taken = [entry for entry in taken if self._fits(entry, largest)]
            sendables = batching.group(taken, largest, formatted=outbox.formatted) if batched else taken
            formatted = batched or outbox.formatted
            if formatted:
                attachment.wire.write_formats()
            sent = link.send(sendables[:room], formatted=formatted)
            batching.resuming = batching.resuming and not sent
            if sent < len(sendables):
                # The buffers are full: the rest stays first in the queue.
                outbox.put_back(events_of(sendables[sent:]))
                break
        # The buffers are full, not the credit: continue when the output is written.
        if outbox.ready and link.credit > 0:
            attachment.wire.send_later(attachment)

    def _fits(self, entry: Entry, largest: int) -> bool:
        if len(entry.message) <= largest:
            return True
        description = f"the message has {len(entry.message)} bytes; the node accepts at most {largest}"
        self._outbox.reject(entry, RejectedError(names.LINK_MESSAGE_SIZE_EXCEEDED, description))
        self._signal.fire()
        return False

    def _on_outcomes(self, accepted: list[Sendable], refused: list[tuple[Sendable, EndpointError]]) -> None:
        outbox, batching = self._outbox, self._batching
        if accepted:
            # The node stores events, so the next wait begins at its shortest again.
            self._progress = True
            self._releases = 0
            self._refused_by = None
            outbox.accepted(batching.accepted(accepted))
        events = batching.refused(refused)
        if events and not batching.resuming:
            self._refused_by = next(
                (error for _, error in events if isinstance(error, ReleasedError)), self._refused_by
            )
        if self._numbering is not None:
            if self._refused_in_order(events):
                self._attach_again()
                return
        else:
            for entry, error in events:
                outbox.refused(entry, error)
        if outbox.resend_due and batching.resuming:
            self._cancel_resend()
            outbox.resend()
        elif outbox.resend_due and self._resend_task is None:
            self._resend_task = asyncio.create_task(self._resend())
        if outbox.ready:
            self._pump_soon()
        # A waiting sender is woken only when a quarter of the window is free. Otherwise it would send very
        # small batches.
        if self._signal.has_waiters and (outbox.events == 0 or outbox.room >= max(1, outbox.events_max // 4)):
            self._signal.fire()

    def _refused_in_order(self, refused: Refused) -> bool:
        """Record refused events of an idempotent producer, oldest first.

        Returns whether one of them has failed for good.

        The node refused the events after it only because its number is missing, so they are sent again.
        """
        for entry, error in sorted(refused, key=lambda each: each[0].number):
            if self._outbox.refused(entry, error) and isinstance(error, ReleasedError):
                return True
        return False

    def _attach_again(self) -> None:
        """Attach again.

        On this link the node waits for the number of the failed event and would refuse all others.
        """
        attachment = self._attachment
        if attachment is not None:
            # `close` detaches, and `end` lets `_life` attach again: the node does not report an end that the
            # client requested.
            attachment.close()
            attachment.end(
                ConnectionLostError(
                    names.LINK_DETACH_FORCED, "an event failed for good: the others are sent on a new link"
                )
            )

    async def _resend(self) -> None:
        """Send released events again after a wait, which grows until an event is accepted."""
        await asyncio.sleep(self._pool.retry.wait_s(self._releases))
        self._releases += 1
        self._resend_task = None
        self._outbox.resend()
        self._pump_soon()

    # -- the link's life

    async def _attach(self, wire: Wire) -> Attachment:
        numbered = () if self._numbering is None else (names.CAPABILITY_IDEMPOTENT_PRODUCER,)
        wanted = numbered + self._batching.wanted
        return wire.attach_sender(self._address, self._pump, self._on_outcomes, self._properties, wanted)

    def _inspect(self, attachment: Attachment) -> None:
        """Refuse a node that ignores the producer id: the program relies on exactly-once storage."""
        answered = attachment.link.properties
        self._batching.attached(answered)
        if self._numbering is not None:
            if names.PRODUCER_ID not in answered:
                description = (
                    "the node does not support idempotent producers: it would store repeated events twice"
                )
                raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
            self._numbering.heard(answered.get(names.PRODUCER_SEQUENCE))

    def _resume(self, attachment: Attachment) -> None:  # noqa: ARG002 (`_pump` uses the current link)
        self._pump_soon()

    def _suspend(self) -> None:
        # First: `lost` puts the released events in order with the others.
        self._cancel_resend()
        self._batching.events_max = 0
        self._outbox.lost()

    def _fail(self, error: AmqpStreamsError) -> None:
        self._cancel_resend()
        self._outbox.fail(error)

    def _cancel_resend(self) -> None:
        if self._resend_task is not None:
            self._resend_task.cancel()
            self._resend_task = None
