"""Ownership: one link for each partition and group, epochs that never fall, a fair distribution. Spec: Event
Streams 4.5.
"""

import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.errors import StorageError
from amqp_streams.streams.groups.ownership import (
    Assigned,
    Claim,
    Evicted,
    GroupLinkState,
    Leaving,
    Ownership,
    Record,
    Refused,
)
from tests.amqp_streams.streams.groups.claiming import (
    HANDOVER,
    PAUSE,
    WAIT,
    any_of,
    joined,
    kinds,
    one,
    ownership,
    recorded,
    refusal,
)

# -- node-assigned: 4.5.1


def test_a_member_without_a_wish_gets_a_free_partition_at_once() -> None:
    owned = ownership()
    link, changes = owned.claim(any_of("a"), 0)
    assert changes == [Assigned(link)]
    assert (link.partition, link.epoch, link.state) == (0, 0, GroupLinkState.OWNING)
    assert owned.owner("g", 0) is link
    assert joined(owned, "b")[0].partition == 1


def test_a_partition_with_fewer_links_of_other_groups_goes_first() -> None:
    owned = ownership(3)
    owned.claim(one(0, group="other"), 0)
    assert joined(owned, "a")[0].partition == 1


def test_a_member_that_comes_back_gets_the_partition_it_had() -> None:
    owned = ownership(3)
    for member in "abc":
        joined(owned, member)
    for partition in (0, 1, 2):
        link = owned.owner("g", partition)
        assert link is not None
        if partition != 0:
            owned.release(link, 10)
    assert joined(owned, "c")[0].partition == 2
    assert joined(owned, "b")[0].partition == 1


def test_with_none_free_an_attach_waits_and_is_refused_when_its_time_is_up() -> None:
    owned = ownership(1)
    joined(owned, "a")
    link, changes = owned.claim(any_of("b"), 100)
    assert (link.state, changes) == (GroupLinkState.WAITING, [])
    assert owned.tick(100 + WAIT - 1) == []
    (refused,) = owned.tick(100 + WAIT)
    assert isinstance(refused, Refused)
    assert (refused.link, refused.error.condition) == (link, names.LINK_DETACH_FORCED)
    assert link.state is GroupLinkState.GONE
    assert owned.release(link, 100 + WAIT) == [], "the shell may say once more that it is gone"


def test_with_none_free_and_no_waiting_an_attach_is_refused_at_once() -> None:
    owned = ownership(1, wait_ms=0)
    joined(owned, "a")
    assert refusal(owned, any_of("b")).condition == names.LINK_DETACH_FORCED


def test_a_released_partition_goes_to_the_waiting_member_at_once() -> None:
    owned = ownership(1)
    (owner,) = joined(owned, "a")
    (second,), (third,) = joined(owned, "b"), joined(owned, "c")
    assert owned.release(owner, 10) == [Assigned(second)]
    assert owned.release(second, 20) == [Assigned(third)]
    assert third.partition == 0


def test_a_free_partition_goes_to_the_waiting_member_that_holds_fewest() -> None:
    owned = ownership(4)
    rich = joined(owned, "rich", 3)
    joined(owned, "other")
    joined(owned, "rich")
    (poor,) = joined(owned, "poor")
    assert owned.release(rich[0], 10) == [Assigned(poor)]


def test_a_caller_that_gives_up_waiting_gets_nothing() -> None:
    owned = ownership(1)
    (owner,) = joined(owned, "a")
    (waiting,) = joined(owned, "b")
    assert owned.release(waiting, 5) == []
    assert owned.release(owner, 10) == []
    assert owned.owner("g", 0) is None


# -- rebalance: 4.5.1


def test_partitions_move_to_a_member_that_has_waited_for_a_pause() -> None:
    owned = ownership(4)
    first = joined(owned, "a", 4)
    waiting = joined(owned, "b", 3)
    assert owned.tick(PAUSE - 1) == []
    changes = owned.tick(PAUSE)
    assert [change.link for change in changes if isinstance(change, Leaving)] == [first[3], first[2]]
    for change in changes:
        assert isinstance(change, Leaving)
        assert (change.error.condition, change.within_ms) == (names.LINK_DETACH_FORCED, HANDOVER)
        assert "rebalance" in change.error.description
        assert change.link.owning, "until it is released nobody else is assigned"
        assert owned.owner("g", change.link.partition or 0) is change.link
    assert owned.tick(5 * PAUSE) == [], "what is on its way counts"
    (back,) = joined(owned, "a", 1, PAUSE + 1)
    assert owned.release(first[3], PAUSE + 2) == [Assigned(waiting[0])]
    assert owned.release(first[2], PAUSE + 3) == [Assigned(waiting[1])]
    assert back.state is GroupLinkState.WAITING


