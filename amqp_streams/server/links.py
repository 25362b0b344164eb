"""The links of a connection: each joins one engine link (a pointer) to what the node granted it.

Law: a link's pointers are used only while `alive`. A commit outlives the read that started it, so whatever comes back for a link that is
gone is dropped, not settled (`tests/amqp_streams/server/test_commits_in_flight.py`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import PeerError, StorageError, WireError
from amqp_streams.node import Node, skipped_text, storage_refusal
from amqp_streams.server import transfers
from amqp_streams.server.engine import Pointer, close_link
from amqp_streams.storage.ports import CommitDone
from amqp_streams.streams import management, outcome
from amqp_streams.streams.attach import Consuming, Informing, Managing, Producing, Relaying, Replying
from amqp_streams.streams.intake import Receipt
from amqp_streams.streams.reader import Run
from amqp_streams.wire.annotations import AnnotationWriter, assemble, section
from amqp_streams.wire.sections import with_delivery_count
from amqp_streams.wire.types import Array, Symbol, Timestamp

TURN_EVENTS: Final = 1000
"""Sent on one link before other connections get their turn."""
SESSION_BYTES_MAX: Final = 1 << 20
"""Handed to the engine and not yet taken by the peer's session window."""
INFO_INTERVAL_MS: Final = 20
"""Between two answers on one `$info` link (section 6 allows separation): a greedy client gets 50 a second."""
REPLIES_MAX: Final = 100
"""Answers that wait for credit on one link; beyond it the oldest goes."""


class Service(Protocol):
    """What links need of the server around them."""

    node: Node
    limits: Limits
    container_id: str

    def now_ms(self) -> int:
        """The wall clock."""

    def await_commit(self, link: "ProducerLink", deliveries: list[Pointer], receipt: Receipt) -> None:
        """Call `link.committed` when commit `receipt.sequence` is back."""

    def overloaded(self, link: "ProducerLink") -> bool:
        """Too much waits for the disk: grant nothing now; `link.grant` is called when there is room."""

    def hold(self, change: int) -> bool:
        """Count bytes of messages that are not complete; False when there are too many in the whole server."""

    def pump_later(self, link: "ConsumerLink") -> None:
        """Call `link.pump` in a coming turn of the loop."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call once, after a while."""

    def log_closed(self, name: str) -> None:
        """A log was deleted: close its links."""

    def warn(self, event: str, **fields: object) -> None:
        """Write a log line for operators."""

    def note(self, event: str, **fields: object) -> None:
        """Write a log line for those who look closely."""


class Owner(Protocol):
    """The connection of a link."""

    def blocked(self) -> bool:
        """More than enough is on its way to this peer already; `drained` will pump its links again."""

    def flush(self) -> None:
        """Write what the engine has to send."""

    def pause(self) -> None:
        """Stop reading from this peer."""

    def resume(self) -> None:
        """Read again."""

    def stall(self, link: "ConsumerLink") -> None:
        """Pump this link again when the peer has taken or settled something."""

    def reply_link(self, address: str | None) -> "ReplyLink | None":
        """The link of this connection that answers to this address travel on; without an address, the only one."""


class Link:
    """What all links have. `pointer` is borrowed from the engine."""

    __slots__ = ("alive", "closing", "name", "owner", "pointer", "service", "session")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str) -> None:
        self.service = service
        self.owner = owner
        self.pointer = pointer
        self.session: Pointer = lib.pn_link_session(pointer)
        self.name = name
        self.alive = True
        self.closing = False

    def close(self, error: PeerError | None = None) -> None:
        """Detach for good, saying why. Transfers that still arrive are dropped."""
        if self.alive and not self.closing:
            self.closing = True
            close_link(self.pointer, error)


