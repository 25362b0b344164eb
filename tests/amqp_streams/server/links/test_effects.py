"""Revoked partitions take effect at once: an old owner gets nothing after the new owner's first event, and
its later settlements do not count.
"""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, ScriptedPeer, filter_of
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

EARLIEST = filter_of("@earliest")
PRESETTLED = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
PAUSE_MS = 1000
HANDOVER_MS = 10_000
BODIES = [b"%d" % number for number in range(10)]


def grouped(partitions: int = 1, *, events: int = 10) -> InMemoryNode:
    """A log with so many events in each partition."""
    node = InMemoryNode(
        {"temps": partitions}, groups=GroupSettings(pause_ms=PAUSE_MS, handover_ms=HANDOVER_MS)
    )
    for partition in range(partitions):
        if events:
            node.append("temps", *BODIES[:events], partition=partition)
    return node


def reason(detach: Performative) -> str:
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])


def epoch_script(node: InMemoryNode, *, window: int = 1 << 20, epoch: int = 1) -> ScriptedPeer:
    """Return the script of a peer whose receiver, handle 0, claims partition 0 and has credit for all
    events.
    """
    peer = ScriptedPeer(node)
    peer.open_with_window(window)
    offset: Value = {Symbol(names.OFFSET): Symbol("@earliest")}
    (attach,) = peer.attach(
        0,
        source="temps",
        properties={Symbol(names.PARTITION): Symbol("0"), Symbol(names.EPOCH): ULong(epoch)},
        filters={Symbol("start"): Described(Symbol(names.FILTER_DELIVERY_ANNOTATIONS), offset)},
    )
    assert attach.fields["source"] is not None
    peer.send(
        "flow",
        next_incoming_id=UInt(0),
        incoming_window=UInt(window),
        next_outgoing_id=UInt(0),
        outgoing_window=UInt(1 << 20),
        handle=UInt(0),
        delivery_count=UInt(0),
        link_credit=UInt(100),
    )
    return peer


# -- closed: the old owner


def test_a_higher_epoch_ends_the_old_link_before_the_new_one_gets_anything() -> None:
    node = grouped()
    old = epoch_script(node)
    assert len(old.take("transfer")) == 10
    new = EnginePair(node).receiver("temps", partition=0, epoch=2, filters=EARLIEST, credit=100)
    (detach,) = old.take("detach")
    assert (detach.fields["closed"], reason(detach)) == (True, names.LINK_STOLEN)
    node.append("temps", b"more")
    node.run()
    assert new.bodies == [*BODIES, b"more"]
    assert old.take("transfer") == []


def test_events_that_had_no_room_in_an_evicted_peer_s_session_never_reach_it() -> None:
    """The engine would send it, and the detach after it, whenever that peer opens its window: it is cut off
    instead.
    """
    node = grouped()
    old = epoch_script(node, window=2)
    assert len(old.take("transfer")) == 2
    new = EnginePair(node).receiver("temps", partition=0, epoch=2, filters=EARLIEST, credit=100)
    assert new.bodies == BODIES
    assert old.lost
    assert old.take("transfer") == []


def test_a_peer_that_takes_its_own_partition_over_gets_what_was_sent_before_first() -> None:
    """On one connection the order is kept, so the node closes nothing."""
    node = grouped()
    peer = epoch_script(node, window=2)
    offset: Value = {Symbol(names.OFFSET): Symbol("@earliest")}
    peer.attach(
        1,
        source="temps",
        properties={Symbol(names.PARTITION): Symbol("0"), Symbol(names.EPOCH): ULong(2)},
        filters={Symbol("start"): Described(Symbol(names.FILTER_DELIVERY_ANNOTATIONS), offset)},
    )
    peer.flow(1, 100)
    assert not peer.lost
    handles = [transfer.fields["handle"] for transfer in peer.take("transfer")]
    assert handles == [UInt(0)] * 10 + [UInt(1)] * 10


def test_a_deleted_log_closes_no_connection() -> None:
    node = grouped()
    peer = epoch_script(node, window=2)
    node.delete("temps")
    node.run()
    assert not peer.lost


@pytest.mark.parametrize("settle", [None, PRESETTLED])
def test_events_that_an_evicted_peer_did_not_read_never_reach_it(settle: tuple[int, int] | None) -> None:
    """A process that was stopped, and continues when another has taken over."""
    node = InMemoryNode({"temps": 1}, limits=Limits(connection_pending_bytes=64 << 10))
    for _ in range(20):
        node.append("temps", *[b"x" * 200] * 100)
    stopped = EnginePair(node)
    old = stopped.receiver("temps", partition=0, epoch=1, filters=EARLIEST, settle=settle)
    stopped.channel.stuck = True
    stopped.flow(old, 2000)
    new = EnginePair(node).receiver("temps", partition=0, epoch=2, filters=EARLIEST, credit=2000)
    stopped.channel.stuck = False
    node.run()
    assert len(new.arrived) == 2000
    assert stopped.lost
    assert old.arrived == []


