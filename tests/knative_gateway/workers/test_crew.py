"""The crew and its links to the workers, here in one process. Real ones: tests/acceptance/test_workers.py."""

import asyncio
import socket

import pytest

from knative_gateway.errors import ConfigError, UnavailableError
from knative_gateway.running import parent
from knative_gateway.running.channel import Channel
from knative_gateway.running.parent import ParentLink, Told
from knative_gateway.workers import crew as module
from knative_gateway.workers.crew import Crew
from knative_gateway.workers.supervision import GiveUp, Supervision, Times


class Member:
    """The gateway of a worker: ready, and idle."""

    is_up = True

    def missing(self) -> str | None:
        return None

    async def packed(self) -> bytes:
        return b""

    async def vitals(self) -> bytes:
        return b"well"

    def lead(self) -> None:
        pass

    def notice(self) -> None:
        pass

    def reload(self) -> None:
        pass


class OneProcess(Crew):
    """Its workers are links in this process."""

    def __init__(
        self, workers: int, error: Exception | None = None, supervision: Supervision | None = None
    ) -> None:
        """`error`: why no worker can start."""
        super().__init__(workers, lambda: b"", supervision=supervision, about=lambda count: b"%d" % count)
        self.links: dict[int, ParentLink] = {}
        self.error = error

    async def _lived(self, number: int, *, leads: bool) -> int:
        ours, theirs = socket.socketpair()
        channel = self._channels[number] = await Channel.open(ours)
        link = ParentLink(theirs, leads=leads, settings=b"", words=str.upper).join(Member())
        if self.error is not None:
            async with link:
                link.failed(self.error)
            await self._listen(number, channel)
            channel.close()
            return 2
        try:
            async with link:
                self.links[number] = link
                self._tell(again=True)
                await self._listen(number, channel)
        finally:
            channel.close()
        return 0


@pytest.mark.parametrize("workers", [1, 2, 4])
async def test_an_idle_gateway_stays_healthy(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of workers must not keep the parent from answering."""
    monkeypatch.setattr(parent, "LOOK_S", 0.01)
    # Many reports between two answers, on a slow machine too.
    monkeypatch.setattr(parent, "BEAT_S", 0.01)
    monkeypatch.setattr(module, "BEAT_S", 0.3)
    crew = OneProcess(workers)
    crew.start()
    await asyncio.wait_for(crew.ready.wait(), 60)
    heard = {number: link._heard_s for number, link in crew.links.items()}
    async with asyncio.timeout(60):
        for _ in range(2):
            while any(  # noqa: ASYNC110  a worker has no event for this
                link._heard_s == heard[number] for number, link in crew.links.items()
            ):
                await asyncio.sleep(0.01)
            heard = {number: link._heard_s for number, link in crew.links.items()}
    assert [link.trouble for link in crew.links.values()] == [None] * workers
    await crew.stop(0.0)
    await asyncio.sleep(0)  # the transports close


async def test_the_error_with_which_a_worker_does_not_start_reaches_the_parent() -> None:
    crew = OneProcess(2, ConfigError("tokens: t is not valid CSV"))
    crew.start()
    assert await asyncio.wait_for(crew.gave_up, 60) == GiveUp(2, "TOKENS: T IS NOT VALID CSV")
    await crew.stop(0.0)
    await asyncio.sleep(0)


async def test_a_worker_that_hangs_is_named_by_the_others_and_its_metrics_are_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for each in (parent, module):
        monkeypatch.setattr(each, "BEAT_S", 0.05)
    crew = OneProcess(2, supervision=Supervision(2, Times(late=0.5, hung=600.0)))
    crew.start()
    await asyncio.wait_for(crew.ready.wait(), 60)
    crew.links[1]._tasks[1].cancel()  # it reports nothing more
    async with asyncio.timeout(60):
        while not str(crew.links[0].problem).startswith("worker 1: it has not answered for"):  # noqa: ASYNC110  a link has no event
            await asyncio.sleep(0.01)
        while crew.ask() != [0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert crew.links[0].trouble is None
    await crew.stop(0.0)
    await asyncio.sleep(0)


async def test_a_worker_learns_how_all_are_and_which_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = OneProcess(3)
    crew.start()
    await asyncio.wait_for(crew.ready.wait(), 60)
    told = await crew.links[1].inquire()
    assert told == Told(b"0", [b"well"] * 3, [])
    monkeypatch.setattr(parent, "INQUIRY_S_MAX", 0.2)
    crew.links[2]._tasks[0].cancel()  # it reads nothing more
    first, second = await asyncio.gather(crew.links[0].inquire(), crew.links[1].inquire())
    assert (first.vitals, first.silent) == ([b"well"] * 2, [2])
    assert second.silent == [2]
    crew._channels.clear()
    with pytest.raises(UnavailableError, match="the parent process does not answer"):
        await crew.links[0].inquire()
    await crew.stop(0.0)
    await asyncio.sleep(0)
