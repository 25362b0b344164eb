"""A durable consumer's cursor: settlements advance it, it survives the end of link, connection and process,
and it delays no other link.
"""

from random import Random
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.server.dispatch import Dispatch
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, filter_of
from tests.amqp_streams.server.rounds import run_rounds_with_freed_memory_overwritten

EARLIEST = filter_of("@earliest")
PRESETTLED = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
SECOND = (proton.Link.SND_UNSETTLED, proton.Link.RCV_SECOND)
FLUSH_MS = 200
BODIES = [b"%d" % number for number in range(10)]


def filled(partitions: int = 1, **settings: Any) -> InMemoryNode:
    """Ten events in each partition."""
    node = InMemoryNode({"temps": partitions}, groups=GroupSettings(cursor_flush_ms=FLUSH_MS), **settings)
    for partition in range(partitions):
        node.append("temps", *BODIES, partition=partition)
    return node


def subscribed(node: InMemoryNode, *, credit: int = 100, **options: object) -> tuple[EnginePair, Receiving]:
    """A new connection of container app that attaches its durable link."""
    pair = EnginePair(node, container="app")
    return pair, pair.receiver(
        "temps", name="sub", durable=True, credit=credit, **({"filters": EARLIEST} | options)
    )


def rest(node: InMemoryNode, **options: Any) -> list[bytes]:
    """Return what the next link with this name receives."""
    return subscribed(node, **options)[1].bodies


def crashed(node: InMemoryNode, **settings: Any) -> InMemoryNode:
    """The node of the process after this one's was killed."""
    store = MemoryStore(states=node.store.states.survivors())
    store._logs = node.store._logs
    return InMemoryNode(store=store, groups=GroupSettings(cursor_flush_ms=FLUSH_MS), **settings)


# -- what advances it


def test_a_cursor_is_the_first_event_that_is_not_settled() -> None:
    node = filled()
    pair, receiver = subscribed(node)
    for number in (0, 1, 2, 5, 6):
        pair.settle(receiver.arrived[number])
    node.run()
    pair.detach(receiver, closed=False)
    assert rest(node) == BODIES[3:]


@pytest.mark.parametrize(
    ("outcome", "advances"),
    [
        (proton.Delivery.ACCEPTED, True),
        (proton.Delivery.REJECTED, True),
        (None, True),
        (proton.Delivery.RELEASED, False),
        (proton.Delivery.MODIFIED, False),
    ],
)
def test_an_outcome_advances_a_cursor_unless_it_asks_for_the_event_again(
    outcome: int | None, advances: bool
) -> None:
    node = filled()
    pair, receiver = subscribed(node, credit=1)
    (arrived,) = receiver.take()
    if outcome is not None:
        arrived.delivery.update(outcome)
    arrived.delivery.settle()
    node.run()
    pair.detach(receiver)
    assert rest(node)[0] == (b"1" if advances else b"0")


def test_an_event_that_is_sent_again_and_then_accepted_advances_the_cursor() -> None:
    node = filled()
    pair, receiver = subscribed(node, credit=2)
    first, second = receiver.take()
    pair.settle(second)
    pair.settle(first, proton.Delivery.RELEASED)
    node.run()
    pair.flow(receiver, 1)
    pair.settle(receiver.take()[0])
    node.run()
    pair.detach(receiver)
    assert rest(node) == BODIES[2:]


def test_an_event_that_cannot_be_delivered_here_is_done_with() -> None:
    node = filled()
    pair, receiver = subscribed(node, credit=1)
    (arrived,) = receiver.take()
    arrived.delivery.local.undeliverable = True
    pair.settle(arrived, proton.Delivery.MODIFIED)
    node.run()
    pair.detach(receiver)
    assert rest(node) == BODIES[1:]


def test_events_sent_settled_advance_the_cursor_when_they_are_sent() -> None:
    node = filled()
    pair, _ = subscribed(node, credit=4, settle=PRESETTLED)
    node.disconnect(pair)
    assert rest(node, settle=PRESETTLED) == BODIES[4:]


def test_settlements_of_a_receiver_that_settles_second_count_when_they_arrive() -> None:
    node = filled()
    pair, receiver = subscribed(node, settle=SECOND)
    for arrived in receiver.arrived[:3]:
        arrived.delivery.update(proton.Delivery.ACCEPTED)
    node.run()
    node.advance(FLUSH_MS)
    assert [arrived.delivery.settled for arrived in receiver.arrived[:4]] == [True, True, True, False]
    node.disconnect(pair)
    assert rest(node) == BODIES[3:]


