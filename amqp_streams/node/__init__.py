"""The event log node: what links may attach, where events go, who reads what. Composes `streams/` over a `Store`.

Pure: no sockets, clock, Proton. Time and random ids are arguments. The shell (`server/`) hands in batches and carries out what comes
back; it keeps the deliveries that wait for a commit, the node keeps none.
"""

from amqp_streams.node.logs import LogCounters
from amqp_streams.node.node import Node
from amqp_streams.node.permits import revoked
from amqp_streams.node.reading import skipped_text, storage_refusal

__all__ = ["LogCounters", "Node", "revoked", "skipped_text", "storage_refusal"]