def test_a_partition_asked_for_by_its_number_is_never_moved() -> None:
    owned = ownership(4)
    for partition in range(4):
        owned.claim(one(partition, member="a"), 0)
    joined(owned, "b")
    assert [owned.tick(now) for now in range(0, WAIT, 1000)] == [[]] * 30


def test_a_move_happens_at_most_once_a_pause() -> None:
    owned = ownership(8)
    joined(owned, "a", 8)
    joined(owned, "b")
    assert kinds(owned.tick(PAUSE)) == [Leaving]
    joined(owned, "b", 1, PAUSE)
    assert owned.tick(2 * PAUSE - 1) == []
    assert kinds(owned.tick(2 * PAUSE)) == [Leaving]


def test_a_partition_freed_for_an_ended_member_goes_to_the_others() -> None:
    owned = ownership(2)
    first = joined(owned, "a", 2)
    (waiting,) = joined(owned, "b")
    owned.tick(PAUSE)
    owned.release(waiting, PAUSE + 1)
    (other,) = joined(owned, "c", 1, PAUSE + 2)
    assert owned.release(first[1], PAUSE + 3) == [Assigned(other)]


def test_a_refused_member_that_comes_again_is_made_room_for() -> None:
    """Without waiting the node sees members only when they ask."""
    owned = ownership(2, wait_ms=0)
    first = joined(owned, "a", 2)
    for now in (0, 1000, 2000, 2999):
        refusal(owned, any_of("b"), now)
        assert owned.tick(now) == []
    refusal(owned, any_of("b"), PAUSE)
    assert kinds(owned.tick(PAUSE)) == [Leaving]
    assert owned.release(first[1], PAUSE + 10) == []
    assert refusal(owned, any_of("a"), PAUSE + 20).condition == names.LINK_DETACH_FORCED, "it is reserved"
    assert owned.claim(any_of("b"), PAUSE + 500)[0].partition == 1


def test_partitions_freed_for_an_absent_refused_member_are_free_after_two_pauses() -> None:
    owned = ownership(2, wait_ms=0)
    first = joined(owned, "a", 2)
    for now in (0, PAUSE):
        refusal(owned, any_of("b"), now)
    owned.tick(PAUSE)
    owned.release(first[1], PAUSE)
    owned.tick(3 * PAUSE)
    refusal(owned, any_of("c"), 3 * PAUSE)
    owned.tick(3 * PAUSE + 1)
    assert owned.claim(any_of("c"), 3 * PAUSE + 1)[0].partition == 1


def test_a_member_refused_once_moves_nothing() -> None:
    owned = ownership(2, wait_ms=0)
    joined(owned, "a", 2)
    refusal(owned, any_of("b"))
    assert [change for now in range(0, 10 * PAUSE, 500) for change in owned.tick(now)] == []


