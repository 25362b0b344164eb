"""Consumer links: each event once and in order, as far as credit allows, and again after a release."""

from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import CorruptionError
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, ScriptedPeer, filter_of
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value
from tests.amqp_streams.decoded import description
from tests.properties import examples

EARLIEST = filter_of("@earliest")
PRESETTLED = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)


def with_events(count: int, *, partitions: int = 1, **options: Any) -> tuple[InMemoryNode, EnginePair]:
    node = InMemoryNode({"temps": partitions}, **options)
    for number in range(count):
        node.append("temps", b"%d" % number, partition=number % partitions)
    return node, EnginePair(node)


def numbers(receiving: Receiving) -> list[int]:
    return [int(body) for body in receiving.bodies]


# -- order and offset


def test_a_consumer_gets_as_many_as_it_has_credit_for() -> None:
    _node, pair = with_events(10)
    receiver = pair.receiver("temps", filters=EARLIEST)
    assert receiver.arrived == []
    pair.flow(receiver, 3)
    assert numbers(receiver) == [0, 1, 2]
    pair.flow(receiver, 100)
    assert numbers(receiver) == list(range(10))


def test_an_agnostic_consumer_gets_all_partitions_each_in_order() -> None:
    _node, pair = with_events(90, partitions=3)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=1000)
    assert sorted(numbers(receiver)) == list(range(90))
    for index in range(3):
        mine = [
            int(each.body)
            for each in receiver.arrived
            if each.annotations[names.SOURCE_PARTITION] == str(index)
        ]
        assert mine == list(range(index, 90, 3))


def test_a_bound_consumer_gets_its_partition_only() -> None:
    _node, pair = with_events(9, partitions=3)
    receiver = pair.receiver(
        "temps", filters=EARLIEST, credit=100, properties={names.PARTITION: proton.symbol("1")}
    )
    assert numbers(receiver) == [1, 4, 7]
    assert receiver.link.remote_properties == {names.PARTITION: "1"}


def test_every_delivery_says_where_it_is_from() -> None:
    node = InMemoryNode({"temps": 1})
    for number in range(3):
        node.append("temps", b"%d" % number)
        node.clock.advance(10)
    pair = EnginePair(node)
    arrived = pair.receiver(
        "temps", filters=EARLIEST, credit=10, properties={names.PARTITION: proton.symbol("0")}
    ).arrived
    for number, each in enumerate(arrived):
        assert each.annotations == {
            names.OFFSET: f"{number:016d}",
            names.TIMESTAMP: 1_700_000_000_000 + 10 * number,
            names.SOURCE_PARTITION: "0",
        }
        assert isinstance(each.annotations[names.OFFSET], proton.symbol)
        assert isinstance(each.annotations[names.SOURCE_PARTITION], proton.symbol)
        assert isinstance(each.annotations[names.TIMESTAMP], proton.timestamp)


def test_the_bare_message_and_its_annotations_come_as_they_went() -> None:
    """Byte by byte: signatures and hashes over the bare message stay valid."""
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    sent = proton.Message(
        body={"a": [1, 2.5, None]},
        id="id-1",
        durable=True,
        priority=7,
        subject="s",
        properties={"k": proton.ulong(5)},
        ttl=9,
    )
    sent.annotations = {proton.symbol("x-note"): "kept"}
    pair.send(pair.sender("temps"), sent)
    (arrived,) = pair.receiver("temps", filters=EARLIEST, credit=1).arrived
    got = arrived.message
    for part in ("body", "id", "durable", "priority", "subject", "properties", "ttl", "annotations"):
        assert getattr(got, part) == getattr(sent, part), part
    bare = sent.encode()[bytes(sent.encode()).index(b"\x00\x53\x73") :]
    assert arrived.raw.endswith(bytes(bare))


def test_a_consumer_is_notified_of_its_partitions_once() -> None:
    """4.6.5: on the next transfer after the association changed; attaching is the only change there is."""
    _node, pair = with_events(5, partitions=2)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    told = [each.annotations.get(names.ASSOCIATED_PARTITIONS) for each in receiver.arrived]
    assert told[0] is not None
    assert list(told[0].elements) == ["0", "1"]
    assert told[1:] == [None] * 4
    bound = pair.receiver(
        "temps", filters=EARLIEST, credit=10, properties={names.PARTITION: proton.symbol("0")}
    )
    assert all(names.ASSOCIATED_PARTITIONS not in each.annotations for each in bound.arrived)


