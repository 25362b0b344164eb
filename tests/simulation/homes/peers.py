"""Consumers: members of groups, claimants with epochs, durable subscribers; with both settle modes."""

from typing import TYPE_CHECKING

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.streams.groups.claims import Claim, Wanted
from tests.simulation.homes.machines import Link

if TYPE_CHECKING:
    from tests.simulation.homes.world import World

INCARNATION = "log-1"


class Peer:
    """One container with one link. `group` None: a durable subscriber to all partitions."""

    def __init__(self, world: "World", name: str, group: str | None) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.second = world.random.random() < 0.4
        self.durable = group != "plain"
        self.work = world.random.choice((5.0, 60.0, 400.0))
        self.link: Link | None = None
        self.alive = True
        self.lease: tuple[int, int] | None = None
        """A partition and an epoch that it has from another system."""
        self._attempt = 0

    def wanted(self) -> Wanted | None:
        """What it asks for; None: nothing now."""
        claim = None
        ends = tuple(self.world.ends)
        if self.group is not None:
            if self.group == "claimed" and self.lease is None:
                return None
            partition, epoch = self.lease or (None, None)
            claim = Claim(self.group, partition, epoch, self.name)
        return Wanted(
            INCARNATION,
            "user",
            self.name,
            "link",
            claim,
            self.durable,
            ends,
            () if claim else self.world.indices,
        )

    def attach(self) -> None:
        """Attach at any node that lives, unless there is a link."""
        if not self.alive or self.link is not None:
            return
        wanted = self.wanted()
        nodes = [
            process for process in self.world.processes() if not process.terminating and not process.stopped
        ]
        if wanted is None or not nodes:
            self._again(100)
            return
        self.link = self.world.random.choice(nodes).attach(self, wanted)

    def leave(self, unnoticed_ms: float) -> None:
        """The connection ends, and the node notices it so much later."""
        link, self.link = self.link, None
        if link is not None:
            process = link.process
            self.world.schedule.after(unnoticed_ms, lambda: process.detach(link))

    def take(self, partition: int, epoch: int) -> None:
        """It owns this partition from now on, says another system."""
        self.lease = partition, epoch
        self.leave(0)
        self.attach()

    def watch(self) -> None:
        """A client notices that its node does not answer any more."""
        process = None if self.link is None else self.link.process
        if process is not None and process.stopped and self.world.random.random() < 0.3:
            self.leave(0)
            self._again(20)

    # -- from the node

    def attached(self, link: Link) -> None:
        self.world.ledger.counts["attached"] += 1

    def lost(self, link: Link, error: PeerError | None, *, refused: bool) -> None:
        """The link has ended, or was never granted."""
        self.world.ledger.counts["refused"] += refused
        over = error is not None and error.condition in {names.RESOURCE_LOCKED, names.LINK_STOLEN}
        if over and self.lease is not None and self.world.leases.get(self.lease[0]) is not self:
            self.lease = None
        if self.link is link:
            self.link = None
            self._again(self.world.random.uniform(5, 50 if self.world.calm else 400))

    def received(self, link: Link, partition: int, first: int, count: int) -> None:
        if self.link is not link or not self.alive:
            return
        delay = self.world.random.uniform(0.5, 20.0 if self.world.calm else self.work)
        if count > 1 and self.world.random.random() < 0.3:
            # The later half first.
            half = count // 2
            self._settle(link, partition, range(first + half, first + count), delay / 2)
            count = half
        self._settle(link, partition, range(first, first + count), delay)

    def _settle(self, link: Link, partition: int, numbers: range, delay: float) -> None:
        def settle() -> None:
            if self.link is link:
                link.process.settle(link, partition, numbers.start, len(numbers))

        self.world.schedule.after(delay, settle)

    def _again(self, ms: float) -> None:
        self._attempt += 1
        attempt = self._attempt
        self.world.schedule.after(ms, lambda: self.attach() if self._attempt == attempt else None)
