"""Ownership compared with a model of what its peers know, for any order of attaches, losses, writes, failures
and restarts.

The model contains what a peer or a disk can know: the granted claims, the reported epochs, and the durable
ones.

Spec: Event Streams 4.5.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.streams.groups.ownership import (
    Assigned,
    Change,
    Claim,
    Evicted,
    GroupLink,
    GroupLinkState,
    Leaving,
    Ownership,
    Record,
    Refused,
)
from tests.properties import examples

Share = tuple[str, int]

GROUPS = ("g", "h")
MEMBERS = ("a", "b", "c", "d")
PAUSE, WAIT = 30, 100


@dataclass
class Write:
    """An epoch that is being written to the disk."""

    link: GroupLink
    share: Share
    epoch: int


class Groups(RuleBasedStateMachine):
    """One log of three partitions, two groups, four members."""

    @initialize(partitions=st.integers(1, 4), wait_ms=st.sampled_from([0, WAIT]))
    def begin(self, partitions: int, wait_ms: int) -> None:
        self.partitions = partitions
        self.settings = GroupSettings(wait_ms=wait_ms, pause_ms=PAUSE)
        self.now_ms = 0
        self.durable: dict[Share, int] = {}
        self.told: dict[Share, int] = {}
        self.moved_ms: dict[str, int] = {}
        self.failed: dict[Share, int] = {}
        self.start()

    def start(self) -> None:
        """Start a process: it knows the durable epochs, and no link is attached."""
        self.ownership = Ownership(self.partitions, self.settings, epochs=dict(self.durable))
        self.writes: list[Write] = []
        self.failed.clear()
        self.waiting: dict[GroupLink, None] = {}
        self.owners: dict[Share, GroupLink] = {}

    # -- what peers and disks do

    @rule(group=st.sampled_from(GROUPS), member=st.sampled_from(MEMBERS))
    def attach_anywhere(self, group: str, member: str) -> None:
        refused = self.claim(Claim(group, None, None, member))
        if refused is not None:
            assert refused.condition == names.LINK_DETACH_FORCED
            assert not self.settings.wait_ms

    @rule(
        data=st.data(),
        group=st.sampled_from(GROUPS),
        member=st.sampled_from(MEMBERS),
        epoch=st.none() | st.integers(0, 8),
    )
    def attach_to_one(self, data: st.DataObject, group: str, member: str, epoch: int | None) -> None:
        partition = data.draw(st.integers(0, self.partitions - 1))
        active = self.owners.get((group, partition))
        told = self.told.get((group, partition), 0)
        under_way = any(write.share == (group, partition) for write in self.writes)
        refused = self.claim(Claim(group, partition, epoch, member))
        if refused is None:
            assert active is None or (epoch is not None and epoch > told), (
                "an active link yields to greater epochs only"
            )
            return
        durable = self.durable.get((group, partition), 0)
        assert refused.condition == names.RESOURCE_LOCKED
        assert int(refused.info[names.EPOCH]) >= told
        assert active or under_way or (epoch is not None and epoch < durable), "a free partition is granted"

    @precondition(lambda self: self.waiting or self.owners or self.writes)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A link ends: it detaches, or its connection ends, while it is granted, waits, or its epoch is being
        written.
        """
        known = [*self.waiting, *self.owners.values(), *(write.link for write in self.writes)]
        link = data.draw(st.sampled_from(known))
        self.waiting.pop(link, None)
        self.owners = {share: owner for share, owner in self.owners.items() if owner is not link}
        self.follow(self.ownership.release(link, self.now_ms))
        assert link.state is GroupLinkState.GONE

    @precondition(lambda self: self.writes)
    @rule(fails=st.integers(0, 3))
    def end_a_write(self, fails: int) -> None:
        """End the writes in order. Failed writes are repeated with the next one that succeeds."""
        write = self.writes.pop(0)
        if fails:
            self.durable |= self.failed
            self.durable[write.share] = write.epoch
            self.failed.clear()
            self.follow(self.ownership.recorded(write.link, None, self.now_ms))
        else:
            self.failed[write.share] = write.epoch
            self.follow(self.ownership.recorded(write.link, StorageError("no"), self.now_ms))

    @rule(ms=st.sampled_from([1, PAUSE // 2, PAUSE, WAIT]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.follow(self.ownership.tick(self.now_ms))
        for link in self.waiting:
            assert self.now_ms - link.since_ms < self.settings.wait_ms, "no attach is held pending forever"

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Any number of the writes in flight, from the first one, may have reached the disk."""
        for write in self.writes[: data.draw(st.integers(0, len(self.writes)))]:
            self.durable |= self.failed
            self.durable[write.share] = write.epoch
            self.failed.clear()
        self.start()

    # -- what follows

    def claim(self, claim: Claim) -> PeerError | None:
        try:
            link, changes = self.ownership.claim(claim, self.now_ms)
        except PeerError as error:
            return error
        if link.state is GroupLinkState.WAITING:
            assert not changes
            self.waiting[link] = None
        self.follow(changes)
        return None

    def follow(self, changes: Sequence[Change]) -> None:
        """Act as a node would, and compare each change with the known state."""
        leaving: Counter[str] = Counter()
        for change in changes:
            link = change.link
            share = (link.group, -1 if link.partition is None else link.partition)
            match change:
                case Assigned():
                    self.grant(link, share)
                case Record(epoch=epoch):
                    assert share not in self.owners, "the old link is closed first"
                    assert epoch >= self.told.get(share, 0)
                    self.waiting.pop(link, None)
                    self.writes.append(Write(link, share, epoch))
                case Evicted(error=error):
                    assert error.condition == names.LINK_STOLEN
                    assert self.owners.pop(share) is link
                case Leaving(error=error):
                    assert error.condition == names.LINK_DETACH_FORCED
                    assert self.owners[share] is link
                    assert link.claim.partition is None, "who asked for a partition keeps it"
                    leaving[link.group] += 1
                case Refused():
                    assert link not in self.owners.values(), "what was granted is not refused"
                    self.waiting.pop(link, None)
        for group in leaving:
            assert self.now_ms - self.moved_ms.get(group, -PAUSE) >= PAUSE, "one move a pause"
            self.moved_ms[group] = self.now_ms

    def grant(self, link: GroupLink, share: Share) -> None:
        assert share not in self.owners, "one owner"
        self.owners[share] = link
        self.waiting.pop(link, None)
        assert link.state is GroupLinkState.OWNING
        assert link.claim.partition in (None, link.partition)
        assert link.epoch >= max(self.told.get(share, 0), link.claim.epoch or 0), (
            "epochs never fall, and nobody gets less than it gave"
        )
        assert link.epoch <= self.durable.get(share, 0), "what is told is on the disk"
        self.told[share] = link.epoch

    # -- what always holds

    @invariant()
    def owners_are_those_that_were_told_so(self) -> None:
        for group in GROUPS:
            for partition in range(self.partitions):
                assert self.ownership.owner(group, partition) is self.owners.get((group, partition))

    @invariant()
    def everybody_known_is_a_holder_and_nobody_else(self) -> None:
        recording = {write.link for write in self.writes if write.link.state is GroupLinkState.RECORDING}
        known = {*self.waiting, *self.owners.values(), *recording}
        assert {link for group in GROUPS for link in self.ownership.links(group)} == known

    @invariant()
    def no_partition_is_idle_while_somebody_waits(self) -> None:
        """Except the partitions that are reserved for a member that still wants them."""
        for group in {link.group for link in self.waiting}:
            known = self.ownership._groups[group]
            taken = {link.partition for link in self.ownership.links(group)}
            for partition in set(range(self.partitions)) - taken:
                reserved = known.slot(partition).reserved
                assert reserved is not None
                assert reserved in known.wants
                assert not known.waits(reserved)

    @invariant()
    def nothing_is_kept_of_groups_that_are_empty(self) -> None:
        for group in self.ownership.groups():
            assert not self.ownership._groups[group].idle


Groups.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
