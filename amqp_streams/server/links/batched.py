"""A consumer's link with batched deliveries: each delivery carries many events.

This is an extension of the standard: see docs/batched-deliveries.md. `wire/batches.py` has the byte format.

Laws: credit counts deliveries, a quota counts bytes before compression. Any outcome of a batch settles the
whole batch, and the node does not send it again. Outside of Proton, a link holds at most what one read of the
store returned.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.proton import links, records, sending
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links import assembling
from amqp_streams.server.links.consumer import TURN_S, ConsumerLink
from amqp_streams.server.links.link import Owner, Service
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.batching import BYTES_MIN
from amqp_streams.streams.consuming.reader import LATER, Passed, Picked, Room
from amqp_streams.wire.batched.compression import compressed
from amqp_streams.wire.batched.packed import join_messages
from amqp_streams.wire.batches import BATCH_OVERHEAD_BYTES, EVENT_BYTES, FORMAT_BYTES, write_batch
from amqp_streams.wire.types import Array, Symbol

TURN_EVENTS: Final = 10_000
"""How many events one link sends before other connections are served. This takes about as long as the 1000
events of a link without batches.
"""
PASSED_COST: Final = TURN_EVENTS // 5
"""How much of the budget (`TURN_EVENTS`) each run of records costs that the filters evaluated: evaluation
takes longer than sending.
"""
PROGRESS_EVENTS: Final = 1 << 16
"""After this many skipped records the client gets a delivery without events that carries the next offset. The
client can continue there after a reconnect, and sees that the node is working.
"""


_PARTITION_BYTES: Final = 8
"""The encoded size of a partition's name in the list of partitions that the first delivery carries."""


@dataclass(slots=True, eq=False)
class _Draft:
    """A batch that is being filled. `after` is the offset after the last record that was read."""

    partition: int
    after: int
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    timestamps: "array[int]" = field(default_factory=lambda: array("q"))
    parts: list[Sequence[bytes]] = field(default_factory=list)
    """The messages, as they were read."""
    formats: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, picked: Picked) -> None:
        if picked.formats is not None:
            self.formats |= {
                index: number for index, number in enumerate(picked.formats, len(self)) if number
            }
        self.offsets.extend(picked.offsets)
        self.timestamps.extend(picked.timestamps)
        self.parts.append(picked.messages)
        self.bytes += picked.bytes
        self.skipped += picked.skipped
        self.after = picked.after

    def before(self, index: int) -> "_Draft":
        """A copy with the events before `index`, none of which may have a message-format other than 0."""
        return replace(
            self,
            after=self.offsets[index],
            offsets=self.offsets[:index],
            timestamps=self.timestamps[:index],
            parts=[join_messages(self.parts)[:index]],
            formats={},
        )