def test_a_member_that_was_refused_after_waiting_still_counts_as_waiting() -> None:
    """Otherwise nothing would ever move where waits are shorter than the pause."""
    owned = ownership(2, wait_ms=PAUSE // 2)
    joined(owned, "a", 2)
    for now in (0, PAUSE // 2):
        joined(owned, "b", 1, now)
        owned.tick(now)
        assert kinds(owned.tick(now + PAUSE // 2))[0] is Refused
    assert [link.state for link in owned.links("g")] == [GroupLinkState.OWNING, GroupLinkState.LEAVING]


# -- consumer-negotiated: 4.5.2


def test_the_epoch_begins_at_0_and_a_claim_without_one_learns_it() -> None:
    owned = ownership()
    link, changes = owned.claim(one(0), 0)
    assert (link.epoch, changes) == (0, [Assigned(link)])
    owned.release(link, 0)
    recorded_link = recorded(owned, one(0, 7))
    owned.release(recorded_link, 0)
    assert owned.claim(one(0), 0)[0].epoch == 7
    assert owned.epoch("g", 0) == 7
    assert (owned.epoch("g", 1), owned.epoch("unknown", 0)) == (0, 0)


@pytest.mark.parametrize("epoch", [None, 0, 6, 7])
def test_an_active_link_keeps_its_partition_against_any_epoch_not_greater(epoch: int | None) -> None:
    owned = ownership()
    active = recorded(owned, one(0, 7))
    error = refusal(owned, one(0, epoch))
    assert (error.condition, error.info[names.EPOCH]) == (names.RESOURCE_LOCKED, "7")
    assert owned.owner("g", 0) is active


def test_a_greater_epoch_closes_the_old_link_first_and_is_reported_after_it_is_recorded() -> None:
    owned = ownership()
    old = recorded(owned, one(0, 7))
    new, changes = owned.claim(one(0, 8), 0)
    evicted, record = changes
    assert isinstance(evicted, Evicted)
    assert (evicted.link, evicted.error.condition) == (old, names.LINK_STOLEN)
    assert record == Record(new, "g", 0, 8)
    assert (old.state, new.state, owned.owner("g", 0), owned.epoch("g", 0)) == (
        GroupLinkState.GONE,
        GroupLinkState.RECORDING,
        None,
        7,
    )
    assert owned.recorded(new, None, 0) == [Assigned(new)]
    assert (owned.owner("g", 0), owned.epoch("g", 0), new.epoch) == (new, 8, 8)
    assert owned.release(old, 0) == []
    assert owned.owner("g", 0) is new


def test_without_an_active_link_the_same_epoch_is_granted_and_a_lower_one_refused() -> None:
    owned = ownership()
    owned.release(recorded(owned, one(0, 7)), 0)
    error = refusal(owned, one(0, 6))
    assert (error.condition, error.info[names.EPOCH]) == (names.RESOURCE_LOCKED, "7")
    link, changes = owned.claim(one(0, 7), 0)
    assert (link.epoch, changes) == (7, [Assigned(link)])


def test_an_epoch_that_could_not_be_recorded_is_refused_and_the_old_one_stays() -> None:
    owned = ownership()
    recorded(owned, one(0, 7))
    new, _ = owned.claim(one(0, 8), 0)
    (waiting,) = [link for link in joined(owned, "w", 2) if link.state is GroupLinkState.WAITING]
    refused, assigned = owned.recorded(new, StorageError("no"), 0)
    assert isinstance(refused, Refused)
    assert (refused.link, refused.error.condition) == (new, names.INTERNAL_ERROR)
    assert assigned == Assigned(waiting), "the partition is free again"
    assert (waiting.epoch, owned.epoch("g", 0)) == (7, 7)


def test_a_claim_that_is_being_recorded_can_be_overtaken_and_is_then_refused() -> None:
    owned = ownership()
    first, _ = owned.claim(one(0, 5), 0)
    assert refusal(owned, one(0, 5)).info[names.EPOCH] == "0", "5 is not on the disk yet"
    assert refusal(owned, one(0)).condition == names.RESOURCE_LOCKED
    second, changes = owned.claim(one(0, 6), 0)
    refused, record = changes
    assert isinstance(refused, Refused)
    assert (refused.link, refused.error.condition, record) == (
        first,
        names.LINK_STOLEN,
        Record(second, "g", 0, 6),
    )
    assert owned.recorded(first, None, 0) == []
    assert owned.epoch("g", 0) == 5
    assert owned.recorded(second, None, 0) == [Assigned(second)]


def test_an_epoch_that_is_being_recorded_for_an_ended_link_binds_the_next_link() -> None:
    """The write may become durable at any moment. A lower epoch after it would make the stored epoch
    decrease.
    """
    owned = ownership()
    lost, _ = owned.claim(one(0, 5), 0)
    assert owned.release(lost, 0) == []
    assert refusal(owned, one(0, 4)).condition == names.RESOURCE_LOCKED
    next_, changes = owned.claim(one(0), 0)
    assert changes == [Record(next_, "g", 0, 5)]
    assert owned.recorded(lost, StorageError("no"), 0) == []
    assert owned.recorded(next_, None, 0) == [Assigned(next_)]
    assert next_.epoch == 5


def test_epochs_recorded_earlier_are_known_from_the_start() -> None:
    owned = Ownership(2, GroupSettings(), epochs={("g", 1): 9})
    assert refusal(owned, one(1, 8)).info[names.EPOCH] == "9"
    assert owned.claim(any_of("a"), 0)[0].epoch == 0
    assert owned.claim(any_of("a"), 0)[0].epoch == 9, "told in every attach to a group"


def test_the_groups_that_it_knows_are_reported_as_they_come_and_go() -> None:
    told: list[tuple[str, bool]] = []
    owned = Ownership(
        1, GroupSettings(wait_ms=0), epochs={("old", 0): 9}, on_known=lambda *one: told.append(one)
    )
    (link,) = joined(owned, "a")
    assert told == [("g", True)]
    owned.release(link, 0)
    owned.remove("old")
    owned.remove("never")
    assert told == [("g", True), ("g", False), ("old", False)]
    assert owned.groups() == []


def test_a_member_assigned_by_the_node_can_be_evicted_by_an_epoch() -> None:
    owned = ownership(1)
    (old,) = joined(owned, "a")
    new, changes = owned.claim(one(0, 1), 0)
    assert kinds(changes) == [Evicted, Record]
    owned.recorded(new, None, 0)
    assert (old.state, owned.owner("g", 0)) == (GroupLinkState.GONE, new)


def test_a_link_asked_to_leave_can_be_evicted_and_what_was_promised_is_forgotten() -> None:
    owned = ownership(2)
    first = joined(owned, "a", 2)
    (waiting,) = joined(owned, "b")
    owned.tick(PAUSE)
    assert kinds(owned.claim(one(1, 1, "z"), PAUSE)[1]) == [Evicted, Record]
    assert owned.release(first[1], PAUSE) == []
    assert waiting.state is GroupLinkState.WAITING
    assert owned.release(first[0], PAUSE + 1) == [Assigned(waiting)]


def test_an_epoch_needs_a_partition_unless_the_log_has_only_one() -> None:
    error = refusal(ownership(2), Claim("g", None, 3, "a"))
    assert (error.condition, names.PARTITION in error.description) == (names.INVALID_FIELD, True)
    link, changes = ownership(1).claim(Claim("g", None, 3, "a"), 0)
    assert changes == [Record(link, "g", 0, 3)]


def test_epochs_without_a_group_are_a_scope_of_their_own() -> None:
    owned = ownership()
    unnamed, named = recorded(owned, one(0, 1, group="")), recorded(owned, one(0, 1))
    assert (owned.owner("", 0), owned.owner("g", 0)) == (unnamed, named)


# -- limits and views


def test_groups_are_limited_and_those_without_links_and_epochs_do_not_count() -> None:
    owned = ownership(groups_max=2)
    link = recorded(owned, one(0, 1, group="a"))
    other, _ = owned.claim(one(0, group="b"), 0)
    error = refusal(owned, one(0, group="c"))
    assert (error.condition, "'groups'" in error.description) == (names.RESOURCE_LIMIT_EXCEEDED, True)
    owned.release(link, 0)
    assert owned.groups() == ["a", "b"], "its epoch is to be known forever"
    owned.release(other, 0)
    assert owned.claim(one(0, group="c"), 0)


def test_a_refused_claim_leaves_no_group_behind() -> None:
    owned = ownership()
    refusal(owned, Claim("g", None, 3, "a"))
    assert owned.groups() == []


def test_attaches_that_wait_are_limited() -> None:
    owned = ownership(1, waiting_max=2)
    joined(owned, "a", 3)
    error = refusal(owned, any_of("b"))
    assert (error.condition, "'group_waiting'" in error.description) == (names.RESOURCE_LIMIT_EXCEEDED, True)


def test_members_remembered_are_limited() -> None:
    """A peer chooses any container-ids."""
    owned = ownership(1, wait_ms=0, waiting_max=2)
    joined(owned, "a")
    for member in range(100):
        refusal(owned, any_of(f"m{member}"))
    assert len(owned._groups["g"].wants) == 2


def test_only_configured_groups_can_be_joined() -> None:
    owned = ownership(only=("g",))
    joined(owned, "a")
    assert refusal(owned, any_of("a", "h")).condition == names.NOT_FOUND


def test_settings_can_change_at_any_time() -> None:
    owned = ownership(1)
    joined(owned, "a", 2)
    owned.settings = GroupSettings(wait_ms=10)
    assert kinds(owned.tick(10)) == [Refused]


def test_the_links_of_a_group_are_listed_by_partition_then_the_waiting_ones() -> None:
    owned = ownership()
    owned.claim(one(1), 0)
    owned.claim(any_of("a"), 0)
    owned.claim(any_of("b"), 0)
    assert [(link.partition, link.member) for link in owned.links("g")] == [(0, "a"), (1, "m"), (None, "b")]
    assert owned.links("unknown") == ()
    assert owned.owner("unknown", 0) is None


def test_a_removed_group_begins_again() -> None:
    owned = ownership()
    link = recorded(owned, one(0, 7))
    with pytest.raises(AssertionError, match="in use"):
        owned.remove("g")
    owned.release(link, 0)
    lost, _ = owned.claim(one(1, 9), 0)
    owned.release(lost, 0)
    owned.remove("g")
    owned.remove("g")
    assert owned.recorded(lost, None, 0) == []
    assert owned.groups() == []
    assert owned.claim(one(0), 0)[0].epoch == 0
