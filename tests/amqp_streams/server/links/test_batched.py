"""Links whose deliveries carry many events: the same events as on other links, in fewer deliveries."""

from collections.abc import Sequence
from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.client.message import bare
from amqp_streams.config import Limits
from amqp_streams.errors import CorruptionError
from amqp_streams.policy import Quota
from amqp_streams.server.links.batched import PROGRESS_EVENTS, TURN_EVENTS
from amqp_streams.storage.ports import Chunk
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, filter_of
from amqp_streams.wire.batches import Batch, read_batch
from tests.amqp_streams.decoded import mapping
from tests.properties import examples

EARLIEST = filter_of("@earliest")
PRESETTLED = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)


def sql(text: str) -> dict[str, Any]:
    return {"sql": proton.Described(proton.symbol("amqp:sql-filter"), text)}


def asking(link: Any) -> None:
    link.source.capabilities.put_object(proton.symbol(names.CAPABILITY_BATCHED_DELIVERIES))


def batched(pair: EnginePair, *, prepare: Any = asking, **options: Any) -> Receiving:
    options = {"filters": EARLIEST, "credit": 1000, **options}
    return pair.receiver("temps", prepare=prepare, **options)


def batches(receiving: Receiving) -> list[Batch]:
    return [read_batch(each.raw) for each in receiving.arrived]


def events(receiving: Receiving) -> list[tuple[str, int, int, bytes]]:
    return [
        (batch.partition, *event)
        for batch in batches(receiving)
        for event in zip(batch.offsets, batch.timestamps_ms, batch.messages, strict=True)
    ]


def stored(node: InMemoryNode, bodies: Sequence[bytes], partition: int = 0, apart_ms: int = 0) -> None:
    for body in bodies:
        node.append("temps", body, partition=partition)
        node.clock.advance(apart_ms)


def with_events(count: int, *, partitions: int = 1, **options: Any) -> tuple[InMemoryNode, EnginePair]:
    node = InMemoryNode({"temps": partitions}, **options)
    for index in range(partitions):
        stored(node, [b"%d" % number for number in range(index, count, partitions)], index)
    return node, EnginePair(node)


def body(message: bytes) -> bytes:
    assert message[:4] == b"\x00\x53\x75\xa0"
    return message[5:]


# -- the attach


def test_a_link_that_asks_learns_what_it_gets() -> None:
    node, pair = with_events(1)
    properties = {names.BATCH_EVENTS: proton.uint(7), names.BATCH_BYTES: proton.ulong(1 << 40)}
    receiver = batched(pair, partition=0, properties=properties)
    offered = receiver.link.remote_source.capabilities
    offered.rewind()
    assert list(offered.get_object().elements if offered.next() else ()) == [
        names.CAPABILITY_BATCHED_DELIVERIES
    ]
    assert receiver.answered == {
        names.PARTITION: "0",
        names.BATCH_EVENTS: 7,
        names.BATCH_BYTES: 1 << 20,
        names.BATCH_INCARNATION: node.store.logs["temps"].incarnation,
    }


def test_a_link_that_does_not_ask_notices_nothing() -> None:
    _node, pair = with_events(3)
    receiver = pair.receiver("temps", filters=EARLIEST, credit=10, partition=0)
    assert receiver.answered == {names.PARTITION: "0"}
    assert [each.annotations.keys() for each in receiver.arrived] == [
        {names.OFFSET, names.TIMESTAMP, names.SOURCE_PARTITION}
    ] * 3


@pytest.mark.parametrize(
    "options",
    [{"group": "g"}, {"partition": 0, "epoch": 1}, {"durable": True}, {"partition": 0, "group": "g"}],
)
def test_groups_epochs_and_cursors_are_refused(options: dict[str, Any]) -> None:
    _node, pair = with_events(1)
    assert batched(pair, **options).refused == names.NOT_IMPLEMENTED


def test_invalid_numbers_are_refused() -> None:
    _node, pair = with_events(1)
    receiver = batched(pair, properties={names.BATCH_EVENTS: proton.uint(0)})
    assert (receiver.refused, receiver.info["field"]) == (names.INVALID_FIELD, "properties")


# -- what comes


