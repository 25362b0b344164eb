"""Producers that number their events, over the wire: any AMQP client's, with nothing but link properties and
an annotation.
"""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Sending, Sent


def numbered(sequence: Any, body: str | None = None) -> bytes:
    message = proton.Message(body=body or f"event {sequence}")
    message.instructions = {proton.symbol(names.SEQUENCE): sequence}
    return bytes(message.encode())


def want(link: proton.Link) -> None:
    link.target.capabilities.put_object(proton.symbol(names.CAPABILITY_IDEMPOTENT_PRODUCER))


def producer(pair: EnginePair, producer_id: object = "p", **options: Any) -> Sending:
    return pair.sender("temps", properties={names.PRODUCER_ID: producer_id}, prepare=want, **options)


def answered(sending: Sending) -> dict[str, Any]:
    properties: Any = sending.link.remote_properties
    return {str(key): value for key, value in (properties or {}).items()}


def offered(sending: Sending) -> list[str]:
    capabilities = sending.link.remote_target.capabilities
    capabilities.rewind()
    found: Any = capabilities.get_object() if capabilities.next() else []
    return [str(one) for one in (found.elements if hasattr(found, "elements") else found)]


def outcomes(sent: list[Sent]) -> list[str | None]:
    return [each.outcome for each in sent]


def stored(node: InMemoryNode) -> list[str]:
    found: list[str] = []
    partition: Partition = node.store.logs["temps"].partitions[0]
    while chunk := partition.read(len(found), 1 << 20):
        for message in chunk.messages:
            decoded = proton.Message()
            decoded.decode(message)
            found.append(str(decoded.body))
    return found


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode({"temps": 1})


