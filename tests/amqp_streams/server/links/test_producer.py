"""Producer links: credit that never runs dry, memory that never runs over, and honest answers when the disk
fails.
"""

from typing import Any

import proton
import pytest
from cproton_ffi import lib

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import MemoryCommitQueue, MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, Sent, filter_of, frame_of
from amqp_streams.wire.types import Described, UInt, ULong
from tests.amqp_streams.decoded import description

EVENT = b"\x00\x53\x75\xa0\x05event"


def message(body: str = "x", **fields: object) -> bytes:
    return bytes(proton.Message(body=body, **fields).encode())


def to_partition(name: str, body: str = "x") -> bytes:
    written = proton.Message(body=body)
    written.instructions = {proton.symbol(names.TARGET_PARTITION): proton.symbol(name)}
    return bytes(written.encode())


def partition(node: InMemoryNode, index: int = 0) -> Partition:
    return node.store.logs["temps"].partitions[index]


def outcomes(sent: list[Sent]) -> list[str | None]:
    return [each.outcome for each in sent]


# -- credit


def test_a_producer_never_starves() -> None:
    """For any number of sent events, the producer gets new credit before its credit is used up."""
    node = InMemoryNode({"temps": 1}, limits=Limits(credit=100))
    pair = EnginePair(node)
    sender = pair.sender("temps")
    assert sender.link.credit == 100
    for _ in range(40):
        assert outcomes(pair.send(sender, *[EVENT] * 30)) == ["accepted"] * 30
        assert 50 <= sender.link.credit <= 100


def test_a_producer_that_uses_all_its_credit_at_once_gets_new() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(credit=10))
    pair = EnginePair(node)
    assert outcomes(pair.send(pair.sender("temps"), *[EVENT] * 1000)) == ["accepted"] * 1000


@pytest.mark.parametrize("target", ["temps", names.MANAGEMENT])
@pytest.mark.parametrize("count", [1 << 31, (1 << 31) - 1, (1 << 31) + 3000, (1 << 32) - 1])
def test_a_delivery_count_ahead_of_the_credit_does_no_harm(target: str, count: int) -> None:
    """AMQP 2.6.7: the sender reports its delivery-count, which reduces the credit, possibly by more than the
    link has.
    """
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target=target)
    peer.send(
        "flow", incoming_window=UInt(9), next_outgoing_id=UInt(0), outgoing_window=UInt(9),
        next_incoming_id=UInt(0), handle=UInt(0),
        delivery_count=UInt(count), link_credit=UInt(0),
    )  # fmt: skip
    peer.transfer(0, 0, b"\x00\x53\x77\x40")
    assert not peer.lost
    assert EnginePair(node).receiver("temps").refused is None


def test_nothing_is_accepted_before_it_is_durable() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), EVENT, EVENT)
    assert outcomes(sent) == [None, None]
    store.complete()
    node.run()
    assert outcomes(sent) == ["accepted", "accepted"]


def test_events_of_all_links_in_one_iteration_are_one_commit() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 4}, store=store)
    pairs = [EnginePair(node) for _ in range(3)]
    senders = [pair.sender("temps") for pair in pairs]
    for sender in senders:
        sender.send(EVENT)
    node.run()
    assert store.queue.sequence == 1
    done = store.complete()
    assert done.events == 3


def test_a_partition_whose_commit_takes_long_delays_only_its_own_events() -> None:
    store = MemoryStore(auto=False, separate=True)
    node = InMemoryNode({"temps": 2}, store=store)
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), EVENT, EVENT)
    partitions = store.logs["temps"].partitions
    _complete(partitions[1])
    node.run()
    assert sorted(outcomes(sent), key=str) == [None, "accepted"]
    _complete(partitions[0])
    node.run()
    assert outcomes(sent) == ["accepted", "accepted"]


def test_a_failed_partition_fails_only_its_own_events() -> None:
    store = MemoryStore(auto=False, separate=True)
    node = InMemoryNode({"temps": 2}, store=store)
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), EVENT, EVENT)
    failed, healthy = store.logs["temps"].partitions
    store.fail(failed, StorageError("gone"))
    for partition in failed, healthy:
        _complete(partition)
    node.run()
    assert sorted(map(str, outcomes(sent))) == ["accepted", "modified"]


