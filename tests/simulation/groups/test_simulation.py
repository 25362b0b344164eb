"""Seeded runs of a node with its peers: no matter what stalls, dies, fails and crashes, everything is
processed in the end, in order.

`SIM_SEEDS` runs this many seeds, `SIM_SEED` a single one. The name of a failed test contains its seed.
"""

import os
from collections import Counter
from random import Random

import pytest

from amqp_streams.config import GroupSettings
from tests.simulation.groups.peers import Consumer, Leaser, Sharer, Subscriber
from tests.simulation.groups.schedule import Schedule
from tests.simulation.groups.stage import Stage

STORM_MS = 60_000
CALM_MS = 60_000
SEEDS = (
    [int(os.environ["SIM_SEED"])]
    if os.environ.get("SIM_SEED")
    else range(int(os.environ.get("SIM_SEEDS") or 3))
)


class World:
    """A node, two groups and a subscriber, and the faults that they meet."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.schedule = Schedule()
        settings = GroupSettings(
            wait_ms=self.random.choice((0, 2000, 30_000)),
            pause_ms=self.random.choice((200, 1000, 3000)),
            handover_ms=self.random.choice((500, 10_000)),
        )
        self.partitions = self.random.randint(1, 8)
        self.stage = Stage(self.schedule, self.random, self.partitions, settings)
        links = self.random.choice((1, self.partitions))
        self.sharers = [
            Sharer(self.stage, f"sharer-{number}", "shared", links)
            for number in range(self.random.randint(1, 10))
        ]
        self.leasers = [
            Leaser(self.stage, f"leaser-{number}", "leased") for number in range(self.random.randint(1, 4))
        ]
        self.subscriber = Subscriber(self.stage, "subscriber")
        self.peers: list[Consumer] = [*self.sharers, *self.leasers, self.subscriber]
        self.epochs = Counter[int]()
        self.stormy = True

    def run(self) -> None:
        """Run a storm, then a calm period until everything is processed."""
        for peer in self.peers:
            start_ms = self.random.randint(0, 5000)
            self.schedule.after(start_ms, peer.start)
            if self.random.random() < 0.2:
                self.schedule.after(start_ms + self.random.randint(0, 5), self.crash)
        self.schedule.every(50, self.produce, while_=lambda: self.stormy)
        self.schedule.every(self.random.choice((300, 1000)), self.misfortune, while_=lambda: self.stormy)
        self.schedule.every(self.random.choice((500, 3000)), self.give_lease, while_=lambda: self.stormy)
        self.schedule.run(STORM_MS)
        self.calm_down()
        self.schedule.run(STORM_MS + CALM_MS)

    def produce(self) -> None:
        self.stage.append(self.random.choice(self.stage.log.partitions), self.random.randint(1, 10))

    def give_lease(self) -> None:
        """Assign partitions as another consensus system would. It may use one epoch twice."""
        index = self.random.randrange(self.partitions)
        self.epochs[index] += self.random.randint(0, 3)
        owner = self.random.choice(self.leasers)
        for leaser in self.leasers:
            leaser.lose_lease(index)
        owner.lease(index, self.epochs[index])

    def misfortune(self) -> None:
        peer, chance = self.random.choice(self.peers), self.random.random()
        if chance < 0.05:
            self.crash()
        elif chance < 0.08:
            self.give_lease()
            self.schedule.after(self.random.randint(0, 5), self.crash)
        elif chance < 0.35 and peer.alive:
            peer.die()
            self.schedule.after(self.random.randint(0, 8000), peer.revive)
        elif chance < 0.5:
            peer.stall(self.random.randint(100, 15_000))

    def crash(self) -> None:
        if self.stage.up and self.stormy:
            self.stage.crash()
            self.schedule.after(self.random.choice((0, 500, 3000)), self.stage.start)

    def calm_down(self) -> None:
        self.stormy = False
        self.stage.calm = True
        self.stage.start()
        for peer in self.peers:
            peer.stalled_until_ms = 0
            peer.window, peer.work_ms = 50, 1
            peer.revive()
        for index in range(self.partitions):
            for leaser in self.leasers:
                leaser.lose_lease(index, surely=True)
            self.random.choice(self.leasers).lease(index, self.epochs[index] + 1)

    def assert_all_is_processed(self) -> None:
        """By the subscriber, and by each group in each partition that has an owner: two members with a link
        each own two at most.
        """
        ledger = self.stage.ledger
        for partition in self.stage.log.partitions:
            index = partition.index
            owned = {f"group {group}" for group, owned in ledger.owners if owned == index}
            assert "group leased" in owned
            for name in (*owned, "link subscriber subscription"):
                assert ledger.cursors[name, index].position == partition.end, (name, index)

    def assert_partitions_are_spread_evenly(self) -> None:
        owners = [
            link.request.container
            for (group, _), link in self.stage.ledger.owners.items()
            if group == "shared"
        ]
        counts = Counter(owners)
        loads = [counts[sharer.name] for sharer in self.sharers]
        wanted = self.sharers[0].wanted * len(self.sharers)
        assert sum(loads) == min(self.partitions, wanted), loads
        assert max(loads) - min(loads) <= 1, loads

    def assert_nothing_comes_again_after_an_orderly_restart(self) -> None:
        ledger, ends = (
            self.stage.ledger,
            {partition.index: partition.end for partition in self.stage.log.partitions},
        )
        before = ledger.repeated.copy()
        done = [spot for spot, cursor in ledger.cursors.items() if cursor.position == ends[spot[1]]]
        self.stage.stop()
        self.stage.start()
        self.schedule.run(self.schedule.now_ms + 20_000)
        assert done
        assert {spot: ledger.repeated[spot] for spot in done} == {spot: before[spot] for spot in done}
        owners = Counter(group for group, _ in self.stage.ledger.owners)
        assert owners["leased"] == self.partitions, "who comes back with its own epoch is granted"


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_processed_in_order_and_partitions_are_shared_under_any_failures(seed: int) -> None:
    world = World(seed)
    world.run()
    world.assert_all_is_processed()
    world.assert_partitions_are_spread_evenly()
    world.assert_nothing_comes_again_after_an_orderly_restart()
    assert world.stage.ledger.counts["delivered"] > 1000
