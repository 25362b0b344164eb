"""Links whose store answers later: the order, drains and redeliveries stay as they are."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.storage.ports import LATER, ReadRequest
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.wire.batches import read_batch
from tests.amqp_streams.storage.conftest import read_all

EARLIEST = filter_of("@earliest")


def asking(link: Any) -> None:
    """Ask for batched deliveries."""
    link.source.capabilities.put_object(proton.symbol(names.CAPABILITY_BATCHED_DELIVERIES))


def with_events(count: int, *, partitions: int = 1) -> tuple[InMemoryNode, EnginePair]:
    node = InMemoryNode({"temps": partitions})
    for number in range(count):
        node.append("temps", b"%d" % number, partition=number % partitions)
    return node, EnginePair(node)


class Read:
    """A read that the store has begun and not answered."""

    def __init__(self, at: int, request: ReadRequest, reads: "list[Read]") -> None:
        self.at = at
        self.request = request
        self.reads = reads

    def cancel(self) -> None:
        self.reads.remove(self)

    def answer(self) -> None:
        """Let the same read succeed, and call the reader."""
        self.reads.remove(self)
        self.request.ready()


def reading_later(monkeypatch: pytest.MonkeyPatch, node: InMemoryNode) -> list[Read]:
    """Make each read of another position answer later: those that are not answered."""
    partition, reads = node.store.logs["temps"].partitions[0], list[Read]()
    read = partition.read

    def later(at: int, size: int, request: ReadRequest) -> Any:
        pending = request.pending
        if at >= partition.end:
            return None
        if isinstance(pending, Read) and pending.at == at:
            if pending in reads:
                return LATER
            request.pending = None
            return read(at, min(size, 40))
        assert pending is None, "a reader has one read at a time"
        request.pending = Read(at, request, reads)
        reads.append(request.pending)
        return LATER

    monkeypatch.setattr(partition, "read", later)
    return reads


@pytest.mark.parametrize("alone", [True, False])
def test_a_read_that_answers_later_changes_nothing_that_the_client_sees(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """The order and the answer to a drain are the same, and other links are served meanwhile."""
    node, pair = with_events(60, partitions=2)
    expected = read_all(node.store.logs["temps"].partitions[0])
    reads = reading_later(monkeypatch, node)
    first, second = ({names.PARTITION: proton.symbol(text)} for text in "01")
    prepare = None if alone else asking
    receiver = pair.receiver("temps", filters=EARLIEST, credit=0, properties=first, prepare=prepare)
    receiver.link.drain(100)
    pair.node.run()
    other = EnginePair(node).receiver("temps", filters=EARLIEST, credit=100, properties=second)
    assert len(other.arrived) == 30
    answers = 0
    while reads:
        assert receiver.link.credit > 0, "a drain is answered after the last event"
        (read,) = reads
        read.answer()
        pair.node.run()
        answers += 1
    assert answers > 3
    assert receiver.link.credit == 0
    if alone:
        assert [each.raw.endswith(body) for each, body in zip(receiver.arrived, expected, strict=True)]
    else:
        assert [message for each in receiver.arrived for message in read_batch(each.raw).messages] == expected


def test_a_link_that_ends_gives_up_its_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair = with_events(3)
    reads, other = reading_later(monkeypatch, node), EnginePair(node)
    receivers = [
        (each, each.receiver("temps", filters=EARLIEST, credit=10, prepare=prepare))
        for each, prepare in ((pair, asking), (other, None))
    ]
    assert len(reads) == 2
    for each, receiver in receivers:
        each.detach(receiver)
    assert not reads


def test_a_released_event_is_read_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair = with_events(3)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=3)
    reads = reading_later(monkeypatch, node)
    pair.settle(receiver.arrived[1], proton.Delivery.RELEASED)
    pair.flow(receiver, 5)
    assert [read.at for read in reads] == [1]
    reads[0].answer()
    pair.node.run()
    assert len(receiver.arrived) == 4
    assert receiver.arrived[3].annotations[names.OFFSET] == receiver.arrived[1].annotations[names.OFFSET]
