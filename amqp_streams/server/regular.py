"""The regular work of a node, every half second.

Time limits, groups, cursors, retention, and checks of the store.

Law: if a step fails, it is logged, counted and retried, and the other steps run. `/readyz` names it until it
succeeds.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from amqp_streams.server.observing.watching import StoreWatch, hindrance
from amqp_streams.storage.plans.retention import SteadyClock
from amqp_streams.storage.ports import RETAINED_A_CALL, Store

TICK_S: Final = 0.5
RETENTION_EVERY_TICKS: Final = 10

log = structlog.get_logger("amqp_streams")

Steps = Iterable[tuple[str, Callable[[], None]]]


class Regular:
    """Does `steps` at each tick, then retention and the checks of the store.

    The clocks return milliseconds; `monotonic_ms` never decreases.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        steps: Steps,
        *,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.faults: Final[Counter[str]] = Counter()
        """How often each step has failed."""
        self._loop: Final = loop
        self._store: Final = store
        self._steps: Final = (
            *steps,
            ("retention", self._retain),
            ("compression", store.compress),
            ("watch", self._watch),
        )
        self._wall_ms: Final = wall_ms
        self._monotonic_ms: Final = monotonic_ms
        self._clock: Final = SteadyClock()
        self._store_watch: Final = StoreWatch()
        self._ticks = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._failing: dict[str, str] = {}

    def start(self) -> None:
        """Start the ticks."""
        self._ticker = self._loop.call_later(TICK_S, self.tick)

    def stop(self) -> None:
        """Stop the ticks."""
        if self._ticker is not None:
            self._ticker.cancel()

    @property
    def clock_ahead_ms(self) -> int:
        """By how much the system clock jumped ahead of the clock that retention uses."""
        return self._clock.ahead_ms

    def hindrance(self) -> str | None:
        """Why the node accepts no events, or which regular work fails. None if it works normally."""
        if self._failing:
            return "; ".join(
                f"the step '{step}' of the regular work fails: {reason}"
                for step, reason in self._failing.items()
            )
        return hindrance(self._store.facts())

    def tick(self) -> None:
        """Do each step once. A step that fails does not stop the others."""
        if self._ticker is not None:
            # First, so that a failing step cannot end the regular work.
            self._ticker = self._loop.call_later(TICK_S, self.tick)
        self._ticks += 1
        for name, step in self._steps:
            try:
                step()
            except Exception as error:
                self.faults[name] += 1
                if name not in self._failing:
                    log.exception("regular_work_failed", step=name)
                # Shown by `/readyz`, which must stay short.
                self._failing[name] = f"{type(error).__name__}: {error}"[:200]
            else:
                if self._failing.pop(name, None) is not None:
                    log.info("regular_work_recovered", step=name)

    def _retain(self) -> None:
        partitions = sum(len(log.partitions) for log in self._store.logs.values())
        if self._ticks % RETENTION_EVERY_TICKS > partitions // RETAINED_A_CALL:
            return  # with many partitions, each tick handles some of them
        # A clock that jumps into the future must not delete events: see `SteadyClock`.
        now_ms = self._clock.now_ms(self._wall_ms(), self._monotonic_ms())
        for partition, old_start in self._store.apply_retention(now_ms):
            log.info(
                "retention", log=partition.log, partition=partition.index, removed=partition.start - old_start
            )

    def _watch(self) -> None:
        self._store_watch.look(self._store.facts(), self._clock.ahead_ms)
