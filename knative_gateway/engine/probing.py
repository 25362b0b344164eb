"""[io] Probes the event log node periodically, so that `/readyz` does not wait for an answer.

One late or lost answer has no effect. A node that does not answer for `silent_s` has a problem until its next
answer.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from amqp_streams.client import Client, ConnectionLostError, TimedOutError
from amqp_streams.errors import AmqpStreamsError

log = structlog.get_logger("knative_gateway.engine.event_log")


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """Times in seconds.

    The node is probed every `every_s`. It has a problem after `silent_s` without an answer. While it is
    unreachable, a warning is logged after `warn_s`, and then every `warn_every_s`.
    """

    every_s: float = 5.0
    silent_s: float = 15.0
    warn_s: float = 1.0
    warn_every_s: float = 30.0


class Probe:
    """Probes the node on the connection that the gateway uses."""

    def __init__(self, client: Client, times: ProbeTimes | None = None) -> None:
        self._client: Final = client
        self._times: Final = times or ProbeTimes()
        self._loop: Final = asyncio.get_running_loop()
        self._answered_at = self._loop.time()

    @property
    def problem(self) -> str | None:
        """What is wrong with the node; None if no problem is known."""
        if not self._client.connected:
            return "the event log node is unreachable"
        silent_s = self._loop.time() - self._answered_at
        return (
            f"the event log node has not answered for {silent_s:.0f} s"
            if silent_s > self._times.silent_s
            else None
        )

    async def run(self) -> None:
        """Probe until cancelled."""
        times, warn_at = self._times, self._loop.time() + self._times.warn_s
        while True:
            now_s = self._loop.time()
            if self._client.connected:
                warn_at = now_s + times.warn_s
                await self._ask()
                await asyncio.sleep(times.every_s)
                continue
            self._answered_at = now_s  # a new connection gets the full time for its first answer
            if now_s >= warn_at:
                warn_at = now_s + times.warn_every_s
                log.warning("event_log_awaited", url=self._client.address)
            await asyncio.sleep(min(times.warn_s, times.every_s))

    async def _ask(self) -> None:
        """Send one probe. Every answer counts, including a refusal."""
        try:
            await self._client.extents([], timeout=self._times.every_s)
        except (ConnectionLostError, TimedOutError) as error:
            log.warning("event_log_silent", url=self._client.address, reason=str(error))
            return
        # A refusal is an answer: the node reads, decides and writes.
        except AmqpStreamsError:
            pass
        self._answered_at = self._loop.time()
