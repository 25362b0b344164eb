"""One run: a storm, then a calm period until everything that was promised is done, then an orderly stop."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.simulation_gateway.ledger import Ledger
from tests.simulation_gateway.loop import CALLS_MAX, SimulationError, VirtualLoop
from tests.simulation_gateway.misfortunes import Misfortunes, heal
from tests.simulation_gateway.users import Users
from tests.simulation_gateway.world import World

CALM_S: Final = 900
"""Virtual seconds after the last fault within which everything must be done."""
STORM_S: Final = 600
"""Virtual seconds after the last event within which all faults end."""
SELDOM_MS: Final = 5_000
"""How often statuses are read when no more events are sent."""


async def storm(world: World, users: Users) -> None:
    """Events, changes and misfortunes at the same time."""
    random, size, misfortunes = world.random, world.size, Misfortunes(world, users)
    end_ms = world.loop.now_ms + random.choice(size.storm_ms)
    befalling: list[asyncio.Task[None]] = []

    async def send() -> None:
        pause_ms = random.choice(size.send_pause_ms)
        while world.loop.now_ms < end_ms:
            for _ in range(random.choice((1, 1, 1, 1, 20))):
                if world.sources:
                    world.spawn(world.post(random.choice(sorted(world.sources)), world.events.any()))
            await world.sleep(1, 2 * pause_ms)

    async def befall() -> None:
        pause_ms = random.choice(size.befall_pause_ms)
        while world.loop.now_ms < end_ms:
            await world.sleep(1, 2 * pause_ms)
            befalling.append(world.spawn(misfortunes.one()()))

    async def change() -> None:
        pause_ms = random.choice(size.change_pause_ms)
        while world.loop.now_ms < end_ms:
            await world.sleep(1, 2 * pause_ms)
            await users.change()

    await asyncio.gather(send(), befall(), change())
    world.look_ms = SELDOM_MS
    if befalling:
        _, left = await asyncio.wait(befalling, timeout=STORM_S)
        world.ledger.check(not left, f"misfortunes have no end: {left}")


async def calm(world: World, users: Users) -> None:
    """Check that everything that can progress completes, and that a gateway that reports ready works."""
    await heal(world)
    begun_ms, pause_s = world.loop.now_ms, 5.0
    while world.loop.now_ms < begun_ms + CALM_S * 1000:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 120)
        left = await undone(world, users)
        if not left:
            break
    else:
        raise SimulationError(f"not done {CALM_S} s after the last fault: {left[:8]} of {len(left)}")
    for path in list(world.sources):
        status = await world.post(path, world.events.plain())
        world.ledger.check(status == 202, f"{path} is ready, and answers {status}")
    await asyncio.sleep(30)
    left = await undone(world, users)
    world.ledger.check(not left, f"not done 30 s after the last event: {left[:8]} of {len(left)}")


async def undone(world: World, users: Users) -> list[str]:
    """Return what has not happened yet."""
    left = [*world.ledger.missing(world.node.logs), *world.busy()]
    found: Mapping[str, bool] = await world.look()
    living = {f"{target.kind} {target.name}": target for target in users.living(fixed=True)}
    left += [
        f"{name} is not ready"
        for name, target in living.items()
        if not target.is_unclear and (target.ready_ms is None or not found.get(name))
    ]
    left += [f"{name} is not ready" for name, ready in found.items() if not ready and name not in users.bad]
    gone = {f"{target.kind} {target.name}" for target in world.ledger.targets.values() if target.deleted_ms}
    left += [f"{name} was deleted, and is there" for name in gone & found.keys()]
    left += [f"{name} is ready, and cannot work" for name in users.bad if found.get(name)]
    return left


async def play(world: World) -> None:
    """Carry out the whole run."""
    async with world.open():
        for replica in world.replicas:
            await replica.start()
        users = Users(world)
        await users.begin()
        watching = world.spawn(world.watch())
        storming = asyncio.ensure_future(storm(world, users))
        await asyncio.wait({storming, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not storming.done():
            storming.cancel()
            watching.result()
        storming.result()
        watching.cancel()
        await calm(world, users)
        for replica in world.replicas:
            left = await replica.stop()
            world.ledger.check(not left, f"tasks are left after the stop: {left[:3]}")
        for line in world.ledger.late():
            raise SimulationError(line)


def run(seed: int, state_dir: Path, *, counted: bool = False) -> Ledger:
    """One run of a seed. `counted`: with the budget of each callback; it takes three times as long."""
    state_dir.mkdir(parents=True, exist_ok=True)
    loop, patches = VirtualLoop(), ExitStack()
    asyncio.set_event_loop(loop)
    try:
        world = World(seed, loop, state_dir, patches)
        if counted:
            loop.count_calls()
        playing = loop.create_task(play(world))
        try:
            loop.run_until_complete(playing)
        except BaseException as error:
            for fault in world.logged.faults[:3]:
                error.add_note(fault)
            for context in loop.unhandled[:3]:
                error.add_note(str(context)[:2000])
            error.add_note("\n".join(world.logged.lines[-15:]))
            raise
        if world.logged.faults:
            raise SimulationError(f"an error in our own code: {world.logged.faults[0]}")
        if loop.unhandled:
            raise SimulationError(f"unhandled: {loop.unhandled[0]}")
        if loop.calls >= CALLS_MAX:
            raise SimulationError(f"{loop.calls} calls in one callback")
        return world.ledger
    finally:
        loop.wind_up()
        patches.close()
        asyncio.set_event_loop(None)
        loop.close()