class ProducerLink(Link):
    """Takes transfers into a log (or, with a null target, into the logs that they name)."""

    __slots__ = ("grant_of_node", "partial", "second", "size_max")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Producing | Relaying, *, second: bool) -> None:
        super().__init__(service, owner, pointer, name)
        self.grant_of_node = grant
        self.partial = bytearray()
        self.second = second
        self.size_max = service.limits.message_bytes

    def grant(self) -> None:
        """Top the credit up, so that a producer never starves; withheld while the disk is behind."""
        if not self.alive or self.closing:
            return
        wanted = self.service.limits.credit
        credit = lib.pn_link_credit(self.pointer)
        if credit <= wanted // 2 and not self.service.overloaded(self):
            lib.pn_link_flow(self.pointer, wanted - credit)

    def show_flow(self) -> None:
        """Send a flow though nothing needs one, by granting one credit more: the peer asked for an echo."""
        if self.alive and not self.closing:
            lib.pn_link_flow(self.pointer, 1)

    def settled_by_sender(self, delivery: Pointer) -> bool:
        """rcv-settle-mode second: settle what the sender has settled after our outcome. False: it is a transfer."""
        if lib.pn_delivery_local_state(delivery) == 0 or not lib.pn_delivery_settled(delivery):
            return False
        lib.pn_delivery_settle(delivery)
        return True

    def take(self) -> None:
        """Take all that has arrived."""
        held = len(self.partial)
        arrivals = transfers.receive(self.pointer, self.partial, self.size_max)
        if self.closing:
            return
        if len(self.partial) != held and not self.service.hold(len(self.partial) - held):
            self.close(PeerError(names.RESOURCE_LIMIT_EXCEEDED, "too many unfinished large messages at once: send this one later"))
        deliveries = arrivals.deliveries
        if deliveries:
            receipt = self.service.node.receive(self.grant_of_node, arrivals.messages, self.service.now_ms())
            for index, reason in receipt.refused:
                self._refuse(deliveries[index], reason)
            if receipt.parts:
                self.service.await_commit(self, deliveries, receipt)
            self.grant()
        if arrivals.oversized:
            description = f"a message is larger than {self.size_max} bytes, the max-message-size of this link"
            self.close(PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, description))

    def committed(self, deliveries: list[Pointer], receipt: Receipt, done: CommitDone) -> None:
        """The commit that took these deliveries is back."""
        if not self.alive:
            return
        if receipt.refused or done.failures:
            deliveries = self._stored(deliveries, receipt, done)
        if self.second:
            transfers.accept_unsettled(deliveries)
        else:
            transfers.accept(deliveries)

    def close(self, error: PeerError | None = None) -> None:
        """Detach, and let go of what was not complete."""
        self.let_go()
        super().close(error)

    def let_go(self) -> None:
        """Drop the bytes of a message that is not complete."""
        self.service.hold(-len(self.partial))
        self.partial = bytearray()

    def _stored(self, deliveries: list[Pointer], receipt: Receipt, done: CommitDone) -> list[Pointer]:
        """Those deliveries whose records are safe; the others are answered here."""
        gone = {index for index, _ in receipt.refused}
        for part in receipt.parts:
            failure = done.failures.get(part.partition)
            if failure is not None:
                failed = range(len(deliveries)) if part.indices is None else part.indices
                for index in failed:
                    self._refuse(deliveries[index], failure)
                gone.update(failed)
        return [delivery for index, delivery in enumerate(deliveries) if index not in gone]

    def _refuse(self, delivery: Pointer, reason: PeerError | StorageError) -> None:
        error = reason if isinstance(reason, PeerError) else storage_refusal(reason)
        if lib.pn_delivery_settled(delivery):  # sent settled: the only way left to say so (Anonymous Terminus 2.2.1 does the same)
            lib.pn_delivery_settle(delivery)
            self.close(error)
        elif error.condition == names.INTERNAL_ERROR:
            transfers.modify_failed(delivery)
            bound = isinstance(self.grant_of_node, Producing) and self.grant_of_node.partition is not None
            if bound:
                self.close(error)
        else:
            transfers.reject(delivery, error.condition, error.description)


@dataclass(frozen=True, slots=True)
class _Redelivery:
    partition: int
    number: int
    delivery_count: int


