"""Links that wait until an earlier owner cannot send any more."""

from amqp_streams.homes.barriers import Barriers
from amqp_streams.homes.sessions import Claimant, State
from tests.amqp_streams.homes.stage import LOG, own_cursor


def claimant(node: str, number: int) -> Claimant:
    """All want the same cursor."""
    return Claimant(node, number, own_cursor("c"), LOG)


def test_a_link_is_ready_when_each_earlier_owner_has_stopped_or_its_grant_is_over() -> None:
    ready: list[Claimant] = []
    barriers = Barriers(ready.append)
    barriers.add(claimant("a", 1), 100)
    barriers.add(claimant("b", 2), 200)
    new = claimant("c", 3)
    assert barriers.bar(new)
    assert new.state is State.BARRED
    assert barriers.nodes == {"a", "b"}
    barriers.stopped("a", {1})
    barriers.stopped("a", {7})
    barriers.expire(200)
    assert not ready
    barriers.expire(201)
    assert ready == [new]
    assert not barriers.bar(claimant("d", 4))


def test_a_link_that_has_ended_is_not_ready_later() -> None:
    ready: list[Claimant] = []
    barriers = Barriers(ready.append)
    barriers.add(claimant("a", 1), 100)
    new = claimant("c", 3)
    assert barriers.bar(new)
    barriers.forget(new)
    barriers.stopped("a", set())
    assert not ready
