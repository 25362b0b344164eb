"""Consumers as in practice: they share partitions, have leases of another system, stall, die, settle in any
order, and return.
"""

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.streams.attach import AttachRequest, Pending
from amqp_streams.wire.types import Symbol, ULong, Value
from tests.simulation.groups.ledger import Link
from tests.simulation.groups.stage import Stage

EARLIEST: dict[str, Value] = {
    names.FILTER_DELIVERY_ANNOTATIONS: {names.OFFSET: Symbol(names.OFFSET_EARLIEST)}
}


class Consumer:
    """Keeps its links attached while it runs, and processes the deliveries.

    `tidy`: it settles in order. `stubborn`: it settles on links that it has lost, and continues to read.
    `filters`: where cursors begin.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.random = stage.random
        self.name = name
        self.window = self.random.choice((1, 3, 10, 50))
        self.tidy = self.random.random() < 0.5
        self.stubborn = self.random.random() < 0.5
        self.filters = self.random.choice((EARLIEST, {}))
        self.work_ms = self.random.choice((1, 5, 20))
        self.alive = True
        self.stalled_until_ms = 0
        self.incarnation = 0
        self.links: dict[Link, None] = {}
        self.working: set[Link] = set()

    # -- life

    def start(self) -> None:
        """Attach the wanted links."""
        raise NotImplementedError

    def die(self) -> None:
        """End all connections, with everything that is unsettled."""
        self.alive = False
        self.incarnation += 1
        for link in list(self.links):
            self.stage.lose(link)
        self.links.clear()

    def revive(self) -> None:
        """It is started again."""
        if not self.alive:
            self.alive = True
            self.stalled_until_ms = 0
            self.start()

    def stall(self, ms: int) -> None:
        """It does nothing for a while; its links stay."""
        self.stalled_until_ms = self.stage.schedule.now_ms + ms

    def attach(self, link: str, properties: dict[str, Value]) -> None:
        """Attach now; refused, it tries again."""
        request = AttachRequest(
            link,
            self.name,
            consumer=True,
            address="log",
            durable=True,
            connection=self.incarnation,
            properties=properties,
            filters=EARLIEST,
        )
        attached = self.stage.attach(self, request)
        if attached is None:
            self.again(request, self.random.randint(100, 1000))
        else:
            self.links[attached] = None

    def again(self, request: AttachRequest, delay_ms: int) -> None:
        """Attach like this once more, unless it died meanwhile."""
        incarnation = self.incarnation
        self.stage.schedule.after(
            delay_ms,
            lambda: (
                self.attach(request.link, dict(request.properties))
                if self.incarnation == incarnation
                else None
            ),
        )

    # -- what the node says

    def ready(self, link: Link) -> None:
        """Read and work, one window after the other."""
        if link not in self.working:
            self.working.add(link)
            self.stage.schedule.after(0, lambda: self._work(link))

    def ended(self, link: Link, error: PeerError | None) -> None:
        known = link in self.links
        self.links.pop(link, None)
        self.working.discard(link)
        if self.stubborn and error is not None and not isinstance(link.answer, Pending):
            self.stage.schedule.after(1, lambda: self._go_on(link, self.stage.generation))
        if self.alive and known and (error is None or error.condition != names.LINK_STOLEN):
            self.again(
                link.request,
                self.random.randint(1, 50) if error is not None else self.random.randint(100, 2000),
            )

    # -- work

    def _go_on(self, link: Link, generation: int) -> None:
        """Behave as if the link were there still."""
        if self.stage.generation == generation:
            self.stage.settle(link, list(link.unsettled))
            assert self.stage.read(link, 10) == 0

    def _work(self, link: Link) -> None:
        if not link.alive:
            self.working.discard(link)
            return
        now_ms = self.stage.schedule.now_ms
        if self.stalled_until_ms > now_ms:
            self.stage.schedule.after(self.stalled_until_ms - now_ms, lambda: self._work(link))
            return
        if link.unsettled:
            self._settle_some(link)
        room = self.window - len(link.unsettled)
        got = self.stage.read(link, room) if link.alive and room > 0 else 0
        if got or link.unsettled:
            self.stage.schedule.after(self.work_ms, lambda: self._work(link))
        else:
            self.working.discard(link)

    def _settle_some(self, link: Link) -> None:
        pending = list(link.unsettled)
        count = self.random.randint(1, len(pending))
        self.stage.settle(link, pending[:count] if self.tidy else self.random.sample(pending, count))


class Sharer(Consumer):
    """A member of a group whose partitions the node assigns. Spec: Event Streams 4.5.1."""

    def __init__(self, stage: Stage, name: str, group: str, links: int) -> None:
        super().__init__(stage, name)
        self.group = group
        self.wanted = links

    def start(self) -> None:
        for number in range(self.wanted):
            self.attach(f"{self.group}-{number}", {names.CONSUMER_GROUP: self.group})


class Leaser(Consumer):
    """A member that learns its partitions from another system, and claims them with a greater epoch.

    Spec: Event Streams 4.5.2.
    """

    def __init__(self, stage: Stage, name: str, group: str) -> None:
        super().__init__(stage, name)
        self.group = group
        self.leases: dict[int, int] = {}

    def start(self) -> None:
        for partition in self.leases:
            self._take(partition)

    def lease(self, partition: int, epoch: int) -> None:
        """It owns this partition from now on."""
        self.leases[partition] = epoch
        if self.alive:
            self._take(partition)

    def lose_lease(self, partition: int, *, surely: bool = False) -> None:
        """Another owns it; the link stays until that one takes it. Not everybody hears of it at once."""
        if surely or self.random.random() < 0.7:
            self.leases.pop(partition, None)

    def attach(self, link: str, properties: dict[str, Value]) -> None:
        partition = int(link.rpartition("-")[2])
        if partition in self.leases:
            given = (
                {names.EPOCH: ULong(self.leases[partition])}
                if self.stage.calm or self.random.random() < 0.7
                else {}
            )
            super().attach(
                link, {key: value for key, value in properties.items() if key != names.EPOCH} | given
            )

    def _take(self, partition: int) -> None:
        self.attach(
            f"{self.group}-{partition}",
            {names.CONSUMER_GROUP: self.group, names.PARTITION: Symbol(str(partition))},
        )


class Subscriber(Consumer):
    """A durable subscriber to all partitions, known by its container and link. Spec: Event Streams 3.2."""

    def start(self) -> None:
        self.attach("subscription", {})
