"""Members of consumer groups: they share partitions, or have leases that another system gives."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from amqp_streams import names
from amqp_streams.wire.types import Symbol, UInt, ULong, Value
from tests.simulation.checks.cursors import Spot
from tests.simulation.machine.schedule import SECOND
from tests.simulation.peers.client import Client
from tests.simulation.peers.connection import Connection
from tests.simulation.peers.consumers import Attached, Consumer

_KEPT: Final[dict[str, Value]] = {"durable": UInt(2), "expiry-policy": Symbol("never")}


class Member(Consumer):
    """A member of a group; how it gets its partitions is in its subclasses."""

    def __init__(self, world: Any, name: str, log: str, group: str, *, user: str | None = None) -> None:
        super().__init__(world, name, log, keeps=True, user=user)
        self.group = group
        self.draining = self.pulls = False
        self.owned: dict[Attached, int] = {}

    def granted(self, attached: Attached, fields: Mapping[str, Any]) -> None:
        """The member owns the partition that the node names."""
        self.owned[attached] = self._partition(fields)

    def spots_of(self, attached: Attached, fields: Mapping[str, Any]) -> dict[int, Spot]:
        """See `Consumer`."""
        index = self._partition(fields)
        return {index: (self.log, "group", self.group, index)}

    def link_ended(self, attached: Attached, condition: str | None) -> None:
        """A link is over; it is attached again."""
        self.links.pop(attached, None)
        self.owned.pop(attached, None)
        if condition != names.LINK_STOLEN:
            self.reattach_later(condition, partial(self.again, name=attached.link.name))

    def again(self, connection: Connection, name: str) -> None:
        """Attach a link of this name again."""
        if not any(attached.link.name == name for attached in self.links):
            self.attach(connection, name, {names.CONSUMER_GROUP: self.group})

    @property
    def done(self) -> bool:
        """Whether its group has processed everything. The world checks this for each group."""
        return True

    def _partition(self, fields: Mapping[str, Any]) -> int:
        answered = {str(key): value for key, value in (fields["properties"] or {}).items()}
        return int(str(answered[names.PARTITION]))


class Sharer(Member):
    """A member whose partitions the node assigns. Spec: Event Streams 4.5.1."""

    def __init__(self, world: Any, name: str, log: str, group: str, links: int) -> None:
        super().__init__(world, name, log, group)
        self.wanted_links = links

    def connected(self, connection: Connection) -> None:
        for number in range(self.wanted_links):
            self.again(connection, f"{self.group}-{number}")


class Leaser(Member):
    """A member that learns its partitions from another system, and claims them with a greater epoch.

    Spec: Event Streams 4.5.2.
    """

    def __init__(self, world: Any, name: str, log: str, group: str) -> None:
        super().__init__(world, name, log, group)
        self.leases: dict[int, int] = {}
        self._claimed: dict[str, int] = {}
        """By link, the epoch of the lease with which it was attached."""

    def connected(self, connection: Connection) -> None:
        for index in self.leases:
            self.again(connection, f"{self.group}-{index}")

    def lease(self, partition: int, epoch: int) -> None:
        """It owns this partition from now on."""
        self.leases[partition] = epoch
        if self.connection is not None and self.connection.alive:
            self.again(self.connection, f"{self.group}-{partition}")

    def lose(self, partition: int, *, surely: bool) -> None:
        """Another owns it; the link stays until that one takes it. Not everybody hears of it at once."""
        if surely or self.random.random() < 0.7:
            self.leases.pop(partition, None)

    def link_ended(self, attached: Attached, condition: str | None) -> None:
        """See `Member`. A newer lease that came while the link lived is not lost with the stolen link."""
        super().link_ended(attached, condition)
        name = attached.link.name
        newer = self.leases.get(int(name.rpartition("-")[2]), 0) > self._claimed.get(name, 0)
        if condition == names.LINK_STOLEN and newer:
            self.reattach_later(condition, partial(self.again, name=name))

    def again(self, connection: Connection, name: str) -> None:
        index = int(name.rpartition("-")[2])
        if index not in self.leases or any(attached.link.name == name for attached in self.links):
            return
        self._claimed[name] = self.leases[index]
        properties: dict[str, object] = {
            names.CONSUMER_GROUP: self.group,
            names.PARTITION: Symbol(str(index)),
        }
        if not self.world.stormy or self.random.random() < 0.8:
            properties[names.EPOCH] = ULong(self.leases[index])
        self.attach(connection, name, properties)


class Crowd(Client):
    """A long queue for one partition, in which the node must refuse each link that reaches the head: the node
    keeps no more cursors, and all links except the owner's request one.
    """

    SIZE = 300

    def __init__(self, world: Any, name: str, log: str) -> None:
        super().__init__(world, name)
        self.log = log
        self.answered = 0

    @property
    def done(self) -> bool:
        return self.answered >= self.SIZE

    def why(self) -> str:
        return f"{super().why()}: {self.answered} of {self.SIZE} answered"

    def connected(self, connection: Connection) -> None:
        connection.attach_receiver("kept", self.log, source=_KEPT, ended=self._dropped)
        properties = {names.CONSUMER_GROUP: "crowd"}
        owner = connection.attach_receiver("owner", self.log, properties=properties, ended=self._dropped)
        for number in range(self.SIZE):
            connection.attach_receiver(
                f"waiting-{number}", self.log, source=_KEPT, properties=properties, ended=self._refused
            )
        self.world.schedule.after(3 * SECOND, lambda: owner.detach(closed=True))

    def _dropped(self, condition: str | None) -> None:
        assert condition is None, condition

    def _refused(self, condition: str | None) -> None:
        self.answered += condition is not None


class Group:
    """A group of members, and whether it has processed everything."""

    def __init__(self, world: Any, name: str, log: str) -> None:
        self.world = world
        self.name = name
        self.log = log
        self.members: list[Sharer] = []
        self.leasers: list[Leaser] = []
        self._epochs: dict[int, int] = {}

    def give_lease(self, *, surely: bool = False, index: int | None = None) -> None:
        """Assign partitions as another consensus system would. It may use one epoch twice."""
        random = self.world.random
        partition = random.randrange(self.world.partitions(self.log)) if index is None else index
        self._epochs[partition] = self._epochs.get(partition, 0) + random.randint(1 if surely else 0, 3)
        owner = random.choice(self.leasers)
        for leaser in self.leasers:
            leaser.lose(partition, surely=surely)
        owner.lease(partition, self._epochs[partition])

    def calm_down(self) -> None:
        """All members learn the current assignment."""
        if self.leasers:
            for index in range(self.world.partitions(self.log)):
                self.give_lease(surely=True, index=index)

    def owners(self) -> dict[int, str]:
        """Return the owner of each partition, as the members know it."""
        return {
            index: member.name
            for member in [*self.members, *self.leasers]
            for attached, index in member.owned.items()
            if attached.link.alive
        }

    @property
    def done(self) -> bool:
        """Each partition that can have an owner has one, and is processed; sharers share evenly."""
        partitions = self.world.partitions(self.log)
        wanted = (
            partitions if self.leasers else min(partitions, sum(each.wanted_links for each in self.members))
        )
        owners = self.owners()
        if len(owners) < wanted or not all(self._processed(index) for index in owners):
            return False
        loads = [sum(owner == member.name for owner in owners.values()) for member in self.members]
        return not loads or max(loads) - min(loads) <= 1

    def _processed(self, index: int) -> bool:
        spot = (self.log, "group", self.name, index)
        cursors = self.world.cursors
        return (
            spot in cursors.cursors and cursors.done(spot) >= self.world.ledger.current[self.log, index].end
        )

    def why(self) -> str:
        """Return what the member waits for, as text."""
        state = {
            index: self.world.cursors.done((self.log, "group", self.name, index)) for index in self.owners()
        }
        return f"group {self.name} of {self.log}: owners {self.owners()} processed {state}"
