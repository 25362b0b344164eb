"""[io] What chaos does to brokers, nodes and clients, chosen from a seed.

Three hands, and a fourth one if there are gateways, independent of each other: their disturbances overlap.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bench.brokers.groups.fleet import SLOTS, Fleet
from bench.brokers.proxy import Proxy
from bench.brokers.world import TracedNode, World, restarted
from examples.node import NodeProcess

_BOTH_SHARE: Final = 0.15
"""How often two brokers are disturbed at once: then no partition has enough replicas."""
_LEASE_S: Final = 3.0
_SESSION_S: Final = 6.0
_SHORT_S: Final = (0.5, _LEASE_S - 0.5)
_MIDDLE_S: Final = (_LEASE_S + 0.2, _SESSION_S - 0.2)
_LONG_S: Final = (_SESSION_S + 0.5, 14.0)
_FROZEN_S: Final = (1.0, 12.0)
_AGAIN: Final = 4
_AGAIN_S: Final = 0.5

Kinds: TypeAlias = Mapping[str, tuple[Callable[[int, float], Awaitable[None]], tuple[float, float]]]
"""What is done, with the shortest and the longest time."""


@dataclass(slots=True)
class Havoc:
    """Disturbs a world until the end.

    `hold_s`: how long most disturbances last. `pause_s`: the time until the next.
    """

    world: World
    fleet: Fleet
    seed: int
    hold_s: tuple[float, float]
    pause_s: tuple[float, float]
    gateways: Sequence[NodeProcess] = ()
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    made: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def run(self, seconds: float) -> None:
        """Disturb for so long, and leave everything running."""
        hands = [self.brokers(), self.nodes(), self.clients()]
        if self.gateways:
            hands.append(self._disturb_gateways())
        tasks = [asyncio.create_task(hand) for hand in hands]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self.ending.set()
        await asyncio.gather(*tasks)
        await asyncio.to_thread(self.world.cluster.await_ready)

    async def brokers(self) -> None:
        """Disturb one broker or two at a time, and wait until the cluster is whole again."""
        choice = random.Random(f"{self.seed} brokers")
        kinds: dict[str, Callable[[int, float], Awaitable[None]]] = {
            "kill -9": self._kill_broker,
            "SIGTERM": self._stop_broker,
            "SIGSTOP": self._freeze_broker,
            "cut off": self._cut_broker,
        }
        while not self.ending.is_set():
            await self.pause(choice.uniform(*self.pause_s))
            count = 2 if choice.random() < _BOTH_SHARE else 1
            numbers = choice.sample(range(len(self.world.cluster.brokers)), count)
            kind, hold = choice.choice(sorted(kinds)), choice.uniform(*self.hold_s)
            if self.ending.is_set():
                return
            self.say(f"{kind} broker {' and '.join(str(each + 1) for each in numbers)} for {hold:.1f} s")
            self.made[f"{kind} {'two brokers' if count == 2 else 'a broker'}"] += 1
            await asyncio.gather(*(kinds[kind](number, hold) for number in numbers))
            await asyncio.to_thread(self.world.cluster.await_ready)

    async def nodes(self) -> None:
        """Disturb one node at a time."""
        kinds: Kinds = {
            "kill -9": (self.kill_node, self.hold_s),
            "SIGTERM": (self.stop_node, self.hold_s),
            "SIGSTOP, shorter than the lease,": (self._freeze_node, _SHORT_S),
            "SIGSTOP, longer than the lease,": (self._freeze_node, _MIDDLE_S),
            "SIGSTOP, longer than the session,": (self._freeze_node, _LONG_S),
            "SIGSTOP before a write": (self._freeze_writing, (_SHORT_S[0], _LONG_S[1])),
            "SIGSTOP in a transaction": (self._freeze_committing, (_SHORT_S[0], _LONG_S[1])),
            "cut from the brokers": (self._cut_from_brokers, self.hold_s),
            "cut from the nodes": (self._cut_from_nodes, self.hold_s),
            "cut from brokers and nodes": (self._cut_from_all, self.hold_s),
        }
        await self._hand("node", kinds, len(self.world.nodes))

    async def clients(self) -> None:
        """Disturb one process with consumers at a time."""
        kinds: Kinds = {
            "kill -9": (self._kill_clients, (0.0, 3.0)),
            "SIGTERM": (self._stop_clients, (0.0, 3.0)),
            "SIGSTOP": (self._freeze_clients, _FROZEN_S),
        }
        await self._hand("clients", kinds, SLOTS)

    async def _disturb_gateways(self) -> None:
        """Disturb one gateway at a time."""
        kinds: Kinds = {
            "kill -9": (self._kill_gateway, self.hold_s),
            "SIGTERM": (self._stop_gateway, self.hold_s),
        }
        await self._hand("gateway", kinds, len(self.gateways))

    async def _hand(self, what: str, kinds: Kinds, count: int) -> None:
        choice = random.Random(f"{self.seed} {what}")
        while not self.ending.is_set():
            await self.pause(choice.uniform(*self.pause_s))
            number, kind = choice.randrange(count), choice.choice(sorted(kinds))
            act, (least, most) = kinds[kind]
            hold = choice.uniform(least, most)
            if self.ending.is_set():
                return
            self.say(f"{kind} {what} {number + 1} for {hold:.1f} s")
            self.made[f"{kind} {what if what == 'clients' else f'a {what}'}"] += 1
            await act(number, hold)

    # -- brokers

    async def _kill_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        await asyncio.to_thread(broker.signal, signal.SIGKILL)
        await self.pause(hold)
        await asyncio.to_thread(broker.start, with_parent=True)

    async def _stop_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        await asyncio.to_thread(broker.stop)
        await self.pause(hold)
        await asyncio.to_thread(broker.start, with_parent=True)

    async def _freeze_broker(self, number: int, hold: float) -> None:
        broker = self.world.cluster.brokers[number]
        broker.signal(signal.SIGSTOP)
        await self.pause(hold)
        broker.signal(signal.SIGCONT)

    async def _cut_broker(self, number: int, hold: float) -> None:
        await self._cut(self.world.of_broker(number), hold)

    # -- nodes

    async def kill_node(self, number: int, hold: float) -> None:
        """SIGKILL, and start it again."""
        node = self.world.nodes[number]
        await asyncio.to_thread(node.kill)
        await self.pause(hold)
        await node.restart()

    async def stop_node(self, number: int, hold: float) -> None:
        """SIGTERM, and start it again."""
        node = self.world.nodes[number]
        try:
            if status := await asyncio.to_thread(node.stop):
                self.complaints.append(f"SIGTERM of a node ended with status {status}")
        except subprocess.TimeoutExpired as error:
            self.complaints.append(f"SIGTERM of a node: it did not end within {error.timeout:.0f} s")
            await asyncio.to_thread(node.abort)
        await self.pause(hold)
        await node.restart()

    async def _freeze_node(self, number: int, hold: float) -> None:
        process = self.world.nodes[number].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        await self.pause(hold)
        process.send_signal(signal.SIGCONT)

    async def _freeze_writing(self, number: int, hold: float) -> None:
        await self._freeze_at(number, hold, signal.SIGUSR1)

    async def _freeze_committing(self, number: int, hold: float) -> None:
        await self._freeze_at(number, hold, signal.SIGUSR2)

    async def _freeze_at(self, number: int, hold: float, where: signal.Signals) -> None:
        node = self.world.nodes[number]
        assert isinstance(node, TracedNode)
        assert node.process is not None
        if not await asyncio.to_thread(node.stop_at, where):
            self.made["... of these, where nothing was in work"] += 1
        await self.pause(hold)
        for _ in range(_AGAIN):
            # On a busy machine, the node may have got the request after it was stopped.
            node.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(_AGAIN_S)

    async def _cut_from_brokers(self, number: int, hold: float) -> None:
        await self._cut(self.world.proxies[number], hold)

    async def _cut_from_nodes(self, number: int, hold: float) -> None:
        await self._cut(self.world.between[number : number + 1], hold)

    async def _cut_from_all(self, number: int, hold: float) -> None:
        await self._cut([*self.world.proxies[number], self.world.between[number]], hold)

    # -- clients

    async def _kill_clients(self, number: int, hold: float) -> None:
        await asyncio.to_thread(self.fleet.kill, number)
        await self.pause(hold)
        self.fleet.start(number)

    async def _stop_clients(self, number: int, hold: float) -> None:
        if wrong := await asyncio.to_thread(self.fleet.stop, number):
            self.complaints.append(wrong)
        await self.pause(hold)
        self.fleet.start(number)

    async def _freeze_clients(self, number: int, hold: float) -> None:
        self.fleet.signal(number, signal.SIGSTOP)
        await self.pause(hold)
        self.fleet.signal(number, signal.SIGCONT)

    # -- gateways

    async def _kill_gateway(self, number: int, hold: float) -> None:
        gateway = self.gateways[number]
        await asyncio.to_thread(gateway.kill)
        await self.pause(hold)
        await restarted(gateway)

    async def _stop_gateway(self, number: int, hold: float) -> None:
        gateway = self.gateways[number]
        if status := await asyncio.to_thread(gateway.stop):
            self.complaints.append(f"SIGTERM of a gateway ended with status {status}")
        await self.pause(hold)
        await restarted(gateway)

    # -- all

    async def _cut(self, proxies: Sequence[Proxy], hold: float) -> None:
        for proxy in proxies:
            proxy.cut()
        await self.pause(hold)
        for proxy in proxies:
            proxy.join()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the end."""
        try:
            async with asyncio.timeout(seconds):
                await self.ending.wait()
        except TimeoutError:
            pass

    def say(self, words: str) -> None:
        """Write a line about what happens."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", file=sys.stderr, flush=True)
