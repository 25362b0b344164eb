"""[io] The other nodes: reports go to homes, and the answers of homes come back.

Everything here runs on the event loop's thread. A message can be lost: the next one repeats it. At most one
report for each address and bucket, and one answer for each process and bucket, waits until it can be sent; a
newer one replaces it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from amqp_streams.homes.messages import Answer, Identity, Report
from amqp_streams.peering_settings import PeeringSettings

TICK_S: Final = 0.05
"""How often `Peers.tick` is called."""


class Peers:
    """One per process.

    `on_report`: a node reports to a home that is here. `on_answer`: a home answers a report of this node.
    Both are called in a later iteration of the loop, also for messages of this node to itself, which use no
    socket.
    """

    def __init__(
        self,
        me: Identity,
        settings: PeeringSettings,
        *,
        on_report: Callable[[Report], None],
        on_answer: Callable[[Answer], None],
    ) -> None:
        self._me: Final = me
        self._settings: Final = settings
        self._on_report: Final = on_report
        self._on_answer: Final = on_answer
        self._address = ""

    async def open(self) -> None:
        """Listen for other nodes.

        Raises:
            ConfigError: a file cannot be used, or the address cannot be bound.
        """
        self._address = self._settings.advertise or str(self._settings.listen)

    @property
    def address(self) -> str:
        """Where other nodes reach this node, once it is open: for the record of a home."""
        return self._address

    @property
    def problems(self) -> tuple[str, ...]:
        """Which nodes cannot be reached, or were refused, in words; empty if nothing is wrong."""
        return ()

    def send_report(self, address: str, report: Report) -> None:
        """Send a report of this node to the home at this address."""
        if address == self._address:
            asyncio.get_running_loop().call_soon(self._on_report, report)

    def send_answer(self, process: str, answer: Answer) -> None:
        """Send the answer of a home that is here to the process that reported."""
        if process == self._me.process:
            asyncio.get_running_loop().call_soon(self._on_answer, answer)

    def tick(self) -> None:
        """Called each `TICK_S`."""

    def reload(self) -> bool:
        """Read secret and certificates again. Returns False if a file has an error, which is logged."""
        return True

    def stop(self) -> None:
        """Accept no more connections. What exists stays, so that the last reports are answered."""

    async def close(self) -> None:
        """Close all connections."""
