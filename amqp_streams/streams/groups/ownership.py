"""Who owns which partition within each consumer group of one log. Spec: Event Streams 4.5.

Laws: at most one link owns a (group, partition), and nobody is assigned it before that link is released or evicted; an epoch is told to a
peer only once it is on the disk, and never falls; a partition that nobody holds is bound to whoever waits, at once.
Pure: time is an argument (of a clock that never goes back), and what is to be done is returned as changes, in order.
"""

from collections.abc import Collection, Mapping, Sequence
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
    Hold,
    HoldState,
    Leaving,
    Record,
    Refused,
    check_configured,
)
from amqp_streams.streams.groups.group import Group, Slot, Want

__all__ = ["Assigned", "Change", "Claim", "Evicted", "Hold", "HoldState", "Leaving", "Ownership", "Record", "Refused"]

REMEMBERED_MS_MIN: Final = 1000
"""A refused member counts as wanting for twice the pause, and at least for this long: its client has to come back first."""


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
    ) -> None:
        """`epochs`: those recorded earlier, by group and partition. `settings` and `elsewhere` may be replaced at any time."""
        self.settings = settings
        self.elsewhere: Collection[int] = ()
        """Partitions that another container serves: they are bound to nobody here."""
        self._partitions: Final = partitions
        self._groups_max: Final = groups_max
        self._waiting_max: Final = waiting_max
        self._groups: dict[str, Group] = {}
        self._writing: dict[Hold, Slot] = {}
        self._links = [0] * partitions
        self._taken = 0
        for (group, partition), epoch in (epochs or {}).items():
            self._groups.setdefault(group, Group(group)).slot(partition).recorded = epoch

    # -- inputs

    def claim(self, claim: Claim, now_ms: int) -> tuple[Hold, list[Change]]:
        """A link asks to be in a group. The hold's state tells whether it owns at once, or waits.

        Raises:
            PeerError: refused: locked by an active link or a higher epoch, no partition free, no such group, a limit.
        """
        check_configured(claim.group, self.settings.only)
        group = self._groups.get(claim.group)
        if group is None:
            if len(self._groups) >= self._groups_max:
                description = f"this log has {self._groups_max} consumer groups: remove one, or raise the limit 'groups'"
                raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
            group = self._groups[claim.group] = Group(claim.group)
        try:
            if claim.partition is not None:
                return self._claim_one(group, claim, claim.partition, now_ms)
            if claim.epoch is None:
                return self._claim_any(group, claim, now_ms)
            if self._partitions == 1:
                return self._claim_one(group, claim, 0, now_ms)
            description = f"an epoch is for one partition: name it in link property {names.PARTITION}, or leave {names.EPOCH} out"
            raise PeerError(names.INVALID_FIELD, description, {"field": "properties"})
        finally:
            self._forget_if_idle(group.name)

    def recorded(self, hold: Hold, failure: StorageError | None, now_ms: int) -> list[Change]:
        """The epoch that a `Record` asked for is on the disk, or could not be written."""
        slot = self._writing.pop(hold)
        slot.writing.remove(hold)
        if failure is None:
            slot.recorded = max(slot.recorded, hold.epoch)
        if hold.state is not HoldState.RECORDING:
            self._forget_if_idle(hold.group)
            return []
        if failure is None:
            hold.state = HoldState.OWNING
            return [Assigned(hold)]
        error = PeerError(names.INTERNAL_ERROR, f"epoch {hold.epoch} of partition {hold.partition} could not be recorded: {failure}")
        return [Refused(hold, error), *self.release(hold, now_ms)]

    def release(self, hold: Hold, now_ms: int) -> list[Change]:
        """The link is gone, whatever its state was; a second time changes nothing."""
        if hold.state is HoldState.GONE:
            return []
        group = self._groups[hold.group]
        if hold.state is HoldState.WAITING:
            self._stop_waiting(group, hold)
        else:
            self._vacate(group, hold)
        hold.state = HoldState.GONE
        changes = self._fill(group, now_ms)
        self._forget_if_idle(group.name)
        return changes

    def tick(self, now_ms: int) -> list[Change]:
        """Time passed: waits end, partitions move. Call it a few times a `pause_ms`."""
        changes: list[Change] = []
        for group in [group for group in self._groups.values() if group.waiting or group.wants]:
            changes += self._end_waits(group, now_ms)
            changes += self._fill(group, now_ms)
            changes += self._rebalance(group, now_ms)
            self._forget_if_idle(group.name)
        return changes

    def remove(self, group: str) -> None:
        """Forget a group and its epochs. It has no links any more: the caller looked at `holders`."""
        assert not self.holders(group), "a group in use is not removed"
        self._groups.pop(group, None)

    # -- views

    def owner(self, group: str, partition: int) -> Hold | None:
        """Whose link it is; one that is leaving still owns, one whose epoch is being recorded does not yet."""
        found = self._groups.get(group)
        slot = found.slots.get(partition) if found else None
        return slot.hold if slot and slot.hold and slot.hold.owning else None

    def groups(self) -> Sequence[str]:
        """The groups that have links, or recorded epochs, by name; among them `claims.UNNAMED`."""
        return sorted(self._groups)

    def knows(self, group: str) -> bool:
        """Whether a group has links, or recorded epochs."""
        return group in self._groups

    def holders(self, group: str) -> Sequence[Hold]:
        """The links of a group: those with a partition by its number, then those that wait, the longest waiting first."""
        found = self._groups.get(group)
        if found is None:
            return ()
        return (*(slot.hold for _, slot in sorted(found.slots.items()) if slot.hold is not None), *found.waiting)

    def epoch(self, group: str, partition: int) -> int:
        """The recorded epoch; 0 if none ever was."""
        found = self._groups.get(group)
        slot = found.slots.get(partition) if found else None
        return slot.recorded if slot else 0

    # -- claims

    def _claim_one(self, group: Group, claim: Claim, partition: int, now_ms: int) -> tuple[Hold, list[Change]]:
        """Spec: 4.5.2."""
        slot = group.slot(partition)
        issued, active = slot.issued, slot.hold
        changes: list[Change] = []
        if claim.epoch is None:
            if active is not None:
                raise _locked(slot, partition, "give a greater one to take it over")
        elif claim.epoch < issued:
            raise _locked(slot, partition, f"the epoch given, {claim.epoch}, is below what was given before")
        elif active is not None:
            if claim.epoch == issued:
                raise _locked(slot, partition, f"the epoch given, {claim.epoch}, is not greater")
            stolen = PeerError(names.LINK_STOLEN, f"partition {partition} was taken over with epoch {claim.epoch}")
            changes.append(Refused(active, stolen) if active.state is HoldState.RECORDING else Evicted(active, stolen))
            self._vacate(group, active)
            active.state = HoldState.GONE
        hold = Hold(claim, now_ms)
        return hold, [*changes, self._take(group, hold, partition)]

    def _claim_any(self, group: Group, claim: Claim, now_ms: int) -> tuple[Hold, list[Change]]:
        """Spec: 4.5.1."""
        hold = Hold(claim, now_ms)
        partition = self._free_for(group, claim.member)
        if partition is not None:
            return hold, [self._take(group, hold, partition)]
        if not self.settings.wait_ms:
            self._note_want(group, claim.member, now_ms)
            raise _none_left(self._partitions)
        if len(group.waiting) >= self._waiting_max:
            description = f"{self._waiting_max} attaches wait in this consumer group: the limit 'group_waiting'"
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        group.waiting[hold] = None
        self._note_want(group, claim.member, now_ms, always=True)
        return hold, []

    def _take(self, group: Group, hold: Hold, partition: int) -> Change:
        """Bind a free partition; whoever it was reserved for waits on."""
        slot = group.slot(partition)
        assert slot.hold is None, "a partition has one owner within a group"
        self._taken += 1
        self._links[partition] += 1
        hold.partition, hold.epoch = partition, max(hold.claim.epoch or 0, slot.issued)
        slot.hold, slot.reserved, slot.last_member, slot.taken = hold, None, hold.member, self._taken
        if not group.waits(hold.member):
            group.forget_want(hold.member)
        if hold.epoch == slot.recorded:
            hold.state = HoldState.OWNING
            return Assigned(hold)
        hold.state = HoldState.RECORDING
        slot.writing.append(hold)
        self._writing[hold] = slot
        return Record(hold, group.name, partition, hold.epoch)

    def _vacate(self, group: Group, hold: Hold) -> None:
        assert hold.partition is not None, "this one waits"
        slot = group.slot(hold.partition)
        assert slot.hold is hold, "only who holds a partition can leave it"
        slot.hold = None
        self._links[hold.partition] -= 1

    # -- waiting

    def _note_want(self, group: Group, member: str, now_ms: int, *, always: bool = False) -> None:
        want = group.wants.get(member)
        if want is not None:
            want.seen_ms = now_ms
        elif always or len(group.wants) < self._waiting_max:
            group.wants[member] = Want(now_ms, now_ms)

    def _stop_waiting(self, group: Group, hold: Hold) -> None:
        del group.waiting[hold]
        if not group.waits(hold.member):
            group.forget_want(hold.member)

    def _end_waits(self, group: Group, now_ms: int) -> list[Change]:
        changes: list[Change] = []
        for hold in [hold for hold in group.waiting if now_ms - hold.since_ms >= self.settings.wait_ms]:
            del group.waiting[hold]
            group.wants[hold.member].seen_ms = now_ms
            hold.state = HoldState.GONE
            changes.append(Refused(hold, _none_left(self._partitions)))
        return changes

    def _free(self, group: Group) -> dict[int, Slot | None]:
        """The partitions that nobody holds."""
        slots = ((partition, group.slots.get(partition)) for partition in range(self._partitions) if partition not in self.elsewhere)
        return {partition: slot for partition, slot in slots if slot is None or slot.hold is None}

    def _free_for(self, group: Group, member: str) -> int | None:
        """The partition that a link of this member would get now."""
        return choose(
            [
                Free(
                    partition,
                    reserved=slot is not None and slot.reserved == member,
                    held_last=slot is not None and slot.last_member == member,
                    links=self._links[partition],
                )
                for partition, slot in self._free(group).items()
                if slot is None or slot.reserved in (None, member)
            ]
        )

    def _fill(self, group: Group, now_ms: int) -> list[Change]:
        """Bind what is free to those who wait, who has fewest first."""
        group.forget_wants(now_ms, max(2 * self.settings.pause_ms, REMEMBERED_MS_MIN))
        changes: list[Change] = []
        while group.waiting:
            kept_for = {slot.reserved if slot else None for slot in self._free(group).values()}
            takers = [hold for hold in group.waiting if None in kept_for or hold.member in kept_for]
            if not takers:
                break
            loads = group.loads()
            hold = min(takers, key=lambda taker: loads.get(taker.member, 0))
            partition = self._free_for(group, hold.member)
            assert partition is not None, "one is free for this member"
            del group.waiting[hold]
            changes.append(self._take(group, hold, partition))
        return changes

    def _rebalance(self, group: Group, now_ms: int) -> list[Change]:
        """Free partitions for members that have waited long enough, at most once a pause."""
        pause_ms = self.settings.pause_ms
        if group.moved_ms is not None and now_ms - group.moved_ms < pause_ms:
            return []
        changes: list[Change] = []
        for move in moves(group.loads(), group.wanted(now_ms, pause_ms), group.movable()):
            slot = group.slot(move.partition)
            assert slot.hold is not None, "only what is held moves"
            slot.hold.state, slot.reserved = HoldState.LEAVING, move.taker
            error = PeerError(
                names.LINK_DETACH_FORCED, "rebalance: this partition moves to another member; attach again without a partition"
            )
            changes.append(Leaving(slot.hold, error, self.settings.handover_ms))
        if changes:
            group.moved_ms = now_ms
        return changes

    def _forget_if_idle(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None and group.idle:
            del self._groups[name]


def _locked(slot: Slot, partition: int, words: str) -> PeerError:
    description = f"partition {partition} has an active link or a later claim in this group; its epoch is {slot.recorded}: {words}"
    return PeerError(names.RESOURCE_LOCKED, description, {names.EPOCH: str(slot.recorded)})


def _none_left(partitions: int) -> PeerError:
    return PeerError(names.LINK_DETACH_FORCED, f"no partition is left in this consumer group: each of the {partitions} has an active link")
