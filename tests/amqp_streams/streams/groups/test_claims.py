"""The claims in a consumer's link properties, and the valid names of groups.

Spec: Event Streams 4.5, 4.6.2, 4.6.3.
"""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.streams.groups.claims import (
    Claim,
    GroupLink,
    GroupLinkState,
    check_configured,
    is_group_name,
    requested_claim,
)
from amqp_streams.wire.codec import Int, Long, Symbol, UInt, ULong, Value


def claimed(partition: int | None = None, **properties: Value) -> Claim | None:
    named = {
        {"group": names.CONSUMER_GROUP, "epoch": names.EPOCH}[key]: value for key, value in properties.items()
    }
    return requested_claim(named, partition, "me")


def test_without_a_group_and_an_epoch_nothing_is_claimed() -> None:
    assert claimed() is None
    assert claimed(3) is None


def test_a_group_is_claimed_with_or_without_a_partition_and_an_epoch() -> None:
    assert claimed(group="g") == Claim("g", None, None, "me")
    assert claimed(2, group="g", epoch=ULong(7)) == Claim("g", 2, 7, "me")


@pytest.mark.parametrize("epoch", [0, Int(5), Long(5), UInt(5), ULong(2**64 - 1)])
def test_an_epoch_is_any_whole_number_from_0(epoch: int) -> None:
    """The specification defines it as long in one section and as ulong in another."""
    claim = claimed(0, group="g", epoch=epoch)
    assert claim is not None
    assert claim.epoch == int(epoch)
    assert type(claim.epoch) is int


@pytest.mark.parametrize("epoch", [-1, True, False, "7", 1.0, 2**64, Symbol("7")])
def test_anything_else_is_not_an_epoch(epoch: Value) -> None:
    with pytest.raises(PeerError) as refusal:
        claimed(0, group="g", epoch=epoch)
    assert refusal.value.condition == names.INVALID_FIELD
    assert names.EPOCH in refusal.value.description


def test_an_epoch_without_a_group_is_for_one_partition_in_the_unnamed_scope() -> None:
    assert claimed(1, epoch=3) == Claim("", 1, 3, "me")
    with pytest.raises(PeerError, match="name it in link property") as refusal:
        claimed(epoch=3)
    assert refusal.value.condition == names.INVALID_FIELD


@pytest.mark.parametrize("group", ["", "x" * 256, "a\nb", "a\x7fb", "a\x85", 7, b"g"])
def test_a_group_has_a_name_of_1_to_255_characters_without_controls(group: Value) -> None:
    with pytest.raises(PeerError) as refusal:
        claimed(group=group)
    assert refusal.value.condition == names.INVALID_FIELD
    assert names.CONSUMER_GROUP in refusal.value.description


def test_names_of_groups_may_have_any_other_character() -> None:
    assert all(map(is_group_name, ("$Default", "a b", "Gruppe/Ä", "x" * 255, "群")))
    assert claimed(group=Symbol("g")) == Claim("g", None, None, "me")


def test_only_configured_groups_exist_when_a_setting_names_them() -> None:
    check_configured("anything", ())
    check_configured("billing-7", ("audit", "billing-*"))
    check_configured("", ("audit",))
    with pytest.raises(PeerError, match=r"groups\.only") as refusal:
        check_configured("Audit", ("audit",))
    assert refusal.value.condition == names.NOT_FOUND


def test_only_owners_and_leaving_members_may_have_events() -> None:
    link = GroupLink(Claim("g", None, None, "me"), 0)
    assert (link.group, link.member) == ("g", "me")
    owning = set()
    for state in GroupLinkState:
        link.state = state
        if link.owning:
            owning.add(state)
    assert owning == {GroupLinkState.OWNING, GroupLinkState.LEAVING}