def test_no_event_is_lost_when_credit_is_short_and_partitions_fill_unevenly() -> None:
    """The partition that was found empty is looked at again before the consumer is left to wait."""
    node, pair = with_events(0, partitions=2)
    node.append("temps", b"0", partition=0)
    for number in range(1, 15):
        node.append("temps", b"%d" % number, partition=1)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10)
    pair.flow(receiver, 2)
    node.append("temps", b"15", partition=0)
    pair.flow(receiver, 100)
    assert sorted(numbers(receiver)) == list(range(16))


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "credit", "settle", "release"]), st.integers(0, 3), st.integers(1, 40)
        ),
        max_size=25,
    )
)
def test_every_event_arrives_in_order_for_any_order_of_appends_and_credit(
    steps: list[tuple[str, int, int]],
) -> None:
    """This compares first deliveries. Released events are delivered again between them."""
    node, pair = with_events(0, partitions=4)
    receiver = pair.receiver("temps", filters=EARLIEST)
    count = [0] * 4
    for kind, index, amount in steps:
        if kind == "append":
            for _ in range(amount):
                node.append("temps", b"%d" % count[index], partition=index)
                count[index] += 1
            node.run()
        elif kind == "credit":
            pair.flow(receiver, amount)
        else:
            for each in [one for one in receiver.arrived if not one.delivery.settled][:amount]:
                pair.settle(each, proton.Delivery.ACCEPTED if kind == "settle" else proton.Delivery.RELEASED)
            node.run()
    pair.flow(receiver, 10_000)
    first: dict[str, list[int]] = {str(index): [] for index in range(4)}
    for each in receiver.arrived:
        seen = first[each.annotations[names.SOURCE_PARTITION]]
        number = int(each.body)
        if number not in seen:
            seen.append(number)
    assert [first[str(index)] for index in range(4)] == [list(range(total)) for total in count]


# -- settled, unsettled, never settled


def test_a_consumer_that_never_settles_stops_at_the_limit_and_continues_as_it_settles() -> None:
    node, pair = with_events(100, limits=Limits(unsettled=20))
    receiver = pair.receiver("temps", filters=EARLIEST, credit=1000)
    assert numbers(receiver) == list(range(20))
    node.advance(5000)
    assert len(receiver.arrived) == 20
    for each in receiver.arrived[:5]:
        pair.settle(each)
    node.run()
    assert numbers(receiver) == list(range(25)), "at once, not at the next tick"


def test_settled_deliveries_need_no_settling() -> None:
    _node, pair = with_events(100, limits=Limits(unsettled=20))
    receiver = pair.receiver("temps", filters=EARLIEST, credit=1000, settle=PRESETTLED)
    assert numbers(receiver) == list(range(100))
    assert all(each.settled for each in receiver.arrived)


def test_a_consumer_whose_session_window_is_shut_gets_what_fits() -> None:
    node, _ = with_events(100)
    peer = ScriptedPeer(node)
    peer.open_with_window(5)
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    peer.attach(0, source="temps", filters=earliest)
    peer.flow(0, 100, incoming_window=UInt(5))
    assert len(peer.take("transfer")) == 5
    peer.flow(None, next_incoming_id=UInt(5), incoming_window=UInt(7))
    assert len(peer.take("transfer")) == 7
    peer.flow(None, next_incoming_id=UInt(12), incoming_window=UInt(1000))
    assert len(peer.take("transfer")) == 88


def test_a_small_session_window_continues_without_waiting_for_a_tick() -> None:
    """More data than the engine may hold back waits for a window of few frames."""
    node = InMemoryNode({"temps": 1})
    for _ in range(60):
        node.append("temps", *[b"x" * 200] * 200)
    peer = ScriptedPeer(node)
    peer.open_with_window(10)
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    peer.attach(0, source="temps", filters=earliest, snd_settle_mode=None)
    peer.flow(0, 100_000, incoming_window=UInt(10))
    got = len(peer.take("transfer"))
    while got < 12_000:
        peer.flow(None, next_incoming_id=UInt(got), incoming_window=UInt(2000))
        peer.send(
            "disposition",
            role=True,
            first=UInt(0),
            last=UInt(got - 1),
            settled=True,
            state=Described(ULong(0x24), []),
        )
        more = len(peer.take("transfer"))
        assert more > 0, got
        got += more
    assert got == 12_000


# -- drain


def test_drain_sends_the_available_events_and_returns_the_other_credit() -> None:
    node, pair = with_events(3)
    receiver = pair.receiver("temps", filters=EARLIEST)
    receiver.link.drain(10)
    node.run()
    assert numbers(receiver) == [0, 1, 2]
    assert receiver.link.credit == 0
    assert receiver.link.draining() is False
    node.append("temps", b"3")
    node.run()
    assert len(receiver.arrived) == 3, "no credit is left"
    pair.flow(receiver, 1)
    assert numbers(receiver) == [0, 1, 2, 3]


