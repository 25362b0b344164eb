"""Shared by the tests of the specification: messages with annotations, and positions in the log."""

from typing import Any

import proton

from amqp_streams import names
from amqp_streams.testing_amqp import InMemoryNode, Receiving, filter_of

EARLIEST = filter_of("@earliest")


def bound(partition: int | str) -> dict[str, Any]:
    """Link properties that ask for a partition."""
    return {names.PARTITION: proton.symbol(str(partition))}


def message(body: str = "event", *, target: str | None = None, key: str | None = None) -> proton.Message:
    """A message with the hints of section 4.2."""
    written = proton.Message(body=body)
    if target is not None:
        written.instructions = {proton.symbol(names.TARGET_PARTITION): proton.symbol(target)}
    if key is not None:
        written.annotations = {proton.symbol(names.GROUP_KEY): key}
    return written


def ends(node: InMemoryNode, log: str = "temps") -> list[int]:
    """Return the number of events of each partition."""
    return [partition.end for partition in node.store.logs[log].partitions]


def offsets(receiving: Receiving) -> list[str]:
    """The offsets of the received events."""
    return [str(each.annotations[names.OFFSET]) for each in receiving.arrived]


def partitions(receiving: Receiving) -> list[str]:
    """The source partitions of the received events."""
    return [str(each.annotations[names.SOURCE_PARTITION]) for each in receiving.arrived]
