"""[io] Tasks that must run as long as the gateway. A task that ends is reported, makes the gateway not ready,
and is restarted.

A task ends for good only if it is cancelled, or if its owner reports it as finished. `problem` names a task
from its end until it has run again for `settled_s`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

PAUSE_S: Final = 1.0
"""The pause before a restart. It doubles each time the task ends early."""
PAUSE_S_MAX: Final = 30.0
SETTLED_S: Final = 10.0
"""A task that has run this long counts as stable."""

log = structlog.get_logger("knative_gateway")


def _never() -> bool:
    return False


class Supervisor:
    """Restarts tasks. A gateway has one supervisor; parts that are used alone have their own."""

    def __init__(self, *, pause_s: float = PAUSE_S, settled_s: float = SETTLED_S) -> None:
        self.restarts: Final[Counter[str]] = Counter()
        """Number of restarts, by the name of the task."""
        self._pause_s: Final = pause_s
        self._settled_s: Final = settled_s
        self._down: Final[dict[object, str]] = {}

    def keep(
        self, name: str, body: Callable[[], Awaitable[None]], *, finished: Callable[[], bool] = _never
    ) -> asyncio.Task[None]:
        """Run `body` in a task, and restart it whenever it ends.

        The task ends when it is cancelled, or when a run ends while `finished()` is true. `name`: the kind of
        the task, for the log and for metrics; several tasks may have the same name.
        """
        return asyncio.create_task(self._keep(name, body, finished), name=name)

    @property
    def problem(self) -> str | None:
        """Which task ended recently; None if all tasks are stable."""
        name = next(iter(self._down.values()), None)
        return None if name is None else f"the task {name} ended and is being restarted: see the log"

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Called by `prometheus_client`."""
        restarts = CounterMetricFamily(
            "knative_gateway_task_restarts", "Tasks that ended and were restarted.", labels=["task"]
        )
        for name, count in sorted(self.restarts.items()):
            restarts.add_metric([name], count)
        yield restarts
        yield GaugeMetricFamily(
            "knative_gateway_tasks_down",
            "Tasks that ended recently and are not stable yet.",
            float(len(self._down)),
        )

    async def _keep(
        self, name: str, body: Callable[[], Awaitable[None]], finished: Callable[[], bool]
    ) -> None:
        this, pause_s = object(), self._pause_s
        try:
            while True:
                if await self._run(this, name, body, finished):
                    pause_s = self._pause_s
                if finished():
                    return
                self._down[this] = name
                self.restarts[name] += 1
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            self._down.pop(this, None)

    async def _run(
        self, this: object, name: str, body: Callable[[], Awaitable[None]], finished: Callable[[], bool]
    ) -> bool:
        """Run the body once. Returns whether it ran long enough to count as stable."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        # Cleared by a timer and not at the end: a task that never ends again must leave `problem`.
        settled = loop.call_later(self._settled_s, self._down.pop, this, None)
        try:
            await body()
            if not finished():
                log.error("task_ended", task=name)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # The task itself was cancelled: the gateway stops. Any other CancelledError comes from something
            # that the body awaited.
            if task is not None and task.cancelling():
                raise
            log.error("task_ended", task=name, reason="an operation that it waited for was cancelled")
        except Exception:
            log.exception("task_ended", task=name)
        finally:
            settled.cancel()
        return loop.time() - since >= self._settled_s
