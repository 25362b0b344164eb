"""Assigns the partitions of one log to the links of its consumer groups. Spec: Event Streams 4.5.

Laws: at most one link owns a (group, partition); another link gets it only after that link is released or
evicted. A peer learns of an epoch only after it is on the disk, and epochs never decrease. A free partition
is assigned to a waiting link at once. Pure: time is an argument (of a monotonic clock), and the changes to
carry out are returned in order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.streams.groups.balance import Free, choose, moves
from amqp_streams.streams.groups.claims import (
    Assigned,
    Change,
    Claim,
    Evicted,
    GroupLink,
    GroupLinkState,
    Leaving,
    Record,
    Refused,
    check_configured,
)
from amqp_streams.streams.groups.group import Group, Slot, Want

__all__ = [
    "Assigned",
    "Change",
    "Claim",
    "Evicted",
    "GroupLink",
    "GroupLinkState",
    "Leaving",
    "Ownership",
    "Record",
    "Refused",
]

REMEMBERED_MS_MIN: Final = 1000
"""A refused member waits for twice the pause, at least this long: its client must attach again."""


class Ownership:
    """The groups of one log and the links in them."""

    def __init__(
        self,
        partitions: int,
        settings: GroupSettings,
        *,
        groups_max: int = 1000,
        waiting_max: int = 1024,
        epochs: Mapping[tuple[str, int], int] | None = None,
        on_known: Callable[[str, bool], None] = lambda _group, _known: None,
    ) -> None:
        """`epochs`: those recorded, by group and partition.

        `on_known` is called with each group that it knows from now on (true), or no longer (false). It knows
        those of `epochs` from the beginning.

        `settings` and `elsewhere` may be replaced at any time.
        """
        self.settings = settings
        self.elsewhere: Collection[int] = ()
        """Partitions that other containers serve: they are not assigned here."""
        self._partitions: Final = partitions
        self._groups_max: Final = groups_max
        self._waiting_max: Final = waiting_max
        self._groups: dict[str, Group] = {}
        self._on_known: Final = on_known
        self._writing: dict[GroupLink, Slot] = {}
        self._links = [0] * partitions
        self._taken = 0
        for (group, partition), epoch in (epochs or {}).items():
            self._groups.setdefault(group, Group(group)).slot(partition).recorded = epoch

    # -- inputs

    def claim(self, claim: Claim, now_ms: int) -> tuple[GroupLink, list[Change]]:
        """A link asks to join a group. The link's state says whether it owns its partition or waits.

        Raises:
            PeerError: an active link or a higher epoch has the partition, no partition is free, the group
                does not exist, or a limit is reached.
        """
        check_configured(claim.group, self.settings.only)
        group = self._groups.get(claim.group)
        if group is None:
            if len(self._groups) >= self._groups_max:
                description = (
                    f"this log has at most {self._groups_max} consumer groups: remove one, or raise the limit"
                    " 'groups'"
                )
                raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
            group = self._groups[claim.group] = Group(claim.group)
            self._on_known(claim.group, True)
        try:
            if claim.partition is not None:
                return self._claim_one(group, claim, claim.partition, now_ms)
            if claim.epoch is None:
                return self._claim_any(group, claim, now_ms)
            if self._partitions == 1:
                return self._claim_one(group, claim, 0, now_ms)
            description = (
                f"an epoch needs a partition: name it in link property {names.PARTITION}, or omit"
                f" {names.EPOCH}"
            )
            raise PeerError(names.INVALID_FIELD, description, {"field": "properties"})
        # A refused claim must not leave an empty group behind: groups are limited.
        finally:
            self._forget_if_idle(group.name)

    def recorded(self, link: GroupLink, failure: StorageError | None, now_ms: int) -> list[Change]:
        """Process the end of the write of a `Record`'s epoch."""
        slot = self._writing.pop(link)
        slot.writing.remove(link)
        if failure is None:
            slot.recorded = max(slot.recorded, link.epoch)
        # The link ended or was evicted while the disk was busy. The epoch stays recorded.
        if link.state is not GroupLinkState.RECORDING:
            self._forget_if_idle(link.group)
            return []
        if failure is None:
            link.state = GroupLinkState.OWNING
            return [Assigned(link)]
        error = PeerError(
            names.INTERNAL_ERROR,
            f"epoch {link.epoch} of partition {link.partition} could not be recorded: {failure}",
        )
        return [Refused(link, error), *self.release(link, now_ms)]

    def release(self, link: GroupLink, now_ms: int) -> list[Change]:
        """Remove a link that has ended, in any state. A second call changes nothing."""
        if link.state is GroupLinkState.GONE:
            return []
        group = self._groups[link.group]
        frees = True
        if link.state is GroupLinkState.WAITING:
            frees = self._stop_waiting(group, link)
        else:
            self._vacate(group, link)
        # Before the partition is assigned again: a second release must find the state.
        link.state = GroupLinkState.GONE
        # The end of an attach that waited frees nothing, as a rule. A thousand may end at once.
        changes = self._fill(group, now_ms) if frees else []
        self._forget_if_idle(group.name)
        return changes

    def tick(self, now_ms: int) -> list[Change]:
        """Called several times in each `pause_ms`: ends waits and moves partitions."""
        changes: list[Change] = []
        for group in [group for group in self._groups.values() if group.waiting or group.wants]:
            # Waits end before partitions are assigned: an attach that waited too long is refused.
            changes += self._end_waits(group, now_ms)
            changes += self._fill(group, now_ms)
            changes += self._rebalance(group, now_ms)
            self._forget_if_idle(group.name)
        return changes

    def remove(self, group: str) -> None:
        """Forget a group and its epochs. The caller has checked that it has no links (`links`)."""
        assert not self.links(group), "a group in use must not be removed"
        if self._groups.pop(group, None) is not None:
            self._on_known(group, False)

    def know(self, group: str) -> None:
        """Let the views show this group, although it may have neither links nor epochs."""
        self._groups.setdefault(group, Group(group))

    # -- views

    def owner(self, group: str, partition: int) -> GroupLink | None:
        """The owning link.

        A link that is leaving still owns; one whose epoch is being recorded does not own yet.
        """
        found = self._groups.get(group)
        slot = found.slots.get(partition) if found else None
        return slot.link if slot and slot.link and slot.link.owning else None

    def groups(self) -> Sequence[str]:
        """The groups with links or recorded epochs, by name; includes `claims.UNNAMED`."""
        return sorted(self._groups)

    def knows(self, group: str) -> bool:
        """Whether a group has links or recorded epochs."""
        return group in self._groups

    def links(self, group: str) -> Sequence[GroupLink]:
        """The links of a group: those with a partition, by its number, then waiting ones, oldest first."""
        found = self._groups.get(group)
        if found is None:
            return ()
        return (
            *(slot.link for _, slot in sorted(found.slots.items()) if slot.link is not None),
            *found.waiting,
        )

    def epoch(self, group: str, partition: int) -> int:
        """The recorded epoch; 0 if no epoch was recorded."""
        found = self._groups.get(group)
        slot = found.slots.get(partition) if found else None
        return slot.recorded if slot else 0

    # -- claims

    def _claim_one(
        self, group: Group, claim: Claim, partition: int, now_ms: int
    ) -> tuple[GroupLink, list[Change]]:
        """A claim of a named partition. Spec: 4.5.2."""
        slot = group.slot(partition)
        issued, active = slot.issued, slot.link
        changes: list[Change] = []
        if claim.epoch is None:
            if active is not None:
                raise _locked(slot, partition, "attach with a greater epoch to take it over")
        # Spec 4.5.2: also an epoch that is being written counts, or two claims could be granted.
        elif claim.epoch < issued:
            raise _locked(slot, partition, f"epoch {claim.epoch} is lower than a previous one")
        elif active is not None:
            if claim.epoch == issued:
                raise _locked(slot, partition, f"epoch {claim.epoch} is not greater")
            stolen = PeerError(
                names.LINK_STOLEN, f"partition {partition} was taken over with epoch {claim.epoch}"
            )
            changes.append(
                Refused(active, stolen)
                if active.state is GroupLinkState.RECORDING
                else Evicted(active, stolen)
            )
            self._vacate(group, active)
            active.state = GroupLinkState.GONE
        link = GroupLink(claim, now_ms)
        return link, [*changes, self._take(group, link, partition)]

    def _claim_any(self, group: Group, claim: Claim, now_ms: int) -> tuple[GroupLink, list[Change]]:
        """A claim of any partition. Spec: 4.5.1."""
        link = GroupLink(claim, now_ms)
        partition = self._free_for(group, claim.member)
        if partition is not None:
            return link, [self._take(group, link, partition)]
        # Without waiting, the want is remembered, so that the next attach of the member finds a partition.
        if not self.settings.wait_ms:
            self._note_want(group, claim.member, now_ms)
            raise _none_left(self._partitions)
        if len(group.waiting) >= self._waiting_max:
            description = (
                f"at most {self._waiting_max} attaches may wait in a consumer group: retry later, or raise"
                " the limit 'group_waiting'"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        group.wait(link)
        self._note_want(group, claim.member, now_ms, always=True)
        return link, []

    def _take(self, group: Group, link: GroupLink, partition: int) -> Change:
        """Assign a free partition. A member that it was reserved for continues to wait."""
        slot = group.slot(partition)
        assert slot.link is None, "a partition has one owner within a group"
        self._taken += 1
        self._links[partition] += 1
        # Epochs never decrease: a claim without an epoch gets the current one.
        link.partition, link.epoch = partition, max(link.claim.epoch or 0, slot.issued)
        slot.link, slot.last_member, slot.taken = link, link.member, self._taken
        group.reserve(slot, None)
        if not group.waits(link.member):
            group.forget_want(link.member)
        # The epoch is on the disk already: nothing to write.
        if link.epoch == slot.recorded:
            link.state = GroupLinkState.OWNING
            return Assigned(link)
        link.state = GroupLinkState.RECORDING
        slot.writing.append(link)
        self._writing[link] = slot
        return Record(link, group.name, partition, link.epoch)

    def _vacate(self, group: Group, link: GroupLink) -> None:
        assert link.partition is not None, "this link waits"
        slot = group.slot(link.partition)
        assert slot.link is link, "only the holder of a partition can leave it"
        slot.link = None
        self._links[link.partition] -= 1

    # -- waiting

    def _note_want(self, group: Group, member: str, now_ms: int, *, always: bool = False) -> None:
        want = group.wants.get(member)
        if want is not None:
            want.seen_ms = now_ms
        elif always or len(group.wants) < self._waiting_max:
            group.wants[member] = Want(now_ms, now_ms)

    def _stop_waiting(self, group: Group, link: GroupLink) -> bool:
        """Returns whether partitions that were reserved for its member are free now."""
        group.stop_waiting(link)
        return not group.waits(link.member) and group.forget_want(link.member)

    def _end_waits(self, group: Group, now_ms: int) -> list[Change]:
        changes: list[Change] = []
        for link in [link for link in group.waiting if now_ms - link.since_ms >= self.settings.wait_ms]:
            group.stop_waiting(link)
            # The member stays known for a while: its client attaches again.
            group.wants[link.member].seen_ms = now_ms
            link.state = GroupLinkState.GONE
            changes.append(Refused(link, _none_left(self._partitions)))
        return changes

    def _free(self, group: Group) -> dict[int, Slot | None]:
        """The partitions without a holder."""
        slots = (
            (partition, group.slots.get(partition))
            for partition in range(self._partitions)
            if partition not in self.elsewhere
        )
        return {partition: slot for partition, slot in slots if slot is None or slot.link is None}

    def _free_for(self, group: Group, member: str) -> int | None:
        """The partition that a link of this member would get now."""
        return choose(
            [
                Free(
                    partition,
                    reserved=slot is not None and slot.reserved == member,
                    owned_last=slot is not None and slot.last_member == member,
                    links=self._links[partition],
                )
                for partition, slot in self._free(group).items()
                if slot is None or slot.reserved in (None, member)
            ]
        )

    def _fill(self, group: Group, now_ms: int) -> list[Change]:
        """Assign free partitions to waiting links; the member with the fewest partitions is first."""
        group.forget_wants(now_ms, max(2 * self.settings.pause_ms, REMEMBERED_MS_MIN))
        changes: list[Change] = []
        while group.waiting:
            kept_for = {slot.reserved if slot else None for slot in self._free(group).values()}
            link = _next_taker(group, kept_for)
            if link is None:
                break
            partition = self._free_for(group, link.member)
            assert partition is not None, "a partition is free for this member"
            group.stop_waiting(link)
            changes.append(self._take(group, link, partition))
        return changes

    def _rebalance(self, group: Group, now_ms: int) -> list[Change]:
        """Free partitions for members that have waited long enough, at most once in each pause."""
        pause_ms = self.settings.pause_ms
        # One round of moves must settle before the next: clients need time to attach again.
        if group.moved_ms is not None and now_ms - group.moved_ms < pause_ms:
            return []
        changes: list[Change] = []
        for move in moves(group.loads(), group.wanted(now_ms, pause_ms), group.movable()):
            slot = group.slot(move.partition)
            assert slot.link is not None, "only held partitions move"
            # The owner keeps the partition until it has settled everything: docs/decisions/0005.
            slot.link.state = GroupLinkState.LEAVING
            group.reserve(slot, move.taker)
            error = PeerError(
                names.LINK_DETACH_FORCED,
                "rebalance: this partition moves to another member; attach again without a partition",
            )
            changes.append(Leaving(slot.link, error, self.settings.handover_ms))
        if changes:
            group.moved_ms = now_ms
        return changes

    def _forget_if_idle(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None and group.idle:
            del self._groups[name]
            self._on_known(name, False)


def _next_taker(group: Group, kept_for: Collection[str | None]) -> GroupLink | None:
    """Returns the waiting link that gets the next free partition: of the member with the fewest partitions,
    and of those the first. `kept_for`: for whom the free partitions are reserved; None: for all.
    """
    if not kept_for:
        return None
    loads = group.loads()
    found, least = None, 0
    for link in group.waiting:
        # A reserved partition is free only for its member.
        if None not in kept_for and link.member not in kept_for:
            continue
        load = loads.get(link.member, 0)
        if found is None or load < least:
            found, least = link, load
        # No member has fewer. Without this, a chain of links that are refused one after the other looks at
        # all waiting links for each of them.
        if not load:
            break
    return found


def _locked(slot: Slot, partition: int, words: str) -> PeerError:
    description = (
        f"partition {partition} has an active link or a later claim in this group; its epoch is"
        f" {slot.recorded}: {words}"
    )
    return PeerError(names.RESOURCE_LOCKED, description, {names.EPOCH: str(slot.recorded)})


def _none_left(partitions: int) -> PeerError:
    return PeerError(
        names.LINK_DETACH_FORCED,
        f"no partition is left in this consumer group: each of the {partitions} partitions has an active"
        " link",
    )
