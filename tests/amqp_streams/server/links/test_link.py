"""The common behaviour of all links."""

from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.server.links.link import AnyLink
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer
from amqp_streams.wire.types import UInt


def links(node: InMemoryNode) -> list[AnyLink]:
    return [
        link for connection in node.service.connections for link in connection.find_links(lambda _link: True)
    ]


@pytest.mark.parametrize(
    "attach",
    [
        {"target": "temps"},
        {"source": "temps"},
        {"source": "temps/$info"},
        {"target": "$management"},
        {"source": "$management"},
    ],
)
def test_a_link_closes_once_and_is_removed_when_the_peer_has_answered(attach: dict[str, Any]) -> None:
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, **attach)
    (link,) = links(node)
    for _ in range(3):
        link.close(PeerError(names.NOT_ALLOWED, "no more"))
    link.owner.flush()
    node.run()
    assert len(peer.take("detach")) == 1
    assert links(node) == [link], "its pointer is good until the peer detaches"
    peer.send("detach", handle=UInt(0), closed=True)
    assert links(node) == []
    assert not link.alive
    link.close()
    node.run()
    assert node.service.node.links_of("temps") == ()


def test_a_link_knows_its_name_and_its_grant() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    pair.sender("temps", name="my-name")
    (link,) = links(node)
    assert link.name == "my-name"
    assert link.grant in node.service.node.links_of("temps")