def test_events_that_filters_skip_advance_the_cursor() -> None:
    node = filled()
    sql = {"sql": proton.Described(proton.symbol(names.FILTEX_SQL), "p.subject = 'wanted'")}
    pair, receiver = subscribed(node, filters=EARLIEST | sql)
    assert receiver.bodies == []
    node.advance(FLUSH_MS)
    node.disconnect(pair)
    assert rest(node) == []


def test_settling_and_detaching_in_one_block_counts() -> None:
    node = filled()
    pair, receiver = subscribed(node)
    for arrived in receiver.arrived[:4]:
        pair.settle(arrived)
    receiver.link.close()
    node.run()
    assert rest(node) == BODIES[4:]


def test_events_of_all_partitions_have_their_positions() -> None:
    node = filled(3)
    pair, receiver = subscribed(node)
    for arrived in receiver.arrived:
        if arrived.body < b"%d" % (3 * int(arrived.annotations[names.SOURCE_PARTITION])):
            pair.settle(arrived)
    node.run()
    node.disconnect(pair)
    assert sorted(rest(node)) == sorted(BODIES + BODIES[3:] + BODIES[6:])


# -- what it outlives


@pytest.mark.parametrize("how", ["close", "detach", "end", "break"])
def test_a_cursor_outlives_its_link_however_that_ends(how: str) -> None:
    """Losing a cursor is worse than keeping one too many, so the node also keeps the cursor after a closing
    detach.
    """
    node = filled()
    pair, receiver = subscribed(node)
    for arrived in receiver.arrived[:4]:
        pair.settle(arrived)
    node.run()
    match how:
        case "break":
            node.disconnect(pair)
            node.run()
        case "end":
            pair.session.close()
            node.run()
        case _:
            pair.detach(receiver, closed=how == "close")
    assert rest(crashed(node)) == BODIES[4:]


def test_a_process_that_is_killed_repeats_what_was_settled_since_the_last_flush_at_most() -> None:
    node = filled()
    pair, receiver = subscribed(node)
    for arrived in receiver.arrived[:4]:
        pair.settle(arrived)
    node.run()
    node.advance(FLUSH_MS)
    for arrived in receiver.arrived[4:7]:
        pair.settle(arrived)
    node.run()
    assert rest(crashed(node)) == BODIES[4:]


def test_a_node_that_stops_writes_what_has_moved() -> None:
    node = filled()
    pair, receiver = subscribed(node)
    for arrived in receiver.arrived[:4]:
        pair.settle(arrived)
    node.run()
    node.service.finish()
    node.store.states.complete()
    node.service.finish()
    assert rest(crashed(node)) == BODIES[4:]


def test_nothing_is_written_and_no_timer_runs_while_nothing_moves() -> None:
    node = filled()
    pair, receiver = subscribed(node)
    node.advance(10 * FLUSH_MS)
    written, timers = node.store.states.written, len(node.loop._timers)
    node.advance(10 * FLUSH_MS)
    assert (node.store.states.written, len(node.loop._timers)) == (written, timers)
    for arrived in receiver.arrived:
        pair.settle(arrived)
    node.run()
    assert len(node.loop._timers) == timers + 1
    node.advance(FLUSH_MS)
    assert (node.store.states.written, len(node.loop._timers)) == (written + 1, timers)


def test_a_link_without_a_source_that_is_closed_removes_what_is_kept_under_its_name() -> None:
    """JMS clients end a durable subscription in this way."""
    node = filled()
    pair, receiver = subscribed(node)
    pair.settle(receiver.arrived[0])
    pair.detach(receiver, closed=False)
    looking = pair.receiver(None, name="sub")
    assert looking.link.remote_source.address == "temps"
    pair.detach(looking, closed=False)
    assert rest(node) == BODIES[1:]
    other = EnginePair(node, container="app")
    other.detach(other.receiver(None, name="sub"), closed=True)
    assert rest(node) == BODIES


# -- what it costs others


def only_consumers(node: InMemoryNode, pair: EnginePair) -> bool:
    """Return whether the settlements on this connection are handled without a search."""
    (found,) = [wire.connection for wire in node._wires if wire.peer is pair]
    dispatch = found.dispatch
    assert isinstance(dispatch, Dispatch)
    return dispatch._only_consumers


def test_settlements_of_ordinary_consumers_are_dealt_with_unseen() -> None:
    node = filled()
    ordinary, durable = EnginePair(node), EnginePair(node)
    ordinary.receiver("temps")
    ordinary.receiver("temps", partition=0, epoch=1)
    kept = durable.receiver("temps", durable=True)
    assert (only_consumers(node, ordinary), only_consumers(node, durable)) == (True, False)
    durable.receiver("temps")
    assert not only_consumers(node, durable)
    durable.detach(kept)
    assert only_consumers(node, durable)


