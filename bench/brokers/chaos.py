"""`make kafka-chaos`: brokers and nodes are killed, stopped, cut off and restarted, while producers and
readers use all nodes.

Three brokers, three nodes. Disturbances of brokers and of nodes are chosen from the seed, independently of
each other, so they overlap. In the end each accepted event must be in the log, in the order of its producer
and partition, and each reader must have got each partition exactly as it is in Kafka.

    python -m bench.brokers.chaos [--seconds 1200] [--seed 1] [--json]

Exit status 0 when all of that holds; 1 otherwise. Times are printed, not judged.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.brokers.load import Load, Reader, Writer
from bench.brokers.proxy import Proxy
from bench.brokers.verdict import Verdict, judge
from bench.brokers.world import World, running, stored

LOG: Final = "chaos"
SETTLED_S_MAX: Final = 240.0
_BOTH_SHARE: Final = 0.15
"""How often two brokers are disturbed at once: then no partition has enough replicas."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `hold_s`, `pause_s`: how long a disturbance lasts, and the time until the next."""

    seconds: float = 1200.0
    seed: int = 1
    nodes: int = 3
    partitions: int = 4
    writers: int = 6
    readers: int = 2
    rate: float = 20.0
    hold_s: tuple[float, float] = (0.5, 20.0)
    pause_s: tuple[float, float] = (1.0, 10.0)


