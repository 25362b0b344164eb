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
    """`waiting`: in order of arrival; changed by `wait` and `stop_waiting` only.

    `wants`: of waiting and, for a while, of refused members. `moved_ms`: last move.
    """

    name: str
    slots: dict[int, Slot] = field(default_factory=dict)
    waiting: dict[GroupLink, None] = field(default_factory=dict)
    wants: dict[str, Want] = field(default_factory=dict)
    moved_ms: int | None = None
    # Counted, not searched: a thousand attaches may wait, and each end of a link asks.
    _waiting_of: dict[str, int] = field(default_factory=dict)
    _reserved_for: dict[str, int] = field(default_factory=dict)

    def slot(self, partition: int) -> Slot:
        """The partition's slot, created at first use."""
        return self.slots.setdefault(partition, Slot())

    def wait(self, link: GroupLink) -> None:
        """Let an attach wait, behind the others."""
        self.waiting[link] = None
        _count(self._waiting_of, link.member, 1)

    def stop_waiting(self, link: GroupLink) -> None:
        """An attach does not wait any more."""
        del self.waiting[link]
        _count(self._waiting_of, link.member, -1)

    def waits(self, member: str) -> bool:
        """Whether an attach of this member waits."""
        return member in self._waiting_of

    def reserve(self, slot: Slot, member: str | None) -> None:
        """Reserve a partition for a member; None: for no member any more."""
        if slot.reserved is not None:
            _count(self._reserved_for, slot.reserved, -1)
        slot.reserved = member
        if member is not None:
            _count(self._reserved_for, member, 1)

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
        counts, reserved = self._waiting_of, self._reserved_for
        return {
            member: counts.get(member, 1) - reserved.get(member, 0)
            for member, want in sorted(self.wants.items(), key=lambda entry: entry[1].since_ms)
            if (now_ms if member in counts else want.seen_ms) - want.since_ms >= at_least_ms
        }

    def forget_want(self, member: str) -> bool:
        """Free the reserved partitions of a member that has what it wanted, or wants no more. Returns whether
        it had any.
        """
        self.wants.pop(member, None)
        if member not in self._reserved_for:
            return False
        for slot in self.slots.values():
            if slot.reserved == member:
                self.reserve(slot, None)
        return True

    def forget_wants(self, now_ms: int, after_ms: int) -> None:
        """Forget refused members that did not attach again within `after_ms`."""
        for member, want in list(self.wants.items()):
            if now_ms - want.seen_ms > after_ms and not self.waits(member):
                self.forget_want(member)


def _count(counts: dict[str, int], member: str, change: int) -> None:
    """Change a count. Counts of 0 are removed."""
    count = counts.get(member, 0) + change
    if count:
        counts[member] = count
    else:
        del counts[member]
