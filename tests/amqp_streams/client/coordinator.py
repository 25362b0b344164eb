"""A scripted node that assigns the partitions of a log to attaches as the test requests. It can delay or
refuse attaches.
"""

from typing import Any

import proton

from amqp_streams import names
from tests.amqp_streams.client.conftest import MemoryNode
from tests.amqp_streams.client.consuming.test_consumer import info, record
from tests.amqp_streams.client.producing.test_producer import settle_loop

LOG = "log"
FORCED = proton.Condition(names.LINK_DETACH_FORCED, "rebalance")


class Coordinator:
    """The group's side of a scripted node: `waiting` attaches, and the links that have partitions."""

    def __init__(self, node: MemoryNode, partitions: int) -> None:
        self.node = node
        self.waiting: list[Any] = []
        self.holders: dict[str, Any] = {}
        self.left: list[str] = []
        self.refusing = False
        node.holds = self._hold
        node.on_detach = self._detached
        node.queue_of = self._queue
        info(node, LOG, {str(number): None for number in range(partitions)})

    def _hold(self, peer: Any, link: Any) -> bool:
        if names.CONSUMER_GROUP not in (link.remote_properties or {}):
            return False
        if self.refusing:
            peer.refuse(link, FORCED)
        else:
            self.waiting.append(link)
        return True

    def _detached(self, _peer: Any, link: Any) -> None:
        self.waiting = [other for other in self.waiting if other != link]
        for partition in [name for name, holder in self.holders.items() if holder == link]:
            del self.holders[partition]
            self.left.append(partition)

    def _queue(self, link: Any) -> str:
        if names.CONSUMER_GROUP in (link.remote_properties or {}):
            return next((f"{LOG}:{name}" for name, holder in self.holders.items() if holder == link), "")
        return str(link.target.address or link.source.address)

    async def assign(self, *partitions: int) -> None:
        """Give a partition to each of the longest waiting attaches."""
        for partition in partitions:
            link = self.waiting.pop(0)
            self.holders[str(partition)] = link
            self.node.peer.take(link, {names.PARTITION: proton.symbol(str(partition))})
        await self.move()

    async def store(self, partition: int, *numbers: int) -> None:
        """Store events for a partition."""
        self.node.outgoing[f"{LOG}:{partition}"].extend(record(number, partition) for number in numbers)
        await self.move()

    async def close(self, partition: int, condition: proton.Condition = FORCED) -> None:
        """The node closes the link that has this partition."""
        link = self.holders.pop(str(partition))
        self.node.peer.senders.remove(link)
        link.condition = condition
        link.close()
        await self.move()

    async def move(self) -> None:
        """Let both sides carry out their pending work."""
        await settle_loop()
        self.node.work()
        await settle_loop()
