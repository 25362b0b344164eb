"""Messages of which only a part has arrived: a peer that does not finish them does not stop others."""

from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.policy import Quota
from amqp_streams.server.identity.guard import Login
from amqp_streams.server.links.link import Pause
from amqp_streams.testing_amqp import InMemoryNode, MemoryChannel, ScriptedPeer
from amqp_streams.wire.types import Described

EVENT = b"\x00\x53\x75\xa0\x05event"
LARGE = b"\x00\x53\x75\xb0\x00\x09\x27\xc0" + bytes(600_000)
LIMITS = Limits(pending_bytes=1 << 20, message_bytes=1 << 20, idle_timeout_ms=10_000)


def small_node(**options: Any) -> InMemoryNode:
    return InMemoryNode({"temps": 1}, limits=LIMITS, **options)


def peer_of(node: InMemoryNode, user: str | None = None) -> ScriptedPeer:
    peer = ScriptedPeer(node, login=Login(user)) if user else ScriptedPeer(node)
    peer.open()
    return peer


def condition(peer: ScriptedPeer) -> list[tuple[object, object]]:
    """The links that were closed by handle, and why."""
    found: list[tuple[object, object]] = []
    for detach in peer.take("detach"):
        error = detach.fields["error"]
        assert isinstance(error, Described)
        assert isinstance(error.value, list)
        found.append((detach.fields["handle"], error.value[0]))
    return found


def begin(peer: ScriptedPeer, handle: int, size: int) -> None:
    peer.attach(handle, target="temps")
    continue_with(peer, handle, handle, size)


def continue_with(peer: ScriptedPeer, handle: int, number: int, size: int) -> None:
    for start in range(0, size, 200_000):
        peer.transfer(handle, number, bytes(min(200_000, size - start)), more=True)


def stored(node: InMemoryNode) -> int:
    return node.store.logs["temps"].partitions[0].end


def test_a_peer_that_finishes_nothing_does_not_stop_one_that_does() -> None:
    node = small_node()
    attacker, victim = peer_of(node), peer_of(node)
    begin(attacker, 0, 1_000_000)
    victim.attach(0, target="temps")
    victim.transfer(0, 0, LARGE[:200_000], more=True)
    victim.transfer(0, 0, LARGE[200_000:400_000], more=True)
    victim.transfer(0, 0, LARGE[400_000:])
    assert stored(node) == 1
    assert condition(victim) == []
    assert condition(attacker) == [(0, names.RESOURCE_LIMIT_EXCEEDED)]


def test_the_user_that_holds_most_gives_up_the_message_that_it_began_first() -> None:
    node = small_node()
    early, greedy = peer_of(node, "early"), peer_of(node, "greedy")
    begin(early, 0, 200_000)
    for handle in range(4):
        begin(greedy, handle, 200_000)
    begin(peer_of(node, "late"), 0, 200_000)
    assert condition(early) == []
    assert condition(greedy) == [(0, names.RESOURCE_LIMIT_EXCEEDED)]


def test_a_message_counts_from_when_it_began_not_from_when_its_link_was_first_busy() -> None:
    node = small_node()
    busy, idle = peer_of(node), peer_of(node)
    begin(busy, 0, 1000)
    begin(idle, 0, 500_000)
    busy.transfer(0, 0, b"")
    continue_with(busy, 0, 1, 600_000)
    assert condition(busy) == []
    assert condition(idle) == [(0, names.RESOURCE_LIMIT_EXCEEDED)]


def test_unfinished_messages_are_counted_to_the_byte() -> None:
    node = small_node()
    peer = peer_of(node)
    begin(peer, 0, 1000)
    begin(peer, 1, 500)
    assert node.service.unfinished.bytes == 1500
    peer.transfer(0, 0, b"", aborted=True)
    assert node.service.unfinished.bytes == 500
    peer.transfer(1, 1, bytes(7), more=True)
    assert node.service.unfinished.bytes == 507
    node.disconnect(peer)
    assert node.service.unfinished.bytes == 0


def test_a_link_that_gets_nothing_more_of_its_message_is_closed() -> None:
    node = small_node()
    peer = peer_of(node)
    begin(peer, 0, 1000)
    begin(peer, 1, 1000)
    for _ in range(4):
        node.advance(5000)
        peer.transfer(1, 1, b"x", more=True)
    assert condition(peer) == [(0, names.RESOURCE_LIMIT_EXCEEDED)]
    assert node.service.unfinished.bytes == 1004


def test_a_message_waits_as_long_as_this_node_does_not_read() -> None:
    node = small_node()
    peer = peer_of(node)
    begin(peer, 0, 1000)
    (connection,) = node.service.connections
    connection.pause(Pause.DISK)
    node.advance(60_000)
    # A connection's, not what the service needs of it.
    connection.resume(Pause.DISK)  # type: ignore[attr-defined]
    assert condition(peer) == []
    assert not peer.lost


@pytest.mark.parametrize("size", [100_000, 900_000])
def test_a_quota_is_spent_as_bytes_arrive(size: int) -> None:
    """An unfinished message would be free otherwise."""
    node = small_node(quotas={"alice": Quota(bytes_in=100_000)})
    peer = peer_of(node, "alice")
    peer.attach(0, target="temps")
    channel = _channel(node)
    continue_with(peer, 0, 0, size)
    assert channel.reading == (size == 100_000), (
        "what is beyond a second's worth and as much debt is not read on"
    )


def test_a_part_of_a_message_is_charged_to_the_quota_once() -> None:
    node = small_node(quotas={"alice": Quota(bytes_in=100_000)})
    peer = peer_of(node, "alice")
    peer.attach(0, target="temps")
    (connection,) = node.service.connections
    throttle = connection.account.bytes_in  # type: ignore[attr-defined]
    for part in range(10):
        peer.transfer(0, 0, EVENT if part == 0 else b"", more=part < 9)
    assert throttle._bucket.level(node.clock()) == 100_000 - len(EVENT)
    peer.transfer(0, 1, bytes(1000), more=True)
    peer.transfer(0, 1, b"", aborted=True)
    assert throttle._bucket.level(node.clock()) == 100_000 - len(EVENT) - 1000


def _channel(node: InMemoryNode) -> MemoryChannel:
    (connection,) = node.service.connections
    channel = connection.channel
    assert isinstance(channel, MemoryChannel)
    return channel
