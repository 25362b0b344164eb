"""The gateway with many objects:

Brokers, partitions, Triggers, and a burst of changes beside an object that has nothing to do with it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.scale.crowd import Api, Crowd, broker, channel, partitions, trigger
from bench.scale.probe import Probed, probing
from bench.scale.report import REST_S, Found, Meter, found
from examples.gateway import GatewayProcess

READY_S_MAX: Final = 300.0
ARRIVED_S_MAX: Final = 300.0
SENDING_AT_ONCE: Final = 32
BESIDE_EVERY_S: Final = 0.5
"""How often an unrelated object is created while a burst goes on."""


Batches = tuple[Sequence[dict[str, Any]], ...]


@dataclass
class Running:
    """A gateway with default settings and an embedded node, its API, subscribers for all paths, and the meter
    of its two processes.
    """

    gateway: GatewayProcess
    api: Api
    crowd: Crowd
    meter: Meter
    probed: Probed


@asynccontextmanager
async def running(folder: Path, rest_s: float) -> AsyncIterator[Running]:
    """Start it in an empty folder, and watch `/readyz` all the while."""
    with GatewayProcess(folder) as gateway:
        node = gateway.node_pid
        assert node is not None
        meter = Meter({"gateway": gateway.pid, "node": node}, rest_s)
        with probing(gateway.http) as probed:
            async with Api(gateway.base_url) as api, Crowd() as crowd:
                yield Running(gateway, api, crowd, meter, probed)
        if gateway.stop() != 0:
            message = f"the gateway did not end well: {gateway.words[-1000:]}"
            raise RuntimeError(message)


async def many_brokers(folder: Path, count: int, rest_s: float = REST_S) -> Found:
    """`count` Brokers with a Trigger each; then an event to every Broker, delivered by its Trigger."""
    names = [f"b{number}" for number in range(count)]

    def objects(url: str) -> Batches:
        return [broker(name) for name in names], [trigger(name, name, f"{url}/{name}") for name in names]

    return await _delivered(
        folder, f"{count} Brokers with a Trigger each", objects, [(name, name) for name in names], rest_s
    )


async def wide_broker(folder: Path, count: int, events: int, rest_s: float = REST_S) -> Found:
    """One Broker of `count` partitions with a Trigger, and `events` events."""

    def objects(url: str) -> Batches:
        return [partitions("wide", count)], [
            broker("wide", config="wide"),
            trigger("wide", "wide", f"{url}/wide"),
        ]

    sent = [("wide", f"e{number}") for number in range(events)]
    return await _delivered(
        folder, f"one Broker of {count} partitions, {events} events", objects, sent, rest_s
    )


async def many_triggers(folder: Path, count: int, rest_s: float = REST_S) -> Found:
    """One Broker with `count` Triggers, each for a type of its own; then an event of each type."""
    names = [f"t{number}" for number in range(count)]

    def objects(url: str) -> Batches:
        return [broker("one")], [trigger(name, "one", f"{url}/{name}", name) for name in names]

    return await _delivered(
        folder, f"one Broker with {count} Triggers", objects, [("one", name) for name in names], rest_s
    )


async def _delivered(
    folder: Path, case: str, objects: Callable[[str], Batches], events: list[tuple[str, str]], rest_s: float
) -> Found:
    """Create objects, batch after batch, wait until all are Ready, and have each event delivered once.

    `objects` gets the URL of the subscribers; an event is the name of its Broker and its id.
    """
    async with running(folder, rest_s) as on:
        began = time.monotonic()
        for batch in objects(on.crowd.url):
            await on.api.create(batch)
        created_s = time.monotonic() - began
        await on.api.wait_ready(READY_S_MAX)
        ready_s = time.monotonic() - began
        cpu = on.meter.cpu_seconds()
        events_s = await _sent(on, events, len(events))
        costs = await asyncio.to_thread(on.meter.costs)
    notes = {"seconds to create them": created_s, **cpu}
    return found(case, ready_s=ready_s, events_s=events_s, costs=costs, probed=on.probed, notes=notes)


async def burst(folder: Path, count: int, rest_s: float = REST_S) -> Found:
    """`count` objects are created as fast as the API takes them; meanwhile Channels of another namespace
    become Ready.
    """
    async with running(folder, rest_s) as on:
        await on.api.create([broker("busy")])
        await on.api.wait_ready(READY_S_MAX)
        began = time.monotonic()
        creating = asyncio.create_task(
            on.api.create(trigger(f"t{number}", "busy", f"{on.crowd.url}/t") for number in range(count))
        )
        beside: list[float] = []
        while not creating.done():
            beside.append(await _ready_beside(on.api, f"beside{len(beside)}"))
            await asyncio.sleep(BESIDE_EVERY_S)
        await creating
        created_s = time.monotonic() - began
        await on.api.wait_ready(READY_S_MAX)
        ready_s = time.monotonic() - began
        cpu = on.meter.cpu_seconds()
        costs = await asyncio.to_thread(on.meter.costs)
    return found(
        f"a burst of {count} objects",
        ready_s=ready_s,
        events_s=float("nan"),
        costs=costs,
        probed=on.probed,
        notes={
            "seconds to create them": created_s,
            BESIDE: max(beside),
            "unrelated objects": len(beside),
            **cpu,
        },
    )


BESIDE: Final = "slowest unrelated object, seconds to Ready"


async def _ready_beside(api: Api, name: str) -> float:
    began = time.monotonic()
    await api.create([channel(name)], namespace="elsewhere")
    deadline = began + READY_S_MAX
    while await api.unready(["Channel"], namespace="elsewhere"):
        if time.monotonic() > deadline:
            message = f"Channel {name} is not Ready after {READY_S_MAX:.0f} s"
            raise RuntimeError(message)
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def _sent(on: Running, events: list[tuple[str, str]], count: int) -> float:
    """Send events (the Broker, the id, which is the type as well) and wait until `count` have arrived; the
    seconds.

    Raises:
        RuntimeError: one is not accepted, or they do not arrive in time.
    """
    began = time.monotonic()
    waiting = iter(events)

    async def some() -> None:
        for name, id_ in waiting:
            status = await on.api.send(f"/broker/default/{name}", id_, type_=id_)
            if status != 202:
                message = f"event {id_} for Broker {name}: {status}, not 202: {on.gateway.words[-1000:]}"
                raise RuntimeError(message)

    await asyncio.gather(*(some() for _ in range(SENDING_AT_ONCE)))
    try:
        await on.crowd.until(lambda: sum(len(ids) for ids in on.crowd.came.values()) >= count, ARRIVED_S_MAX)
    except TimeoutError as error:
        arrived = sum(len(ids) for ids in on.crowd.came.values())
        message = f"{arrived} of {count} events arrived: {on.gateway.words[-1000:]}"
        raise RuntimeError(message) from error
    return time.monotonic() - began
