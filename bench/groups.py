"""`make groups`: consumers in processes of their own share a log, one after the other is killed, and nothing
is lost, doubled or mixed up.

A node, a producer for every partition, and members of one consumer group. Every few seconds a random member
gets SIGKILL and is started again. In the end every accepted event was done, each partition's in order, never
by two members at a time; only what a killed member had not settled was done again (`group_journal.py`).
Printed: how long a partition was without an owner. Exit status 0 when all that is so.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqp_streams.client import Client, Event, RetryPolicy, connect
from bench.group_journal import Tenure, Verdict, judge, quantile, tenures
from examples.node import NodeProcess

LOG: Final = "events"
GROUP: Final = "workers"
ROOT: Final = Path(__file__).parent.parent
_FINISH_S_MAX: Final = 60.0
_CONFIG: Final = """
[groups]
pause = "{pause_ms}ms"
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `rate`: events a second, all partitions together;

    `kill_s`: the least and the greatest time between two kills; `kills_min`: so many are killed, and if that
    takes longer than `seconds`.
    """

    seconds: float = 120.0
    members: int = 10
    partitions: int = 8
    rate: float = 1000.0
    kill_s: tuple[float, float] = (1.0, 4.0)
    kills_min: int = 1
    pause_ms: int = 1000
    work_s: float = 0.0005
    seed: int = 1


# -- one member, in a process of its own


async def work(url: str, journal: Path, work_s: float) -> None:
    """Take part in the group until SIGTERM, writing down everything the moment it happens."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: str, partition: str | None, number: object = "") -> None:
        os.write(descriptor, f"{kind} {partition} {time.monotonic_ns()} {number}\n".encode())

    async with (
        connect(url, retry=RetryPolicy(first_connect=True)) as client,
        client.group_consumer(
            LOG,
            GROUP,
            settle="manual",
            on_assigned=lambda partition: note("a", partition),
            on_revoked=lambda partition: note("r", partition),
        ) as consumer,
    ):
        while not ending.is_set():
            for event in await consumer.receive(64, timeout=0.2):
                if not event.revoked:
                    note("e", event.partition, event.body)
                    await asyncio.sleep(work_s)
                    consumer.settle(event)


# -- all of them


@dataclass(slots=True)
class Members:
    """The processes. A member that was killed is started again under the next name."""

    url: str
    folder: Path
    work_s: float
    running: dict[int, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    killed_ns: dict[str, int] = field(default_factory=dict)
    started: int = 0

    def start(self, slot: int) -> None:
        """Start the member of a slot."""
        name = f"member-{slot}.{self.started}"
        self.started += 1
        command = [
            sys.executable,
            "-m",
            "bench.groups",
            "--member",
            self.url,
            str(self.journal(name)),
            str(self.work_s),
        ]
        words = (self.folder / f"{name}.words").open("wb")
        with words:
            self.running[slot] = (
                name,
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=words, stderr=words),
            )

    def journal(self, name: str) -> Path:
        """Where a member writes."""
        return self.folder / f"{name}.journal"

    def owning(self) -> list[int]:
        """The slots whose members have done something."""
        return [
            slot
            for slot, (name, _) in self.running.items()
            if self.journal(name).exists() and self.journal(name).stat().st_size
        ]

    def kill(self, slot: int) -> None:
        """SIGKILL, now."""
        name, process = self.running.pop(slot)
        self.killed_ns[name] = time.monotonic_ns()
        process.kill()
        process.wait()

    def stop(self) -> list[str]:
        """SIGTERM to all; the words of those that did not end well."""
        for _, process in self.running.values():
            process.terminate()
        complaints = []
        for name, process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            too_early = process.returncode == -signal.SIGTERM and not self.journal(name).exists()
            if process.poll() != 0 and not too_early:
                process.kill()
                process.wait()
                complaints.append(
                    f"{name} ended with {process.returncode}:"
                    f" {(self.folder / f'{name}.words').read_text()[-500:]}"
                )
        self.running.clear()
        return complaints

    def tenures(self) -> list[Tenure]:
        """What all of them wrote."""
        found: list[Tenure] = []
        for path in sorted(self.folder.glob("*.journal")):
            with path.open() as lines:
                found += tenures(path.stem, lines, self.killed_ns.get(path.stem))
        return found


