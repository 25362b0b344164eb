"""Links whose store answers later: the order, drains and redeliveries stay as they are."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import LATER, ReadRequest
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from amqp_streams.wire.batches import read_batch
from amqp_streams.wire.offsets import offset_text
from tests.amqp_streams.decoded import mapping
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


def seeking_later(monkeypatch: pytest.MonkeyPatch, node: InMemoryNode) -> list[Read]:
    """Make each lookup of a time answer later: those that are not answered."""
    partition, reads = node.store.logs["temps"].partitions[0], list[Read]()
    seek = partition.seek_timestamp

    def later(after_ms: int, request: ReadRequest | None = None) -> Any:
        if request is None:
            return seek(after_ms)
        if request.pending is None:
            request.pending = Read(after_ms, request, reads)
            reads.append(request.pending)
        if request.pending in reads:
            return LATER
        request.pending = None
        return seek(after_ms)

    monkeypatch.setattr(partition, "seek_timestamp", later)
    return reads


def with_times() -> tuple[InMemoryNode, EnginePair, int]:
    """A log with an event for each second, and the time of the first one."""
    node = InMemoryNode({"temps": 1})
    began = node.clock()
    for number in range(5):
        node.append("temps", b"%d" % number)
        node.clock.advance(1000)
    return node, EnginePair(node), began


@pytest.mark.parametrize("durable", [True, False])
def test_an_attach_waits_for_the_lookup_of_its_time(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    node, pair, began = with_times()
    reads, other = seeking_later(monkeypatch, node), EnginePair(node)
    receiver = pair.receiver(
        "temps", filters=filter_of(timestamp_ms=began + 1000), credit=100, durable=durable
    )
    assert [read.at for read in reads] == [began + 1000]
    assert not receiver.arrived
    assert len(other.receiver("temps", filters=EARLIEST, credit=100).arrived) == 5
    reads[0].answer()
    pair.node.run()
    assert not reads
    assert [each.annotations[names.OFFSET] for each in receiver.arrived] == list(map(offset_text, (2, 3, 4)))


def test_an_attach_whose_link_ends_gives_up_its_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair, began = with_times()
    reads = seeking_later(monkeypatch, node)
    receiver = pair.receiver("temps", filters=filter_of(timestamp_ms=began), credit=100)
    assert len(reads) == 1
    pair.detach(receiver)
    assert not reads


def test_an_attach_whose_lookup_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair, began = with_times()

    def failing(*_arguments: object) -> int:
        message = "cannot read 1.log: no"
        raise StorageError(message)

    monkeypatch.setattr(node.store.logs["temps"].partitions[0], "seek_timestamp", failing)
    receiver = pair.receiver("temps", filters=filter_of(timestamp_ms=began), credit=100)
    condition = receiver.link.remote_condition
    assert condition is not None
    assert condition.name == names.INTERNAL_ERROR
    assert "cannot read 1.log" in str(condition.description)


def test_a_request_waits_for_its_lookup_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair, began = with_times()
    reads = seeking_later(monkeypatch, node)
    answers = pair.receiver("$management", prepare=called_answers, credit=10)
    asking_for_time = pair.sender("$management")
    pair.send(asking_for_time, request(names.EXTENTS, {"timestamp": proton.timestamp(began + 1000)}))
    assert len(reads) == 1
    assert not answers.arrived
    pair.send(pair.sender("$management"), request("READ", None))
    assert len(answers.take()) == 1
    reads[0].answer()
    pair.node.run()
    (answer,) = answers.take()
    (log,) = mapping(answer.message.body)["logs"]
    assert [extent["found"] for extent in log["partitions"]] == [1], "the first event at this time or later"


def test_a_request_whose_link_ends_gives_up_its_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair, began = with_times()
    reads = seeking_later(monkeypatch, node)
    pair.receiver("$management", prepare=called_answers, credit=10)
    sender = pair.sender("$management")
    pair.send(sender, request(names.EXTENTS, {"timestamp": proton.timestamp(began)}))
    assert len(reads) == 1
    pair.detach(sender)
    assert not reads


def called_answers(link: Any) -> None:
    link.target.address = "answers"


def request(operation: str, body: Any) -> bytes:
    properties = {"operation": operation, "type": "event-log", "name": "temps"}
    return bytes(proton.Message(body=body, id=1, reply_to="answers", properties=properties).encode())
