"""Many who look at events wait for each other, and a request that takes too long ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from knative_gateway.errors import UnavailableError
from knative_gateway.paths import answering
from knative_gateway.resources.refusals import StatusError
from knative_gateway.trying import WAITING_MAX
from tests.knative_gateway.dispatcher.rig import event, subscriber
from tests.knative_gateway.paths.rig import BROKER, PathsRig


@pytest.fixture
async def rig() -> AsyncIterator[PathsRig]:
    async with PathsRig(partitions=1) as made:
        await made.serve(subscriber("u", "http://127.0.0.1:9/", paused=True))
        await made.send(event(0))
        yield made


async def test_the_latest_events_and_a_path_are_answered(rig: PathsRig) -> None:
    answer: Any = await rig.paths.events(BROKER, {})
    assert [each["offset"] for each in answer["events"]] == [0]
    assert (await rig.trace())["event"]["offset"] == 0


async def test_a_broker_that_was_made_again_has_not_the_events_of_the_former_one(rig: PathsRig) -> None:
    other = {**BROKER, "metadata": {**BROKER["metadata"], "uid": "another"}}
    with pytest.raises(StatusError, match="not served now"):
        await rig.paths.events(other, {})


async def test_many_requests_wait_or_are_refused(rig: PathsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    extents = rig.memory.extents

    async def slow(name: str) -> Any:
        await gate.wait()
        return await extents(name)

    monkeypatch.setattr(rig.memory, "extents", slow)
    tasks = [asyncio.create_task(rig.paths.events(BROKER, {})) for _ in range(WAITING_MAX + 3)]
    await asyncio.wait(tasks[WAITING_MAX:])
    refused = [task for task in tasks if task.done()]
    assert len(refused) == 3
    assert all(getattr(task.exception(), "code", None) == 429 for task in refused)
    gate.set()
    answers = await asyncio.gather(*(task for task in tasks if task not in refused))
    assert all(answer["events"] for answer in answers)


async def test_a_log_that_does_not_answer_ends_the_request(
    rig: PathsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "READ_S_MAX", 0.01)

    async def silent(_: str) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(rig.memory, "extents", silent)
    with pytest.raises(UnavailableError, match="could not be read within"):
        await rig.trace()
