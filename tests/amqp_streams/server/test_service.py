"""The service joins store, node and connections: one commit a turn, short turns, and a true picture of the
moment.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, NodeSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.server import service
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.links.turns import BUDGET_S, Iteration
from amqp_streams.server.observing.status import ConsumerStatus, NodeStatus
from amqp_streams.server.picture import picture
from amqp_streams.server.service import PUMPS_A_TURN, EventService
from amqp_streams.storage.ports import CommitDone
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.streams.steps import Steps, finish
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of
from tests.amqp_streams.server.iterations import let_connections_take

EVENT = b"\x00\x53\x75\xa0\x05event"


def service_on(loop: asyncio.AbstractEventLoop, store: MemoryStore | None = None) -> EventService:
    return EventService(NodeSettings(data_dir=Path("unused")), store or MemoryStore(), loop)


# -- a picture of the moment


def test_the_status_counts_what_is_there() -> None:
    node = InMemoryNode({"temps": 2, "idle": 1})
    pair = EnginePair(node, container="app")
    pair.send(pair.sender("temps"), EVENT, EVENT, EVENT)
    receiver = pair.receiver("temps", credit=2, filters=filter_of("@earliest"), name="reader")
    pair.receiver("idle/$info")
    ScriptedPeer(node)
    status = finish(node.service.status())
    assert (
        status.ready,
        status.connections,
        status.producer_links,
        status.consumer_links,
        status.pending_bytes,
    ) == (False, 2, 1, 1, 0)
    temps = next(log for log in status.logs if log.name == "temps")
    assert (temps.events_in, temps.events_out, temps.bytes_in) == (3, 2, 3 * len(EVENT))
    assert temps.bytes_out == sum(len(each.raw) for each in receiver.arrived)
    assert [facts.end for facts in temps.partitions] == [2, 1]
    lags = {(each.container, each.link, each.partition): each.lag for each in status.consumers}
    assert set(lags) == {("app", "reader", 0), ("app", "reader", 1)}
    assert sum(lags.values()) == 1


def test_events_that_retention_removed_do_not_count_as_waiting_for_a_link() -> None:
    node = InMemoryNode()
    node.create("short", retention_ms=1000, segment_ms=1000)
    pair = EnginePair(node)
    pair.send(pair.sender("short"), EVENT, EVENT, EVENT)
    pair.receiver("short", credit=1, filters=filter_of("@earliest"))
    (before,) = finish(node.service.status()).consumers
    assert (before.position, before.lag) == (1, 2)
    node.store.apply_retention(node.clock() + 5000)
    (after,) = finish(node.service.status()).consumers
    assert (after.position, after.lag) == (3, 0)


def test_figures_of_links_are_made_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand links that read a thousand partitions each would take seconds of the event loop."""
    made = list[ConsumerStatus]()

    def counted(*figures: Any) -> ConsumerStatus:
        made.append(ConsumerStatus(*figures))
        return made[-1]

    monkeypatch.setattr("amqp_streams.server.observing.status.ConsumerStatus", counted)
    monkeypatch.setattr("amqp_streams.server.picture.CONSUMERS_MAX", 3)
    node = InMemoryNode({"temps": 4})
    pair = EnginePair(node, container="app")
    for name in ("first", "second"):
        pair.receiver("temps", credit=1, filters=filter_of("@earliest"), name=name)
    assert list(finish(node.service.status()).consumers) == made
    assert len(made) == 3