def test_an_evicted_peer_that_reads_keeps_its_other_links() -> None:
    node = grouped()
    pair = EnginePair(node)
    old, other = (
        pair.receiver("temps", partition=0, epoch=1, filters=EARLIEST, credit=100),
        pair.receiver("temps", credit=10),
    )
    EnginePair(node).receiver("temps", partition=0, epoch=2)
    assert (old.refused, other.refused, pair.lost) == (names.LINK_STOLEN, None, False)
    node.append("temps", b"more")
    node.run()
    assert other.bodies == [b"more"]


def test_settlements_of_an_evicted_link_change_nothing() -> None:
    node = grouped()
    first, second, third = (EnginePair(node) for _ in range(3))
    old = first.receiver("temps", partition=0, group="g", epoch=1, durable=True, filters=EARLIEST, credit=5)
    new = second.receiver("temps", partition=0, group="g", epoch=2, durable=True, credit=2)
    assert [each.body for each in new.arrived] == BODIES[:2]
    for arrived in old.arrived:
        first.settle(arrived)
    node.run()
    second.settle(new.arrived[0])
    second.detach(new)
    assert third.receiver("temps", partition=0, group="g", durable=True, credit=1).bodies == [b"1"]


def test_a_redelivery_that_an_evicted_link_asks_for_is_not_sent() -> None:
    node = grouped()
    pair = EnginePair(node)
    old = pair.receiver("temps", partition=0, epoch=1, filters=EARLIEST, credit=100)
    EnginePair(node).receiver("temps", partition=0, epoch=2)
    for arrived in old.take():
        pair.settle(arrived, proton.Delivery.RELEASED)
    node.run()
    assert old.arrived == []


# -- closed: the same link elsewhere


def test_a_link_that_is_attached_elsewhere_is_stolen() -> None:
    """AMQP 2.6.1: containers, name and direction identify a link, on any connection."""
    node = grouped()
    first, second = EnginePair(node, container="app"), EnginePair(node, container="app")
    old_receiver, old_sender = first.receiver("temps", name="in", credit=10), first.sender("temps", name="in")
    new_receiver, new_sender = (
        second.receiver("temps", name="in", credit=10),
        second.sender("temps", name="in"),
    )
    assert (old_receiver.refused, old_sender.refused) == (names.LINK_STOLEN, names.LINK_STOLEN)
    assert second.send(new_sender, b"\x00\x53\x75\xa0\x01a")[0].outcome == "accepted"
    assert (old_receiver.bodies, new_receiver.bodies) == ([], [b"a"])


@pytest.mark.parametrize("containers", [("one", "two"), ("", "")])
def test_links_of_other_containers_and_of_nameless_ones_are_left_alone(containers: tuple[str, str]) -> None:
    node = grouped()
    links = [
        EnginePair(node, container=container).receiver("temps", name="in", credit=10)
        for container in containers
    ]
    assert [link.refused for link in links] == [None, None]


def test_a_link_is_stolen_by_another_session_of_its_own_connection() -> None:
    node = grouped()
    pair = EnginePair(node)
    old = pair.receiver("temps", name="in")
    session = pair.connection.session()
    session.open()
    link = session.receiver("in")
    link.source.address = "temps"
    link.open()
    node.run()
    assert old.refused == names.LINK_STOLEN
    assert link.state & proton.Endpoint.REMOTE_ACTIVE


@pytest.mark.parametrize("closed", [True, False])
def test_a_name_is_free_after_its_detach(closed: bool) -> None:
    node = grouped()
    pair = EnginePair(node)
    for _ in range(3):
        receiver = pair.receiver("temps", name="in", credit=1, filters=EARLIEST)
        assert (receiver.refused, receiver.bodies) == (None, [b"0"])
        pair.detach(receiver, closed=closed)


def test_a_pending_attach_is_stolen_too() -> None:
    node = grouped()
    holder = EnginePair(node)
    held = holder.receiver("temps", group="g")
    first, second = EnginePair(node, container="app"), EnginePair(node, container="app")
    old = first.receiver("temps", name="in", group="g")
    new = second.receiver("temps", name="in", group="g")
    assert (old.refused, new.pending) == (names.LINK_STOLEN, True)
    holder.detach(held)
    assert new.answered[names.PARTITION] == "0"


# -- leaving


def rebalanced(
    node: InMemoryNode, *, credit: int = 100, **options: Any
) -> tuple[EnginePair, list[Receiving], EnginePair, Receiving]:
    """One member has both partitions, another waits, and the pause has ended: one of the links is requested
    to leave.
    """
    rich, poor = EnginePair(node), EnginePair(node)
    held = [rich.receiver("temps", group="g", filters=EARLIEST, credit=credit, **options) for _ in range(2)]
    waiting = poor.receiver("temps", group="g", filters=EARLIEST, credit=100, **options)
    assert waiting.pending
    node.advance(PAUSE_MS + 1000)
    return rich, held, poor, waiting