def _complete(partition: Partition) -> None:
    assert isinstance(partition.queue, MemoryCommitQueue)
    partition.queue.complete()


def test_credit_is_withheld_while_too_much_waits_for_the_disk_and_comes_back_after() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(pending_bytes=1 << 20))
    pair = EnginePair(node)
    sender = pair.sender("temps")
    big = b"\x00\x53\x75\xb0\x00\x04\x00\x00" + bytes(1 << 18)
    sent = [sender.send(big) for _ in range(40)]
    node.run()
    assert store.pending_bytes < (1 << 20) + 2 * len(big), (
        "a few large messages are much, whatever the credit"
    )
    assert not pair.channel.reading
    rounds = 0
    while store.in_flight:
        store.complete()
        node.run()
        assert store.pending_bytes < (1 << 20) + 2 * len(big)
        rounds += 1
    assert outcomes(sent) == ["accepted"] * 40
    assert pair.channel.reading
    assert rounds > 5


def test_a_connection_is_read_again_when_the_link_that_paused_it_has_ended() -> None:
    """The detach of the link may be in the same block as the excessive transfer."""
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(pending_bytes=1 << 20), block_bytes=8 << 20)
    pair = EnginePair(node)
    sender, other = pair.sender("temps"), pair.sender("temps")
    sender.send(b"\x00\x53\x75\xb0\x00\x20\x00\x00" + bytes(2 << 20))
    sender.link.close()
    node.run()
    assert not pair.channel.reading
    store.complete()
    node.run()
    assert pair.channel.reading
    (sent,) = pair.send(other, EVENT)
    store.complete()
    node.run()
    assert sent.outcome == "accepted"


def test_a_connection_that_was_paused_and_lost_is_left_alone() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(pending_bytes=1 << 20))
    pair = EnginePair(node)
    pair.send(pair.sender("temps"), b"\x00\x53\x75\xb0\x00\x20\x00\x00" + bytes(2 << 20))
    node.disconnect(pair)
    store.complete()
    node.run()
    assert not pair.channel.reading


@pytest.mark.parametrize("target", ["temps", "$management", None])
def test_unfinished_large_messages_of_many_links_are_bounded_together(target: str | None) -> None:
    """Each is within its own limit; all together they are not."""
    node = InMemoryNode({"temps": 1}, limits=Limits(pending_bytes=1 << 20, message_bytes=1 << 20))
    peer = ScriptedPeer(node)
    peer.open()
    closed = 0
    for handle in range(10):
        peer.attach(handle, target=target)
        peer.transfer(handle, handle, bytes(200_000), more=True)
        closed += len(peer.take("detach"))
    assert closed == 5
    for handle in range(10):
        peer.send("detach", handle=UInt(handle), closed=True)
    peer.attach(20, target="temps")
    peer.transfer(20, 10, EVENT)
    assert partition(node).end == 1
    assert node.service.unfinished.bytes == 0


@pytest.mark.parametrize("credit", [1, 50])
def test_deliveries_that_their_sender_aborts_give_their_credit_back(credit: int) -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(credit=credit))
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    peer.take("flow")
    for number in range(3 * credit):
        peer.transfer(0, number, EVENT[:3], more=True)
        peer.transfer(0, number, b"", aborted=True)
    flows = peer.take("flow")
    last = flows[-1].fields
    assert last["delivery-count"] == 3 * credit or credit > 1
    assert last["delivery-count"] + last["link-credit"] > 3 * credit  # type: ignore[operator]  # numbers


def test_a_producer_that_settles_first_continues_when_its_window_filled_up_during_a_slow_commit() -> None:
    """rcv-settle-mode second: an event that was sent settled is settled here only when it is durable, and no
    other event requests credit.
    """
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(credit=10, unsettled=10))
    pair = EnginePair(node)
    sender = pair.sender("temps", settle=(proton.Link.SND_MIXED, proton.Link.RCV_SECOND))
    for _ in range(100):
        sender.send(EVENT, settled=True)
    node.run()
    while store.in_flight:
        store.complete()
        node.run()
    assert partition(node).end == 100


