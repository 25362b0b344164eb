"""The event log node: attaches links, appends events, reads for consumers.

Composes `streams/` over a `Store`.

Pure: no sockets, clock or Proton. Time and random ids are arguments. The shell (`server/`) passes batches in
and carries out the effects. The shell keeps the deliveries that wait for a commit.
"""

from amqp_streams.node.logs import LogCounters
from amqp_streams.node.node import Node
from amqp_streams.node.permits import revoked
from amqp_streams.node.reading import skipped_text, storage_refusal

__all__ = ["LogCounters", "Node", "revoked", "skipped_text", "storage_refusal"]
