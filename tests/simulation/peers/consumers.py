"""Consumers as in practice: windows, drains, all settle modes, filters, batches, and kept cursors.

They process deliveries in pieces, in order or not, release events, stall, and continue after a loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from amqp_streams import names
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, Value
from tests.simulation.checks.cursors import Spot
from tests.simulation.checks.readers import Matches, Reading
from tests.simulation.machine.schedule import MS
from tests.simulation.peers.client import Client
from tests.simulation.peers.compressing import batch_delivery
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.frames import ACCEPTED, REJECTED, RELEASED, Event, key_of, modified, read_event
from tests.simulation.peers.links import Delivery, Receiver

FILTERS: Final[tuple[tuple[str, Matches], ...]] = (
    ("color = 'red'", lambda sent: sent.properties["color"] == "red"),
    (
        "n >= 10 AND color <> 'blue'",
        lambda sent: sent.properties["n"] >= 10 and sent.properties["color"] != "blue",
    ),
    ("color LIKE '%re%n'", lambda sent: sent.properties["color"] == "green"),
    (
        "color IN ('red', 'blue') OR n < 3",
        lambda sent: sent.properties["color"] != "green" or sent.properties["n"] < 3,
    ),
    ("n = -1", lambda sent: False),
)


def filter_of(name: str, value: Value) -> dict[str, Value]:
    """An entry of a source's filter."""
    return {Symbol(name): Described(Symbol(name), value)}


def start_at(offset: str) -> dict[str, Value]:
    """Begin behind this offset, or at @earliest."""
    return filter_of(names.FILTER_DELIVERY_ANNOTATIONS, {Symbol(names.OFFSET): Symbol(offset)})


@dataclass(eq=False)
class Item:
    """A delivery that is to be processed."""

    number: int
    events: list[tuple[int, int]]
    """Partitions and offsets."""
    settled: bool