def test_many_events_come_in_one_delivery_with_their_offsets_and_times() -> None:
    node = InMemoryNode({"temps": 1})
    stored(node, [b"%d" % number for number in range(100)], apart_ms=3)
    receiver = batched(EnginePair(node), partition=0)
    (batch,) = batches(receiver)
    assert batch.offsets.tolist() == list(range(100))
    assert batch.timestamps_ms.tolist() == [1_700_000_000_000 + 3 * number for number in range(100)]
    assert [int(body(message)) for message in batch.messages] == list(range(100))
    assert batch.next_offset == 100


def test_a_stored_message_comes_with_its_header() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    sent = proton.Message(body=b"x", id="id-1", durable=True, priority=7, properties={"k": proton.ulong(5)})
    pair.send(pair.sender("temps"), sent)
    (event,) = events(batched(pair, partition=0))
    got = proton.Message()
    got.decode(event[3])
    assert (got.id, got.durable, got.priority, mapping(got.properties)) == ("id-1", True, 7, {"k": 5})


def test_a_delivery_costs_one_credit_and_the_limit_on_events_holds() -> None:
    node, pair = with_events(25)
    receiver = batched(pair, partition=0, credit=2, properties={names.BATCH_EVENTS: proton.uint(10)})
    assert [len(batch.messages) for batch in batches(receiver)] == [10, 10]
    pair.flow(receiver, 1)
    assert [len(batch.messages) for batch in batches(receiver)] == [10, 10, 5]
    stored(node, [b"25"])
    node.run()
    assert len(receiver.arrived) == 3, "no credit"
    pair.flow(receiver, 1)
    assert [event[1] for event in events(receiver)] == list(range(26))


def test_the_limit_on_bytes_holds_and_a_larger_event_comes_alone() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"s" * 100] * 60)
    partition = node.store.logs["temps"].partitions[0]
    partition.append([b"\x00\x53\x75\xb0" + (9000).to_bytes(4) + b"l" * 9000], b"\0", node.clock())
    node.append("temps", b"s")
    receiver = batched(EnginePair(node), partition=0, properties={names.BATCH_BYTES: proton.ulong(4096)})
    sizes = [len(each.raw) for each in receiver.arrived]
    counts = [len(batch.messages) for batch in batches(receiver)]
    assert sum(counts) == 62
    assert [size > 4096 for size in sizes] == [
        count == 1 and size > 9000 for count, size in zip(counts, sizes, strict=True)
    ]
    assert sum(size > 4096 for size in sizes) == 1
    assert min(counts[:-3]) > 20


@pytest.mark.parametrize(("of_a_read", "reads"), [(520, 1), (300, 2)])
def test_a_batch_that_is_nearly_full_is_not_filled_with_events_of_another_read(
    of_a_read: int, reads: int
) -> None:
    """Those of two reads would be copied. 520 events fill four fifths of a batch, 300 events a half."""
    node = InMemoryNode({"temps": 1})
    for _ in range(4):
        node.append("temps", *[bytes(250)] * of_a_read)
    receiver = batched(EnginePair(node), partition=0, properties={names.BATCH_BYTES: proton.ulong(180 << 10)})
    found = batches(receiver)
    assert [len(batch.offsets) for batch in found] == [of_a_read * reads] * (4 // reads)
    assert [offset for batch in found for offset in batch.offsets] == list(range(4 * of_a_read))


def test_max_message_size_bounds_a_batch_and_refuses_one_event_that_is_larger() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"s" * 200] * 20)

    def small(link: Any) -> None:
        asking(link)
        link.max_message_size = 1500

    receiver = batched(EnginePair(node), partition=0, prepare=small)
    assert sum(len(batch.messages) for batch in batches(receiver)) == 20
    assert max(len(each.raw) for each in receiver.arrived) <= 1500
    partition = node.store.logs["temps"].partitions[0]
    partition.append([b"\x00\x53\x75\xb0" + (9000).to_bytes(4) + b"l" * 9000], b"\0", node.clock())
    node.append("temps", b"s")
    node.run()
    assert receiver.refused == names.LINK_MESSAGE_SIZE_EXCEEDED