def test_readiness_is_known_without_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes ask often, and the figures of many links and partitions take seconds."""
    made = list[NodeStatus]()

    def counted(of: EventService) -> Steps[NodeStatus]:
        made.append((yield from picture(of)))
        return made[-1]

    monkeypatch.setattr(service, "picture", counted)
    node = InMemoryNode({"temps": 2})
    assert node.service.not_ready() == "the node accepts no events now"
    node.service.ready = True
    assert node.service.not_ready() is None
    assert not made
    finish(node.service.status())
    assert made


def test_the_events_of_a_failed_commit_are_not_counted() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), EVENT)
    store.fail(store.logs["temps"].partitions[0], StorageError("broken"), stop=False)
    store.complete()
    node.run()
    assert finish(node.service.status()).logs[0].events_in == 0


def test_events_for_a_log_that_is_deleted_meanwhile_are_not_counted() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), EVENT)
    node.service.node.counters.pop("temps")
    store.complete()
    node.run()
    store.delete("temps")
    assert finish(node.service.status()).logs == ()


def test_each_commit_is_reported_to_its_callers() -> None:
    node = InMemoryNode({"temps": 1})
    told: list[CommitDone] = []
    node.service.on_commit = told.append
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), EVENT, EVENT)
    assert [(done.events, done.bytes) for done in told] == [(2, 2 * len(EVENT))]


# -- turns


def test_no_turn_serves_more_consumers_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    let_connections_take(60.0, monkeypatch)  # this is about their number
    node = InMemoryNode({"temps": 1})
    pairs = [EnginePair(node) for _ in range(3)]
    receivers = [pair.receiver("temps", credit=10) for pair in pairs for _ in range(PUMPS_A_TURN)]
    node.append("temps", b"a")
    node.loop.run_ready()
    node.loop.run_ready()
    assert len(node.service._pumps) >= 3 * PUMPS_A_TURN - 2 * PUMPS_A_TURN, (
        "fewer are served in a turn that takes long"
    )
    node.run()
    assert [receiver.bodies for receiver in receivers] == [[b"a"]] * (3 * PUMPS_A_TURN)


def test_a_consumer_at_the_end_does_not_wait_for_those_that_read_old_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Iteration, "share_ends_s", lambda _iteration: 0.0)  # one old link in a turn
    monkeypatch.setattr(service, "PUMP_TURN_S", 60.0)  # also on a busy machine
    monkeypatch.setattr("amqp_streams.server.links.turns.BUDGET_S", 60.0)
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"old"] * 4000)
    reading, sending = EnginePair(node), EnginePair(node)
    readers = [reading.receiver("temps", filters=filter_of("@earliest")) for _ in range(8)]
    at_end = sending.receiver("temps", filters=filter_of("@latest"), credit=10)
    sender = sending.sender("temps")
    for reader in readers:
        reader.link.flow(4001)
    while not all(reader.arrived for reader in readers):
        node.turn()
    sender.send(EVENT)
    turns = 0
    while not at_end.arrived:
        node.turn()
        turns += 1
    assert turns <= 3, "one to take the event, one to store it, one to deliver it: none for the others"
    node.run()
    assert [len(reader.arrived) for reader in readers] == [4001] * 8


def test_idle_consumers_cost_an_append_nothing_but_their_waking() -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    for _ in range(200):
        pair.receiver("temps", properties={names.PARTITION: proton.symbol("1")}, credit=5)
    node.append("temps", b"a", partition=0)
    assert len(node.service._pumps) == 0
    node.append("temps", b"a", partition=1)
    assert len(node.service._pumps) == 200
    node.run()


def test_a_consumer_that_reads_a_long_log_gives_others_their_turn() -> None:
    node = InMemoryNode({"long": 1, "short": 1})
    for _ in range(60):
        node.append("long", *[b"x"] * 100)
    long_pair, short_pair = EnginePair(node), EnginePair(node)
    presettled = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
    long = long_pair.receiver("long", filters=filter_of("@earliest"), settle=presettled)
    short = short_pair.receiver("short", credit=10)
    long.link.flow(10_000)
    node._wires[0].exchange()
    node.append("short", b"a")
    # On a busy machine the long log's share of an iteration is over before the other reader's turn comes.
    for _ in range(3):
        node.loop.run_ready()
        node._wires[1].exchange()
    assert short.bodies == [b"a"]
    assert len(long.arrived) < 6000
    node.run()
    assert len(long.arrived) == 6000


# -- time


def test_a_tick_lets_idle_readers_give_their_memory_back() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x"] * 100)
    pair = EnginePair(node)
    receiver = pair.receiver("temps", credit=10, filters=filter_of("@earliest"))
    (consumer,) = node.service.node.consumers()
    cursor = consumer.reader._cursors[0]
    node.advance(500)
    assert cursor.chunk is not None, "it was read since the last tick"
    node.advance(500)
    assert cursor.chunk is None
    pair.flow(receiver, 10)
    assert len(receiver.arrived) == 20


def test_retention_runs_by_itself() -> None:
    node = InMemoryNode()
    node.create("short", retention_ms=1000, segment_ms=1000)
    node.append("short", b"a")
    node.advance(20_000)
    assert node.store.logs["short"].partitions[0].start == 1


def test_a_service_that_stopped_ticks_no_more() -> None:
    node = InMemoryNode()
    node.service.stop()
    node.advance(5000)
    assert node.loop.next_timer_s() is None
    assert not node.service.ready
    InMemoryNode().service.stop()


async def test_calls_from_other_threads_come_to_the_loop_and_later_ones_later() -> None:
    loop = asyncio.get_running_loop()
    service = service_on(loop)
    first, second = asyncio.Event(), asyncio.Event()
    await asyncio.to_thread(service.on_loop, first.set)
    await asyncio.wait_for(first.wait(), 60)
    service.later(1, second.set)
    await asyncio.wait_for(second.wait(), 60)


async def test_the_clocks_of_a_service_run() -> None:
    service = service_on(asyncio.get_running_loop())
    assert service.now_ms() > 1_700_000_000_000
    assert service.monotonic_ms() <= service.monotonic_ms()


async def test_a_service_is_stopped_before_it_ever_started() -> None:
    service_on(asyncio.get_running_loop()).stop()


# -- endings


def test_a_node_waits_for_the_commit_in_flight_before_it_stops() -> None:
    """Producers learn the outcome of the events that they sent last."""

    async def stopping() -> None:
        store = MemoryStore(auto=False)
        node = InMemoryNode({"temps": 1}, store=store)
        pair = EnginePair(node)
        sent = pair.send(pair.sender("temps"), EVENT)
        quiet = asyncio.ensure_future(node.service.quiet(5))
        await asyncio.sleep(0)
        assert not quiet.done()
        assert not pair.channel.reading
        store.complete()
        node.run()
        await asyncio.wait_for(quiet, 60)
        assert sent[0].outcome == "accepted"

    asyncio.run(stopping())


def test_a_node_that_waits_for_nothing_is_quiet_at_once() -> None:
    asyncio.run(InMemoryNode().service.quiet(5))


def test_a_commit_that_never_returns_does_not_block_its_callers_without_limit() -> None:
    node = InMemoryNode({"temps": 1}, store=MemoryStore(auto=False))
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), EVENT)
    asyncio.run(node.service.quiet(0.01))


def test_links_of_a_deleted_log_are_closed_on_every_connection() -> None:
    node = InMemoryNode({"temps": 1, "other": 1})
    pairs = [EnginePair(node) for _ in range(3)]
    gone = [pair.sender("temps") for pair in pairs]
    stay = [pair.sender("other") for pair in pairs]
    node.delete("temps")
    node.run()
    assert [link.refused for link in gone] == [names.RESOURCE_DELETED] * 3
    assert [link.refused for link in stay] == [None] * 3


@pytest.mark.parametrize("loopback", [True, False])
def test_connections_are_known_while_they_live(loopback: bool) -> None:
    node = InMemoryNode(anonymous="always")
    peer = ScriptedPeer(node, loopback=loopback)
    peer.open()
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    connection.shut(PeerError(names.CONNECTION_FORCED, "bye"))
    node.run()
    assert not node.service.connections


def test_the_status_counts_what_groups_are_doing() -> None:
    node = InMemoryNode({"temps": 2}, groups=GroupSettings(pause_ms=1000))
    node.append("temps", b"a", b"b")
    rich, poor = EnginePair(node), EnginePair(node)
    earliest = filter_of("@earliest")
    held = [rich.receiver("temps", group="g", durable=True, filters=earliest, credit=1) for _ in range(2)]
    poor.receiver("temps", group="g", durable=True, filters=earliest)
    rich.settle(held[0].arrived[0])
    node.run()
    (group,) = finish(node.service.status()).groups
    assert (group.log, group.group, group.members, group.waiting, group.moves) == ("temps", "g", 2, 1, 0)
    assert group.lags == {0: 1, 1: 0}
    assert {(each.group, each.epoch) for each in finish(node.service.status()).consumers} == {("g", 0)}
    node.advance(2000)
    (group,) = finish(node.service.status()).groups
    assert (group.members, group.waiting, group.moves) == (2, 0, 1)


def test_a_filter_that_is_slow_ends_its_links_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of examining an event is known after the event was examined. Then other links get
    their turn.
    """
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x"] * 5000)
    pair = EnginePair(node)
    times = itertools.count(step=1.0)
    monkeypatch.setattr("amqp_streams.server.links.consumer.perf_counter", lambda: next(times))
    stretches: list[int] = []
    taken = Reader.take

    def counted(reader: Reader, *arguments: Any) -> Any:
        stretches.append(1)
        return taken(reader, *arguments)

    monkeypatch.setattr(Reader, "take", counted)
    filters = {"f": proton.Described(proton.symbol("amqp:sql-filter"), "kind = 'none'")}
    receiver = pair.receiver("temps", filters=filters, credit=0)
    receiver.link.flow(10)
    node._wires[0].exchange()
    assert len(stretches) <= 1
    node.run()
    assert len(stretches) > 5, "it goes on"


def test_the_tick_of_many_connections_takes_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand idle connections held up all others for 40 ms, twice a second.

    When ticks had a millisecond of each iteration, the ends of the connections that they closed made it two.
    """
    node = InMemoryNode({"temps": 1})
    for _ in range(40):
        EnginePair(node)
    node.run()
    times = itertools.count(step=BUDGET_S / 10)
    for module in ("amqp_streams.server.service", "amqp_streams.server.links.turns"):
        monkeypatch.setattr(f"{module}.perf_counter", lambda: next(times))
    ticked: list[AmqpConnection] = []
    tick = AmqpConnection.tick

    def counted(connection: AmqpConnection, now_ms: int) -> None:
        ticked.append(connection)
        tick(connection, now_ms)

    monkeypatch.setattr(AmqpConnection, "tick", counted)
    *alive, lost = node.service.connections
    node.service.regular.tick()
    assert 0 < len(ticked) <= 4
    node.service.regular.tick()  # the next tick does not begin before this one has ended
    del node.service.connections[lost]
    while (before := len(ticked)) < len(alive):
        assert node.loop.run_ready()
        assert len(ticked) - before <= 4
    assert ticked == alive
    node.run()
    node.service.regular.tick()
    assert len(ticked) > len(alive)
