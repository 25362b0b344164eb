"""A group's member under any order of assignments, moves, losses and taking: its laws hold at every step."""

import asyncio

import proton
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp_streams.client import GroupConsumer, ReceivedEvent, connect
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.coordinator import FORCED, LOG, Coordinator
from tests.properties import examples

PARTITIONS = 3
STEPS = st.tuples(
    st.sampled_from(
        ["assign", "close", "stolen", "lose", "store", "take", "settle", "put back", "refuse", "wait"]
    ),
    st.integers(0, PARTITIONS - 1),
    st.integers(1, 5),
)
BEGINNING = [(what, partition, 4) for what in ("assign", "store", "take") for partition in range(PARTITIONS)]
STOLEN = proton.Condition("amqp:link:stolen", "an epoch")


class Story:
    """A node that also simulates the group's cursor: unsettled events are delivered again on the next link of
    a partition.
    """

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.group = Coordinator(node, PARTITIONS)
        self.stored = [0] * PARTITIONS
        self.tenure: dict[str, list[int]] = {}
        self.hands: list[ReceivedEvent] = []
        self.back: list[ReceivedEvent] = []
        self.told: list[str] = []

    async def assign(self, partition: int) -> None:
        if str(partition) in self.group.holders or not self.group.waiting:
            return
        self.node.outgoing[f"{LOG}:{partition}"].clear()
        self.tenure[str(partition)] = []
        await self.group.assign(partition)
        await self.group.store(partition, *range(self.stored[partition]))

    async def lose(self) -> None:
        self.group.holders.clear()
        self.group.waiting.clear()
        self.node.lose()
        for _ in range(3):
            await self.group.move()

    async def store(self, partition: int, count: int) -> None:
        first = self.stored[partition]
        self.stored[partition] += count
        if str(partition) in self.group.holders:
            await self.group.store(partition, *range(first, first + count))

    def take(self, events: list[ReceivedEvent]) -> None:
        """Only events of owned partitions are returned, in the order of each partition."""
        for event in events:
            assert event.partition in self.group.holders
            assert not event.revoked
            if event not in self.back:
                numbers = self.tenure[str(event.partition)]
                assert event.body == len(numbers), "a gap, or out of order"
                numbers.append(int(str(event.body)))
        self.hands += events

    async def step(self, consumer: GroupConsumer, what: str, partition: int, count: int) -> None:
        """Do one of the possible steps."""
        match what:
            case "assign":
                await self.assign(partition)
            case "close" | "stolen" if str(partition) in self.group.holders:
                await self.group.close(partition, FORCED if what == "close" else STOLEN)
            case "lose":
                await self.lose()
            case "store":
                await self.store(partition, count)
            case "take":
                self.take(await consumer.receive(count, timeout=0))
            case "settle":
                consumer.settle(self.hands[:count])
                del self.hands[:count]
            case "put back":
                back = [event for event in self.hands[-count:] if not event.revoked]
                self.hands = [event for event in self.hands if event not in back]
                self.back += back
                consumer.put_back(back)
            case "refuse":
                self.group.refusing = not self.group.refusing
            case _:
                pass
        await self.group.move()

    def check(self, consumer: GroupConsumer) -> None:
        """Check the invariants."""
        assert consumer.partitions == tuple(sorted(self.group.holders)) == tuple(sorted(self.told))
        assert len(self.group.holders) + len(self.group.waiting) <= PARTITIONS
        assert len(consumer._order) == len(consumer.partitions)
        assert all(
            event.revoked == (not event._link.alive) for event in self.hands if event._link is not None
        )


async def live(steps: list[tuple[str, int, int]]) -> None:
    node = MemoryNode()
    with pytest.MonkeyPatch.context() as patches:
        node.replace_network(patches)
        story = Story(node)
        told = story.told
        async with connect("amqp://node", retry=AT_ONCE) as client:
            async with client.group_consumer(
                LOG, "g", settle="manual", on_assigned=told.append, on_revoked=told.remove
            ) as consumer:
                for what, partition, count in [*BEGINNING, *steps]:
                    await story.step(consumer, what, partition, count)
                    story.check(consumer)
            await story.group.move()
            assert story.group.holders == {}
            assert story.group.waiting == []
            assert told == []


@given(st.lists(STEPS, max_size=30))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_member_has_what_the_node_gave_it_and_hands_out_nothing_else(
    steps: list[tuple[str, int, int]],
) -> None:
    asyncio.run(live(steps))