def test_all_partitions_of_a_link_come_each_in_order_and_are_reported_once() -> None:
    node, pair = with_events(90, partitions=3)
    receiver = batched(pair, properties={names.BATCH_EVENTS: proton.uint(4)})
    assert sorted(int(body(event[3])) for event in events(receiver)) == list(range(90))
    for index in range(3):
        assert [event[1] for event in events(receiver) if event[0] == str(index)] == list(range(30))
    told = [names.ASSOCIATED_PARTITIONS in batch.annotations for batch in batches(receiver)]
    assert told == [True] + [False] * (len(told) - 1)
    stored(node, [b"90"], 2)
    node.run()
    assert events(receiver)[-1][:2] == ("2", 30)


@pytest.mark.parametrize(
    "outcome", [proton.Delivery.ACCEPTED, proton.Delivery.RELEASED, proton.Delivery.MODIFIED]
)
def test_a_batch_with_any_outcome_is_settled_and_does_not_come_again(outcome: Any) -> None:
    node, pair = with_events(5)
    receiver = batched(pair, partition=0)
    (arrived,) = receiver.arrived
    assert not arrived.settled
    pair.settle(arrived, outcome)
    node.run()
    assert len(receiver.arrived) == 1
    stored(node, [b"5"])
    node.run()
    assert [event[1] for event in events(receiver)] == list(range(6))


def test_a_presettled_link_has_nothing_to_settle() -> None:
    _node, pair = with_events(5)
    (arrived,) = batched(pair, partition=0, settle=PRESETTLED).arrived
    assert arrived.settled


# -- ends, gaps, damage


def test_drain_ends_a_read_at_once() -> None:
    _node, pair = with_events(5)
    receiver = batched(pair, partition=0, credit=0)
    receiver.link.drain(10)
    pair.node.run()
    assert len(receiver.arrived) == 1
    assert (receiver.link.drained(), receiver.link.credit) == (9, 0)


def test_nothing_is_read_after_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    node, pair = with_events(50)
    partition, reads = node.store.logs["temps"].partitions[0], list[int]()
    read = partition.read

    def counted(_self: object, at: int, size: int, _request: object = None) -> Chunk | None:
        reads.append(at)
        return read(at, size)

    monkeypatch.setattr(type(partition), "read", counted)
    receiver = batched(
        pair, partition=0, credit=0, filters=sql("d.event-streams-offset < '0000000000000020'")
    )
    receiver.link.drain(10)
    node.run()
    stored(node, [b"50"])
    node.run()
    assert [event[1] for event in events(receiver)] == list(range(20))
    assert reads
    assert max(reads) < 20
    assert receiver.link.credit == 0


def test_a_filter_that_rejects_everything_still_reports_its_position() -> None:
    node, pair = with_events(50)
    receiver = batched(pair, partition=0, credit=0, filters=sql("kind = 'none'"))
    receiver.link.drain(10)
    node.run()
    (batch,) = batches(receiver)
    assert (batch.messages, batch.next_offset) == ([], 50)
    assert receiver.link.credit == 0


def test_a_long_range_without_an_event_reports_progress() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x"] * (3 * PROGRESS_EVENTS))
    receiver = batched(EnginePair(node), partition=0, filters=sql("kind = 'none'"))
    offsets = [batch.next_offset or 0 for batch in batches(receiver)]
    assert len(offsets) == 2
    assert PROGRESS_EVENTS <= offsets[0] <= offsets[1] - PROGRESS_EVENTS


def test_events_removed_by_retention_are_reported_and_show_as_a_gap() -> None:
    node = InMemoryNode({})
    node.create("temps", partitions=1, segment_bytes=64 << 10, retention_bytes=1 << 20)
    pair = EnginePair(node)
    receiver = batched(pair, partition=0, credit=0)
    for _ in range(40):
        node.append("temps", *[b"x" * 200] * 200)
    partition = node.store.logs["temps"].partitions[0]
    node.store.apply_retention(node.clock())
    assert partition.start > 0
    pair.flow(receiver, 1000)
    assert [event[1] for event in events(receiver)] == list(range(partition.start, partition.end))
    told = [batch.annotations.get(names.EVENTS_SKIPPED) for batch in batches(receiver)]
    assert told[0] == partition.start
    assert set(told[1:]) == {None}


