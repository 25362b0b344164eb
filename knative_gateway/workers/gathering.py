"""[io] The text of `/metrics` of all workers: it asks them, and merges their answers in a thread."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from knative_gateway.running.merging import Families, Merged, counted, known, merged, packed, unpacked

KEPT_S: Final = 1.0
"""The text is built at most this often."""
ANSWER_S_MAX: Final = 4.0
"""How long a worker may take. Of a worker that does not answer, the former metrics are used."""


class Asked(Protocol):
    """The workers."""

    def ask(self) -> Sequence[int]:
        """Ask all workers for their metrics. Returns those that will answer."""

    def answer(self, worker: int, text: bytes) -> None:
        """Send a worker the metrics of all."""


class Gathering:
    """The latest metrics of each worker, and the counters of workers that have ended."""

    def __init__(self, crew: Asked, *, answer_s: float = ANSWER_S_MAX) -> None:
        self.registry: Final = CollectorRegistry()
        """The metrics of the parent process."""
        ProcessCollector(registry=self.registry)
        self._crew: Final = crew
        self._answer_s: Final = answer_s
        self._latest: Final[dict[int, Families]] = {}
        self._ended: Families = {}
        self._awaited: Final[set[int]] = set()
        self._gone: Final[set[int]] = set()
        """Workers that ended since they were asked."""
        self._came: Final = asyncio.Event()
        self._payloads: Final[dict[int, bytes]] = {}
        self._asking: Final[set[int]] = set()
        self._building: asyncio.Task[None] | None = None
        self._text = b""
        self._until_s = 0.0

    async def asked(self, worker: int) -> None:
        """Answer a worker that wants the metrics of all workers."""
        self._asking.add(worker)
        if self._building is None:
            self._building = asyncio.current_task()
            try:
                await self._build()
            finally:
                self._building = None

    def came(self, worker: int, payload: bytes) -> None:
        """Take the answer of a worker."""
        self._payloads[worker] = payload
        self._awaited.discard(worker)
        if not self._awaited:
            self._came.set()

    def ended(self, worker: int) -> None:
        """Keep what a worker that ended had counted."""
        self._payloads.pop(worker, None)
        self._gone.add(worker)
        self._ended = merged([self._ended, counted(self._latest.pop(worker, {}))])
        self._awaited.discard(worker)
        if not self._awaited:
            self._came.set()

    async def _build(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asking:
            if loop.time() >= self._until_s:
                await self._gather()
                latest, ended = list(self._latest.values()), self._ended
                self._text, kept = await asyncio.to_thread(_built, self.registry, latest, ended)
                if self._ended is ended:  # no worker ended in the meantime
                    self._ended = kept
                self._until_s = loop.time() + KEPT_S
            asking = list(self._asking)
            self._asking.clear()
            for worker in asking:
                self._crew.answer(worker, self._text)

    async def _gather(self) -> None:
        self._came.clear()
        self._gone.clear()
        self._awaited.update(self._crew.ask())
        try:
            async with asyncio.timeout(self._answer_s):
                while self._awaited:
                    await self._came.wait()
        except TimeoutError:
            self._awaited.clear()
        payloads = dict(self._payloads)
        self._payloads.clear()
        read = await asyncio.to_thread(lambda: {each: unpacked(data) for each, data in payloads.items()})
        self._latest.update({each: families for each, families in read.items() if each not in self._gone})


def _built(own: CollectorRegistry, latest: Sequence[Families], ended: Families) -> tuple[bytes, Families]:
    """Return the text, and which counters of ended workers are still of use.

    Runs in a thread: hundreds of Brokers have tens of thousands of samples.
    """
    running = merged(latest)
    kept = known(ended, running)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Merged(merged([unpacked(packed(own.collect())), running, kept])))
    return generate_latest(registry), kept
