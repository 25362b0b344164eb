"""Which buckets are here, from what the group says."""

from amqp_streams.homes.membership import Drain, Drop, Effect, GivenBack, Leave, Membership, Open


def taken(membership: Membership) -> list[Effect]:
    effects = list(membership.effects)
    membership.effects.clear()
    return effects


def member(*buckets: int) -> Membership:
    membership = Membership()
    membership.assigned(1, buckets)
    taken(membership)
    return membership


def test_what_is_assigned_is_opened_once() -> None:
    membership = Membership()
    membership.assigned(1, [2, 1])
    membership.assigned(2, [2, 1, 3])
    assert taken(membership) == [Open(1), Open(2), Open(3)]


def test_an_assignment_of_an_earlier_generation_changes_nothing() -> None:
    membership = member(1)
    membership.assigned(1, [1, 2])
    membership.assigned(0, [])
    assert not taken(membership)
    assert membership.buckets == {1}


def test_a_bucket_is_given_back_after_its_home_has_left_it() -> None:
    membership = member(1, 2)
    membership.revoking(2, [2])
    assert taken(membership) == [Drain(2)]
    membership.revoking(2, [2])
    assert not taken(membership)
    membership.left(2)
    assert taken(membership) == [GivenBack(2, frozenset({2}))]
    membership.assigned(3, [1])
    assert not taken(membership)


def test_what_was_taken_away_without_asking_is_dropped() -> None:
    membership = member(1, 2)
    membership.assigned(2, [2])
    assert taken(membership) == [Drop(1)]
    membership.lost()
    assert taken(membership) == [Drop(2)]
    assert not membership.buckets


def test_a_node_that_stops_leaves_the_group_after_its_last_bucket() -> None:
    membership = member(1, 2)
    membership.stop()
    assert taken(membership) == [Drain(1), Drain(2)]
    membership.assigned(2, [1, 2, 3])
    membership.left(1)
    assert not taken(membership)
    membership.left(2)
    assert taken(membership) == [Leave()]


def test_a_node_without_buckets_leaves_at_once() -> None:
    membership = Membership()
    membership.stop()
    assert taken(membership) == [Leave()]
