"""Links of which homes decide: when they send, pause, are closed, and what their receivers are told."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.homes import reporting
from amqp_streams.server.homes.link_shell import CUT_MS
from amqp_streams.testing_amqp import EnginePair, Receiving, filter_of
from tests.homed_node import HomedNode, MemoryHomes

EARLIEST = filter_of("@earliest")
SECOND = (proton.Link.SND_UNSETTLED, proton.Link.RCV_SECOND)
BODIES = [b"%d" % number for number in range(6)]
LEASE_MS = 3000
PAUSED_MS = 30_000


def homed(partitions: int = 1, **given: Any) -> HomedNode:
    node = HomedNode({"temps": partitions}, **given)
    node.append("temps", *BODIES)
    return node


def member(node: HomedNode, container: str, **given: Any) -> tuple[EnginePair, Receiving]:
    pair = EnginePair(node, container=container)
    options: dict[str, Any] = {
        "group": "g",
        "name": "link",
        "durable": True,
        "filters": EARLIEST,
        "credit": 100,
    } | given
    return pair, pair.receiver("temps", **options)


def settle(pair: EnginePair, receiver: Receiving, count: int | None = None) -> None:
    for arrived in receiver.arrived[:count]:
        pair.settle(arrived)
    pair.node.run()


def settled(receiver: Receiving) -> int:
    return sum(arrived.delivery.settled for arrived in receiver.arrived)


def test_an_attach_is_answered_with_partition_and_epoch_and_begins_at_the_cursor() -> None:
    node = homed()
    pair, first = member(node, "a", partition=0, epoch=4)
    assert first.answered == {names.PARTITION: "0", names.CONSUMER_GROUP: "g", names.EPOCH: 4}
    assert first.bodies == BODIES
    settle(pair, first, 4)
    pair.detach(first)
    _, second = member(node, "b", partition=0)
    assert second.answered[names.EPOCH] == 4
    assert second.bodies == BODIES[4:]


def test_a_greater_epoch_evicts_and_the_old_link_gets_nothing_more() -> None:
    node = homed()
    _, first = member(node, "a", partition=0, epoch=1)
    _, equal = member(node, "b", partition=0, epoch=1)
    assert equal.refused == names.RESOURCE_LOCKED
    _, second = member(node, "c", partition=0, epoch=2)
    assert first.refused == names.LINK_STOLEN
    node.append("temps", b"more")
    node.run()
    assert first.bodies == BODIES
    assert second.bodies == [*BODIES, b"more"], "nothing was settled"


def test_the_same_durable_link_attached_again_steals_it() -> None:
    node = homed()
    pair, first = member(node, "a", group=None)
    settle(pair, first, 2)
    _, second = member(node, "a", group=None)
    assert first.refused == names.LINK_STOLEN
    assert second.bodies == BODIES[2:]


def test_a_process_that_was_killed_loses_only_what_was_settled_in_the_last_second() -> None:
    node = homed()
    pair, first = member(node, "a", group=None)
    settle(pair, first, 5)
    node.advance(1500)
    node.homes.alive = node.homes.reachable = False
    node.disconnect(pair)
    node.homes = MemoryHomes(node, node.topic, "next process")
    _, second = member(node, "a", group=None)
    assert second.pending, "the lease of the home before may be in force"
    node.advance(LEASE_MS + 1000)
    assert second.bodies == BODIES[5:]


def test_links_pause_when_their_home_is_away_and_continue_when_it_is_back() -> None:
    node = homed()
    _, receiver = member(node, "a", partition=0)
    node.topic.away = True
    node.advance(LEASE_MS - 1500)
    node.append("temps", b"in the lease")
    node.run()
    assert receiver.bodies == [*BODIES, b"in the lease"]
    node.advance(2000)
    node.append("temps", b"after the lease")
    node.advance(PAUSED_MS // 2)
    assert receiver.bodies[-1] == b"in the lease"
    assert receiver.refused is None
    node.topic.away = False
    node.advance(200)
    assert receiver.bodies[-1] == b"after the lease"


def test_a_drain_is_not_answered_while_the_link_is_paused() -> None:
    node = homed()
    pair, receiver = member(node, "a", partition=0)
    node.homes.reachable = False
    node.advance(LEASE_MS + 100)
    node.append("temps", b"later")
    receiver.link.drain(100)
    node.run()
    assert receiver.link.draining()
    assert receiver.link.credit > 0
    node.homes.reachable = True
    node.advance(1100)
    assert receiver.bodies[-1] == b"later"
    assert receiver.link.credit == 0
    assert not pair.lost


def test_paused_links_are_closed_after_half_a_minute() -> None:
    node = homed()
    _, receiver = member(node, "a", partition=0)
    node.homes.reachable = False
    _, waiting = member(node, "b", partition=0)
    node.advance(LEASE_MS + PAUSED_MS + 1500)
    assert receiver.refused == names.LINK_DETACH_FORCED
    assert waiting.refused == names.LINK_DETACH_FORCED
    assert "cannot be reached" in str(waiting.link.remote_condition)


def test_a_client_that_does_not_read_is_cut_before_its_grant_ends() -> None:
    """Otherwise it would get old events after the next owner has begun."""
    node = homed(limits=Limits(connection_pending_bytes=1 << 16))
    slow, receiver = member(node, "a", partition=0)
    quick, other = member(node, "b", group="h", partition=0)
    slow.channel.stuck = True
    node.append("temps", b"x" * 100)
    node.run()
    node.homes.reachable = False
    node.advance(LEASE_MS - 1500)
    assert not slow.channel.closing
    node.advance(1500 - CUT_MS + 50)
    assert slow.channel.closing
    assert slow.channel.pending() == 0, "what waited was thrown away"
    assert len(receiver.arrived) == len(BODIES)
    assert not quick.channel.closing
    assert other.refused is None


def test_a_stop_of_the_process_in_a_write_closes_the_link() -> None:
    node = homed()
    _, receiver = member(node, "a", partition=0)
    consumer = next(iter(node.service.node.consumers()))
    link = node.service.effects.consumer(consumer)
    assert link is not None
    node.homes.reachable = False
    node.clock.now_ms += LEASE_MS + 10
    node.homes.links.wrote(link)
    node.run()
    assert receiver.refused == names.LINK_DETACH_FORCED


def test_a_stop_of_the_process_before_a_grant_is_answered_refuses_the_attach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another link may have been granted the partition since."""
    node = homed()
    links = node.homes.links
    carry_out = links._carry_out

    def stopped(effect: reporting.Effect) -> None:
        if isinstance(effect, reporting.Granted):
            node.clock.now_ms += LEASE_MS + 10
        carry_out(effect)

    monkeypatch.setattr(links, "_carry_out", stopped)
    pair, receiver = member(node, "a", partition=0)
    assert receiver.refused == names.LINK_DETACH_FORCED
    assert not receiver.arrived
    monkeypatch.undo()
    _, again = member(node, "b", partition=0)
    assert again.bodies == BODIES
    assert not pair.channel.closing


