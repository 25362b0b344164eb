"""Partitions that another container has: links are redirected, and follow partitions that move.

Spec: Event Streams 4.4; AMQP 2.6.7.
"""

import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.policy import Redirect
from amqp_streams.streams.attach import (
    Closed,
    Denied,
    Informing,
    Pending,
    Producing,
)
from amqp_streams.streams.redirects import Redirects
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.node.bench import EARLIEST, Bench, attach, elsewhere, member

WAITING = GroupSettings(wait_ms=30_000, pause_ms=3000, handover_ms=10_000)


@pytest.fixture
def bench() -> Bench:
    return Bench(groups=WAITING)


# -- partitions that go elsewhere


def test_links_to_partitions_elsewhere_learn_where(bench: Bench) -> None:
    """AMQP 2.8.18; Event Streams 4: the node MAY "point to a different AMQP container"."""
    bench.node.redirects = elsewhere(1)
    bound = {names.PARTITION: Symbol("1")}
    for request in (
        attach(properties=bound),
        attach(consumer=True, properties=bound),
        member(partition=1, epoch=1),
    ):
        error = bench.refusal(request)
        assert (error.condition, error.info["network-host"]) == (names.LINK_REDIRECT, "other.example")
    assert [each.index for each in bench.consume().partitions] == [0]
    assert bench.consume(member()).partitions == bench.log.partitions[:1]
    assert isinstance(bench.attach(member()), Pending), "nobody is assigned what is elsewhere"
    bench.node.redirects = elsewhere()
    assert (
        bench.refusal(attach()).condition
        == bench.refusal(attach(consumer=True)).condition
        == names.LINK_REDIRECT
    )
    assert isinstance(bench.attach(attach("temps/$info", consumer=True)), Informing)
    assert bench.refusal(attach("nowhere", consumer=True)).condition == names.NOT_FOUND


def test_a_log_that_is_elsewhere_need_not_be_here(bench: Bench) -> None:
    bench.node.redirects = Redirects([Redirect(log="far", host="other.example", port=5672)])
    for request in (attach("far"), attach("far", consumer=True), attach("far/$info", consumer=True)):
        assert bench.refusal(request).condition == names.LINK_REDIRECT


def test_links_follow_partitions_that_move(bench: Bench) -> None:
    """4.5.1, 4.6.5: the partitions of an agnostic link change while it is attached, and its next transfer
    names the partition. Bound links are closed.
    """
    agnostic, empty = bench.consume(filters=EARLIEST), bench.consume()
    bound, owner = (
        bench.consume(properties={names.PARTITION: Symbol("1")}),
        bench.consume(member(partition=1)),
    )
    producers = [bench.attach(attach(properties={names.PARTITION: Symbol("1")})), bench.attach(attach())]
    bench.append(0, 1)
    assert bench.read(agnostic) == [(0, 0), (1, 0)]
    agnostic.announce = False
    bench.node.redirects = elsewhere(1)
    assert bench.node.reassociate() == {agnostic, empty}
    closed = bench.node.take_effects()
    assert {each.grant for each in closed if isinstance(each, Closed)} == {bound, owner, producers[0]}
    assert {each.error.condition for each in closed if isinstance(each, Closed)} == {names.LINK_REDIRECT}
    assert isinstance(producers[1], Producing)
    assert set(producers[1].elsewhere) == {1}
    assert (agnostic.announce, agnostic.partitions) == (True, bench.log.partitions[:1])
    bench.append(0, 1)
    assert bench.read(agnostic) == [(0, 1)], "what stays goes on where it was"
    assert bench.append(1) == set(), "nobody waits for what is elsewhere"
    bench.node.redirects = Redirects()
    assert bench.node.reassociate() == {agnostic, empty}
    assert bench.read(agnostic) == [(1, 1), (1, 2)], "what comes back goes on where it was, too"
    assert bench.node.reassociate() == set()
    bench.node.redirects = elsewhere()
    assert bench.node.reassociate() == set()
    assert {each.grant for each in bench.node.take_effects() if isinstance(each, Closed)} == {
        agnostic,
        empty,
        producers[1],
    }


def test_a_claim_that_is_being_recorded_goes_with_its_partition(bench: Bench) -> None:
    waiting = bench.attach(member(partition=1, epoch=1))
    bench.node.redirects = elsewhere(1)
    bench.node.reassociate()
    (denied,) = bench.node.take_effects()
    assert isinstance(denied, Denied)
    assert (denied.pending, denied.error.condition) == (waiting, names.LINK_REDIRECT)
    assert bench.complete() == []