# -- whatever dies


def one_round(random: Random) -> None:
    """Groups, durable links and pending attaches whose connections end in any order, with settlements
    unwritten and writes in flight.

    The events of each partition are then passed on without a gap: the last consumer gets all events that no
    other consumer has settled.
    """
    store = MemoryStore()
    groups = GroupSettings(wait_ms=3000, pause_ms=500, handover_ms=1500, cursor_flush_ms=FLUSH_MS)
    node = InMemoryNode({"temps": 3}, store=store, groups=groups, limits=Limits(links=8))
    for partition in range(3):
        node.append("temps", *[b"%d" % number for number in range(40)], partition=partition)
    pairs: list[EnginePair] = []
    receivers: list[tuple[EnginePair, Receiving]] = []
    settled: set[tuple[str, bytes]] = set()
    for _ in range(random.randint(20, 60)):
        step(random, node, pairs, receivers, settled)
        if random.random() < 0.7:
            node.run()
        if random.random() < 0.3:
            node.advance(random.choice([50, 600, 2000]))
        store.states.held = random.random() < 0.2
    store.states.held = False
    store.states.complete()
    for pair in pairs:
        node.disconnect(pair)
    node.advance(5000)
    last = EnginePair(node)
    got = [last.receiver("temps", group="g", durable=True, filters=EARLIEST, credit=1000) for _ in range(3)]
    for index, receiver in enumerate(got):
        assert receiver.refused is None
        numbers = [int(body) for body in receiver.bodies]
        assert numbers == list(range(40 - len(numbers), 40)), f"a gap in partition {index}"
        partition = receiver.answered[names.PARTITION]
        assert all((partition, b"%d" % number) in settled for number in range(40 - len(numbers))), (
            "skipped and never settled"
        )
    node.disconnect(last)
    node.run()
    assert not node.service.effects._links, "what is gone is forgotten"
    assert not node.service.confirming._held, "what is gone is forgotten"


def step(
    random: Random,
    node: InMemoryNode,
    pairs: list[EnginePair],
    receivers: list[tuple[EnginePair, Receiving]],
    settled: set[tuple[str, bytes]],
) -> None:
    alive = [pair for pair in pairs if not pair.lost and pair.session.state & proton.Endpoint.LOCAL_ACTIVE]
    match random.randrange(10):
        case 0 | 1:
            pairs.append(EnginePair(node, container=random.choice(["a", "b", "c"])))
        case 2 | 3 | 4 if alive:
            pair = random.choice(alive)
            epoch = random.choice([None, None, None, random.randrange(5)])
            options: dict[str, Any] = (
                {"partition": random.randrange(3), "epoch": epoch} if epoch is not None else {}
            )
            credit, settle = random.choice([0, 5, 1000]), random.choice([None, SECOND])
            receiver = pair.receiver(
                "temps", group="g", durable=True, filters=EARLIEST, credit=credit, settle=settle, **options
            )
            receivers.append((pair, receiver))
        case 5 if alive:
            node.disconnect(random.choice(alive))
        case 6 if alive:
            random.choice(alive).session.close()
        case 7 if receivers:
            pair, receiver = random.choice(receivers)
            if not pair.lost:
                receiver.link.close() if random.random() < 0.5 else receiver.link.detach()
        case _ if receivers:
            pair, receiver = random.choice(receivers)
            for arrived in random.sample(receiver.arrived, random.randint(0, len(receiver.arrived))):
                state = random.choice(
                    [proton.Delivery.ACCEPTED] * 3 + [proton.Delivery.REJECTED, proton.Delivery.RELEASED]
                )
                receiver.arrived.remove(arrived)
                if not pair.lost and receiver.link.state & proton.Endpoint.LOCAL_ACTIVE:
                    if state != proton.Delivery.RELEASED:
                        settled.add((receiver.answered[names.PARTITION], arrived.body))
                    arrived.delivery.update(state)
                    if random.random() < 0.7:
                        arrived.delivery.settle()


@pytest.mark.parametrize("seed", range(30))
def test_a_group_s_cursor_has_no_gap_whichever_member_dies(seed: int) -> None:
    one_round(Random(seed))


def test_a_process_full_of_dying_members_ends_as_it_should() -> None:
    run_rounds_with_freed_memory_overwritten(__name__, 40)
