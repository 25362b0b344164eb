"""The figures of a group: loads, demands, partitions that may be moved, and remembered members."""

import pytest

from amqp_streams.streams.groups.claims import Claim, GroupLink, GroupLinkState
from amqp_streams.streams.groups.group import Group, Want


@pytest.fixture
def group() -> Group:
    return Group("g")


def held(
    group: Group,
    partition: int,
    member: str,
    *,
    state: GroupLinkState = GroupLinkState.OWNING,
    asked: bool = False,
    reserved: str | None = None,
) -> GroupLink:
    link = GroupLink(Claim("g", partition if asked else None, None, member), 0, partition, 0, state)
    slot = group.slot(partition)
    slot.link, slot.taken = link, sum(each.link is not None for each in group.slots.values())
    group.reserve(slot, reserved)
    return link


def waiting(group: Group, member: str, since_ms: int = 0) -> GroupLink:
    link = GroupLink(Claim("g", None, None, member), since_ms)
    group.wait(link)
    group.wants.setdefault(member, Want(since_ms, since_ms))
    return link


def test_a_partition_of_a_leaving_member_counts_for_the_member_it_is_reserved_for(group: Group) -> None:
    held(group, 0, "a")
    held(group, 1, "a", state=GroupLinkState.LEAVING, reserved="b")
    held(group, 2, "a", state=GroupLinkState.LEAVING)
    held(group, 3, "c", state=GroupLinkState.RECORDING)
    group.reserve(group.slot(4), "b")
    assert group.loads() == {"a": 1, "b": 2, "c": 1}


def test_only_what_the_node_assigned_and_is_owned_may_be_moved_the_last_taken_first(group: Group) -> None:
    held(group, 4, "a")
    held(group, 2, "a")
    held(group, 1, "a", asked=True)
    held(group, 0, "a", state=GroupLinkState.LEAVING)
    held(group, 3, "a", state=GroupLinkState.RECORDING)
    assert group.movable() == {"a": [2, 4]}


def test_a_waiting_member_wants_its_waiting_links_less_the_partitions_in_handover(group: Group) -> None:
    for member, since_ms in (("late", 50), ("early", 10), ("late", 60), ("late", 60)):
        waiting(group, member, since_ms)
    held(group, 0, "a", state=GroupLinkState.LEAVING, reserved="late")
    assert list(group.wanted(100, 0).items()) == [("early", 1), ("late", 2)]
    assert group.wanted(100, 51) == {"early": 1}


def test_a_refused_member_wants_one_and_proves_it_by_coming_again(group: Group) -> None:
    group.wants["r"] = Want(since_ms=0, seen_ms=0)
    assert group.wanted(1000, 500) == {}
    group.wants["r"].seen_ms = 500
    assert group.wanted(1000, 500) == {"r": 1}


def test_a_partition_reserved_for_a_member_is_free_once_the_member_wants_no_more(group: Group) -> None:
    group.wants["r"] = Want(0, 0)
    waiting(group, "w")
    group.reserve(group.slot(0), "r")
    group.reserve(group.slot(1), "w")
    group.forget_wants(100, 100)
    assert [group.slot(index).reserved for index in (0, 1)] == ["r", "w"]
    group.forget_wants(101, 100)
    assert [group.slot(index).reserved for index in (0, 1)] == [None, "w"]
    assert set(group.wants) == {"w"}, "who waits is not forgotten, however long"


def test_a_group_is_idle_without_members_and_without_an_epoch(group: Group) -> None:
    assert group.idle
    waiting(group, "w")
    assert not group.idle
    other = Group("h")
    link = held(other, 0, "a")
    assert not other.idle
    written = Group("j")
    link.epoch = 3
    written.slot(0).writing.append(link)
    assert written.slot(0).issued == 3
    assert not written.idle
    recorded = Group("i")
    recorded.slot(0).recorded = 1
    assert not recorded.idle