class Attached:
    """One consumer link, and how its consumer treats it."""

    def __init__(self, consumer: "Consumer", reading: Reading, spots: dict[int, Spot] | None) -> None:
        self.consumer = consumer
        self.reading = reading
        self.spots = spots
        """By partition, the position of a kept cursor; None: no cursor is kept."""
        self.link: Receiver
        self.todo: list[Item] = []
        self.told: dict[int, Item] = {}
        """Outcomes that the node has not settled, where this side settles second."""
        self.working = False
        self.rests_until_us = 0
        """A drain was answered: the log has no more, so the next one waits a while."""

    # -- from the node

    def attached(self, fields: Mapping[str, Any]) -> None:
        consumer = self.consumer
        consumer.failures = 0
        if self.spots is not None:
            self.spots.update(consumer.spots_of(self, fields))
        if not fields.get("pending"):
            consumer.granted(self, fields)
        self.top_up()

    def ended(self, condition: str | None) -> None:
        self.todo.clear()
        self.consumer.link_ended(self, condition)

    def delivered(self, delivery: Delivery) -> None:
        consumer = self.consumer
        if consumer.batched:
            events = self._batch(delivery)
        else:
            event = read_event(delivery.raw)
            self.reading.got(event)
            events = [(event.partition, event.offset)]
        for partition, offset in events:
            consumer.position[partition] = max(consumer.position.get(partition, 0), offset + 1)
        if delivery.settled:
            for partition, offset in events:
                self._settled(partition, offset)
        else:
            self.todo.append(Item(delivery.number, events, delivery.settled))
        self._work_soon()
        if delivery.settled and self.link.credit <= consumer.window // 2:
            self.top_up()

    def drained(self) -> None:
        """All credit is back: the log has no more."""
        consumer = self.consumer
        consumer.drains += 1
        self._work_soon()
        wait_us = consumer.random.randint(1, 300) * MS
        self.rests_until_us = consumer.world.schedule.now_us + wait_us
        consumer.world.schedule.after(wait_us, self.top_up)

    def settled_by_node(self, number: int) -> None:
        self.told.pop(number, None)
        self.top_up()

    def _batch(self, delivery: Delivery) -> list[tuple[int, int]]:
        batch, compressed = batch_delivery(delivery.raw, self.consumer.codec)
        self.consumer.world.ledger.counts["compressed"] += compressed
        partition = int(batch.partition)
        skipped = int(str(batch.annotations.get(names.EVENTS_SKIPPED) or 0))
        for offset, stamp, message in zip(batch.offsets, batch.timestamps_ms, batch.messages, strict=True):
            stored = bytes(message)
            missing = max(0, offset - self.reading.next.get(partition, offset - skipped)) if skipped else 0
            self.reading.got(Event(partition, offset, stamp, stored, missing, key_of(stored)))
            skipped -= missing
        if batch.next_offset is not None and self.reading.matches is not None:
            self.reading.passed(partition, batch.next_offset)
            self.reading.next[partition] = batch.next_offset
        return [(partition, offset) for offset in batch.offsets]

    # -- to the node

    def top_up(self) -> None:
        """Grant the credit that the window allows, sometimes with a drain."""
        consumer, link = self.consumer, self.link
        if not link.alive or not link.answered or link.refused or link.detaching or link.draining:
            return
        if consumer.world.schedule.now_us < self.rests_until_us:
            return
        room = consumer.window - len(self.todo) - len(self.told)
        if room <= 0 or link.credit > consumer.window // 2:
            return
        drain = consumer.pulls or (consumer.draining and consumer.random.random() < 0.3)
        link.grant(max(room, link.credit), drain=drain, echo=consumer.random.random() < 0.05)

    def _work_soon(self) -> None:
        if not self.working:
            self.working = True
            self.consumer.world.schedule.after(self.consumer.work_us, self._work)

    def _work(self) -> None:
        self.working = False
        consumer = self.consumer
        now_us = consumer.world.schedule.now_us
        if not self.link.alive or (consumer.pulls and self.link.draining):
            return
        if consumer.stalled_until_us > now_us:
            self.working = True
            consumer.world.schedule.at(consumer.stalled_until_us, self._work)
            return
        self._process()
        self.top_up()
        if self.todo:
            self._work_soon()

    def _process(self) -> None:
        """Settle some of the deliveries."""
        consumer, random = self.consumer, self.consumer.random
        if not self.todo:
            return
        count = random.randint(1, len(self.todo))
        if not consumer.tidy:
            for item in random.sample(self.todo, count):
                self.todo.remove(item)
                self._finish([item])
            return
        taken, self.todo = self.todo[:count], self.todo[count:]
        run: list[Item] = []
        for item in taken:
            if run and item.number != (run[-1].number + 1) & 0xFFFFFFFF:
                self._finish(run)
                run = []
            run.append(item)
        self._finish(run)

    def _finish(self, items: list[Item]) -> None:
        consumer, random = self.consumer, self.consumer.random
        first, last = items[0].number, items[-1].number
        chance = random.random()
        if consumer.gives_back and consumer.world.stormy and chance < 0.1:
            state = RELEASED if chance < 0.05 else modified()
            if not consumer.batched:
                self.reading.again.update(place for item in items for place in item.events)
            self.link.settle(first, last, state)
            return
        state = ACCEPTED if chance < 0.9 else random.choice((REJECTED, modified(undeliverable=True)))
        for item in items:
            for partition, offset in item.events:
                self._settled(partition, offset)
        if self.link.second:
            self.told.update((item.number, item) for item in items)
            self.link.settle(first, last, state, settled=False)
        else:
            self.link.settle(first, last, state)

    def _settled(self, partition: int, offset: int) -> None:
        if self.spots is not None and partition in self.spots:
            self.consumer.world.cursors.settled(self.spots[partition], offset)


