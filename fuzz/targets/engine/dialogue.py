"""A conversation with a whole node in this process: real frames, the real engine, storage in memory.
Afterwards a client that behaves must be served as if nothing had happened, and time must be able to go on.
"""

from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from amqp_streams.testing_amqp.node import MemoryChannel
from amqp_streams.wire.frames import read_frames, read_performative
from amqp_streams.wire.types import Described
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.speech import conversation

_SECONDS_MAX: Final = 40


class Speaker:
    """Says its blocks and keeps the answers."""

    def __init__(self, node: InMemoryNode) -> None:
        self.node = node
        self.heard = bytearray()
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
        self.heard += data

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
    for peer in peers:
        node.disconnect(peer)
    return f"{sum(peer.lost for peer in peers)} lost, {_gist(bytes(peers[0].heard))}"


def _gist(heard: bytes) -> str:
    """Which performatives came, and why the connection was closed."""
    said = []
    try:
        for one in read_frames(heard[8:]):
            performative = read_performative(one.body) if one.body else None
            error = performative.fields.get("error") if performative else None
            condition = (
                error.value[0] if isinstance(error, Described) and isinstance(error.value, list) else ""
            )
            said.append(f"{performative.name if performative else '-'} {condition!r}")
    except WireError:
        said.append("?")
    return ", ".join(sorted(set(said)))


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
        message = (
            f"sent: {sent[0].outcome}, received: {receiver.bodies[-1:]}, lost: {client.lost}, refused:"
            f" {receiver.refused}"
        )
        raise WrongError(message)
    client.connection.close()
    node.run()
    node.disconnect(client)


TARGET: Final = Target("dialogue", run, seconds_max=3.0, share=3.0)
