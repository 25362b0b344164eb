"""[io] Tasks that must run as long as the gateway: each one that ends is reported, makes the gateway not
ready, and is started again.

Laws: a task ends for good only when it is cancelled, or when its owner says that it is finished; `problem`
names a task from when it ended until it has run again for `settled_s`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

PAUSE_S: Final = 1.0
"""Before a task is started again; doubled each time it ends early."""
PAUSE_S_MAX: Final = 30.0
SETTLED_S: Final = 10.0
"""A task that has run this long counts as stable."""

log = structlog.get_logger("knative_gateway")


def _never() -> bool:
    return False


class Supervisor:
    """Keeps tasks running. One for a gateway; parts that are used alone have their own."""

    def __init__(self, *, pause_s: float = PAUSE_S, settled_s: float = SETTLED_S) -> None:
        self.restarts: Final[Counter[str]] = Counter()
        """By the name of the task."""
        self._pause_s: Final = pause_s
        self._settled_s: Final = settled_s
        self._down: Final[dict[object, str]] = {}

    def keep(
        self, name: str, body: Callable[[], Awaitable[None]], *, finished: Callable[[], bool] = _never
    ) -> asyncio.Task[None]:
        """Run `body` in a task, again whenever it ends, until the task is cancelled or a run ends while
        `finished()` is true.

        `name`: of the kind of task, for the log and metrics; several tasks may have the same.
        """
        return asyncio.create_task(self._keep(name, body, finished), name=name)

    @property
    def problem(self) -> str | None:
        """Which task ended recently and why; None: all run."""
        name = next(iter(self._down.values()), None)
        return None if name is None else f"the task {name} ended and is being restarted: see the log"

    def collect(self) -> Iterator[Metric]:
        """The figures, for Prometheus."""
        restarts = CounterMetricFamily(
            "knative_gateway_task_restarts", "Tasks that ended and were started again.", labels=["task"]
        )
        for name, count in sorted(self.restarts.items()):
            restarts.add_metric([name], count)
        yield restarts
        yield GaugeMetricFamily(
            "knative_gateway_tasks_down",
            "Tasks that ended recently and do not run stably yet.",
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
        """One run; whether it was long enough to be well."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        settled = loop.call_later(self._settled_s, self._down.pop, this, None)
        try:
            await body()
            if not finished():
                log.error("task_ended", task=name)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.error("task_ended", task=name, reason="something that it waited for was cancelled")
        except Exception:
            log.exception("task_ended", task=name)
        finally:
            settled.cancel()
        return loop.time() - since >= self._settled_s
