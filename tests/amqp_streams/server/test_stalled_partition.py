"""A partition whose commits do not end: its links wait, and those of other partitions continue."""

import pytest

from amqp_streams.config import Limits
from amqp_streams.server.committing import QUEUE_SHARE
from amqp_streams.testing import MemoryCommitQueue, MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode

PENDING = 1 << 20
EVENT = b"\x00\x53\x75\xb0" + (20_000).to_bytes(4) + bytes(20_000)
CREDIT = 20
FULL = PENDING // QUEUE_SHARE // len(EVENT) + 1
"""So many events are the share of a partition."""


class Stalled:
    """A connection to a log with two partitions, whose commits wait for `complete`."""

    def __init__(self, *, separate: bool) -> None:
        self.store = MemoryStore(auto=False, separate=separate)
        limits = Limits(pending_bytes=PENDING, message_bytes=PENDING, credit=CREDIT)
        self.node = InMemoryNode({"temps": 2}, store=self.store, limits=limits)
        self.pair = EnginePair(self.node)
        self.first, self.second = (self.pair.sender("temps", partition=index) for index in range(2))

    def complete(self, partition: int) -> None:
        """End the commits of a partition."""
        queue = self.store.logs["temps"].partitions[partition].queue
        assert isinstance(queue, MemoryCommitQueue)
        while queue.in_flight:
            queue.complete()
            self.node.run()


def test_only_the_links_of_a_stalled_partition_wait() -> None:
    stalled = Stalled(separate=True)
    sent = stalled.pair.send(stalled.first, *[EVENT] * FULL)
    sent += stalled.pair.send(stalled.first, *[EVENT] * stalled.first.link.credit)
    assert stalled.first.link.credit == 0
    assert stalled.pair.channel.reading
    for _ in range(3):
        others = stalled.pair.send(stalled.second, *[EVENT] * (CREDIT // 2))
        stalled.complete(1)
        assert {each.outcome for each in others} == {"accepted"}
        assert stalled.second.link.credit == CREDIT
    stalled.complete(0)
    assert {each.outcome for each in sent} == {"accepted"}
    assert stalled.first.link.credit == CREDIT


def test_a_link_that_ends_while_its_partition_is_stalled_leaves_it_to_the_next() -> None:
    stalled = Stalled(separate=True)
    stalled.pair.send(stalled.first, *[EVENT] * FULL)
    stalled.pair.detach(stalled.first)
    again = stalled.pair.sender("temps", partition=0)
    stalled.complete(0)
    sent = stalled.pair.send(again, EVENT)
    stalled.complete(0)
    assert sent[0].outcome == "accepted"


@pytest.mark.parametrize("separate", [True, False])
def test_all_partitions_together_have_the_limit(*, separate: bool) -> None:
    stalled = Stalled(separate=separate)
    for _ in range(3):
        for sender in (stalled.first, stalled.second):
            stalled.pair.send(sender, *[EVENT] * (CREDIT - 1))
    assert stalled.store.pending_bytes < PENDING + 2 * CREDIT * len(EVENT)
    assert stalled.pair.channel.reading is (stalled.store.pending_bytes < PENDING)
