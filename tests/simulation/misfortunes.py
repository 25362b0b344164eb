"""The faults of a storm: processes, power, disks, clocks, networks, clients. Each kind is a method here."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.simulation.machine.logins import Logins
from tests.simulation.machine.network import Wire
from tests.simulation.machine.process import Node
from tests.simulation.machine.schedule import MS, SECOND
from tests.simulation.machine.stores import Directory
from tests.simulation.peers.consumers import Consumer

DAY_MS: Final = 24 * 3600 * 1000
_WRITES: Final = ("pwritev", "fdatasync", "truncate", "rename", "unlink", "fsync_dir", "open")


class Misfortunes:
    """Deals out the faults that a run has."""

    def __init__(self, world: Any, faults: set[str]) -> None:
        self.world = world
        self.random: Random = world.random
        self.power = "power" in faults
        kinds: dict[str, list[Callable[[Node], None]]] = {
            "crash": [self.kill, self.kill_within],
            "power": [self.lose_power, self.kill_within],
            "restart": [self.restart],
            "disk": [self.stall_disk, self.fill_disk, self.break_disk],
            "clock": [self.jump, self.jump_within, self.freeze_clock, self.freeze_process],
            "network": [self.reset, self.vanish, self.hold, self.hold, self.stop_reading],
            "clients": [self.kill_client, self.kill_client, self.stall_consumer],
        }
        if world.logins is not None:
            interval_us = self.random.choice((500, 2000)) * MS
            world.schedule.every(interval_us, self.take_away, while_=lambda: world.stormy)
        if world.plan.stalls:
            world.schedule.after(self.random.randint(400, 1500) * MS, self.stall_long)
        if world.plan.breaks:
            world.schedule.every(800 * MS, self.break_journal, while_=lambda: world.stormy)
        self.all = [(kind, act) for kind in sorted(faults & kinds.keys()) for act in kinds[kind]]

    def strike(self) -> None:
        """One of them, perhaps."""
        if self.all and self.random.random() < 0.5:
            kind, act = self.random.choice(self.all)
            self.world.note(f"{kind}: {act.__name__}")
            act(self.random.choice(self.world.nodes))

    def calm_down(self) -> None:
        """Repair everything."""
        for node in self.world.nodes:
            disk = node.backend
            disk.failing = _none
            disk.countdown = -1
            disk.files.space = None
            disk.pace.calm = True
            disk.pace.stalled_until_us = 0
            node.wall.thaw()
            node.loop.frozen_until_us = 0
            for wire in list(node.wires):
                for way in (wire.up, wire.down):
                    way.held_until_us = 0
                if not wire.client_reads:
                    wire.read_again()
            if self.world.logins is not None:
                self.world.logins.restore()
                node.reload()
            if not node.up:
                node.start()
            else:
                self._restart_if_stopped(node)
            # What the disk failed before the repair may be found or reported after it.
            for later in (5, 10, 20):
                self.world.schedule.after(later * SECOND, partial(self._restart_if_stopped, node))

    def _restart_if_stopped(self, node: Node) -> None:
        """Restart a node with a partition that stopped, as its operator does."""
        if node.up and any(
            partition.facts().failure
            for log in node.service.store.logs.values()
            for partition in log.partitions
        ):
            self.restart(node)

    # -- processes

    def kill(self, node: Node) -> None:
        """kill -9."""
        if node.up:
            node.kill()
            self._start_later(node)

    def lose_power(self, node: Node) -> None:
        if node.up:
            node.kill(power=True)
            self._start_later(node)

    def kill_within(self, node: Node) -> None:
        """The process, or the machine, dies within some operation on a file."""
        if self.world.stormy:  # one that was announced may come when the storm is over
            self._disk(node).countdown = self.random.randint(0, 40)

    def restart(self, node: Node) -> None:
        """SIGTERM, and a start."""
        wait_us = self.random.choice((0, 500 * MS))
        node.stop(lambda: self.world.schedule.after(wait_us, node.start))

    def _start_later(self, node: Node) -> None:
        wait_us = self.random.choice((0, 500, 3000)) * MS
        if self.random.random() < 0.2:
            self.world.schedule.after(wait_us + MS, lambda: self.kill_within(node))
        self.world.schedule.after(wait_us, node.start)

    # -- disks

    def _disk(self, node: Node) -> Directory:
        assert isinstance(node.backend, Directory)
        return node.backend

    def stall_disk(self, node: Node) -> None:
        disk = self._disk(node)
        disk.pace.stalled_until_us = self.world.schedule.now_us + self.random.choice((300, 3000, 9000)) * MS
        self.world.schedule.after(50 * MS, lambda: self.random.choice(self.world.producers).make(20))

    def fill_disk(self, node: Node) -> None:
        disk = self._disk(node)
        used = sum(len(disk.files.content(path)) for path in disk.files.paths())
        disk.files.space = used + self.random.choice((0, 3000, 30_000))

        def heal() -> None:
            disk.files.space = None

        self.world.schedule.after(self.random.randint(100, 4000) * MS, heal)

    def break_disk(self, node: Node) -> None:
        """Let operations fail for some time. Then an operator starts the node again."""
        random = self.random
        chance = random.choice((0.05, 0.5, 1.0))
        operations = random.choice((_WRITES, ("fdatasync",), ("pwritev",), ("pread",), (*_WRITES, "pread")))
        part = random.choice(("", "journal", "logs", "states"))
        self._break(node, chance, operations, part)

    def _break(self, node: Node, chance: float, operations: tuple[str, ...], part: str) -> None:
        disk, random = self._disk(node), self.random

        def failing(operation: str, path: Path) -> int:
            if operation in operations and part in str(path) and random.random() < chance:
                return errno.EIO
            return 0

        disk.failing = failing

        def heal() -> None:
            disk.failing = _none
            if node.up and self.world.stormy:
                random.choice((self.restart, self.kill))(node)

        self.world.schedule.after(random.randint(50, 2000) * MS, heal)

    def stall_long(self) -> None:
        """The disk stalls for longer than a client may be silent, and all producers have much to send."""
        self.world.note("disk: stall_long")
        now_us = self.world.schedule.now_us
        self._disk(self.world.node).pace.stalled_until_us = now_us + self.random.choice((3000, 4000)) * MS
        self._let_send(20)

    def break_journal(self) -> None:
        """All writes to the journal fail, or all syncs, and all producers have something to send."""
        self.world.note("disk: break_journal")
        self._break(self.world.node, 1.0, (self.random.choice(("pwritev", "fdatasync")),), "journal")
        self._let_send(2)

    def _let_send(self, events: int) -> None:
        for producer in self.world.producers:
            self.world.schedule.after(self.random.randint(5, 50) * MS, partial(producer.make, events))

    # -- clocks

    def jump(self, node: Node) -> None:
        self.world.ledger.clock_jumped = True
        node.wall.jump(
            self.random.choice((-1, 1)) * self.random.choice((1000, 600_000, 60 * DAY_MS, 4000 * DAY_MS))
        )

    def jump_within(self, node: Node) -> None:
        """The clock jumps while a commit is long, and the next one collects events of both times."""
        disk, half_us = self._disk(node), self.random.choice((100 * MS, SECOND))
        disk.pace.stalled_until_us = self.world.schedule.now_us + 2 * half_us
        self.world.ledger.clock_jumped = True
        self.world.schedule.after(half_us, lambda: node.wall.jump(self.random.choice((1000, 60 * DAY_MS))))
        for wait_us in (half_us // 2, half_us * 3 // 2):
            self.world.schedule.after(wait_us, lambda: self.random.choice(self.world.producers).make(2))

    def freeze_clock(self, node: Node) -> None:
        self.world.ledger.clock_jumped = True
        node.wall.freeze()
        self.world.schedule.after(self.random.randint(1, 10) * SECOND, node.wall.thaw)

    def freeze_process(self, node: Node) -> None:
        """The machine does other things for a while."""
        if node.up:
            for wire in node.wires:
                wire.troubled = True
            node.loop.freeze(self.random.randint(50, 8000) * MS)

    # -- networks

    def _wire(self, node: Node) -> Wire | None:
        return self.random.choice(list(node.wires)) if node.wires else None

    def reset(self, node: Node) -> None:
        if (wire := self._wire(node)) is not None:
            wire.reset()

    def vanish(self, node: Node) -> None:
        """A client disappears, and the node does not learn it."""
        if (wire := self._wire(node)) is not None:
            wire.vanish()

    def hold(self, node: Node) -> None:
        if (wire := self._wire(node)) is not None:
            wire.troubled = True
            self.random.choice((wire.up, wire.down)).hold(self.random.randint(50, 5000) * MS)

    def stop_reading(self, node: Node) -> None:
        if (wire := self._wire(node)) is not None:
            wire.client_reads = False
            self.world.schedule.after(self.random.randint(100, 8000) * MS, wire.read_again)

    # -- rights

    def take_away(self) -> None:
        """An operator takes the rights of a user away, or the user itself, and gives them back later."""
        logins: Logins = self.world.logins
        user = self.random.choice(sorted(logins.rightful))
        if self.random.random() < 0.5:
            logins.revoke(user)
        else:
            logins.remove(user)
        self.world.note(f"rights: taken away from {user}")

        def give_back() -> None:
            if self.world.stormy:
                logins.restore()
                self._reload()

        self._reload()
        self.world.schedule.after(self.random.randint(50, 2000) * MS, give_back)

    def _reload(self) -> None:
        for node in self.world.nodes:
            node.reload()

    # -- clients

    def kill_client(self, _node: Node) -> None:
        client = self.random.choice(self.world.clients)
        if client.living:
            client.die()
            self.world.schedule.after(self.random.randint(0, 5000) * MS, client.start)

    def stall_consumer(self, _node: Node) -> None:
        found = [client for client in self.world.clients if isinstance(client, Consumer)]
        if found:
            self.random.choice(found).stall(self.random.randint(100, 8000) * MS)


def _none(_operation: str, _path: Path) -> int:
    return 0