def test_events_of_links_that_send_one_each_spread_over_the_partitions() -> None:
    node = InMemoryNode({"temps": 4, "other": 2})
    for _ in range(10):
        pair = EnginePair(node)
        pair.send(pair.sender("temps"), EVENT)
        pair.send(pair.sender("other"), EVENT)
        relayed = message(address="temps")
        pair.send(pair.sender(None), relayed, relayed)
    assert [each.end for each in node.store.logs["temps"].partitions] == [8, 8, 7, 7]
    assert [each.end for each in node.store.logs["other"].partitions] == [5, 5]


# -- echo


def test_a_flow_that_asks_for_an_echo_gets_a_flow() -> None:
    """AMQP 2.7.4: the partner MUST send its flow state when practical."""
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    peer.take("flow")
    peer.flow(0, 2000, echo=True)
    (flow,) = [flow for flow in peer.take("flow") if flow.fields["handle"] == 0]
    assert int(flow.fields["link-credit"]) >= 2000  # type: ignore[arg-type]  # a number
    peer.flow(0, 2000)
    assert peer.take("flow") == []


@pytest.mark.parametrize("block_bytes", [1, 7, 50, 333, 1 << 18])
@pytest.mark.parametrize("links", [1, 6])
def test_an_echo_is_answered_at_any_position_among_transfers(block_bytes: int, links: int) -> None:
    """Connections that carry only transfers are not searched for a flow, so a flow among transfers must be
    noticed.
    """
    node = InMemoryNode({"temps": 1}, block_bytes=block_bytes)
    peer = ScriptedPeer(node)
    peer.open()
    for handle in range(links):
        peer.attach(handle, target="temps")
    peer.take("flow")

    def transfers(first: int) -> bytes:
        whole: dict[str, Any] = {"handle": UInt(0), "delivery_tag": b"t"}
        single = b"".join(
            frame_of("transfer", EVENT, delivery_id=UInt(number), **whole)
            for number in range(first, first + 5)
        )
        parts = (EVENT[:4], True), (EVENT[4:], False)
        return single + b"".join(
            frame_of("transfer", part, delivery_id=UInt(first + 5), more=more, **whole)
            for part, more in parts
        )

    window = {
        "next_incoming_id": UInt(0),
        "incoming_window": UInt(99),
        "next_outgoing_id": UInt(0),
        "outgoing_window": UInt(99),
    }
    echo = frame_of("flow", handle=UInt(0), delivery_count=UInt(0), link_credit=UInt(0), echo=True, **window)
    peer.write(transfers(0))
    assert peer.take("flow") == []
    peer.write(transfers(6) + echo + transfers(12))
    assert len(peer.take("flow")) >= 1
    assert partition(node).end == 18


# -- routing


def test_a_bound_link_feeds_its_partition_and_an_agnostic_one_all() -> None:
    node = InMemoryNode({"temps": 4})
    pair = EnginePair(node)
    bound = pair.sender("temps", properties={names.PARTITION: proton.symbol("2")})
    pair.send(bound, *[EVENT] * 4)
    pair.send(pair.sender("temps"), *[EVENT] * 4)
    assert [partition(node, index).end for index in range(4)] == [1, 1, 5, 1]
    assert bound.link.remote_properties == {names.PARTITION: "2"}


def test_a_wrong_partition_is_rejected_with_a_named_error_and_the_others_accepted() -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), to_partition("0"), to_partition("7"), to_partition("1"))
    assert outcomes(sent) == ["accepted", "rejected", "accepted"]
    assert sent[1].condition == names.NOT_FOUND
    assert "0 to 1" in description(sent[1].delivery.remote.condition)


# -- null target