@pytest.mark.parametrize("durable", [True, False])
def test_a_link_that_is_asked_to_leave_ends_when_all_is_settled(durable: bool) -> None:
    node = grouped(2)
    rich, held, _, waiting = rebalanced(node, durable=durable)
    assert waiting.pending
    assert [link.refused for link in held] == [None, None]
    for link in held:
        for arrived in link.arrived[:9]:
            rich.settle(arrived)
    node.run()
    assert waiting.pending
    for link in held:
        rich.settle(link.arrived[9])
    node.run()
    assert sorted(link.refused or "" for link in held) == ["", names.LINK_DETACH_FORCED]
    assert waiting.bodies == ([] if durable else BODIES)


def test_a_link_that_is_asked_to_leave_gets_nothing_more_and_its_successor_begins_right_there() -> None:
    node = grouped(2)
    rich, held, _, waiting = rebalanced(node, durable=True)
    for partition in range(2):
        node.append("temps", b"more", partition=partition)
    node.run()
    assert sorted(len(link.arrived) for link in held) == [10, 11]
    for link in held:
        for arrived in link.arrived:
            rich.settle(arrived)
    node.run()
    assert waiting.bodies == [b"more"]


def test_a_link_that_never_settles_is_closed_when_its_time_is_over() -> None:
    node = grouped(2)
    _, held, _, waiting = rebalanced(node, durable=True)
    node.advance(HANDOVER_MS)
    assert sorted(link.refused or "" for link in held) == ["", names.LINK_DETACH_FORCED]
    assert waiting.bodies == BODIES


def test_events_returned_by_a_leaving_link_go_to_its_successor() -> None:
    node = grouped(2)
    rich, held, _, waiting = rebalanced(node, durable=True)
    for link in held:
        for arrived in link.take():
            rich.settle(
                arrived, proton.Delivery.RELEASED if arrived.body == b"7" else proton.Delivery.ACCEPTED
            )
    node.run()
    assert sorted(len(link.arrived) for link in held) == [0, 1], "the one that stays gets it again"
    assert waiting.bodies[0] == b"7"


def test_a_leaving_link_that_awaits_no_settlements_ends_at_once() -> None:
    node = grouped(2)
    _, held, _, waiting = rebalanced(node, durable=True, settle=PRESETTLED)
    assert sorted(link.refused or "" for link in held) == ["", names.LINK_DETACH_FORCED]
    assert not waiting.pending
    assert waiting.bodies == []


def test_a_leaving_link_answers_a_drain() -> None:
    node = grouped(2)
    rich, held, _, _ = rebalanced(node)
    for link in held:
        link.link.drain(0)
    node.run()
    assert [link.link.credit for link in held] == [0, 0]
    assert not rich.lost


@pytest.mark.parametrize("how", ["detach", "end", "close", "break"])
def test_a_leaving_link_may_end_by_itself(how: str) -> None:
    node = grouped(2)
    rich, held, _, waiting = rebalanced(node, durable=True)
    match how:
        case "detach":
            for link in held:
                rich.detach(link)
        case "end":
            rich.session.close()
        case "close":
            rich.connection.close()
        case _:
            node.disconnect(rich)
    node.run()
    assert waiting.bodies == BODIES
    node.advance(2 * HANDOVER_MS)
    assert waiting.refused is None


def test_a_leaving_link_may_be_evicted() -> None:
    node = grouped(2)
    _, held, _, _ = rebalanced(node)
    usurper = EnginePair(node)
    taken = [
        usurper.receiver("temps", group="g", partition=index, epoch=5, filters=EARLIEST, credit=100)
        for index in range(2)
    ]
    assert [link.refused for link in held] == [names.LINK_STOLEN] * 2
    assert [link.bodies for link in taken] == [BODIES] * 2
    node.advance(2 * HANDOVER_MS)
    assert [link.refused for link in taken] == [None] * 2


def test_a_link_whose_end_fails_does_not_keep_the_others_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The link also uses nothing of its user's quota."""
    node = grouped(2)
    gone = EnginePair(node)
    for name in ("first", "second"):
        gone.receiver("temps", name=name, group="g")
    forget, failing = node.service.node.detach, iter([True])

    def detach(*arguments: object, **options: object) -> None:
        if next(failing, False):
            raise AssertionError("a fault of ours")
        forget(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(node.service.node, "detach", detach)
    node.disconnect(gone)
    assert len(node.service.node.links_of("temps")) == 1, "the one that failed"
    assert EnginePair(node).receiver("temps", group="g").refused is None
