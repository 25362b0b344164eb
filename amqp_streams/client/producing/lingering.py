"""How long new events wait for others to share a transfer with."""

import asyncio
from collections.abc import Callable
from typing import Final

from amqp_streams.client.producing.batching import Batching
from amqp_streams.client.producing.outbox import Outbox


class Linger:
    """The wait of one producer. `send_soon` sends what waits, at the end of the loop iteration."""

    def __init__(
        self, linger_ms: float, outbox: Outbox, batching: Batching, send_soon: Callable[[], None]
    ) -> None:
        self._seconds: Final = linger_ms / 1000
        self._outbox: Final = outbox
        self._batching: Final = batching
        self._send_soon: Final = send_soon
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether events wait for others."""
        return self._timer is not None

    def added(self) -> None:
        """New events were added. They wait, unless waiting is of no use."""
        if not self._seconds or self._is_full():
            self.end()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.end)

    def end(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send_soon()

    def _is_full(self) -> bool:
        """Whether the unsent events fill a batch or the window. If the node takes no batches, waiting is of
        no use either.
        """
        outbox, batching = self._outbox, self._batching
        unsent = outbox.unsent
        return (
            not batching.events_max
            or outbox.room <= 0
            or unsent >= batching.events_max
            or outbox.bytes * unsent >= batching.bytes_max * outbox.events
        )