def test_events_before_damage_are_delivered_and_then_the_link_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, pair = with_events(10)
    partition = node.store.logs["temps"].partitions[0]
    read = partition.read

    def damaged(_self: object, at: int, size: int, _request: object = None) -> Any:
        if at >= 6:
            message = "file 1.log, byte 99"
            raise CorruptionError(message, first=6, after=None)
        return read(at, size)

    monkeypatch.setattr(type(partition), "read", damaged)
    receiver = batched(pair, partition=0)
    assert [event[1] for event in events(receiver)] == list(range(6))
    assert receiver.refused == names.INTERNAL_ERROR


# -- shares


def test_a_link_with_much_to_send_lets_others_have_their_turn() -> None:
    node = InMemoryNode({"temps": 1})
    for _ in range(40):
        node.append("temps", *[b"x"] * 1000)
    pair = EnginePair(node)
    receiver = batched(pair, partition=0, credit=0)
    receiver.link.flow(1000)
    node._wires[0].exchange()
    node._wires[0].exchange()
    assert 0 < len(events(receiver)) <= 2 * TURN_EVENTS
    node.run()
    assert len(events(receiver)) == 40_000


def test_unsettled_batches_are_bounded() -> None:
    node, pair = with_events(50, limits=Limits(unsettled=10))
    receiver = batched(pair, partition=0, properties={names.BATCH_EVENTS: proton.uint(2)})
    assert len(receiver.arrived) == 10
    for each in receiver.arrived[:3]:
        pair.settle(each)
    node.run()
    assert len(receiver.arrived) == 13


def test_a_quota_counts_bytes() -> None:
    rate = 64 << 10
    node = InMemoryNode({"temps": 1}, quotas={"anonymous": Quota(bytes_out=rate)})
    node.append("temps", *[b"x" * 250] * 2000)
    receiver = batched(EnginePair(node), partition=0)
    for _ in range(3):
        node.advance(1000)
    got = sum(len(each.raw) for each in receiver.arrived)
    assert 2 * rate <= got <= 5 * rate
    assert len(receiver.arrived) < 10, "waiting makes no small batches"
    for _ in range(20):
        node.advance(1000)
    assert [event[1] for event in events(receiver)] == list(range(2000))


# -- the law


@settings(max_examples=examples(40), deadline=None)
@given(
    bodies=st.lists(st.tuples(st.binary(max_size=200), st.booleans(), st.integers(0, 1)), max_size=60),
    limits=st.tuples(st.integers(1, 30), st.sampled_from([4096, 5000, 1 << 20])),
    filters=st.sampled_from(
        [
            EARLIEST,
            sql("p.subject = 'yes'"),
            sql(f"d.{names.OFFSET} >= '{5:016d}' AND d.{names.OFFSET} < '{31:016d}'"),
        ]
    ),
    credits_=st.lists(st.integers(1, 5), max_size=10),
    bound=st.booleans(),
)
def test_batches_bring_the_same_events_as_ordinary_deliveries(
    bodies: list[tuple[bytes, bool, int]],
    limits: tuple[int, int],
    filters: dict[str, Any],
    credits_: list[int],
    bound: bool,
) -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    sender = pair.sender("temps")
    for payload, chosen, target in bodies:
        message = proton.Message(body=payload, subject="yes" if chosen else "no")
        message.instructions = {proton.symbol(names.TARGET_PARTITION): proton.symbol(str(target))}
        pair.send(sender, message)
    partition = 1 if bound else None
    ordinary = pair.receiver("temps", filters=filters, credit=1000, partition=partition)
    properties = {names.BATCH_EVENTS: proton.uint(limits[0]), names.BATCH_BYTES: proton.ulong(limits[1])}
    receiver = batched(pair, filters=filters, credit=0, partition=partition, properties=properties)
    for credit in [*credits_, 1000]:
        pair.flow(receiver, credit)
    wanted = [
        (
            each.annotations[names.SOURCE_PARTITION],
            int(each.annotations[names.OFFSET]),
            each.annotations[names.TIMESTAMP],
            bare(each.raw),
        )
        for each in ordinary.arrived
    ]
    for index in ("0", "1"):
        assert [event for event in events(receiver) if event[0] == index] == [
            event for event in wanted if event[0] == index
        ]
    assert all(len(batch.messages) <= limits[0] for batch in batches(receiver))