def test_messages_on_a_null_target_go_where_they_say() -> None:
    node = InMemoryNode({"temps": 1, "other": 1})
    pair = EnginePair(node)
    relay = pair.sender(None)
    assert relay.link.remote_target.type == proton.Terminus.TARGET
    assert relay.link.remote_target.address is None
    sent = pair.send(
        relay, message(address="temps"), message(address="other"), message(address="nowhere"), message()
    )
    assert outcomes(sent) == ["accepted", "accepted", "rejected", "rejected"]
    assert [each.condition for each in sent[2:]] == [names.NOT_FOUND, names.INVALID_FIELD]
    assert (partition(node).end, node.store.logs["other"].partitions[0].end) == (1, 1)


def test_a_settled_message_for_an_unknown_address_closes_the_link() -> None:
    """Anonymous Terminus 2.2.1: for a delivery sent settled the link is detached with the error."""
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    relay = pair.sender(None)
    pair.send(relay, message(address="nowhere"), settled=True)
    assert relay.refused == names.NOT_FOUND


# -- when the disk fails


def test_a_failed_commit_is_reported_to_the_producers_of_its_events() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 2}, store=store)
    pair = EnginePair(node)
    sent = pair.send(pair.sender("temps"), to_partition("0"), to_partition("1"), to_partition("0"))
    store.fail(partition(node, 0), StorageError("broken"))
    store.complete()
    node.run()
    assert outcomes(sent) == ["modified", "accepted", "modified"]
    assert sent[0].delivery.remote.failed
    assert (partition(node, 0).end, partition(node, 1).end) == (0, 1)


def test_an_agnostic_producer_continues_with_the_partitions_that_run() -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    sender = pair.sender("temps")
    node.store.fail(partition(node, 0), StorageError("broken"))
    assert set(outcomes(pair.send(sender, *[EVENT] * 4))) == {"accepted", "modified"}
    assert outcomes(pair.send(sender, *[EVENT] * 4)) == ["accepted"] * 4


def test_a_producer_bound_to_a_partition_that_stopped_is_detached() -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    sender = pair.sender("temps", properties={names.PARTITION: proton.symbol("0")})
    node.store.fail(partition(node, 0), StorageError("broken"))
    sent = pair.send(sender, EVENT)
    assert outcomes(sent) == ["modified"]
    assert sender.refused == names.INTERNAL_ERROR


@pytest.mark.parametrize("at", ["append", "commit"])
def test_a_full_disk_refuses_with_an_error_and_recovers(at: str) -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    sender = pair.sender("temps")
    if at == "append":
        # The twin's own.
        partition(node).refusal = DiskFullError("no space left")  # type: ignore[attr-defined]
    else:
        node.store.fail(partition(node), DiskFullError("no space left"), stop=False)
    sent = pair.send(sender, EVENT, EVENT)
    assert [(each.outcome, each.condition) for each in sent] == [
        ("rejected", names.RESOURCE_LIMIT_EXCEEDED)
    ] * 2
    assert node.service.audit.deliveries_refused == {names.RESOURCE_LIMIT_EXCEEDED: 2}
    partition(node).refusal = None  # type: ignore[attr-defined]
    assert outcomes(pair.send(sender, EVENT)) == ["accepted"]
    assert sender.refused is None
    assert partition(node).end == 1


def test_durable_events_stay_readable_when_a_partition_stops() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a", b"b")
    node.store.fail(partition(node), StorageError("broken"))
    pair = EnginePair(node)
    assert pair.receiver("temps", credit=10, filters=filter_of("@earliest")).bodies == [b"a", b"b"]


# -- after the log is deleted


def test_a_link_that_is_closing_takes_nothing_more() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    (link,) = [
        link for connection in node.service.connections for link in connection.find_links(lambda _link: True)
    ]
    assert isinstance(link, ProducerLink)
    link.close()
    link.close()
    link.top_up()
    peer.transfer(0, 0, EVENT)
    assert partition(node).end == 0
    # A client could take a delivery that is settled without an outcome for accepted.
    assert [each.fields["state"] for each in peer.take("disposition")] == [Described(ULong(0x26), [])]
    assert len(peer.take("detach")) == 1
    assert lib.pn_link_unsettled(link.pointer) == 0
