"""A consumer that ends its subscription now and then, as JMS clients do, and begins again.

Spec: docs/management.md, `event-cursor`.
"""

from typing import Any

from amqp_streams import names
from tests.simulation.machine.schedule import MS
from tests.simulation.peers.consumers import Attached, Consumer
from tests.simulation.peers.links import Receiver


class Forgetful(Consumer):
    """Its cursor is deleted while no link uses it. Then it must begin at the earliest event."""

    def __init__(self, world: Any, name: str, log: str, **options: Any) -> None:
        super().__init__(world, name, log, keeps=True, **options)
        self._forgetting = False
        pause_us = self.random.choice((500, 1500)) * MS
        world.schedule.every(pause_us, self._forget, while_=lambda: world.stormy)

    def _forget(self) -> None:
        """End the reading link without closing it, so that the cursor stays."""
        for attached in self.links:
            if attached.link.answered and not attached.link.refused and not attached.link.detaching:
                self._forgetting = True
                attached.link.detach(closed=False)

    def link_ended(self, attached: Attached, condition: str | None) -> None:
        connection, forgetting = self.connection, self._forgetting
        self._forgetting = False
        if not forgetting or condition is not None or connection is None or not connection.alive:
            super().link_ended(attached, condition)
            return
        self.links.pop(attached, None)
        spots = tuple(self.wanted())
        self.world.cursors.forgetting(spots)
        link: Receiver = connection.attach_receiver(
            attached.link.name,
            None,
            attached=lambda _fields: link.detach(closed=True),
            ended=lambda condition: self._forgotten(link, condition),
        )

    def _forgotten(self, link: Receiver, condition: str | None) -> None:
        """The node has closed the link with a null source."""
        connection = self.connection
        if connection is None or not connection.alive or connection is not link.connection:
            return
        if condition is None or condition == names.NOT_FOUND:
            self.world.cursors.forgotten(tuple(self.wanted()))
        self.connected(connection)
