"""A commit with many links is answered in steps: the loop serves its sockets in between."""

import asyncio
from itertools import pairwise
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.server import service
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.links import turns
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Sent

EVENT = b"\x00\x53\x75\xa0\x05event"
LINKS = 20
PARTITION_0 = {names.PARTITION: proton.symbol("0")}


@pytest.fixture
def one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step takes all the time of an iteration."""
    monkeypatch.setattr(turns, "BUDGET_S", 1e-9)
    monkeypatch.setattr(service, "PUMP_TURN_S", 1e-9)


def sent_by_many() -> tuple[MemoryStore, InMemoryNode, list[Sent]]:
    """Connections whose events are in the commit in flight."""
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 2}, store=store)
    senders = [EnginePair(node).sender("temps") for _ in range(LINKS)]
    events = [sender.send(EVENT) for sender in senders]
    node.run()
    return store, node, events


def answered(events: list[Sent]) -> int:
    return sum(event.outcome == "accepted" for event in events)


@pytest.mark.usefixtures("one_a_turn")
def test_the_producers_of_a_commit_are_answered_in_turns() -> None:
    store, node, events = sent_by_many()
    while store.in_flight:
        store.complete()
        node.loop.run_ready()
    before = answered(events)
    node.turn()
    assert before <= answered(events) <= before + 2
    node.run()
    assert answered(events) == LINKS


@pytest.mark.usefixtures("one_a_turn")
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "agnostic"])
def test_the_consumers_of_a_commit_are_woken_in_turns(*, bound: bool) -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    readers = [
        pair.receiver("temps", credit=10, properties=PARTITION_0 if bound else None) for _ in range(LINKS)
    ]
    sender = EnginePair(node).sender("temps", properties=PARTITION_0)
    sender.send(EVENT)
    waiting: list[int] = []
    while not all(reader.arrived for reader in readers):
        node.turn()
        waiting.append(len(node.service._pumps))
    steps = [after - before for before, after in pairwise(waiting)]
    assert max(steps) <= 3, "how many are added to those that wait to be pumped, in one iteration"
    node.run()
    assert [len(reader.arrived) for reader in readers] == [1] * LINKS


@pytest.mark.usefixtures("one_a_turn")
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "agnostic"])
def test_a_consumer_that_drains_gets_what_was_accepted_before_though_it_was_not_woken(*, bound: bool) -> None:
    node = InMemoryNode({"temps": 2})
    pairs = [EnginePair(node) for _ in range(LINKS)]
    properties = PARTITION_0 if bound else None
    readers = [pair.receiver("temps", credit=10, properties=properties) for pair in pairs]
    sender = EnginePair(node).sender("temps", properties=PARTITION_0)
    event = sender.send(EVENT)
    while event.outcome != "accepted":
        node.turn()
    assert len(node.service._pumps) < LINKS // 2, "most are not woken"
    for reader in readers:
        reader.link.drain(0)
    node.run()
    assert [(len(reader.arrived), reader.link.credit) for reader in readers] == [(1, 0)] * LINKS


@pytest.mark.usefixtures("one_a_turn")
def test_a_node_that_stops_waits_until_all_producers_of_a_commit_are_answered() -> None:
    async def stopping() -> None:
        store, node, events = sent_by_many()
        while store.in_flight:
            store.complete()
            node.loop.run_ready()
        assert answered(events) < LINKS
        quiet = asyncio.ensure_future(node.service.quiet(5))
        await asyncio.sleep(0)
        assert not quiet.done()
        node.run()
        await asyncio.wait_for(quiet, 5)
        assert answered(events) == LINKS

    asyncio.run(stopping())


@pytest.mark.usefixtures("one_a_turn")
@pytest.mark.parametrize(
    ("kind", "method"), [(ProducerLink, "committed"), (AmqpConnection, "flush")], ids=["link", "connection"]
)
def test_a_link_that_fails_costs_its_connection_and_the_other_producers_are_answered(
    kind: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, failed = getattr(kind, method), list[object]()

    def failing(this: object, *arguments: Any) -> None:
        if not failed:
            failed.append(this)
            raise ArithmeticError
        sound(this, *arguments)

    store, node, events = sent_by_many()
    monkeypatch.setattr(kind, method, failing)
    while store.in_flight:
        store.complete()
        node.run()
    assert failed
    assert answered(events) == LINKS - 1
    assert len(node.service.connections) == LINKS - 1
