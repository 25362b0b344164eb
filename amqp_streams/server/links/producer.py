"""A producer's link: receives transfers and appends them to a log.

With a null target, it appends each message to the log that the message names. Spec: Event Streams 4.1, 4.2.
"""

from array import array
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import storage_refusal
from amqp_streams.node.writes import Wait
from amqp_streams.proton import links, outcomes, receiving
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import IncomingLink, Owner, Pause, Service
from amqp_streams.server.links.sent_batch import SentBatch
from amqp_streams.storage.formats.chunks import formats_at
from amqp_streams.storage.ports import CommitDone, Formats
from amqp_streams.streams.attach import Producing, Relaying
from amqp_streams.streams.receipts import Part
from amqp_streams.streams.sends import Taken
from amqp_streams.wire.formats import UNKNOWN

_UNREADABLE: Final = (
    "the message-format of this transfer is not a single uint, so the node cannot store it (AMQP 2.7.5)"
)

_SUSPENDED: Final = "a batch of this link was rejected: send a batch that resumes the link first"


Taking: TypeAlias = Generator[Wait | None, None, Callable[[], None]]
"""Messages that need more steps. The step after a `Wait` is due when the wait is over. The result is called
after the last step.
"""


class ProducerLink(IncomingLink[Producing | Relaying]):
    """Appends the transfers of one link to a log or, with a null target, to the logs that they name.

    `second`: the sender settles after the node (rcv-settle-mode second).
    """

    __slots__ = ("_wait", "behind", "second", "taking")

    def __init__(
        self,
        service: Service,
        owner: Owner,
        pointer: Pointer,
        name: str,
        grant: Producing | Relaying,
        *,
        second: bool,
    ) -> None:
        super().__init__(service, owner, pointer, name, grant, size_max=service.limits.message_bytes)
        self.second = second
        self.behind = False
        """Deliveries wait for a later loop iteration."""
        self.taking: Taking | None = None
        """The batch, or the messages to a log that is being created, that need more steps."""
        self._wait: Wait | None = None
        """What they wait for."""

    @property
    def waits(self) -> bool:
        """Whether the next step of `taking` must wait."""
        return self._wait is not None and not self._wait.over

    def top_up(self) -> None:
        """Grant credit before it runs out.

        No credit is granted while too many bytes wait for the disk, or while the user's quota is used up.
        """
        if not self.alive or self.closing:
            return
        limits, pointer = self.service.limits, self.pointer
        # Checked at every call: credit counts messages, but a few large messages can fill the memory.
        if self.service.overloaded(self):
            return
        if self.second and links.unsettled(pointer) >= limits.unsettled:
            return
        wanted, throttle = limits.credit, self.owner.account.bytes_in
        credit = links.credit(pointer)
        if throttle is not None:
            more = throttle.credit(self, credit, wanted)
            if more:
                links.grant(pointer, more)
        # Grant in halves: a flow frame per message would double the number of frames.
        elif credit <= wanted // 2:
            links.grant(pointer, wanted - credit)

    def go_on(self) -> None:
        """Continue after the user's quota has become available again."""
        self.top_up()
        self.owner.flush()

    def settled_by_sender(self, delivery: Pointer) -> bool:
        """Settle a delivery that the sender settled after our outcome (rcv-settle-mode second).

        Returns False if the delivery is a new message instead.
        """
        if not outcomes.answered(delivery) or not outcomes.settled_by_peer(delivery):
            return False
        outcomes.settle(delivery)
        self.top_up()
        return True

    def take(self, until: float) -> int:
        """Append the messages that have arrived. Returns the number of deliveries.

        `until`: the `perf_counter` at which batches must wait for a later loop iteration (`behind`): one read
        may complete many of them.
        """
        waited, self.behind = self.behind, False
        if self.taking is None and not self.owner.formats.awaits(self.endpoint, names.BATCH_MESSAGE_FORMAT):
            count = self._append(self.arrived())
            self.behind = self.taking is not None
            return count
        if not waited:
            until = min(until, self.service.iteration.batches_end_s())
        taken = 0
        # A link that waited does at least one step. A compressed batch needs more memory once it is taken:
        # the connection is held when too many bytes wait for the disk, and what has arrived waits too.
        while waited or (perf_counter() <= until and (self.taking is not None or not self.owner.held)):
            waited = False
            if self.waits:
                self.owner.pause(Pause.LOG)
                break
            if self.taking is not None:
                self._continue(self.taking)
                continue
            arrivals = self.arrived(one=True)
            count = self._append(arrivals)
            taken += count
            if not count and not arrivals.aborted:
                return taken
        self.behind = True
        return taken

    def _append(self, arrivals: receiving.Arrivals) -> int:
        taken, throttle = len(arrivals.deliveries), self.owner.account.bytes_in
        if throttle is not None:
            size = sum(map(len, arrivals.messages))
            # Bytes of incomplete and of aborted messages count as well: otherwise they would be free.
            throttle.spend(self, taken, size, arrived=size + arrivals.kept + arrivals.aborted_bytes)
            self._hold_back(throttle.debt_ms())
        formats = self._formats(arrivals) if arrivals.formats else None
        deliveries = arrivals.deliveries
        if formats is not None and formats[0] == names.BATCH_MESSAGE_FORMAT:
            self._take_batch(deliveries[0], arrivals.messages[0])
        elif isinstance(self.grant, Producing) and self.grant.suspended:
            for delivery in deliveries:
                self._release(delivery)
        elif deliveries:
            awaited = self._receive(deliveries, arrivals.messages, formats)
            if awaited is not None:
                self.taking = self._relay(deliveries, arrivals.messages, formats, awaited)
                self._continue(self.taking)
        if taken or arrivals.aborted:  # refused and aborted deliveries used up credit, too
            self.top_up()
        return taken

    def _receive(
        self, deliveries: Sequence[Pointer], messages: list[bytes], formats: Formats
    ) -> tuple[int, str] | None:
        """Append messages. Returns `Receipt.awaited`."""
        receipt = self.service.node.receive(self.grant, messages, self.service.now_ms(), formats)
        self._count(receipt.parts)
        for index, reason in receipt.refused:
            self._refuse(deliveries[index], reason)
        # Repetitions that are stored already.
        if receipt.settled:
            self._accept([deliveries[index] for index in receipt.settled])
        for wait in receipt.waits():
            indices = wait.indices
            chosen = deliveries if indices is None else [deliveries[index] for index in indices]
            if indices is None and receipt.awaited is not None:
                chosen = deliveries[: receipt.awaited[0]]
            self.service.await_commit(self, chosen, wait)
            if wait.queue.alone:
                self.service.stall(self, wait.queue)
        return receipt.awaited

    def _relay(
        self,
        deliveries: Sequence[Pointer],
        messages: list[bytes],
        formats: Formats,
        awaited: tuple[int, str] | None,
    ) -> Taking:
        """Create the log that the message at an index names, then append this message and those after it."""
        while awaited is not None:
            first, address = awaited
            error = yield from self._make(address)
            if error is not None:
                self._refuse(deliveries[first], error)
                first += 1
            deliveries, messages = deliveries[first:], messages[first:]
            formats = formats_at(formats, slice(first, None))
            awaited = self._receive(deliveries, messages, formats) if messages else None
        return lambda: None

    def _make(self, address: str) -> Generator[Wait, None, PeerError | StorageError | None]:
        assert isinstance(self.grant, Relaying), "a link with a target has its log"
        return (yield from self.service.node.making(address, self.grant.permissions, self.owner.number))

    def _take_batch(self, delivery: Pointer, message: bytes) -> None:
        """Begin to append the events of a batch. Batches come one by one, see `take`."""
        self.taking = self._batch(delivery, message)
        self._continue(self.taking)

    def _batch(self, delivery: Pointer, message: bytes) -> Taking:
        while True:
            taken: Taken = yield from self.service.node.receive_batch(
                self.grant, message, self.service.now_ms()
            )
            if taken.awaited is None:
                break
            error = yield from self._make(taken.awaited)
            if error is not None:
                taken = replace(taken, refused=error)
                break
        return partial(self._taken, delivery, len(message), taken)

    def _continue(self, taking: Taking) -> None:
        """Do one step of `taking`."""
        # While a batch is unfinished, other batches wait. A batch that waits for the disk must not hold them.
        unfinished = self.service.iteration.unfinished
        try:
            self._wait = next(taking)
        except StopIteration as end:
            self._forget_batch()
            end.value()
            # Only now does the batch count: perhaps too much waits for the disk.
            self.top_up()
            return
        if self.taking is not taking:  # the step has closed the link
            self._wait = None
        elif self._wait is None:
            unfinished.add(self)
        else:
            unfinished.discard(self)
            if self.waits:
                self.owner.pause(Pause.LOG)
            self._wait.then(partial(self.owner.resume, Pause.LOG))

    def _taken(self, delivery: Pointer, size: int, taken: Taken) -> None:
        throttle = self.owner.account.bytes_in
        if throttle is not None and (more := taken.bytes - size) > 0:  # it was compressed
            throttle.spend(self, 1, taken.bytes, arrived=more)
            self._hold_back(throttle.debt_ms())
        if taken.released:
            self._release(delivery)
            return
        self._count(taken.receipt.parts)
        waits = taken.receipt.waits()
        if not waits:
            self.answer(delivery, taken.refused)
            return
        batch = SentBatch(self, delivery, len(waits), taken.refused)
        for wait in waits:
            self.service.await_commit(batch, [delivery], wait)
            if wait.queue.alone:
                self.service.stall(self, wait.queue)

    def _count(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self.events += part.count
            self.bytes += part.bytes

    def _forget_batch(self) -> None:
        if self.waits:
            self.owner.resume(Pause.LOG)
        self.taking = self._wait = None
        self.service.iteration.unfinished.discard(self)

    def let_go(self) -> None:
        """Drop the bytes of an incomplete message, and the messages that need more steps."""
        self._forget_batch()
        super().let_go()

    def answer(self, delivery: Pointer, refused: PeerError | StorageError | None) -> None:
        """Send the outcome of a batch. `refused`: the error; None: accepted."""
        if not self.alive:
            return
        if refused is None:
            self._accept([delivery])
        else:
            self._refuse(delivery, refused)
        if self.second:
            self.top_up()

    def _release(self, delivery: Pointer) -> None:
        """Give back a delivery of a suspended link."""
        if outcomes.settled_by_peer(delivery):  # its sender sees no outcome, see `_refuse`
            self._refuse(delivery, PeerError(names.ILLEGAL_STATE, _SUSPENDED))
        else:
            outcomes.release(delivery, settle=not self.second)

    def _formats(self, arrivals: receiving.Arrivals) -> Formats:
        """Return the message-formats, or None if all are 0.

        Messages whose format is unknown are refused and removed from `arrivals`.
        """
        deliveries, messages, formats = arrivals.deliveries, arrivals.messages, arrivals.formats
        # Rare: a client wrote the message-format in a form that the node cannot read.
        if UNKNOWN in formats:
            kept = [index for index, number in enumerate(formats) if number != UNKNOWN]
            for delivery, number in zip(deliveries, formats, strict=True):
                if number == UNKNOWN:
                    self._refuse(
                        delivery, PeerError(names.INVALID_FIELD, _UNREADABLE, {"field": "message-format"})
                    )
            arrivals.deliveries = [deliveries[index] for index in kept]
            messages[:] = [messages[index] for index in kept]
            formats = [formats[index] for index in kept]
        return array("I", formats) if any(formats) else None

    def _hold_back(self, debt_ms: int) -> None:
        """Stop reading from the client until it has paid off the bytes by which it exceeded its quota.

        Credit counts messages and cannot prevent that. The pause is shorter than the idle timeout, so that
        the connection does not appear dead.
        """
        if debt_ms:
            self.owner.pause(Pause.QUOTA)
            within_ms = min(debt_ms, self.service.limits.idle_timeout_ms // 4)
            self.service.later(within_ms, partial(self.owner.resume, Pause.QUOTA))

    def committed(self, deliveries: Sequence[Pointer], parts: Sequence[Part], done: CommitDone) -> None:
        """Send the outcomes: the commit that contains these deliveries has ended."""
        if not self.alive:
            return
        # Hot path: usually all deliveries of the commit are accepted in one call.
        if done.failures:
            deliveries = self._stored(deliveries, parts, done)
        self._accept(deliveries)
        # a delivery counts as unsettled until the sender settles too, so room appears only now
        if self.second:
            self.top_up()

    def _accept(self, deliveries: Sequence[Pointer]) -> None:
        if self.second:
            outcomes.accept_unsettled(deliveries)
        else:
            outcomes.give(deliveries, outcomes.ACCEPTED)

    def _stored(
        self, deliveries: Sequence[Pointer], parts: Sequence[Part], done: CommitDone
    ) -> Sequence[Pointer]:
        """Return the deliveries whose records are stored. The others are answered here."""
        gone: set[int] = set()
        for part in parts:
            failure = done.failures.get(part.partition)
            if failure is not None:
                failed = range(len(deliveries)) if part.indices is None else part.indices
                for index in failed:
                    self._refuse(deliveries[index], failure)
                gone.update(failed)
        return [delivery for index, delivery in enumerate(deliveries) if index not in gone]

    def _refuse(self, delivery: Pointer, reason: PeerError | StorageError) -> None:
        error = reason if isinstance(reason, PeerError) else storage_refusal(reason)
        self.service.audit.deliveries_refused[error.condition] += 1
        if error.condition == names.UNAUTHORIZED_ACCESS:
            self.service.audit.refused(self.owner.user, error.description)
        # The sender settled the transfer, so it sees no outcome: detaching is the only way to report the
        # error. Anonymous Terminus 2.2.1 prescribes the same.
        if outcomes.settled_by_peer(delivery):
            outcomes.settle(delivery)
            self.close(error)
        # The node failed, not the message: `modified` with delivery-failed lets the client send it again.
        elif error.condition == names.INTERNAL_ERROR:
            outcomes.modify_failed(delivery, settle=not self.second)
            # Another partition may still work. A bound link has no other, so it ends.
            bound = isinstance(self.grant, Producing) and self.grant.partition is not None
            if bound:
                self.close(error)
        else:
            outcomes.reject(delivery, error.condition, error.description, error.info, settle=not self.second)
