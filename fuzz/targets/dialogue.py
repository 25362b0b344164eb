"""A conversation with a whole node in this process: real frames, the real engine, storage in memory. Afterwards a client that behaves
must be served as if nothing had happened, and time must be able to go on.
"""

from typing import Final

from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from amqp_streams.testing_amqp.node import MemoryChannel
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.speech import conversation

_SECONDS_MAX: Final = 40


class Speaker:
    """Says its blocks and keeps nothing of the answers but their size."""

    def __init__(self, node: InMemoryNode) -> None:
        self.node = node
        self.got = 0
        self.lost = False
        self._out = bytearray()
        self.channel: MemoryChannel = node.connect(self)

    def say(self, block: bytes) -> None:
        """Send these bytes and let the node answer."""
        self._out += block
        self.node.run()

    def output(self) -> bytes:
        """See `Peer`."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def input(self, data: bytes) -> None:
        """See `Peer`."""
        self.got += len(data)

    def closed(self) -> None:
        """See `Peer`."""
        self.lost = True


def run(data: bytes) -> str:
    """One conversation of one or two peers."""
    draw = Draw(data)
    node = InMemoryNode({"events": 2, "single": 1})
    node.append("events", b"one", b"two")
    peers = [Speaker(node) for _ in range(1 + draw.below(2))]
    said = 0
    for peer in peers:
        for block in conversation(draw):
            said += 1
            peer.say(block)
            if draw.chance(16):
                node.advance(1000 * draw.below(_SECONDS_MAX))
    if draw.chance(4):
        node.disconnect(peers[0])
    serves_others(node)
    node.advance(200_000)
    serves_others(node)
    return f"{said} said, {sum(peer.lost for peer in peers)} lost, {min(40, peers[0].got // 64)} got"


def serves_others(node: InMemoryNode) -> None:
    """That a client that behaves is served.

    Raises:
        WrongError: it is not.
    """
    if "single" not in node.store.logs:  # the conversation deleted it: that is allowed
        node.create("single")
    client = EnginePair(node, container="well-behaved")
    receiver = client.receiver("single", name="well-behaved-in", credit=1_000)
    sent = client.send(client.sender("single", name="well-behaved-out"), b"\x00\x53\x75\xa0\x02ok")
    if sent[0].outcome != "accepted" or receiver.bodies[-1:] != [b"ok"]:
        message = f"sent: {sent[0].outcome}, received: {receiver.bodies[-1:]}, lost: {client.lost}, refused: {receiver.refused}"
        raise WrongError(message)
    client.connection.close()
    node.run()
    node.disconnect(client)


TARGET: Final = Target("dialogue", run, seconds_max=3.0, share=3.0)
