"""Cursors of consumer groups: they are handed over with their partitions.

Spec: Event Streams 3.2, 4.5.
"""

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.streams.attach import Denied, Granted, Leave
from amqp_streams.streams.consuming.reader import Run
from tests.amqp_streams.node.bench import EARLIEST, Bench, member


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- in a group


def test_a_group_hands_its_cursor_over(bench: Bench) -> None:
    """A member that leaves settles its events. The next owner, any member, continues exactly there."""
    old = bench.consume(member(partition=0, durable=True, filters=EARLIEST, container="a"))
    bench.append(0, 0, 0)
    bench.read(old)
    bench.settle(old, (0, 0), (0, 1))
    bench.detach(old)
    new = bench.consume(member(partition=0, durable=True, container="b"))
    assert bench.read(new) == [(0, 2)]
    assert bench.read(bench.consume(member(partition=0, filters=EARLIEST, group="other"))) == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]


def test_settlements_of_an_evicted_member_change_nothing(bench: Bench) -> None:
    """4.5.2: the partition is the new owner's from the moment that the old link is closed."""
    old = bench.consume(member(partition=0, durable=True, filters=EARLIEST, container="a"))
    bench.append(0, 0)
    bench.read(old)
    bench.settle(old, (0, 0))
    bench.attach(member(partition=0, epoch=1, durable=True, container="b"))
    bench.settle(old, (0, 1))
    bench.node.sent(old, Run(bench.log.partitions[0], bench.log.partitions[0].read(0, 10), 0, 2, 0), 2)  # type: ignore[arg-type]
    (granted,) = (each for each in bench.complete() if isinstance(each, Granted))
    assert bench.read(granted.grant) == [(0, 1)]


def test_settlements_of_a_leaving_member_count(bench: Bench) -> None:
    """4.5.1: after a graceful close, the consumer may settle its events."""
    for _ in range(2):
        bench.consume(member(durable=True, filters=EARLIEST, container="a"))
    bench.append(0, 1)
    links = list(bench.node.consumers())
    for link in links:
        bench.read(link)
    waiting = bench.attach(member(durable=True, container="b"))
    (leave,) = bench.tick(3000)
    assert isinstance(leave, Leave)
    index = leave.grant.partitions[0].index
    bench.settle(leave.grant, (index, 0))
    (granted,) = bench.detach(leave.grant)
    assert isinstance(granted, Granted)
    assert granted.pending is waiting
    assert bench.read(granted.grant) == []
    bench.append(index)
    assert bench.read(granted.grant) == [(index, 1)]


def test_a_group_whose_cursor_cannot_be_kept_frees_the_partition(bench: Bench) -> None:
    bench.attach(member(partition=0, durable=True))
    (denied,) = bench.complete(StorageError("the disk is gone"))
    assert isinstance(denied, Denied)
    assert bench.consume(member(partition=0, durable=True))
    bench.refusal(member(partition=1, durable=True, user="bob"))
    assert bench.consume(member(partition=1))