class ConsumerLink(Link):
    """Delivers a log's records, as far as credit goes."""

    __slots__ = ("again", "container", "grant", "presettled", "scheduled", "used", "writers")

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Consuming, *, container: str, presettled: bool
    ) -> None:
        super().__init__(service, owner, pointer, name)
        self.grant = grant
        grant.carrier = self
        self.container = container
        self.presettled = presettled
        self.writers = {each.index: AnnotationWriter(str(each.index)) for each in grant.partitions}
        self.again: deque[_Redelivery] = deque()
        self.scheduled = False
        self.used = False

    def pump(self) -> None:
        """Send what credit, window and the turn's budget allow; asks for another turn when there is more."""
        if not self.alive or self.closing:
            return
        try:
            self._pump()
        except PeerError as error:
            self.service.warn(
                "consumer_refused", link=self.name, log=self.grant.log.name, condition=error.condition, reason=error.description
            )
            self.close(error)

    def _pump(self) -> None:
        pointer, node = self.pointer, self.service.node
        budget = TURN_EVENTS
        unsettled_max = self.service.limits.unsettled
        self.used = True
        while (credit := lib.pn_link_credit(pointer)) > 0:
            if lib.pn_session_outgoing_bytes(self.session) > SESSION_BYTES_MAX or self.owner.blocked():
                self.owner.stall(self)
                return
            room = unsettled_max - lib.pn_link_unsettled(pointer)
            if room <= 0:
                self.owner.stall(self)
                return
            if self.again:
                self._redeliver(self.again.popleft())
                continue
            if budget <= 0:
                self.service.pump_later(self)
                return
            run = node.next_run(self.grant, min(credit, room, budget))
            if run is None:
                if lib.pn_link_get_drain(pointer):
                    lib.pn_link_drained(pointer)
                return
            budget -= run.count
            self._send(run)

    def returned(self, returned: transfers.Returned) -> None:
        """A consumer gave a delivery back."""
        verdict = outcome.after(
            returned.outcome,
            delivery_count=returned.attempt,
            failed=returned.failed,
            undeliverable_here=returned.undeliverable_here,
        )
        if verdict is not None and len(self.again) < self.service.limits.unsettled:
            self.again.append(_Redelivery(returned.partition, returned.number, verdict.delivery_count))
            self.service.pump_later(self)

    def _send(self, run: Run) -> None:
        chunk, start, stop = run.chunk, run.start, run.start + run.count
        if run.skipped:
            self.service.warn("consumer_overtaken", link=self.name, log=self.grant.log.name, detail=skipped_text(run))
        if self.grant.announce or run.skipped:
            self._send_announced(run)
            start += 1
        if start == stop:
            return
        annotations = self.writers[run.partition.index].runs(chunk.base + start, chunk.timestamps[start:stop])
        sent = transfers.send(
            self.pointer,
            partition=run.partition.index,
            first=chunk.base + start,
            messages=assemble(annotations, chunk.messages[start:stop], chunk.header_sizes[start:stop]),
            settled=self.presettled,
        )
        counters = self.service.node.counters[self.grant.log.name]
        counters.events_out += stop - start
        counters.bytes_out += sent

    def _send_announced(self, run: Run) -> None:
        """The first record of a run with what there is to tell beside its place: associations (4.6.5), events skipped."""
        annotations: dict[str, object] = {
            names.OFFSET: Symbol(f"{run.first:016d}"),
            names.TIMESTAMP: Timestamp(run.chunk.timestamps[run.start]),
            names.SOURCE_PARTITION: Symbol(str(run.partition.index)),
        }
        if self.grant.announce:
            self.grant.announce = False
            associated = tuple(Symbol(str(partition.index)) for partition in self.grant.partitions)
            annotations[names.ASSOCIATED_PARTITIONS] = Array(Symbol, associated)
        if run.skipped:
            annotations[names.EVENTS_SKIPPED] = run.skipped
        self._send_single(run, run.start, section(annotations))

    def _send_single(self, run: Run, index: int, annotations: bytes, *, delivery_count: int = 0) -> None:
        stored, header_size = run.chunk.messages[index], run.chunk.header_sizes[index]
        if delivery_count:
            rest = len(stored) - header_size
            stored = with_delivery_count(stored, header_size, delivery_count)
            header_size = len(stored) - rest
        message = stored[:header_size] + annotations + stored[header_size:]
        transfers.send_one(
            self.pointer,
            attempt=delivery_count,
            partition=run.partition.index,
            number=run.chunk.base + index,
            message=message,
            settled=self.presettled,
        )
        counters = self.service.node.counters[self.grant.log.name]
        counters.events_out += 1
        counters.bytes_out += len(message)

    def _redeliver(self, redelivery: _Redelivery) -> None:
        run = self.service.node.record(self.grant, redelivery.partition, redelivery.number)
        if run is None:
            self.service.warn(
                "redelivery_gone", link=self.name, log=self.grant.log.name, partition=redelivery.partition, record=redelivery.number
            )
            return
        (annotations,) = self.writers[redelivery.partition].run(redelivery.number, run.chunk.timestamps[run.start], 1)
        self._send_single(run, run.start, annotations, delivery_count=redelivery.delivery_count)


