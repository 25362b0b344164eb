"""One text of metrics for all workers."""

import asyncio
from collections.abc import Sequence

from prometheus_client.core import CounterMetricFamily

from knative_gateway.running.merging import packed
from knative_gateway.workers import gathering
from knative_gateway.workers.gathering import Gathering


class Workers:
    """Workers that answer as the test says."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.counts = dict.fromkeys(numbers, 0)
        self.silent: set[int] = set()
        self.texts: dict[int, str] = {}
        self.asks = 0
        self.gathering = Gathering(self, answer_s=0.05)

    def ask(self) -> Sequence[int]:
        self.asks += 1
        for number in self.numbers:
            if number not in self.silent:
                made = CounterMetricFamily("events", "Events.", float(self.counts[number]))
                loop = asyncio.get_running_loop()
                loop.call_soon(self.gathering.came, number, packed([made]))
        return list(self.numbers)

    def answer(self, worker: int, text: bytes) -> None:
        self.texts[worker] = text.decode()

    async def events(self) -> float | None:
        """What the first worker gets when it asks."""
        self.gathering._until_s = 0.0
        await self.gathering.asked(self.numbers[0])
        found = [
            line for line in self.texts[self.numbers[0]].splitlines() if line.startswith("events_total ")
        ]
        return float(found[0].split()[1]) if found else None


async def test_the_answer_is_the_sum_of_all_workers_and_of_the_parent() -> None:
    workers = Workers(0, 1, 2)
    workers.counts = {0: 1, 1: 10, 2: 100}
    assert await workers.events() == 111
    assert "process_resident_memory_bytes" in workers.texts[0]


async def test_a_worker_that_does_not_answer_counts_as_it_was_and_delays_the_others_little() -> None:
    workers = Workers(0, 1)
    workers.counts = {0: 1, 1: 10}
    assert await workers.events() == 11
    workers.silent, workers.counts = {1}, {0: 2, 1: 20}
    assert await workers.events() == 12
    workers.silent = set()
    assert await workers.events() == 22


async def test_what_a_worker_counted_before_its_end_stays() -> None:
    workers = Workers(0, 1)
    workers.counts = {0: 1, 1: 10}
    assert await workers.events() == 11
    workers.gathering.ended(1)
    workers.numbers = [0]
    assert await workers.events() == 11
    workers.numbers, workers.counts = [0, 1], {0: 1, 1: 2}  # it was started again
    assert await workers.events() == 13


async def test_workers_that_ask_at_the_same_time_share_an_answer() -> None:
    workers = Workers(0, 1, 2)
    await asyncio.gather(*(workers.gathering.asked(number) for number in range(3)))
    assert workers.texts.keys() == {0, 1, 2}
    assert workers.asks == 1
    assert gathering.KEPT_S > 0
    await workers.gathering.asked(0)
    assert workers.asks == 1


async def test_without_a_worker_nothing_is_awaited() -> None:
    workers = Workers(0)
    workers.numbers = []
    await workers.gathering.asked(0)
    assert "process_cpu_seconds_total" in workers.texts[0]
