"""A whole node and its peers in one process: real AMQP bytes, no sockets, no clock, no threads.

`InMemoryNode` is the server; `EnginePair` joins it to a client made of Proton's public objects,
`ScriptedPeer` to one that sends whatever frames a test writes and shows each frame that comes back.
`InMemoryNode.run` carries bytes to and fro until nobody has anything to say.

Law: what goes wrong inside the node raises in the test that caused it.
"""

from amqp_streams.testing_amqp.engine import Arrived, EnginePair, Receiving, Sending, Sent, filter_of
from amqp_streams.testing_amqp.node import InMemoryNode, ManualLoop, MemoryChannel
from amqp_streams.testing_amqp.script import ScriptedPeer, frame_of, symbols, terminus

__all__ = [
    "Arrived",
    "EnginePair",
    "InMemoryNode",
    "ManualLoop",
    "MemoryChannel",
    "Receiving",
    "ScriptedPeer",
    "Sending",
    "Sent",
    "filter_of",
    "frame_of",
    "symbols",
    "terminus",
]
