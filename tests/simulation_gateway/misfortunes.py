"""The faults of gateways, log node, disk, network and sites."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tests.simulation_gateway.gateway import Replica
from tests.simulation_gateway.subscribers import MOODS, Site
from tests.simulation_gateway.users import Users
from tests.simulation_gateway.world import Kind, World


class Misfortunes:
    """Each method is one misfortune, from its beginning to its end."""

    def __init__(self, world: World, users: Users) -> None:
        self.world: Final = world
        self.users: Final = users
        self.random: Final = world.random

    def one(self) -> Callable[[], Awaitable[None]]:
        of_one: Sequence[Callable[[], Awaitable[None]]] = (
            self.mood,
            self.mood,
            self.mood,
            self.site_cut,
            self.site_refuses,
            self.site_silent,
            self.name_silent,
            self.name_unknown,
            self.garbage,
            self.garbage,
            self.users.break_config,
            self.users.create_bad_subscriber,
        )
        of_all: Sequence[Callable[[], Awaitable[None]]] = (
            self.node_away,
            self.node_stalled,
            self.node_full,
            self.log_deleted,
            self.retention,
            self.disk_away,
            self.disk_stalled,
            self.disk_slow,
            self.no_descriptors,
            self.slow_network,
            self.killed,
            self.restarted,
            self.users.recreate_broker,
        )
        of_kind: Mapping[Kind, Sequence[Callable[[], Awaitable[None]]]] = {
            Kind.RESTARTS: (self.restarted,),
            Kind.LOGS: (self.log_deleted, self.log_deleted, self.users.recreate_broker),
            Kind.SLOW_DATABASE: (self.disk_slow,),
        }
        if self.world.kind in of_kind:
            of_all = of_kind[self.world.kind]
        elif self.world.kind is not Kind.ANY:
            of_all = of_one
        return self.random.choice(of_all if self.random.random() < 0.3 else of_one)

    # -- sites

    def _site(self) -> Site:
        return self.random.choice([each for each in self.world.sites.by_name.values() if not each.is_fixed])

    async def mood(self) -> None:
        self._site().mood = self.random.choice(tuple(MOODS))

    async def site_cut(self) -> None:
        for connection in list(self._site().connections):
            connection.cut()

    async def site_refuses(self) -> None:
        address = self.world.sites.addresses[self._site().name]
        self.world.network.refused.add(address)
        await self.world.sleep(100, 20_000)
        self.world.network.refused.discard(address)

    async def site_silent(self) -> None:
        address = self.world.sites.addresses[self._site().name]
        self.world.network.unanswered.add(address)
        await self.world.sleep(100, 20_000)
        self.world.network.unanswered.discard(address)

    async def name_silent(self) -> None:
        name = f"{self._site().name}.test"
        self.world.network.silent[name] = self.random.choice((2.0, 20.0))
        await self.world.sleep(1000, 60_000)
        self.world.network.silent.pop(name, None)

    async def name_unknown(self) -> None:
        network, name = self.world.network, f"{self._site().name}.test"
        addresses = network.names.pop(name, None)
        await self.world.sleep(1000, 20_000)
        if addresses is not None:
            network.names[name] = addresses

    # -- the log node

    async def node_away(self) -> None:
        async with self.world.unusual():
            self.world.node.up = False
            await self.world.sleep(10, 30_000)
            self.world.node.up = True
            self.world.node.wake()
            await self.world.sleep(5000)

    async def node_stalled(self) -> None:
        async with self.world.unusual():
            self.world.node.stalled = True
            await self.world.sleep(10, 20_000)
            self.world.node.stalled = False
            self.world.node.wake()
            await self.world.sleep(5000)

    async def node_full(self) -> None:
        self.world.node.full = True
        await self.world.sleep(10, 5000)
        self.world.node.full = False

    async def log_deleted(self) -> None:
        """The log is deleted under the gateway, which creates it again."""
        async with self.world.unusual():
            node = self.world.node
            name = self.random.choice(sorted(node.logs) or [""])
            log = node.logs.pop(name, None)
            if log is None:
                return
            self.world.ledger.disturb_log(name)
            if self.random.random() < 0.5:
                await self.world.sleep(0, 3000)
                if name not in node.logs:
                    node.make(name, len(log.partitions))
            node.wake()
            await self.world.sleep(80_000)
            self.world.ledger.disturb_log(name)

    async def retention(self) -> None:
        for log in self.world.node.logs.values():
            for index, events in enumerate(log.partitions):
                log.removed[index] = max(log.removed[index], self.random.randint(0, len(events)))

    async def garbage(self) -> None:
        """An AMQP client writes messages into a log."""
        logs = sorted(self.world.node.logs)
        if logs and self.world.node.answers:
            log = self.random.choice(logs)
            for _ in range(self.random.choice((1, 1, 10))):
                self.world.node.store(log, *self.world.events.message())

    # -- gateways and their machine

    async def disk_away(self) -> None:
        disk = self.world.disk
        self.world.ledger.is_forgetful = True
        async with self.world.unusual():
            disk.away, disk.lying = True, self.random.random() < 0.3
            self.world.disk_away_since = self.world.loop.now_ms
            await self.world.sleep(*self.random.choice(((10, 3000), (10, 30_000), (90_000, 90_000))))
            self.world.disk_away_since = None
            disk.away = disk.lying = False

    async def disk_stalled(self) -> None:
        async with self.world.unusual():
            self.world.disk.stalled = True
            await self.world.sleep(10, 20_000)
            self.world.disk.stalled = False

    async def disk_slow(self) -> None:
        """Deliveries do not wait for the database, so this is nothing unusual for a healthy subscriber."""
        self.world.disk.slow = True
        await self.world.sleep(100, 20_000)
        self.world.disk.slow = False

    async def no_descriptors(self) -> None:
        async with self.world.unusual():
            self.world.network.descriptors_left = False
            await self.world.sleep(10, 20_000)
            self.world.network.descriptors_left = True
            await self.world.sleep(2000)

    async def slow_network(self) -> None:
        async with self.world.unusual():
            self.world.network.slow = True
            await self.world.sleep(100, 20_000)
            self.world.network.slow = False
            await self.world.sleep(5000)

    async def killed(self) -> None:
        async with self.world.unusual():
            replica = self.random.choice(self.world.replicas)
            self.world.ledger.is_forgetful = True
            await replica.kill()
            await self.world.sleep(0, 20_000)
            await self._restart(replica)
            await self.world.sleep(62_000 if self.world.is_replicated else 10_000)

    async def restarted(self) -> None:
        async with self.world.unusual():
            replica = self.random.choice(self.world.replicas)
            left = await replica.stop()
            self.world.ledger.is_forgetful |= bool(left)
            disk = self.world.disk
            if not disk.stalled and not disk.away:
                self.world.ledger.check(not left, f"tasks are left after the stop: {left[:3]}")
            took_ms = replica.stop_took_ms
            self.world.ledger.check(took_ms <= 30_000, f"the stop took {took_ms} ms")
            await self.world.sleep(0, 5000)
            await self._restart(replica)
            await self.world.sleep(10_000)

    async def _restart(self, replica: Replica) -> None:
        """Start a gateway again and again until it runs, as a supervisor does."""
        while True:
            await replica.start()
            if replica.process is not None:
                return
            await self.world.sleep(5000)


async def heal(world: World) -> None:
    """All faults stop, and all sites are well."""
    network, node, disk = world.network, world.node, world.disk
    network.refused.clear()
    network.unanswered.clear()
    network.silent.clear()
    network.late_ms.clear()
    world.loop.busy = None
    network.descriptors_left, network.slow = True, False
    for name, address in world.sites.addresses.items():
        network.names[f"{name}.test"] = [address]
    for site in world.sites.by_name.values():
        if not site.is_fixed:
            site.mood = "good"
        site.picks_max = 0
    node.up, node.stalled, node.full = True, False, False
    node.wake()
    disk.away = disk.lying = disk.stalled = disk.slow = False
    world.disk_away_since = None
    for replica in world.replicas:
        await replica.start()
    await asyncio.sleep(0)