class BatchedLink(ConsumerLink):
    """Sends a log's records in batches, as far as credit allows."""

    __slots__ = ("_passed", "batching")

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
        super().__init__(service, owner, pointer, name, grant, container=container, presettled=presettled)
        assert grant.batching is not None, "it was asked for"
        self.batching = grant.batching
        self._passed = 0
        """How many records the filters skipped since the last delivery."""

    def _pump(self) -> None:
        pointer, budget, until = self.pointer, TURN_EVENTS, perf_counter() + TURN_S
        while links.credit(pointer) > 0:
            if self.clogged():
                self.owner.await_room(self)
                return
            if links.unsettled(pointer) >= self.service.limits.unsettled:
                self._pump_full()
                return
            self._full = False
            room = self._room()
            if not room:
                return
            if budget <= 0:
                self.service.pump_later(self)
                return
            # The clock is read per batch, not per event: a batch is the smallest unit that can be
            # interrupted.
            draft, cost, waits = self._fill(room, budget, until)
            budget = 0 if perf_counter() > until else budget - cost
            if draft is not None and (len(draft) or self._passed >= PROGRESS_EVENTS):
                self._deliver(draft)
            elif not cost:
                # `_read_answered` continues: until then it is not known whether there is more to send.
                if waits or not links.wants_drain(pointer):
                    return
                if draft is None or not self._passed:
                    self.answer_drain()
                    return
                self._deliver(draft)  # the next offset must reach the client before the drained flow does

    def _room(self) -> int:
        """How many bytes the next delivery may have.

        A delivery with a single event may exceed this. 0: the user's quota is used up.

        The link keeps a quota by waiting after a batch, not by sending smaller batches: each batch may be as
        large as the quota of one second.
        """
        throttle = self.owner.account.bytes_out
        room = min(self.batching.bytes, self.size_max) if self.size_max else self.batching.bytes
        if throttle is None:
            return room
        return min(room, max(BYTES_MIN, throttle.rate)) if throttle.deliveries(self) else 0

    def _fill(self, bytes_max: int, budget: int, until: float) -> tuple[_Draft | None, int, bool]:
        """Read the next batch.

        Returns the batch, its cost in the budget, and whether the store has to read before there is more. A
        cost of 0 without that means that the log has no more events.
        """
        node, now_ms, partitions = self.service.node, self.service.now_ms(), self.grant.partitions
        single = len(partitions) == 1
        draft = _Draft(partitions[0].index, 0) if single else None
        room = (
            bytes_max
            - BATCH_OVERHEAD_BYTES
            - (_PARTITION_BYTES * len(partitions) if self.grant.announce else 0)
        )
        events, cost, waits, enough = self.batching.events, 0, False, room // 4
        while events > 0 and cost < budget:
            filled = draft is not None and len(draft) > 0
            try:
                picked = node.next_batch(
                    self.grant,
                    events,
                    now_ms,
                    Room(room, EVENT_BYTES, one=not filled, formatted=FORMAT_BYTES),
                )
            except PeerError:
                if not filled:
                    raise
                break  # send the events before the damaged record now; the next read raises the error again
            if picked is None or picked is LATER:
                waits = picked is LATER
                break
            if isinstance(picked, Passed):
                if not picked.count:  # the next event does not fit into this batch
                    break
                cost += PASSED_COST
                self._passed += picked.count
                if (single and self._passed >= PROGRESS_EVENTS) or perf_counter() > until:
                    break
                continue
            if draft is None:
                draft = _Draft(picked.partition.index, 0)
            draft.add(picked)
            events -= len(picked.offsets)
            room -= picked.bytes
            cost += max(len(picked.offsets), PASSED_COST if picked.weighed else 0)
            # A batch that is nearly full is not filled up: the records of two reads would be copied.
            if not single or room <= enough or (picked.weighed and perf_counter() > until):
                break
        # All records were skipped by the filters: report how far the reader is, not where it began.
        if single and draft is not None and not len(draft):
            draft.after = self.grant.reader.position(draft.partition)
        return draft, cost, waits

    def _deliver(self, draft: _Draft) -> None:
        if draft.formats and not self.batching.formats:
            first = min(draft.formats)
            # Events before the first one that needs message-formats are delivered, so that the client can
            # settle them and attach again at the event that this link cannot represent.
            if first:
                self._send_batch(draft.before(first))
            description = (
                f"the event at offset {draft.offsets[first]} of partition {draft.partition} has"
                f" message-format 0x{draft.formats[first]:08x}: attach with the link property"
                f" {names.BATCH_FORMATS} = true, or without batched deliveries"
            )
            raise PeerError(names.NOT_IMPLEMENTED, description)
        self._send_batch(draft)

    def _send_batch(self, draft: _Draft) -> None:
        extra: dict[str, object] = {names.EVENTS_SKIPPED: draft.skipped or None}
        if self.grant.announce:
            self.grant.announce = False
            extra[names.ASSOCIATED_PARTITIONS] = Array(
                Symbol, tuple(Symbol(str(each.index)) for each in self.grant.partitions)
            )
        if draft.skipped:
            detail = (
                f"retention removed {draft.skipped} events of partition {draft.partition} before the link"
                " read them"
            )
            self.service.warn("consumer_overtaken", link=self.name, log=self.grant.log.name, detail=detail)
        message = write_batch(
            str(draft.partition),
            draft.offsets,
            draft.timestamps,
            join_messages(draft.parts),
            next_offset=draft.after,
            extra=extra,
            formats=draft.formats,
            join=sending.join_sections,
        )
        number = draft.offsets[0] if draft.offsets else draft.after
        if self.size_max and len(message) > self.size_max:
            raise assembling.too_large(draft.partition, number, len(message), self.size_max)
        sending.send_record(
            self.pointer,
            attempt=0,
            partition=draft.partition,
            number=number,
            message=compressed(message, self.batching.codec),
            settled=self.presettled,
        )
        self._passed = 0
        self._count(len(draft), len(message), deliveries=1)

    def _returned(self, returned: records.Returned) -> bool:  # noqa: ARG002  every outcome settles the batch, see the laws above
        return False