@dataclass(slots=True)
class Chaos:
    """Disturbs a world until the end."""

    world: World
    plan: Plan
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    made: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def brokers(self) -> None:
        """Disturb one broker or two at a time, and wait until the cluster is whole again."""
        choice = random.Random(f"{self.plan.seed} brokers")
        kinds: dict[str, Callable[[int, float], Awaitable[None]]] = {
            "kill -9": self._kill_broker,
            "SIGTERM": self._stop_broker,
            "SIGSTOP": self._freeze_broker,
            "cut off": self._cut_broker,
        }
        while not self.ending.is_set():
            await self._pause(choice.uniform(*self.plan.pause_s))
            count = 2 if choice.random() < _BOTH_SHARE else 1
            numbers = choice.sample(range(len(self.world.cluster.brokers)), count)
            kind, hold = choice.choice(sorted(kinds)), choice.uniform(*self.plan.hold_s)
            if self.ending.is_set():
                return
            self._say(f"{kind} broker {' and '.join(str(each + 1) for each in numbers)} for {hold:.1f} s")
            self.made[f"{kind} {'two brokers' if count == 2 else 'a broker'}"] += 1
            await asyncio.gather(*(kinds[kind](number, hold) for number in numbers))
            await asyncio.to_thread(self.world.cluster.await_ready)

    async def nodes(self) -> None:
        """Disturb one node at a time."""
        choice = random.Random(f"{self.plan.seed} nodes")
        kinds: dict[str, Callable[[int, float], Awaitable[None]]] = {
            "kill -9": self._kill_node,
            "SIGTERM": self._stop_node,
            "SIGSTOP": self._freeze_node,
            "cut off": self._cut_node,
        }
        while not self.ending.is_set():
            await self._pause(choice.uniform(*self.plan.pause_s))
            number = choice.randrange(len(self.world.nodes))
            kind, hold = choice.choice(sorted(kinds)), choice.uniform(*self.plan.hold_s)
            if self.ending.is_set():
                return
            self._say(f"{kind} node {number + 1} for {hold:.1f} s")
            self.made[f"{kind} a node"] += 1
            await kinds[kind](number, hold)

    async def _kill_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        await asyncio.to_thread(broker.signal, signal.SIGKILL)
        await self._pause(hold)
        await asyncio.to_thread(broker.start, with_parent=True)

    async def _stop_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        await asyncio.to_thread(broker.stop)
        await self._pause(hold)
        await asyncio.to_thread(broker.start, with_parent=True)

    async def _freeze_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        broker.signal(signal.SIGSTOP)
        await self._pause(hold)
        broker.signal(signal.SIGCONT)

    async def _cut_broker(self, number: int, hold: float) -> None:
        await self._cut(self.world.of_broker(number), hold)

    async def _kill_node(self, number: int, hold: float) -> None:
        node = self.world.nodes[number]
        await asyncio.to_thread(node.kill)
        await self._pause(hold)
        await node.restart()

    async def _stop_node(self, number: int, hold: float) -> None:
        node = self.world.nodes[number]
        try:
            if status := await asyncio.to_thread(node.stop):
                self.complaints.append(f"SIGTERM of a node ended with status {status}")
        except subprocess.TimeoutExpired as error:
            self.complaints.append(f"SIGTERM of a node: it did not end within {error.timeout:.0f} s")
            await asyncio.to_thread(node.abort)
        await self._pause(hold)
        await node.restart()

    async def _freeze_node(self, number: int, hold: float) -> None:
        process = self.world.nodes[number].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        await self._pause(hold)
        process.send_signal(signal.SIGCONT)

    async def _cut_node(self, number: int, hold: float) -> None:
        await self._cut(self.world.proxies[number], hold)

    async def _cut(self, proxies: Sequence[Proxy], hold: float) -> None:
        for proxy in proxies:
            proxy.cut()
        await self._pause(hold)
        for proxy in proxies:
            proxy.join()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        except TimeoutError:
            pass

    def _say(self, words: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed. `pause_s`: the longest time in which no event of a producer was accepted."""

    verdict: Verdict
    disturbances: dict[str, int]
    sent: int
    resent: int
    unknown: int
    errors: dict[str, int]
    pause_s: dict[str, float]
    complaints: tuple[str, ...]

    @property
    def violations(self) -> tuple[str, ...]:
        """All promises that were not kept."""
        return (*self.verdict.violations, *self.complaints)


async def run(plan: Plan, folder: Path) -> Outcome:
    """Start everything, disturb it, and judge.

    Raises:
        RuntimeError: something does not start.
    """
    options = ("--log", f"{LOG}:{plan.partitions}", "--log-level", "info")
    async with running(folder, nodes=plan.nodes, options=options) as world:
        load = _load(plan, world)
        load.start()
        chaos = Chaos(world, plan)
        began = time.monotonic()
        tasks = [asyncio.create_task(chaos.brokers()), asyncio.create_task(chaos.nodes())]
        await asyncio.wait(tasks, timeout=plan.seconds, return_when=asyncio.FIRST_EXCEPTION)
        chaos.ending.set()
        await asyncio.gather(*tasks)
        ended, complaints = time.monotonic(), chaos.complaints
        try:
            await load.stop_writing(SETTLED_S_MAX)
        except TimeoutError:
            complaints.append("an event had no outcome in time after the last disturbance")
        found = await asyncio.to_thread(stored, world.cluster.servers, LOG, plan.partitions)
        ends = {partition: places[-1].offset for partition, places in found.items() if places}
        if not await load.stop_reading(ends, SETTLED_S_MAX):
            complaints.append("a reader did not reach the end in time after the last disturbance")
        read = {each.name: {each.partition: each.got} for each in load.readers}
        verdict = judge(found, load.accepted(), read, load.refused())
        complaints += [
            f"node {number} wrote a traceback"
            for number, node in enumerate(world.nodes, 1)
            if "Traceback" in node.words
        ]
    clients: list[Writer | Reader] = [*load.writers, *load.readers]
    errors = sum((each.seen.reasons(began, ended) for each in clients), Counter[str]())
    return Outcome(
        verdict,
        dict(chaos.made),
        sent=sum(each.sent for each in load.writers),
        resent=sum(each.resent for each in load.writers),
        unknown=sum(each.unknown for each in load.writers),
        errors=dict(errors),
        pause_s={each.name: round(each.pause(began, ended), 1) for each in clients},
        complaints=tuple(complaints),
    )


def _load(plan: Plan, world: World) -> Load:
    writers = [
        Writer(f"w{number}", world.urls_from(number), LOG, plan.partitions, plan.rate)
        for number in range(plan.writers)
    ]
    readers = [
        Reader(f"r{number}-{partition}", world.urls_from(number + partition), LOG, partition)
        for number in range(plan.readers)
        for partition in range(plan.partitions)
    ]
    return Load(writers, readers)


def table(outcome: Outcome) -> str:
    """What a run showed, for people."""
    verdict = outcome.verdict
    disturbances = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.disturbances.items()))
    figures = {
        "events sent": outcome.sent,
        "accepted": verdict.accepted,
        "without a known outcome": outcome.unknown,
        "in the log": verdict.stored,
        "accepted events lost": verdict.lost,
        "accepted events reordered": verdict.reordered,
        "sent again": outcome.resent,
        "refused by Kafka before": verdict.refused,
        "copies in the log": verdict.doubled,
        "readers compared with Kafka": verdict.readers,
        "longest pause of a client, s": max(outcome.pause_s.values()),
        "disturbances": disturbances,
    }
    lines = [f"{name:30} {value}" for name, value in figures.items()]
    lines += [f"error of a client, {count} times: {text}" for text, count in sorted(outcome.errors.items())]
    lines += [f"VIOLATION {text}" for text in outcome.violations]
    return "\n".join(lines)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    plan = Plan(seconds=given.seconds, seed=given.seed)
    folder = Path(tempfile.mkdtemp(prefix="kafka-chaos-"))
    try:
        outcome = asyncio.run(run(plan, folder))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(_plain(plan, outcome)) if given.json else table(outcome))
    if outcome.violations:
        print(f"what the processes wrote is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _plain(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    return {"plan": asdict(plan), **asdict(outcome), "violations": outcome.violations}


if __name__ == "__main__":
    sys.exit(main())