async def produce(client: Client, plan: Plan, ending: asyncio.Event) -> dict[str, int]:
    """Numbered events to every partition in turn; how many each has when it is over, all of them accepted."""
    count, began, least = 0, time.monotonic(), int(plan.seconds * plan.rate / plan.partitions)
    async with client.producer(LOG) as producer:
        # On a busy machine, all that belong to the time may come after it.
        while not ending.is_set() or count < least:
            due = int((time.monotonic() - began) * plan.rate / plan.partitions)
            while count < due:
                for partition in range(plan.partitions):
                    await producer.post(Event(count), partition)
                count += 1
            await asyncio.sleep(0.005)
    return {str(partition): count for partition in range(plan.partitions)}


async def harry(members: Members, plan: Plan) -> int:
    """Kill and start members until the time is over; how many were killed."""
    chance, ends, kills = random.Random(plan.seed), time.monotonic() + plan.seconds, 0
    while (left := ends - time.monotonic()) > 0 or kills < plan.kills_min:
        pause_s = chance.uniform(*plan.kill_s)
        await asyncio.sleep(min(left, pause_s) if left > 0 else pause_s)
        candidates = members.owning()
        if candidates and (time.monotonic() < ends or kills < plan.kills_min):
            slot = chance.choice(candidates)
            members.kill(slot)
            members.start(slot)
            kills += 1
    return kills


async def first_owner(members: Members) -> None:
    """Until one member owns a partition: starting processes takes as long as the machine is busy."""
    async with asyncio.timeout(_FINISH_S_MAX):
        while True:
            if members.owning():
                return
            await asyncio.sleep(0.05)


async def all_settled(client: Client, count: int) -> bool:
    """Until the group has no event left to do; False: it takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISH_S_MAX):
            while True:
                group = await client.management.describe_group(LOG, GROUP)
                if sum(position.next_number or 0 for position in group.positions) >= count:
                    return True
                await asyncio.sleep(0.1)
    return False


async def run(plan: Plan, folder: Path) -> tuple[Verdict, int]:
    """Everything, in an empty folder; what was found, and how often a member was killed."""
    config = folder / "node.toml"
    config.write_text(_CONFIG.format(pause_ms=plan.pause_ms))
    with NodeProcess(folder / "node", "--config", str(config), log=f"{LOG}:{plan.partitions}") as node:
        members = Members(node.url, folder, plan.work_s)
        try:
            async with connect(node.url) as client:
                for slot in range(plan.members):
                    members.start(slot)
                await first_owner(members)
                ending = asyncio.Event()
                producing = asyncio.create_task(produce(client, plan, ending))
                kills = await harry(members, plan)
                ending.set()
                accepted = await producing
                finished = await all_settled(client, sum(accepted.values()))
        finally:
            complaints = members.stop()
        verdict = judge(members.tenures(), accepted)
    for words in complaints:
        verdict.complain(words)
    if not finished:
        verdict.complain(f"the group was not done {_FINISH_S_MAX:.0f} s after the last event")
    return verdict, kills


def report(verdict: Verdict, kills: int, plan: Plan) -> str:
    """For people."""
    run_of = f"{plan.members} members, {plan.partitions} partitions, {plan.seconds:.0f} s, seed {plan.seed}"
    lines = [f"{run_of}: {kills} kills, {verdict.done:,} events done, {verdict.repeated} of them again"]
    for what, values in (("a kill", verdict.after_kill_ms), ("a move", verdict.after_move_ms)):
        middle, high = quantile(values, 0.5), quantile(values, 0.99)
        most = max(values, default=0.0)
        lines.append(
            f"hand-over after {what}: {len(values)} times, ms p50 {middle:.1f}, p99 {high:.1f}, max"
            f" {most:.1f}"
        )
    lines += [f"  {words}" for words in verdict.complaints]
    lines.append(
        "failed" if verdict.complaints else "all accepted events were done, in order, by one owner at a time"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, or be one of the members."""
    if (given := list(sys.argv[1:] if arguments is None else arguments))[:1] == ["--member"]:
        asyncio.run(work(given[1], Path(given[2]), float(given[3])))
        return 0
    plan = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--seconds", type=float, default=plan.seconds)
    parser.add_argument("--members", type=int, default=plan.members)
    parser.add_argument("--partitions", type=int, default=plan.partitions)
    parser.add_argument(
        "--rate", type=float, default=plan.rate, help="events a second, all partitions together"
    )
    parser.add_argument("--seed", type=int, default=plan.seed, help="of who is killed and when")
    parser.add_argument("--work", type=Path, default=Path("/tmp/amqp-bench/groups"))
    options = parser.parse_args(given)
    plan = Plan(options.seconds, options.members, options.partitions, options.rate, seed=options.seed)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    verdict, kills = asyncio.run(run(plan, options.work))
    print(report(verdict, kills, plan))
    return 1 if verdict.complaints or not kills else 0


if __name__ == "__main__":
    sys.exit(main())
