"""What homes have done."""

from amqp_streams.homes.counts import Counts
from tests.homed_node import HomedNode, MemoryHomes


def test_fences_count_and_takeovers_by_how_the_home_before_has_ended() -> None:
    node = HomedNode({"temps": 2})
    assert node.homes.home.counts == Counts(fences=16)
    node.homes.links.stop()
    node.homes.home.stop(node.clock())
    node.advance(1000)
    node.homes.alive = False
    node.homes = MemoryHomes(node, node.topic, "in order")
    node.advance(600)
    assert node.homes.home.counts == Counts(fences=16, in_order=16)
    assert node.homes.deciding(0) is not None
    node.homes.alive = False
    node.homes = MemoryHomes(node, node.topic, "after a loss")
    node.advance(600)
    assert node.homes.home.counts == Counts(fences=16, after_loss=16)
    assert node.homes.deciding(0) is None, "it waits for the lease of the lost home"
    node.advance(4000)
    assert node.homes.deciding(0) is not None