class Consumer(Client):
    """Reads one log. `partition`: only this one. `keeps`: the node keeps its cursor."""

    def __init__(
        self,
        world: Any,
        name: str,
        log: str,
        *,
        partition: int | None = None,
        keeps: bool = False,
        batched: bool = False,
        filtered: bool = False,
        user: str | None = None,
    ) -> None:
        super().__init__(world, name, user=user)
        random = self.random
        self.log = log
        self.partition = partition
        self.keeps = keeps
        self.batched = batched
        self.codec: str | None = world.plan.codec() if batched else None
        self.filter = random.choice(FILTERS) if filtered else None
        self.window = random.choice((1, 3, 10, 50, 200))
        self.tidy = random.random() < 0.6
        self.draining = random.random() < 0.4
        self.gives_back = random.random() < 0.3
        self.presettled = not keeps and random.random() < 0.2
        self.second = not self.presettled and random.random() < 0.25
        self.pulls = not self.presettled and random.random() < 0.25
        """It takes a windowful with a drain, and settles nothing before the drain is answered."""
        self.work_us = random.choice((0, 1 * MS, 5 * MS, 20 * MS))
        self.stalled_until_us = 0
        self.drains = 0
        self.position: dict[int, int] = {}
        self.links: dict[Attached, None] = {}

    # -- its links

    def connected(self, connection: Connection) -> None:
        self.attach(connection, "reader", {})

    def attach(self, connection: Connection, name: str, properties: dict[str, object]) -> None:
        """Attach a link of this name."""
        source: dict[str, Any] = {}
        reading = Reading(self.world.ledger, self.log, self.filter[1] if self.filter else None)
        filters: dict[str, Value] = {}
        if self.filter is not None:
            filters |= filter_of(names.FILTEX_SQL, self.filter[0])
        track_start = self.partition
        if track_start is not None and not self.keeps and (at := self.position.get(track_start, 0)):
            filters |= start_at(f"{at - 1:016d}")
            reading.begin[track_start] = at
        else:
            if self.filter is None or self.keeps:
                filters |= start_at(names.OFFSET_EARLIEST)
            if not self.keeps:
                reading.begin = self.world.starts(self.log)
        source["filter"] = filters
        if self.partition is not None:
            properties = properties | {names.PARTITION: Symbol(str(self.partition))}
        if self.keeps:
            source |= {"durable": UInt(2), "expiry-policy": Symbol("never")}
        if self.batched:
            source["capabilities"] = Symbol(names.CAPABILITY_BATCHED_DELIVERIES)
        if self.codec is not None:
            properties = properties | {names.BATCH_COMPRESSION: Symbol(self.codec)}
        attached = Attached(self, reading, {} if self.keeps else None)
        options: dict[str, Any] = {"snd_settle_mode": UByte(1 if self.presettled else 0)}
        if self.second:
            options["rcv_settle_mode"] = UByte(1)
        if properties:
            options["properties"] = properties
        attached.link = connection.attach_receiver(
            name,
            self.log,
            source=source,
            attached=attached.attached,
            ended=attached.ended,
            delivered=attached.delivered,
            drained=attached.drained,
            settled_by_node=attached.settled_by_node,
            **options,
        )
        self.links[attached] = None

    def granted(self, attached: Attached, fields: Mapping[str, Any]) -> None:
        """The node has granted a link."""

    def spots_of(self, attached: Attached, fields: Mapping[str, Any]) -> dict[int, Spot]:
        """Return the kept cursors of a link that was granted."""
        name = f"{self.container} {attached.link.name}"
        indices = range(self.world.partitions(self.log)) if self.partition is None else (self.partition,)
        return {index: (self.log, "link", name, index) for index in indices}

    def link_ended(self, attached: Attached, condition: str | None) -> None:
        """A link is over; the rest is attached again."""
        self.links.pop(attached, None)
        self.reattach_later(condition)

    def stall(self, us: int) -> None:
        """It does nothing for a while; its links stay."""
        self.stalled_until_us = self.world.schedule.now_us + us

    def calm_down(self) -> None:
        """It works well from now on."""
        super().calm_down()
        self.stalled_until_us = 0
        self.work_us = 1 * MS
        self.window = max(self.window, 10)
        for attached in self.links:
            attached.top_up()

    # -- what it wants

    def ends(self) -> dict[int, int]:
        """Where its partitions end now."""
        indices = range(self.world.partitions(self.log)) if self.partition is None else (self.partition,)
        return {index: self.world.ledger.current[self.log, index].end for index in indices}

    @property
    def done(self) -> bool:
        if self.keeps:
            return all(
                spot in self.world.cursors.cursors and self.world.cursors.done(spot) >= end
                for spot, end in self.wanted().items()
            )
        return any(
            attached.reading.finished(self.ends())
            and not attached.todo
            and not attached.told
            and not attached.link.echoes
            for attached in self.links
        )

    def wanted(self) -> dict[Spot, int]:
        """The cursors that it moves, and where to."""
        name = f"{self.container} reader"
        return {(self.log, "link", name, index): end for index, end in self.ends().items()}

    def why(self) -> str:
        links = [
            f"next {attached.reading.next} credit {attached.link.credit} draining {attached.link.draining}"
            f" todo {len(attached.todo)} told {len(attached.told)} echoes {attached.link.echoes}"
            for attached in self.links
        ]
        return f"{super().why()} window {self.window} ends {self.ends()} links {links}"
