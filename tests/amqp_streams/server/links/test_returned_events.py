"""Outcomes on a consumer link: released and modified events are delivered again, the others are not."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, filter_of

EARLIEST = filter_of("@earliest")


def with_events(count: int, *, partitions: int = 1, **options: Any) -> tuple[InMemoryNode, EnginePair]:
    node = InMemoryNode({"temps": partitions}, **options)
    for number in range(count):
        node.append("temps", b"%d" % number, partition=number % partitions)
    return node, EnginePair(node)


def numbers(receiving: Receiving) -> list[int]:
    return [int(body) for body in receiving.bodies]


# -- outcomes


def counts(receiving: Receiving) -> list[tuple[int, int]]:
    return [(int(each.body), each.message.delivery_count) for each in receiving.arrived]


def test_an_event_given_back_comes_again_on_the_same_link() -> None:
    node, pair = with_events(3)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    (first, second, third) = receiver.take()
    pair.settle(second, proton.Delivery.RELEASED)
    node.run()
    assert counts(receiver) == [(1, 0)]
    assert receiver.arrived[0].annotations[names.OFFSET] == "0000000000000001"
    pair.settle(receiver.take()[0], proton.Delivery.RELEASED)
    node.run()
    assert counts(receiver) == [(1, 0)]
    pair.settle(first)
    pair.settle(third)
    pair.settle(receiver.take()[0])
    node.run()
    assert receiver.arrived == []


def test_failed_deliveries_are_counted_for_the_next() -> None:
    node, pair = with_events(1)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    for count in range(4):
        (each,) = receiver.take()
        assert each.message.delivery_count == count
        assert each.message.first_acquirer is False
        each.delivery.local.failed = True
        pair.settle(each, proton.Delivery.MODIFIED)
        node.run()


def test_the_header_that_was_sent_keeps_its_other_fields_when_deliveries_are_counted() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), proton.Message(body="x", durable=True, priority=7, ttl=1000))
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    (first,) = receiver.take()
    first.delivery.local.failed = True
    pair.settle(first, proton.Delivery.MODIFIED)
    node.run()
    (again,) = receiver.take()
    read = again.message
    assert (read.durable, read.priority, read.ttl, read.delivery_count, read.body) == (True, 7, 1000, 1, "x")


@pytest.mark.parametrize(
    "header", [b"\x00\x53\x70\xc0\x03\x01\x56\x05", b"\x00\x53\x70\xc0\x04\x01\xa1\x01\xff"]
)
def test_a_header_that_cannot_be_decoded_is_delivered_again_as_it_is(header: bytes) -> None:
    """A producer's broken header is not a reason to stop its consumers."""
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), header + b"\x00\x53\x75\xa0\x01x")
    node.append("temps", b"1")
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    first = receiver.take()[0]
    first.delivery.local.failed = True
    pair.settle(first, proton.Delivery.MODIFIED)
    node.run()
    (again,) = receiver.take()
    assert again.raw[: len(header)] == header


@pytest.mark.parametrize("how", ["rejected", "undeliverable here", "settled without an outcome", "accepted"])
def test_events_with_a_final_outcome_do_not_come_again_on_this_link_and_stay_in_the_log(how: str) -> None:
    node, pair = with_events(2)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    for each in receiver.take():
        if how == "undeliverable here":
            each.delivery.local.undeliverable = True
            pair.settle(each, proton.Delivery.MODIFIED)
        elif how == "settled without an outcome":
            each.delivery.settle()
        else:
            pair.settle(each, getattr(proton.Delivery, how.upper()))
    node.run()
    node.advance(2000)
    assert receiver.arrived == []
    assert numbers(pair.receiver("temps", filters=EARLIEST, credit=10)) == [0, 1]


def test_events_given_back_wait_for_credit() -> None:
    node, pair = with_events(2)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=2)
    for each in receiver.take():
        pair.settle(each, proton.Delivery.RELEASED)
    node.run()
    assert receiver.arrived == []
    pair.flow(receiver, 10)
    assert numbers(receiver) == [0, 1]


def test_an_event_released_after_retention_removed_it_is_lost() -> None:
    node = InMemoryNode()
    node.create("short", retention_ms=1000, segment_ms=1000)
    node.append("short", b"0")
    pair = EnginePair(node)
    receiver = pair.receiver("short", filters=EARLIEST, credit=10)
    (each,) = receiver.take()
    node.advance(20_000)
    pair.settle(each, proton.Delivery.RELEASED)
    node.run()
    assert receiver.arrived == []
    node.append("short", b"1")
    node.run()
    assert numbers(receiver) == [1]
