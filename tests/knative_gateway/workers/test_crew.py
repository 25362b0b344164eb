"""The crew and its links to the workers, here in one process. Real ones: tests/acceptance/test_workers.py."""

import asyncio
import socket

import pytest

from knative_gateway.running import parent
from knative_gateway.running.channel import Channel
from knative_gateway.running.parent import ParentLink
from knative_gateway.workers import crew as module
from knative_gateway.workers.crew import Crew


class Member:
    """The gateway of a worker: ready, and idle."""

    is_up = True

    def missing(self) -> str | None:
        return None

    async def packed(self) -> bytes:
        return b""

    def lead(self) -> None:
        pass

    def notice(self) -> None:
        pass

    def reload(self) -> None:
        pass


class OneProcess(Crew):
    """Its workers are links in this process."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, lambda: b"")
        self.links: dict[int, ParentLink] = {}

    async def _lived(self, number: int, *, leads: bool) -> int:
        ours, theirs = socket.socketpair()
        channel = self._channels[number] = await Channel.open(ours)
        link = ParentLink(theirs, leads=leads, settings=b"").join(Member())
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
    monkeypatch.setattr(parent, "BEAT_S", 0.05)
    monkeypatch.setattr(module, "BEAT_S", 0.05)
    crew = OneProcess(workers)
    crew.start()
    await asyncio.wait_for(crew.ready.wait(), 20)
    heard = {number: link._heard_s for number, link in crew.links.items()}
    async with asyncio.timeout(20):
        for _ in range(3):
            while any(  # noqa: ASYNC110  a worker has no event for this
                link._heard_s == heard[number] for number, link in crew.links.items()
            ):
                await asyncio.sleep(0.01)
            heard = {number: link._heard_s for number, link in crew.links.items()}
    assert [link.trouble for link in crew.links.values()] == [None] * workers
    await crew.stop(0.0)
    await asyncio.sleep(0)  # the transports close
