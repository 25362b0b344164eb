"""`make mixed`: a gateway with 200 Brokers and a node with 1,000 groups, for long, under load, poison and
troubles: restarts by SIGTERM, kill -9, reloads and a full disk, in turn.

Law: each event answered 202 reaches its Trigger's subscriber or dead letter sink; each event accepted over
AMQP reaches every group, in its partition's order; in the end every object is Ready; memory and descriptors
at the end of a period between two troubles do not grow from period to period; SIGTERM ends in time with
status 0.

    python -m bench.scale.mixed [--minutes 120] [--brokers 200] [--groups 1000]

Exit status 0 when all of that holds; 1 otherwise.
"""

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from amqp_streams.client import EARLIEST, Client, Consumer, Event, RetryPolicy, connect
from amqp_streams.client.errors import SendError, TimedOutError
from bench.process import usage
from bench.scale.crowd import Api, Crowd, broker, trigger
from bench.scale.poison import MESSAGES, POSTS, objects
from bench.scale.probe import probing
from bench.scale.troubles import Troubles, disk
from examples.gateway import GatewayProcess
from examples.node import NodeProcess

LOG: Final = "grouped"
PARTITIONS: Final = 4
POSTS_PER_S: Final = 40.0
APPENDS_PER_S: Final = 4.0
POISON_EVERY_S: Final = 3.0
POISONED_OBJECTS: Final = 40
SAMPLE_EVERY_S: Final = 10.0
SETTLED_S_MAX: Final = 300.0
START_SECONDS_MAX: Final = 600.0
FOLLOWED_BY_SINK: Final = {"retry": 2, "backoffPolicy": "linear", "backoffDelay": "PT0.2S", "timeout": "PT1S"}
GROWTH_SHARE_MAX: Final = 0.15
GROWTH_BYTES_MAX: Final = 16_000_000
FILES_FACTOR_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `trouble_s`: from one trouble to the next."""

    minutes: float = 120.0
    brokers: int = 200
    groups: int = 1000
    trouble_s: float = 150.0
    seed: int = 1


class Mixed(Crowd):
    """Subscribers of which some fail.

    Broker number n is served by path `n`, its dead letters go to `dead-n`.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance: Final = random.Random(seed)

    # Failing does not depend on the event.
    async def answer(self, path: str, id_: str) -> web.Response:  # noqa: ARG002
        """By the last digit of the number: 7 sometimes fails, 8 always does, 9 hangs, 6 replies with what
        cannot be read.
        """
        kind = path[-1]
        if path.startswith("dead-"):
            return web.Response(status=202)
        if kind == "7" and self._chance.random() < 0.3:
            return web.Response(
                status=503, headers={"retry-after": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999"}
            )
        if kind == "8":
            return web.Response(status=500)
        if kind == "9":
            await asyncio.sleep(5)
            return web.Response(status=503)
        if kind == "6":
            return web.Response(
                status=200, body=b"AAAA", headers={"content-type": "application/cloudevents+avro"}
            )
        return web.Response(status=202)


@dataclass
class World:
    """What was accepted, and what came of it."""

    plan: Plan
    posted: dict[str, set[str]] = field(default_factory=dict)
    refused: Counter[int] = field(default_factory=Counter)
    poisoned: Counter[str] = field(default_factory=Counter)
    appended: dict[int, set[int]] = field(
        default_factory=lambda: {partition: set() for partition in range(PARTITIONS)}
    )
    doubtful: int = 0
    read: dict[int, list[int]] = field(default_factory=dict)
    periods: dict[str, list[int]] = field(default_factory=lambda: {"gateway": [], "node": []})
    files: dict[str, list[int]] = field(default_factory=lambda: {"gateway": [], "node": []})
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        """Sleep, or less when the run ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ending.wait()


async def _set_up(api: Api, crowd: Crowd, plan: Plan) -> None:
    names = [str(number) for number in range(plan.brokers)]
    await api.create(broker(f"b{name}") for name in names)
    triggers = [trigger(f"t{name}", f"b{name}", f"{crowd.url}/{name}") for name in names]
    for one, name in zip(triggers, names, strict=True):
        one["spec"]["delivery"] = {**FOLLOWED_BY_SINK, "deadLetterSink": {"uri": f"{crowd.url}/dead-{name}"}}
    await api.create(triggers)
    await api.wait_ready(SETTLED_S_MAX)


async def _post(world: World, api: Api) -> None:
    """Events to all Brokers in turn at a steady rate."""
    number, began = 0, time.monotonic()

    async def one(number: int) -> None:
        name = str(number % world.plan.brokers)
        with suppress(aiohttp.ClientError, TimeoutError):
            status = await api.send(f"/broker/default/b{name}", f"e{number}")
            if status == 202:
                world.posted.setdefault(name, set()).add(f"e{number}")
            else:
                world.refused[status] += 1

    async with asyncio.TaskGroup() as group:
        while not world.ending.is_set():
            due = int((time.monotonic() - began) * POSTS_PER_S)
            for each in range(number, due):
                group.create_task(one(each))
            number = max(number, due)
            await world.pause(0.05)


async def _poison(world: World, api: Api, client: Client) -> None:
    """What cannot be read, decoded, filtered or reconciled, now and then, for Brokers that serve others as
    well.
    """
    chance = random.Random(world.plan.seed)
    for round_ in range(1_000_000):
        if world.ending.is_set():
            return
        name = str(chance.randrange(world.plan.brokers))
        body, headers = chance.choice(POSTS)
        with suppress(aiohttp.ClientError, TimeoutError):
            world.poisoned[f"POST {await api.post(f'/broker/default/b{name}', body, headers)}"] += 1
        with suppress(SendError, TimedOutError):
            async with client.producer(f"broker.default.b{name}") as producer:
                await producer.send(chance.choice(MESSAGES), timeout=10)
                world.poisoned["message"] += 1
        if round_ < POISONED_OBJECTS:
            with suppress(aiohttp.ClientError, TimeoutError, RuntimeError):
                await api.create(objects(round_), namespace="poison")
                world.poisoned["objects"] += 1
        await world.pause(POISON_EVERY_S)


async def _append(world: World, client: Client) -> None:
    """Numbered events to the partitions of the log that the groups share."""
    number = 0
    async with client.producer(LOG) as producer:
        while not world.ending.is_set():
            partition = number % PARTITIONS
            try:
                await producer.send(Event(number), partition, timeout=60)
                world.appended[partition].add(number)
            except (SendError, TimedOutError):
                world.doubtful += 1
            number += 1
            await world.pause(1 / APPENDS_PER_S)


async def _consume(world: World, group: int, consumer: Consumer) -> None:
    """One member of a group; it reads until it is cancelled."""
    read = world.read.setdefault(group, [])
    while True:
        for event in await consumer.receive(64, timeout=3600):
            if isinstance(event.body, int):
                read.append(event.body)


async def _trouble(world: World, troubles: Troubles) -> None:
    """One trouble after the other; before each, the memory and the descriptors of both are taken."""
    while True:
        await world.pause(world.plan.trouble_s)
        if world.ending.is_set():
            return
        for name, process in (("gateway", troubles.gateway), ("node", troubles.node)):
            used = usage(process.pid)
            world.periods[name].append(used.anonymous_bytes)
            world.files[name].append(used.open_files)
        trouble = troubles.next()
        print(f"{trouble}", flush=True)
        await troubles.make(trouble)


async def _sample(world: World, troubles: Troubles, crowd: Crowd) -> None:
    began = time.monotonic()
    while not world.ending.is_set():
        with suppress(ProcessLookupError):
            _show(time.monotonic() - began, world, crowd, troubles)
        await world.pause(SAMPLE_EVERY_S)


def _show(seconds: float, world: World, crowd: Crowd, troubles: Troubles) -> None:
    gateway, node = usage(troubles.gateway.pid), usage(troubles.node.pid)
    posted = sum(len(ids) for ids in world.posted.values())
    taken = sum(len(ids) for ids in crowd.came.values())
    print(
        f"{seconds:7.0f} s  accepted {posted:8,}  delivered {taken:8,}  poison"
        f" {sum(world.poisoned.values()):5}  troubles {len(troubles.made):3}  gateway"
        f" {gateway.anonymous_bytes / 1e6:6.1f} MB {gateway.open_files:4} files  node"
        f" {node.anonymous_bytes / 1e6:6.1f} MB {node.open_files:4} files",
        flush=True,
    )


def missing(world: World, crowd: Crowd) -> list[str]:
    """The accepted events that no subscriber and no sink has, and what a group has not or not in order."""
    said = []
    for name, ids in world.posted.items():
        reached = set(crowd.came.get(name, ())) | set(crowd.came.get(f"dead-{name}", ()))
        if lost := ids - reached:
            said.append(
                f"Broker b{name}: {len(lost)} of {len(ids)} accepted events did not arrive, for example"
                f" {min(lost)}"
            )
    for group, numbers in world.read.items():
        expected, got = world.appended[group % PARTITIONS], set(numbers)
        if lost_numbers := expected - got:
            said.append(
                f"group {group}: {len(lost_numbers)} of {len(expected)} events did not arrive, first"
                f" {min(lost_numbers)}"
            )
        if out_of_order(numbers):
            said.append(f"group {group}: events arrived out of order")
    return said


def out_of_order(numbers: Sequence[int]) -> bool:
    """Whether an event came for the first time behind a later one.

    Repetitions after a restart are allowed.
    """
    highest = -1
    seen: set[int] = set()
    for number in numbers:
        if number not in seen and number < highest:
            return True
        seen.add(number)
        highest = max(highest, number)
    return False


def more_files(periods: Sequence[int]) -> str | None:
    """What is wrong with the descriptors at the ends of the periods; the first two are the warm-up."""
    warm = periods[2:]
    third = len(warm) // 3
    if third and (last := min(warm[-third:])) > FILES_FACTOR_MAX * max(warm[:third]):
        return f"descriptors at the end of a period grew from {max(warm[:third])} to {last}"
    return None


def growth(periods: Sequence[int]) -> str | None:
    """What is wrong with the memory at the ends of the periods; the first two are the warm-up."""
    warm = periods[2:]
    third = len(warm) // 3
    if third == 0:
        return None
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    if last - first > max(GROWTH_BYTES_MAX, GROWTH_SHARE_MAX * first):
        return f"memory at the end of a period grew from {first / 1e6:.1f} to {last / 1e6:.1f} MB"
    return None


async def run(plan: Plan, folder: Path) -> list[str]:
    """Everything, in an empty folder; what did not hold."""
    world = World(plan)
    with (
        disk(folder / "node" / "data", folder / "disk") as mounted,
        NodeProcess(folder / "node", "--admin-listen", "127.0.0.1:0", log=f"{LOG}:{PARTITIONS}") as node,
    ):
        gateway = GatewayProcess(folder / "gateway", "--amqp", node.url)
        # How fast it starts is not the subject: a machine that is busy with other work must not end the run.
        node.start_seconds_max = gateway.start_seconds_max = START_SECONDS_MAX
        troubles = Troubles(gateway, node, mounted)
        retry = RetryPolicy(attempts_max=1_000_000, elapsed_max_ms=600_000, first_connect=True)
        with gateway, probing(gateway.http) as probed:
            async with AsyncExitStack() as stack:
                crowd: Any = await stack.enter_async_context(Mixed(plan.seed))
                api = await stack.enter_async_context(Api(gateway.base_url))
                client = await stack.enter_async_context(connect(node.url, retry=retry, container_id="mixed"))
                await _set_up(api, crowd, plan)
                readers = await stack.enter_async_context(asyncio.TaskGroup())
                reading = [
                    readers.create_task(_consume(world, group, one))
                    for group, one in await _join(stack, client, plan)
                ]
                await _load(world, api, client, troubles, crowd)
                said = await _settled(world, api, crowd)
                for task in reading:
                    task.cancel()
    said += troubles.failed
    said += [f"{name}: {words}" for name, periods in world.periods.items() if (words := growth(periods))]
    said += [f"{name}: {words}" for name, periods in world.files.items() if (words := more_files(periods))]
    print(
        f"refused {dict(world.refused)}, poison {dict(world.poisoned)}, doubtful appends {world.doubtful},"
        f" troubles {dict(Counter(map(str, troubles.made)))}, probe ms p50 {probed.at(0.5):.1f} p99 "
        f"{probed.at(0.99):.1f} max"
        f" {probed.at(1.0):.1f}, not answered {probed.failed}"
    )
    for name, periods in world.periods.items():
        print(f"{name}, MB at the end of each period: {', '.join(f'{each / 1e6:.1f}' for each in periods)}")
    return said


async def _join(stack: AsyncExitStack, client: Client, plan: Plan) -> list[tuple[int, Consumer]]:
    joined = []
    for group in range(plan.groups):
        consumer = client.consumer(
            LOG,
            partition=group % PARTITIONS,
            group=f"g{group}",
            durable=f"m{group}",
            start=EARLIEST,
            credit=64,
        )
        joined.append((group, await stack.enter_async_context(consumer)))
    return joined


async def _load(world: World, api: Api, client: Client, troubles: Troubles, crowd: Crowd) -> None:
    async with asyncio.TaskGroup() as group:
        for each in (
            _post(world, api),
            _poison(world, api, client),
            _append(world, client),
            _trouble(world, troubles),
            _sample(world, troubles, crowd),
        ):
            group.create_task(each)
        await asyncio.sleep(world.plan.minutes * 60)
        world.ending.set()


async def _settled(world: World, api: Api, crowd: Crowd) -> list[str]:
    """Wait until everything has arrived and is Ready, at most SETTLED_S_MAX; what is not."""
    deadline = time.monotonic() + SETTLED_S_MAX
    while True:
        said = missing(world, crowd)
        said += [f"not Ready: {words}" for words in await api.unready(namespace="default")]
        if not said or time.monotonic() > deadline:
            return said
        print(f"waiting: {len(said)} are not done, for example {said[0]}", flush=True)
        await asyncio.sleep(SAMPLE_EVERY_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and judge."""
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale.mixed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=plan.minutes)
    parser.add_argument("--brokers", type=int, default=plan.brokers)
    parser.add_argument("--groups", type=int, default=plan.groups)
    parser.add_argument("--trouble-s", type=float, default=plan.trouble_s)
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument("--keep", action="store_true", help="keep the folder with data and logs")
    options = parser.parse_args(arguments)
    plan = Plan(options.minutes, options.brokers, options.groups, options.trouble_s, options.seed)
    folder = Path(tempfile.mkdtemp(prefix="mixed-"))
    try:
        said = asyncio.run(run(plan, folder))
    finally:
        if options.keep:
            print(f"data and logs: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for words in said[:50]:
        print(f"FAILED {words}", file=sys.stderr)
    print("failed" if said else "nothing lost, everything Ready, memory flat")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
