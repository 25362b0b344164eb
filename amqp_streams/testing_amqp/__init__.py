"""A whole node and its peers in one process: real AMQP bytes, no sockets, no clock, no threads.

`InMemoryNode` is the server; `EnginePair` joins it to a client made of Proton's public objects,
`ScriptedPeer` to one that sends the frames that a test writes and shows each frame that the node sends.
`InMemoryNode.run` exchanges bytes until neither the node nor a peer has anything to send.

Law: an exception inside the node is raised in the test that caused it.
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
