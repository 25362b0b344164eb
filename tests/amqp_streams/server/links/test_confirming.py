"""A durable receiver that settles second sees its deliveries settled when its outcome is on the disk, and not
before.
"""

import proton
import pytest

from amqp_streams.config import GroupSettings
from amqp_streams.errors import StorageError
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, filter_of

EARLIEST = filter_of("@earliest")
SECOND = (proton.Link.SND_UNSETTLED, proton.Link.RCV_SECOND)
FLUSH_MS = 200
BODIES = [b"%d" % number for number in range(6)]


def subscribed(node: InMemoryNode | None = None) -> tuple[InMemoryNode, EnginePair, Receiving]:
    """A durable receiver that settles second, and has six events."""
    if node is None:
        node = InMemoryNode({"temps": 1}, groups=GroupSettings(cursor_flush_ms=FLUSH_MS, pause_ms=500))
        node.append("temps", *BODIES)
    pair = EnginePair(node, container="app")
    return (
        node,
        pair,
        pair.receiver("temps", name="sub", durable=True, filters=EARLIEST, credit=100, settle=SECOND),
    )


def tell(
    node: InMemoryNode, receiver: Receiving, count: int, outcome: int = proton.Delivery.ACCEPTED
) -> None:
    for arrived in receiver.arrived[:count]:
        arrived.delivery.update(outcome)
    node.run()


def settled(receiver: Receiving) -> int:
    return sum(arrived.delivery.settled for arrived in receiver.arrived)


@pytest.mark.parametrize("outcome", [proton.Delivery.ACCEPTED, proton.Delivery.REJECTED])
def test_a_delivery_is_settled_when_its_cursor_is_written(outcome: int) -> None:
    node, _, receiver = subscribed()
    node.store.states.held = True
    tell(node, receiver, 4, outcome)
    node.advance(2 * FLUSH_MS)
    assert settled(receiver) == 0
    node.store.states.complete()
    node.run()
    assert settled(receiver) == 4


def test_a_write_that_failed_settles_nothing_and_is_made_again() -> None:
    node, _, receiver = subscribed()
    node.store.states.fail(StorageError("full"))
    tell(node, receiver, 4)
    node.advance(FLUSH_MS)
    assert settled(receiver) == 0
    node.advance(FLUSH_MS)
    assert settled(receiver) == 4


def test_a_report_during_a_write_waits_for_the_next_write() -> None:
    node, _, receiver = subscribed()
    node.store.states.held = True
    tell(node, receiver, 2)
    node.advance(FLUSH_MS)
    tell(node, receiver, 4)
    node.store.states.complete()
    node.run()
    assert settled(receiver) in {0, 2}, "those told twice may wait for the second"
    node.advance(FLUSH_MS)
    node.store.states.complete()
    node.run()
    assert settled(receiver) == 4


def test_a_receiver_that_settles_by_itself_after_all_needs_no_answer() -> None:
    node, pair, receiver = subscribed()
    tell(node, receiver, 6)
    for arrived in receiver.arrived[:3]:
        arrived.delivery.settle()
    node.run()
    node.advance(FLUSH_MS)
    assert all(arrived.delivery.settled for arrived in receiver.arrived[3:])
    node.disconnect(pair)
    node.run()
    assert subscribed(node)[2].bodies == []


def test_released_events_are_settled_at_once_and_sent_again() -> None:
    node, _, receiver = subscribed()
    first = receiver.arrived[0]
    first.delivery.update(proton.Delivery.RELEASED)
    node.run()
    assert first.delivery.settled
    assert receiver.bodies == [*BODIES, b"0"]


@pytest.mark.parametrize("how", ["detach", "end", "close", "break", "evict"])
def test_deliveries_of_ended_links_are_ignored(how: str) -> None:
    """A delivery's pointer is dead when its link is: to use it is the end of the process."""
    node, pair, receiver = subscribed()
    node.store.states.held = True
    tell(node, receiver, 4)
    node.advance(FLUSH_MS)
    match how:
        case "detach":
            pair.detach(receiver)
        case "end":
            pair.session.close()
        case "close":
            pair.connection.close()
        case "evict":
            subscribed(node)
        case _:
            node.disconnect(pair)
    node.run()
    node.store.states.held = False
    node.store.states.complete()
    node.advance(2 * FLUSH_MS)
    assert subscribed(node)[2].bodies == BODIES[4:]


def test_deliveries_of_an_evicted_link_are_settled_as_its_peer_speaks_of_them() -> None:
    """The pointers of the deliveries are invalid from then on, although they waited for a write."""
    node, _, receiver = subscribed()
    node.store.states.held = True
    tell(node, receiver, 4)
    thief = subscribed(node)[2]
    for arrived in receiver.arrived:
        arrived.delivery.settle()
    node.run()
    node.store.states.held = False
    node.store.states.complete()
    node.advance(2 * FLUSH_MS)
    assert (receiver.refused, thief.bodies) == ("amqp:link:stolen", BODIES[4:])


def test_a_leaving_link_ends_when_its_last_delivery_is_confirmed() -> None:
    node = InMemoryNode({"temps": 2}, groups=GroupSettings(cursor_flush_ms=FLUSH_MS, pause_ms=500))
    for partition in range(2):
        node.append("temps", *BODIES, partition=partition)
    rich, poor = EnginePair(node), EnginePair(node)
    held = [
        rich.receiver("temps", group="g", durable=True, filters=EARLIEST, credit=100, settle=SECOND)
        for _ in range(2)
    ]
    waiting = poor.receiver("temps", group="g", durable=True, credit=100)
    node.advance(1000)
    for receiver in held:
        tell(node, receiver, 6)
    assert waiting.pending
    node.advance(FLUSH_MS)
    assert not waiting.pending
    assert waiting.bodies == []