def test_drain_with_nothing_to_send_gives_all_credit_back() -> None:
    node, pair = with_events(0)
    receiver = pair.receiver("temps")
    receiver.link.drain(10)
    node.run()
    assert (receiver.link.credit, receiver.arrived) == (0, [])


def test_drain_beyond_a_turns_worth_is_answered_when_all_was_sent() -> None:
    node = InMemoryNode({"temps": 1})
    for _ in range(25):
        node.append("temps", *[b"x"] * 100)
    pair = EnginePair(node)
    receiver = pair.receiver("temps", filters=EARLIEST, settle=PRESETTLED)
    receiver.link.drain(10_000)
    node.run()
    assert len(receiver.arrived) == 2500
    assert receiver.link.credit == 0


# -- trouble


def test_a_reader_overtaken_by_retention_continues_and_is_notified() -> None:
    node = InMemoryNode()
    node.create("short", retention_ms=1000, segment_ms=1000)
    node.append("short", b"0", b"1")
    pair = EnginePair(node)
    receiver = pair.receiver("short", filters=EARLIEST, credit=1)
    node.advance(20_000)
    node.append("short", b"2")
    pair.flow(receiver, 10)
    assert numbers(receiver) == [0, 2]
    assert receiver.arrived[1].annotations[names.EVENTS_SKIPPED] == 1


def test_damaged_records_close_the_link_that_came_to_them_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, pair = with_events(4, partitions=2)
    partition = node.store.logs["temps"].partitions[0]

    def damaged(_at: int, _bytes: int, _request: object) -> None:
        raise CorruptionError("segment 0 at byte 7", first=0, after=None)

    monkeypatch.setattr(partition, "read", damaged)
    agnostic = pair.receiver("temps", filters=EARLIEST, credit=10)
    bound = pair.receiver(
        "temps", filters=EARLIEST, credit=10, properties={names.PARTITION: proton.symbol("1")}
    )
    assert agnostic.refused == names.INTERNAL_ERROR
    condition = agnostic.link.remote_condition
    assert condition is not None
    assert condition.description == "segment 0 at byte 7"
    assert numbers(bound) == [1, 3]


@pytest.mark.parametrize("large", [0, 2, 3])
def test_an_event_larger_than_the_peer_takes_closes_the_link_and_says_which(large: int) -> None:
    """AMQP 2.7.3: no message above the receiver's max-message-size. Earlier messages arrive."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", *(b"y" * (250 if number == large else 5) for number in range(5)))
    pair = EnginePair(node)

    def at_most(link: Any) -> None:
        link.max_message_size = 400

    fine = pair.receiver("temps", filters=EARLIEST, credit=10)
    bound = {names.PARTITION: proton.symbol("0")}
    small = pair.receiver("temps", filters=EARLIEST, credit=10, prepare=at_most, properties=bound)
    assert len(fine.arrived) == 5
    assert len(small.arrived) == 5, "header and annotations are counted, and all fit"

    def very_little(link: Any) -> None:
        link.max_message_size = 240

    for properties in (None, bound):
        small = pair.receiver(
            "temps", filters=EARLIEST, credit=10, prepare=very_little, properties=properties
        )
        assert len(small.arrived) == large
        assert small.refused == names.LINK_MESSAGE_SIZE_EXCEEDED
        assert f"at offset {large} of partition 0 " in description(small.link.remote_condition)


def test_an_ended_or_closing_link_is_not_pumped() -> None:
    node, pair = with_events(3)
    receiver = pair.receiver("temps", filters=EARLIEST)
    (link,) = [
        link for connection in node.service.connections for link in connection.find_links(lambda _link: True)
    ]
    assert isinstance(link, ConsumerLink)
    link.close()
    pair.flow(receiver, 5)
    assert receiver.arrived == []
    receiver.link.close()
    node.run()
    link.pump()
    node.service.pump_later(link)
    node.run()


def test_a_slow_consumer_does_not_keep_a_fast_one_waiting() -> None:
    node = InMemoryNode({"temps": 1})
    slow, fast = EnginePair(node), EnginePair(node)
    slow_receiver = slow.receiver("temps", filters=EARLIEST, credit=5)
    fast_receiver = fast.receiver("temps", filters=EARLIEST, credit=5000)
    slow.channel.stuck = True
    for _ in range(20):
        node.append("temps", *[b"x"] * 100)
    node.run()
    assert len(fast_receiver.arrived) == 2000
    assert slow_receiver.arrived == []