class InfoLink(Link):
    """`<address>/$info`: one message a credit, paced. Spec: Event Streams 6."""

    __slots__ = ("grant", "sent", "waiting")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Informing) -> None:
        super().__init__(service, owner, pointer, name)
        self.grant = grant
        self.sent = 0
        self.waiting = False

    def pump(self) -> None:
        """Answer one credit, and the next a little later."""
        if not self.alive or self.closing or self.waiting:
            return
        if lib.pn_link_credit(self.pointer) > 0:
            self.sent += 1
            transfers.send_message(self.pointer, self.service.node.info_message(self.grant), number=self.sent)
            self.waiting = True
            self.service.later(INFO_INTERVAL_MS, self._again)
        if lib.pn_link_get_drain(self.pointer):
            lib.pn_link_drained(self.pointer)

    def _again(self) -> None:
        self.waiting = False
        if self.alive:
            self.pump()
            self.owner.flush()


class ManagementLink(Link):
    """Requests to `$management`."""

    __slots__ = ("grant_of_node", "partial", "size_max")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Managing) -> None:
        super().__init__(service, owner, pointer, name)
        self.grant_of_node = grant
        self.partial = bytearray()
        self.size_max = min(service.limits.message_bytes, 1 << 20)

    def grant(self) -> None:
        """Keep a small credit up: requests are few."""
        credit = lib.pn_link_credit(self.pointer)
        if self.alive and not self.closing and credit < REPLIES_MAX // 2:
            lib.pn_link_flow(self.pointer, REPLIES_MAX - credit)

    def take(self) -> None:
        """Carry out the requests that have arrived."""
        arrivals = transfers.receive(self.pointer, self.partial, self.size_max)
        if self.closing:
            return
        for delivery, message in zip(arrivals.deliveries, arrivals.messages, strict=True):
            self._serve(delivery, message)
        if arrivals.oversized:
            self.close(PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, f"a request is larger than {self.size_max} bytes"))
        else:
            self.grant()

    def _serve(self, delivery: Pointer, message: bytes) -> None:
        try:
            request = management.parse_request(message)
        except WireError as error:
            transfers.reject(delivery, names.DECODE_ERROR, str(error))
            return
        carrier = self.owner.reply_link(request.reply_to)
        if carrier is None:
            description = "reply-to names no receiver of this connection: attach one first (source $management, or a dynamic source)"
            transfers.reject(delivery, names.PRECONDITION_FAILED, description)
            return
        answer = self.service.node.manage(request)
        transfers.accept([delivery])
        carrier.post(management.answer_message(request, answer))
        if request.operation == "DELETE" and answer.status == management.NO_CONTENT:
            self.service.log_closed(request.name)


class ReplyLink(Link):
    """Carries answers to a requester."""

    __slots__ = ("grant", "queue", "sent")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Replying) -> None:
        super().__init__(service, owner, pointer, name)
        self.grant = grant
        self.queue: deque[bytes] = deque(maxlen=REPLIES_MAX)
        self.sent = 0

    def post(self, message: bytes) -> None:
        """Send an answer as soon as there is credit."""
        self.queue.append(message)
        self.pump()

    def pump(self) -> None:
        """Send the answers that credit allows."""
        while self.alive and not self.closing and self.queue and lib.pn_link_credit(self.pointer) > 0:
            self.sent += 1
            transfers.send_message(self.pointer, self.queue.popleft(), number=self.sent)
        if not self.queue and lib.pn_link_get_drain(self.pointer):
            lib.pn_link_drained(self.pointer)
