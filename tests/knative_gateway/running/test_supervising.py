"""Tasks that must run as long as the gateway."""

import asyncio
from contextlib import suppress

from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from knative_gateway.running.supervising import Supervisor


class Body:
    """The body of a task. `runs`: the number of starts; `failure`: the exception that it raises while it is
    set.
    """

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure
        self.runs = 0
        self.started = asyncio.Event()
        self.end = asyncio.Event()

    async def __call__(self) -> None:
        self.runs += 1
        if self.failure is not None:
            raise self.failure
        self.started.set()
        await self.end.wait()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until_restarts(supervisor: Supervisor, name: str, count: int) -> None:
    async with asyncio.timeout(60):
        while supervisor.restarts[name] < count:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0)


async def test_a_task_that_raises_is_reported_and_started_again() -> None:
    supervisor, body = Supervisor(pause_s=0), Body(KeyError("x"))
    with capture_logs() as logs:
        task = supervisor.keep("feed", body)
        await until_restarts(supervisor, "feed", 2)
        assert supervisor.problem == "the task feed ended and is being restarted: see the log"
        body.failure = None
        async with asyncio.timeout(60):
            await body.started.wait()
    assert {(each["event"], each["task"]) for each in logs} == {("task_ended", "feed")}
    await ended(task)


async def test_a_task_that_runs_again_for_long_enough_is_not_a_problem_any_more() -> None:
    supervisor, body = Supervisor(pause_s=0, settled_s=0.01), Body(ValueError())
    task = supervisor.keep("feed", body)
    await until_restarts(supervisor, "feed", 1)
    body.failure = None
    async with asyncio.timeout(60):
        while supervisor.problem is not None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.001)
    assert not task.done()
    await ended(task)


async def test_a_body_that_returns_is_started_again_unless_its_owner_is_finished() -> None:
    supervisor, body = Supervisor(pause_s=0), Body()
    finished = False
    task = supervisor.keep("feed", body, finished=lambda: finished)
    body.end.set()
    await until_restarts(supervisor, "feed", 1)
    finished = True
    async with asyncio.timeout(60):
        await task
    assert supervisor.problem is None


async def test_something_else_that_was_cancelled_does_not_end_the_task() -> None:
    supervisor, body = Supervisor(pause_s=0), Body(asyncio.CancelledError())
    task = supervisor.keep("feed", body)
    await until_restarts(supervisor, "feed", 1)
    assert not task.done()
    await ended(task)
    assert task.cancelled()
    assert supervisor.problem is None


async def test_restarts_are_counted_by_the_name_of_the_task() -> None:
    supervisor, body = Supervisor(pause_s=0), Body(ValueError())
    registry = CollectorRegistry()
    registry.register(supervisor)
    task = supervisor.keep("feed", body)
    await until_restarts(supervisor, "feed", 1)
    body.failure = None
    async with asyncio.timeout(60):
        await body.started.wait()
    text = generate_latest(registry).decode()
    assert 'knative_gateway_task_restarts_total{task="feed"} ' in text
    assert "knative_gateway_tasks_down 1.0" in text
    await ended(task)
