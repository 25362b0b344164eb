"""A consumer's link: a log's records, as far as credit goes. Spec: Event Streams 4.3, 4.4, 5.1; AMQP 2.6.7, 2.6.12."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.errors import PeerError, WireError
from amqp_streams.node import skipped_text
from amqp_streams.server import transfers
from amqp_streams.server.engine import Pointer
from amqp_streams.server.links import Link, Owner, Service
from amqp_streams.streams import outcome
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.reader import Passed, Run
from amqp_streams.wire.annotations import AnnotationWriter, assemble, section
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.sections import with_delivery_count
from amqp_streams.wire.types import Array, Symbol, Timestamp

TURN_EVENTS: Final = 1000
"""Sent on one link before other connections get their turn."""
PASSED_COST: Final = TURN_EVENTS // 5
"""What a stretch that the filters passed over counts in a turn: they may take about as long as sending so many."""
SESSION_BYTES_MAX: Final = 1 << 20
"""Handed to the engine and not yet taken by the peer's session window."""


@dataclass(frozen=True, slots=True)
class _Redelivery:
    partition: int
    number: int
    delivery_count: int


class ConsumerLink(Link[Consuming]):
    """Delivers a log's records, as far as credit goes."""

    __slots__ = ("again", "container", "presettled", "scheduled", "size_max", "used", "writers")

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: Consuming, *, container: str, presettled: bool
    ) -> None:
        super().__init__(service, owner, pointer, name, grant)
        grant.carrier = self
        self.container = container
        self.presettled = presettled
        self.size_max: int = lib.pn_link_remote_max_message_size(pointer)
        """The largest message that the peer takes; 0: any."""
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
            run = node.next_run(self.grant, min(credit, room, budget), self.service.now_ms())
            if isinstance(run, Passed):
                budget -= PASSED_COST
                continue
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
        messages = assemble(annotations, chunk.messages[start:stop], chunk.header_sizes[start:stop])
        fitting = self._fitting(messages) if self.size_max else len(messages)
        first = chunk.base + start
        sent = transfers.send(
            self.pointer,
            partition=run.partition.index,
            first=first,
            messages=messages if fitting == len(messages) else messages[:fitting],
            settled=self.presettled,
        )
        counters = self.service.node.counters[self.grant.log.name]
        counters.events_out += fitting
        counters.bytes_out += sent
        if fitting < len(messages):
            raise self._too_large(run, first + fitting, messages[fitting])

    def _fitting(self, messages: Sequence[bytes]) -> int:
        """How many of the messages, from the first, the peer takes."""
        return next((index for index, message in enumerate(messages) if len(message) > self.size_max), len(messages))

    def _too_large(self, run: Run, number: int, message: bytes) -> PeerError:
        place = f"offset {offset_text(number)} of partition {run.partition.index}"
        return PeerError(
            names.LINK_MESSAGE_SIZE_EXCEEDED, f"the event at {place} has {len(message)} bytes, this link takes {self.size_max} (AMQP 2.7.3)"
        )

    def _send_announced(self, run: Run) -> None:
        """The first record of a run with what there is to tell beside its place: associations (4.6.5), events skipped."""
        annotations: dict[str, object] = {
            names.OFFSET: Symbol(offset_text(run.first)),
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
            with suppress(WireError):  # a header that nobody can read stays as its producer wrote it
                stored = with_delivery_count(stored, header_size, delivery_count)
            header_size = len(stored) - rest
        message = stored[:header_size] + annotations + stored[header_size:]
        if self.size_max and len(message) > self.size_max:
            raise self._too_large(run, run.chunk.base + index, message)
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