def test_an_idempotent_producer_learns_that_it_is_one_and_how_far_it_is(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    first = producer(pair)
    assert offered(first) == [names.CAPABILITY_IDEMPOTENT_PRODUCER]
    assert answered(first) == {names.PRODUCER_ID: "p"}
    pair.send(first, numbered(0), numbered(41))
    pair.detach(first)
    assert answered(producer(pair)) == {names.PRODUCER_ID: "p", names.PRODUCER_SEQUENCE: 41}


def test_an_ordinary_producer_learns_nothing_of_it(node: InMemoryNode) -> None:
    sender = EnginePair(node).sender("temps")
    assert answered(sender) == {}
    assert offered(sender) == []


def test_an_event_that_is_sent_again_is_accepted_and_stored_once(node: InMemoryNode) -> None:
    pair, other = EnginePair(node), EnginePair(node)
    events = [numbered(number) for number in range(20)]
    assert outcomes(pair.send(producer(pair), *events[:10])) == ["accepted"] * 10
    pair.node.disconnect(pair)
    assert outcomes(other.send(producer(other), *events)) == ["accepted"] * 20
    assert stored(node) == [f"event {number}" for number in range(20)]


def test_its_delivery_annotation_is_not_stored(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    pair.send(producer(pair), numbered(proton.ulong(0), "x"))
    receiver = pair.receiver("temps", filters=None)
    pair.flow(receiver, 10)
    chunk = node.store.logs["temps"].partitions[0].read(0, 100)
    assert chunk is not None
    assert names.SEQUENCE.encode() not in chunk.messages[0]


def test_a_message_without_a_number_is_rejected_and_the_link_continues(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    sender = producer(pair)
    sent = pair.send(sender, numbered(0), proton.Message(body="none"), numbered(1))
    assert outcomes(sent) == ["accepted", "rejected", "accepted"]
    assert sent[1].condition == names.INVALID_FIELD
    assert sender.refused is None


@pytest.mark.parametrize("producer_id", ["", "x" * 257, 7])
def test_an_invalid_id_refuses_the_link(node: InMemoryNode, producer_id: object) -> None:
    assert producer(EnginePair(node), producer_id).refused == names.INVALID_FIELD


def test_the_capability_without_an_id_refuses_the_link(node: InMemoryNode) -> None:
    assert EnginePair(node).sender("temps", prepare=want).refused == names.INVALID_FIELD


def test_a_link_to_the_anonymous_terminus_cannot_be_one(node: InMemoryNode) -> None:
    refused = EnginePair(node).sender(None, properties={names.PRODUCER_ID: "p"}).refused
    assert refused == names.NOT_IMPLEMENTED


def test_a_repetition_of_what_is_in_flight_waits_for_its_commit() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    pair, other = EnginePair(node), EnginePair(node)
    first = pair.send(producer(pair), numbered(0))
    second = pair.send(producer(pair), numbered(0), numbered(1))
    third = other.send(producer(other), numbered(0), numbered(1), numbered(2))
    assert outcomes(first + second + third) == [None] * 6
    store.complete()
    node.run()
    assert outcomes(first + second + third) == ["accepted", "accepted", None, "accepted", None, None]
    store.complete()
    node.run()
    assert outcomes(first + second + third) == ["accepted"] * 6
    assert stored(node) == ["event 0", "event 1", "event 2"]


def test_a_repetition_fails_with_its_commit() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    pair = EnginePair(node)
    first = pair.send(producer(pair), numbered(0))
    sender = producer(pair)
    second = pair.send(sender, numbered(0))
    store.fail(store.logs["temps"].partitions[0], DiskFullError("full"), stop=False)
    store.complete()
    node.run()
    assert outcomes(first + second) == ["rejected"] * 2
    assert second[0].condition == names.RESOURCE_LIMIT_EXCEEDED
    late = pair.send(sender, numbered(1))
    assert [(late[0].outcome, late[0].condition)] == [("rejected", names.RESOURCE_LIMIT_EXCEEDED)]
    again = pair.send(sender, numbered(0), numbered(1))
    while store.in_flight:
        store.complete()
        node.run()
    assert outcomes(again) == ["accepted"] * 2
    assert stored(node) == ["event 0", "event 1"]


def test_an_event_of_a_failed_write_is_modified_until_it_is_sent_again() -> None:
    store = MemoryStore()
    node = InMemoryNode({"temps": 1}, store=store)
    pair = EnginePair(node)
    sender = producer(pair)
    store.fail(store.logs["temps"].partitions[0], StorageError("a bad write"), stop=False)
    assert outcomes(pair.send(sender, numbered(0), numbered(1))) == ["modified"] * 2
    assert outcomes(pair.send(sender, numbered(2))) == ["modified"]
    assert outcomes(pair.send(sender, numbered(0), numbered(1), numbered(2))) == ["accepted"] * 3


def test_a_receiver_that_settles_second_gets_its_outcomes_all_the_same(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    sender = producer(pair, settle=(proton.Link.SND_UNSETTLED, proton.Link.RCV_SECOND))
    first = pair.send(sender, numbered(0))
    second = pair.send(sender, numbered(0), numbered(1))
    assert outcomes(first + second) == ["accepted"] * 3
    assert not second[0].delivery.settled


def test_beyond_the_limit_on_producers_events_are_refused_until_one_goes() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(producers=1))
    pair = EnginePair(node)
    one, two = producer(pair, "one"), producer(pair, "two")
    assert outcomes(pair.send(one, numbered(0))) == ["accepted"]
    (refused,) = pair.send(two, numbered(0))
    assert (refused.outcome, refused.condition) == ("rejected", names.RESOURCE_LIMIT_EXCEEDED)
    pair.detach(one)
    assert outcomes(pair.send(two, numbered(0))) == ["accepted"]


def test_a_link_that_is_stolen_counts_no_longer() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(producers=1))
    pair, other = EnginePair(node, container="c"), EnginePair(node, container="c")
    stolen = producer(pair, "one", name="n")
    pair.send(stolen, numbered(0))
    successor = producer(other, "two", name="n")
    assert stolen.refused == names.LINK_STOLEN
    assert outcomes(other.send(successor, numbered(0))) == ["accepted"]


def test_a_recreated_log_has_no_cursors(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    pair.send(producer(pair), numbered(7))
    node.delete("temps")
    node.create("temps", partitions=1)
    sender = producer(pair)
    assert names.PRODUCER_SEQUENCE not in answered(sender)
    assert outcomes(pair.send(sender, numbered(0))) == ["accepted"]
    assert stored(node) == ["event 0"]


def test_events_that_were_stored_already_count_once_in_figures(node: InMemoryNode) -> None:
    pair = EnginePair(node)
    sender = producer(pair)
    for _ in range(3):
        pair.send(sender, numbered(0), numbered(1))
    assert node.service.node.counters["temps"].events_in == 2
    assert node.service.node.counters["temps"].repeated == 4
