"""A consumer's link: sends a log's records, as far as credit allows.

Spec: Event Streams 4.3, 4.4, 4.5, 5.1; AMQP 2.6.7, 2.6.12.

Laws: a closed or evicted link sends nothing more, and later settlements on it do not count. A link that hands
over sends nothing more and ends after all its deliveries are settled. Its unsettled records stay for the next
owner of the cursor.
"""

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node import skipped_text
from amqp_streams.proton import links, outcomes, records, sending
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links import assembling
from amqp_streams.server.links.link import OutgoingLink, Owner, Service
from amqp_streams.server.links.turns import BUDGET_S
from amqp_streams.storage.ports import ReadRequest
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.consuming.reader import LATER, Asker, Passed, Run
from amqp_streams.wire.annotations import AnnotationWriter

TURN_EVENTS: Final = 1000
"""How many records one link sends before other connections are served."""
PASSED_COST: Final = TURN_EVENTS // 5
"""How much of the budget a run that the filters skipped costs: about what it costs to send this many."""
TURN_S: Final = BUDGET_S
"""The longest time one link sends, plus one run: the cost of filters depends on the events."""


class ConsumerLink(OutgoingLink[Consuming]):
    """Sends a log's records, one record in each delivery, as far as credit allows."""

    __slots__ = (
        "_after",
        "_first",
        "_full",
        "_partition",
        "again",
        "asked",
        "container",
        "keeps",
        "leaving",
        "presettled",
        "scheduled",
        "second",
        "size_max",
        "watched",
        "writers",
    )

    def __init__(
        self,
        service: Service,
        owner: Owner,
        pointer: Pointer,
        name: str,
        grant: Consuming,
        *,
        container: str,
        presettled: bool,
    ) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.container = container
        self.presettled = presettled
        self.size_max: int = links.peer_size_max(pointer)
        """The largest message that the client accepts, in bytes. 0: any size."""
        self.writers = assembling.Writers()
        self.again: deque[assembling.Redelivery] = deque()
        grant.reader.asker = Asker(owner.number, self._read_answered)
        self.asked = ReadRequest(owner.number, self._read_answered)
        """For the next record of `again`."""
        self.scheduled = False
        self._full = False
        self._partition = self._first = self._after = 0
        """Settled and not yet reported to the node: records of `_partition`, `_first` to before `_after`."""
        self.leaving: PeerError | None = None
        self.keeps = grant.keeps
        """Whether the cursor outlives the link, so that the node must be notified of settlements."""
        self.second: bool = links.settles_second(pointer)
        self.watched = grant.keeps
        """Whether `disposition` must see each settlement, instead of `Dispatch.run` settling in bulk."""

    def pump(self) -> None:
        """Send what credit, window, quota and budget allow. A later loop iteration sends the rest."""
        if not self.alive or self.closing:
            return
        if self.leaving is not None:
            self._pump_leaving()
            return
        sent = self.delivery_count
        try:
            self._pump()
        except PeerError as error:
            self.service.warn(
                "consumer_refused",
                link=self.name,
                log=self.grant.log.name,
                condition=error.condition,
                reason=error.description,
            )
            self.close(error)
        if self.grant.number is not None and self.delivery_count != sent and self.service.leases is not None:
            self.service.leases.wrote(self)

    def _pump(self) -> None:
        pointer, node = self.pointer, self.service.node
        budget, until = TURN_EVENTS, perf_counter() + TURN_S
        unsettled_max = self.service.limits.unsettled
        while (credit := links.credit(pointer)) > 0:
            # The client does not read: more output would only use memory of the node.
            if self.clogged():
                self.owner.await_room(self)
                return
            room = unsettled_max - links.unsettled(pointer)
            if room <= 0:
                self._pump_full()
                return
            # The window has space again: the next time that it is full begins anew.
            self._full = False
            room, bytes_max = self._within_quota(room)
            if not room:
                return
            # Events that were given back come first: they are older than the next ones of the log.
            if self.again:
                if not self._redeliver(self.again[0]):
                    return
                continue
            if budget <= 0:
                self.service.pump_later(self)
                return
            # One run is a stretch of consecutive records: everything below is done once per run, not per
            # record.
            run = node.next_run(self.grant, min(credit, room, budget), self.service.now_ms(), bytes_max)
            if isinstance(run, Passed):
                # Evaluating filters takes time too, and other connections wait for it.
                budget -= PASSED_COST
                if self.keeps:
                    self.service.cursors_moved()
                if perf_counter() > until:
                    budget = 0
                continue
            if run is None or run is LATER:
                # `_read_answered` continues. Until then it is not known whether there is more to send.
                if run is None:
                    self.answer_drain()
                return
            # The clock after each run: filters may have taken long.
            budget = 0 if perf_counter() > until else budget - run.count
            self._send(run)

    def _within_quota(self, room: int) -> tuple[int, int | None]:
        """How many of `room` deliveries the quota of all links of the user allows, and of how many bytes."""
        throttle = self.owner.account.bytes_out
        if throttle is None:
            return room, None
        room = min(room, throttle.deliveries(self))
        return room, throttle.room(self) if room else None

    def _pump_full(self) -> None:
        """Stop sending until the client settles.

        If the client drains, it may wait for the answer before it settles, so the drain is answered.

        The answer is sent at the second call only: Proton writes a flow before the dispositions that were
        queued with it, so the settlements that make room may still follow.
        """
        if self._full:
            self.answer_drain()
        self._full = True
        self.owner.stall(self)

    @property
    def near_end(self) -> bool:
        """See `Pumped.near_end`."""
        return self.grant.reader.near_end

    def _read_answered(self) -> None:
        """Continue: the store has read what the link waits for."""
        if self.alive and not self.closing:
            self.service.pump_later(self)

    def go_on(self) -> None:
        """Continue after the user's quota has become available again."""
        self.pump()
        self.owner.flush()

    def _pump_leaving(self) -> None:
        self._leave_if_settled()
        if not self.closing:
            self.answer_drain()
            self.owner.stall(self)

    def close(self, error: PeerError | None = None) -> None:
        """Detach with `closed` and the reason.

        The cursor becomes free at once, without waiting for the client's detach.
        """
        if self.alive and not self.closing:
            self.report_settled()
            # From here on, dispositions of the client settle their deliveries directly.
            self.service.confirming.forget(self)
            self.asked.cancel()
            super().close(error)
            self.service.effects.detached(self)
            self.service.effects.soon()

    def release(self) -> None:
        """Drop what refers back to this link, which has ended: see `Reader.release`."""
        self.asked.cancel()
        del self.asked
        self.grant.reader.release()

    def evict(self, error: PeerError, by: Owner | None = None) -> None:
        """Close now because another link owns the cursor or the partition.

        If the client does not read what was sent before, its connection is cut: otherwise it would receive
        old deliveries after the new owner has begun.

        Frames on one connection (`by`) stay in order, and a deleted log has no new owner: neither case needs
        the cut.
        """
        self.close(error)
        # Without a cursor or a group, no other link continues where this one stops.
        owned = self.keeps or self.grant.group is not None
        if not self.alive or not owned or by is self.owner or error.condition == names.RESOURCE_DELETED:
            return
        # What the link has sent may still be in Proton: write it before looking whether the client reads.
        self.owner.flush()
        if links.queued(self.pointer) or self.owner.blocked():
            self.owner.cut(
                f"{error.condition} on link {self.name[:64]!r}, and the client does not read what was sent"
                " before"
            )

    def leave(self, error: PeerError, within_ms: int) -> None:
        """Hand over: send nothing more, and close when all deliveries are settled.

        Close with this error, at the latest after `within_ms`.
        """
        if not self.alive or self.closing or self.leaving is not None:
            return
        self.leaving = error
        # Until the last settlement, each one may be the one that ends the link.
        self.watched = True
        self.owner.links_changed()
        self.owner.flush()
        self._leave_if_settled()
        if not self.closing:
            self.service.later(within_ms, self._overdue)

    def _leave_if_settled(self) -> None:
        if self.leaving is None or self.closing or not self.alive:
            return
        if not links.unsettled(self.pointer) and not links.queued(self.pointer):
            self.close(self.leaving)

    def _overdue(self) -> None:
        if self.leaving is not None and self.alive and not self.closing:
            self.evict(self.leaving)
            self.owner.flush()

    def disposition(self, delivery: Pointer) -> None:
        """Process the state of a delivery that the client reported. `report` follows after the last one."""
        if self.keeps and not self.closing:
            if self.second and self._held(delivery):
                return
            # Hot path: one call for the usual outcome.
            record = records.settle_accepted(delivery)
            if record is not None:
                self._note(*record)
                return
        returned = records.settle_returned(delivery)
        if returned is not None and not self.closing and not self._returned(returned) and self.keeps:
            self._note(returned.partition, returned.number)

    def _held(self, delivery: Pointer) -> bool:
        """Keep a finished delivery unsettled until its cursor is on the disk, if the receiver settles second.

        Returns False if the delivery is to be settled now.
        """
        record = records.done_with(delivery)
        if record is None:
            self.service.confirming.let_go(self, delivery)
            return False
        self.service.confirming.hold(self, delivery)
        self._note(*record)
        return True

    def confirm(self, deliveries: Sequence[Pointer]) -> None:
        """Settle these deliveries: the cursor that covers them is on the disk."""
        outcomes.settle_all(deliveries)
        self._leave_if_settled()
        self.service.pump_later(self)

    def _note(self, partition: int, number: int) -> None:
        """Record that this record is finished.

        Consecutive records, the usual case, are reported to the node in one call.
        """
        if number == self._after and partition == self._partition:
            self._after = number + 1
        else:
            self.report_settled()
            self._partition, self._first, self._after = partition, number, number + 1

    def report_settled(self) -> None:
        """Report to the node what was settled since the last call."""
        first, self._first = self._first, self._after
        if first < self._after:
            self.service.node.settled(self.grant, self._partition, first, self._after - first)
            self.service.cursors_moved()

    def report(self) -> None:
        """Finish a series of `disposition` calls.

        Report the settlements to the node, and close if the link was waiting for them.
        """
        self.report_settled()
        self._leave_if_settled()

    def _returned(self, returned: records.Returned) -> bool:
        """Return whether the record of a delivery that the client gave back will be sent again."""
        redelivery = assembling.redelivery(returned)
        # Bounded: a client that gives everything back must not fill the memory.
        if redelivery is None or len(self.again) >= self.service.limits.unsettled:
            return False
        self.again.append(redelivery)
        self.service.pump_later(self)
        return True

    def _send(self, run: Run) -> None:
        chunk, start, stop = run.chunk, run.start, run.start + run.count
        if run.skipped:
            self.service.warn(
                "consumer_overtaken", link=self.name, log=self.grant.log.name, detail=skipped_text(run)
            )
        # Only the first record of a run can differ: the others are written in bulk.
        if self.grant.announce or run.skipped:
            self._send_announced(run)
            start += 1
        if start == stop:
            self._gone(run, 1)
            return
        partition = run.partition.index
        writer = self.writers[partition]
        if chunk.formats is not None and any(chunk.formats[start:stop]):
            count, sent = self._send_formatted(run, writer, start, stop)
        else:
            count, sent = sending.send_records(
                self.pointer,
                chunk,
                writer,
                partition=partition,
                start=start,
                stop=stop,
                size_max=self.size_max,
                settled=self.presettled,
            )
        if count:
            self._count(count, sent)
        self._gone(run, start - run.start + count)
        start += count
        if start < stop:
            # After the records before it were sent and counted.
            size = writer.size + len(chunk.messages[start])
            raise assembling.too_large(partition, chunk.base + start, size, self.size_max)

    def _send_formatted(self, run: Run, writer: AnnotationWriter, start: int, stop: int) -> tuple[int, int]:
        """`sending.send_records` for records of which some have a message-format that is not 0."""
        self.owner.write_formats()
        chunk, sent = run.chunk, 0
        assert chunk.formats is not None, "this is for records with message-formats"
        for index in range(start, stop):
            (annotations,) = writer.run(chunk.base + index, chunk.timestamps[index], 1)
            message = assembling.single(chunk, index, annotations, 0)
            if self.size_max and len(message) > self.size_max:
                return index - start, sent
            sending.send_record(
                self.pointer,
                attempt=0,
                partition=run.partition.index,
                number=chunk.base + index,
                message=message,
                settled=self.presettled,
                message_format=chunk.formats[index],
            )
            sent += len(message)
        return stop - start, sent

    def _gone(self, run: Run, count: int) -> None:
        """Record that the first `count` records of the run were sent.

        Without settlements by the client, sent means finished.
        """
        if self.presettled and self.keeps:
            self.service.node.sent(self.grant, run, count)
            self.service.cursors_moved()

    def _send_announced(self, run: Run) -> None:
        """Send the first record of a run with additional annotations."""
        partitions = [partition.index for partition in self.grant.partitions] if self.grant.announce else None
        self.grant.announce = False
        self._send_single(run, run.start, assembling.announcement(run, partitions))

    def _send_single(self, run: Run, index: int, annotations: bytes, *, delivery_count: int = 0) -> None:
        message = assembling.single(run.chunk, index, annotations, delivery_count)
        if self.size_max and len(message) > self.size_max:
            number, size_max = run.chunk.base + index, self.size_max
            raise assembling.too_large(run.partition.index, number, len(message), size_max)
        message_format = 0 if run.chunk.formats is None else run.chunk.formats[index]
        if message_format:
            self.owner.write_formats()
        sending.send_record(
            self.pointer,
            attempt=delivery_count,
            partition=run.partition.index,
            number=run.chunk.base + index,
            message=message,
            settled=self.presettled,
            message_format=message_format,
        )
        self._count(1, len(message))

    def _count(self, events: int, size: int, deliveries: int | None = None) -> None:
        # In AMQP's sense (2.6.7): of deliveries, of which a batched one has many events.
        self.delivery_count += deliveries or events
        self.events += events
        self.bytes += size
        counters = self.service.node.counters[self.grant.log.name]
        counters.events_out += events
        counters.bytes_out += size
        throttle = self.owner.account.bytes_out
        if throttle is not None:
            throttle.spend(self, deliveries or events, size)

    def _redeliver(self, redelivery: assembling.Redelivery) -> bool:
        """Send the first record of `again`; False if the store has to read it first."""
        run = self.service.node.record(self.grant, redelivery.partition, redelivery.number, self.asked)
        if run is LATER:
            return False
        self.again.popleft()
        if run is None:
            where = {"partition": redelivery.partition, "record": redelivery.number}
            self.service.warn("redelivery_gone", link=self.name, log=self.grant.log.name, **where)
            if self.keeps:
                self.service.cursors_moved()
            return True
        (annotations,) = self.writers[redelivery.partition].run(
            redelivery.number, run.chunk.timestamps[run.start], 1
        )
        self._send_single(run, run.start, annotations, delivery_count=redelivery.delivery_count)
        return True
