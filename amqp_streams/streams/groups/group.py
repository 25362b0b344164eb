"""The state of one consumer group of one log: owners, epochs, waiting attaches, wants of members.

Law: a partition is reserved only for a member that wants one. `ownership.py` decides; this module keeps and
counts.
"""

from dataclasses import dataclass, field

from amqp_streams.streams.groups.claims import GroupLink, GroupLinkState


@dataclass(slots=True, eq=False)
class Slot:
    """One partition within the group.

    `reserved`: the member it is, or will be, freed for. `taken`: order of the claims.
    """

    recorded: int = 0
    link: GroupLink | None = None
    writing: list[GroupLink] = field(default_factory=list)
    last_member: str | None = None
    reserved: str | None = None
    taken: int = 0

    @property
    def issued(self) -> int:
        """The highest epoch on the disk or being written: a lower claim cannot be granted any more."""
        return max([self.recorded, *(link.epoch for link in self.writing)])


@dataclass(slots=True)
class Want:
    """A member that could own more, and since when. `seen_ms`: its last attach, if that was refused."""

    since_ms: int
    seen_ms: int


@dataclass(slots=True, eq=False)
class Group:
    """`waiting`: in order of arrival.

    `wants`: of waiting and, for a while, of refused members. `moved_ms`: last move.
    """

    name: str
    slots: dict[int, Slot] = field(default_factory=dict)
    waiting: dict[GroupLink, None] = field(default_factory=dict)
    wants: dict[str, Want] = field(default_factory=dict)
    moved_ms: int | None = None

    def slot(self, partition: int) -> Slot:
        """The partition's slot, created at first use."""
        return self.slots.setdefault(partition, Slot())

    def waits(self, member: str) -> bool:
        """Whether an attach of this member waits."""
        return any(link.member == member for link in self.waiting)

    @property
    def idle(self) -> bool:
        """Whether forgetting the group would lose nothing."""
        return not (self.waiting or self.wants) and not any(
            slot.link or slot.issued for slot in self.slots.values()
        )

    def loads(self) -> dict[str, int]:
        """Return the number of partitions of each member.

        A partition that is reserved for a member counts. A partition that a member gives up does not.
        """
        loads: dict[str, int] = {}
        for slot in self.slots.values():
            # A link that leaves makes room for the member that its partition is reserved for.
            staying = slot.link is not None and slot.link.state is not GroupLinkState.LEAVING
            owner = slot.link.member if slot.link is not None and staying else slot.reserved
            if owner is not None:
                loads[owner] = loads.get(owner, 0) + 1
        return loads

    def coming(self) -> dict[str, int]:
        """By member, the number of partitions reserved for it."""
        coming: dict[str, int] = {}
        for slot in self.slots.values():
            if slot.reserved is not None:
                coming[slot.reserved] = coming.get(slot.reserved, 0) + 1
        return coming

    def movable(self) -> dict[str, list[int]]:
        """By member, the partitions that the node assigned (not claimed by name), the newest first."""
        movable: dict[str, list[int]] = {}
        for partition, slot in sorted(self.slots.items(), key=lambda entry: -entry[1].taken):
            if (
                slot.link is not None
                and slot.link.state is GroupLinkState.OWNING
                and slot.link.claim.partition is None
            ):
                movable.setdefault(slot.link.member, []).append(partition)
        return movable

    def wanted(self, now_ms: int, at_least_ms: int) -> dict[str, int]:
        """By member, how many more it asks for, if it has waited that long; the longest waiting first.

        Reserved partitions are subtracted. A refused member counts as wanting one, from its first attach to
        its last.
        """
        counts: dict[str, int] = {}
        for link in self.waiting:
            counts[link.member] = counts.get(link.member, 0) + 1
        coming = self.coming()
        return {
            member: counts.get(member, 1) - coming.get(member, 0)
            for member, want in sorted(self.wants.items(), key=lambda entry: entry[1].since_ms)
            if (now_ms if member in counts else want.seen_ms) - want.since_ms >= at_least_ms
        }

    def forget_want(self, member: str) -> None:
        """Free the reserved partitions of a member that has what it wanted, or wants no more."""
        self.wants.pop(member, None)
        for slot in self.slots.values():
            if slot.reserved == member:
                slot.reserved = None

    def forget_wants(self, now_ms: int, after_ms: int) -> None:
        """Forget refused members that did not attach again within `after_ms`."""
        for member, want in list(self.wants.items()):
            if now_ms - want.seen_ms > after_ms and not self.waits(member):
                self.forget_want(member)