@pytest.mark.parametrize("durable_ms", [200, 2500])
def test_a_receiver_that_settles_second_is_answered_when_its_position_is_in_the_topic(
    durable_ms: int,
) -> None:
    node = homed(groups=GroupSettings(cursor_flush_ms=100))
    _, receiver = member(node, "a", partition=0, settle=SECOND)
    node.topic.away = True
    for arrived in receiver.arrived[:4]:
        arrived.delivery.update(proton.Delivery.ACCEPTED)
    node.advance(durable_ms)
    assert settled(receiver) == 0
    node.topic.away = False
    node.advance(400)
    assert settled(receiver) == 4
    # The first one again: nothing moves, so nothing is written.
    receiver.arrived[4].delivery.update(proton.Delivery.ACCEPTED)
    node.advance(400)
    assert settled(receiver) == 5


def test_a_receiver_that_settles_out_of_order_is_answered_as_well() -> None:
    node = homed(groups=GroupSettings(cursor_flush_ms=100))
    _, receiver = member(node, "a", partition=0, settle=SECOND)
    for number in (5, 3, 1):
        receiver.arrived[number].delivery.update(proton.Delivery.ACCEPTED)
        node.advance(300)
    assert settled(receiver) == 3


def test_links_without_a_container_are_not_the_same_link() -> None:
    node = homed(2)
    _, first = member(node, "", durable=False)
    _, second = member(node, "", durable=False)
    assert first.refused is None
    assert second.refused is None
    assert {first.answered[names.PARTITION], second.answered[names.PARTITION]} == {"0", "1"}


def test_members_share_the_partitions_and_hand_over_what_they_have_settled() -> None:
    node = homed(2, groups=GroupSettings(pause_ms=500, handover_ms=2000))
    pair, first = member(node, "a")
    _, second = member(node, "a", name="other")
    assert {first.answered[names.PARTITION], second.answered[names.PARTITION]} == {"0", "1"}
    other_pair, third = member(node, "b")
    assert third.pending
    settle(pair, first)
    settle(pair, second)
    node.advance(3000)
    assert not third.pending
    assert names.RESOURCE_LOCKED not in {first.refused, second.refused}
    gone = [each for each in (first, second) if each.refused is not None]
    assert len(gone) == 1
    assert not other_pair.lost


def test_the_positions_of_a_link_that_ends_are_written_when_the_node_stops() -> None:
    node = homed()
    pair, receiver = member(node, "a", group=None)
    settle(pair, receiver, 3)
    node.disconnect(pair)
    node.homes.links.stop()
    node.advance(200)
    assert not node.homes.links.busy
    node.homes.home.stop(node.clock())
    node.advance(1000)
    assert node.homes.left
    node.homes.alive = False
    node.homes = MemoryHomes(node, node.topic, "next process")
    node.advance(600)
    _, second = member(node, "a", group=None)
    assert second.bodies == BODIES[3:], "without a wait for the lease"


def test_many_links_that_claim_one_partition_are_answered_together() -> None:
    node = homed(limits=Limits(links=2000))
    pair = EnginePair(node, container="many")
    node.homes.reachable = False
    receivers = [pair.session.receiver(f"{number}") for number in range(300)]
    for receiver in receivers:
        receiver.source.address = "temps"
        receiver.properties = {
            proton.symbol(names.CONSUMER_GROUP): "one",
            proton.symbol(names.PARTITION): proton.symbol("0"),
        }
        receiver.open()
    node.run()
    node.homes.reachable = True
    node.advance(1500)
    refused = [each for each in receivers if each.remote_condition is not None]
    assert len(refused) == 299, "one group has one owner of the partition"
