"""Batched sends over the wire, frame by frame: what any AMQP client sees of them."""

import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import DiskFullError, StorageError
from amqp_streams.policy import Quota
from amqp_streams.server.identity.guard import Login
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, frame_of
from amqp_streams.testing_amqp.script import symbols
from amqp_streams.wire.batched.compression import codec, compressed
from amqp_streams.wire.batched.sends import write_sent_batch
from amqp_streams.wire.codec import encode
from amqp_streams.wire.frames import frame
from amqp_streams.wire.sequences import with_sequence
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, ULong
from tests.amqp_streams.server.iterations import let_connections_take
from tests.amqp_streams.server.sent_batches import (
    ACCEPTED,
    BATCH,
    EVENT,
    MODIFIED,
    RELEASED,
    attach,
    azure,
    body,
    producing,
    read,
    send,
    states,
    stored,
)

# -- negotiation


@pytest.mark.parametrize("batched", [True, False])
def test_the_answer_says_how_many_events_a_batch_may_have(batched: bool) -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(batch_events=123))
    peer = ScriptedPeer(node)
    opened = peer.open()
    assert names.CAPABILITY_BATCHED_SENDS in symbols(opened.fields["offered-capabilities"])
    answer = attach(peer, 0, batched=batched)
    target, properties = answer.fields["target"], answer.fields["properties"] or {}
    assert isinstance(target, Described)
    assert isinstance(target.value, list)
    assert isinstance(properties, dict)
    if batched:
        assert symbols(target.value[6]) == [names.CAPABILITY_BATCHED_SENDS]
        assert properties[names.BATCH_EVENTS] == 123
    else:
        assert len(target.value) < 7 or not target.value[6]
        assert names.BATCH_EVENTS not in properties


# -- a batch is its events


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 18])
@pytest.mark.parametrize("batched", [True, False])
def test_batches_and_single_events_are_stored_in_order(block_bytes: int, batched: bool) -> None:
    """Also those of an Event Hubs client, which negotiates nothing, and those in several transfers."""
    node = InMemoryNode({"temps": 1}, block_bytes=block_bytes)
    peer = producing(node, batched=batched)
    peer.transfer(0, 0, body("0"), message_format=UInt(0))
    send(peer, 1, azure(body("1"), body("2")))
    send(peer, 2, write_sent_batch([body("3"), body("4" * 40)], {1: 5}))
    half = write_sent_batch([body("5"), body("6")])
    send(peer, 3, half[:20], more=True)
    send(peer, 3, half[20:])
    peer.transfer(0, 4, body("7"))
    peer.transfer(0, 5, body("8"), message_format=UInt(9))
    send(peer, 6, azure(body("9")))
    assert stored(node) == [body(each) for each in ("0", "1", "2", "3", "4" * 40, "5", "6", "7", "8", "9")]
    assert states(peer) == dict.fromkeys(range(7), ACCEPTED)
    formats = [
        number
        for at in range(10)
        if (chunk := read(node, at)) is not None
        for number in [0 if chunk.formats is None else chunk.formats[0]]
    ]
    assert formats == [0, 0, 0, 0, 5, 0, 0, 0, 9, 0]


def test_consumers_get_single_events_with_offsets_and_filters() -> None:
    node = InMemoryNode({"temps": 1})
    receiver = EnginePair(node).receiver("temps", credit=100)
    send(producing(node), 0, write_sent_batch([body(str(number)) for number in range(20)]))
    arrived = receiver.take()
    assert [each.body for each in arrived] == [str(number) for number in range(20)]
    assert [each.annotations[names.OFFSET] for each in arrived] == [f"{number:016d}" for number in range(20)]


def test_what_has_no_readable_format_is_refused_between_batches() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    fields = b"\x43\x52\x01\xa0\x011" + b"\x53\x07"
    odd = frame(0, b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 4)) + fields + EVENT)
    first, last = (
        frame_of(
            "transfer",
            azure(body(f"{number} 0"), body(f"{number} 1")),
            handle=UInt(0),
            delivery_id=UInt(number),
            delivery_tag=b"%d" % number,
            message_format=BATCH,
        )
        for number in (0, 2)
    )
    peer.write(first + odd + last)
    found = states(peer)
    assert found.pop(1)[0] == names.INVALID_FIELD
    assert found == {0: ACCEPTED, 2: ACCEPTED}
    assert stored(node) == [body(each) for each in ("0 0", "0 1", "2 0", "2 1")]


def test_an_aborted_batch_stores_nothing() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    batch = write_sent_batch([body("a"), body("b")])
    send(peer, 0, batch[:30], more=True)
    send(peer, 0, b"", aborted=True)
    send(peer, 1, batch)
    send(peer, 2, batch[:30], more=True)
    send(peer, 2, batch[30:], aborted=True)
    peer.transfer(0, 3, body("c"), message_format=UInt(0))
    assert stored(node) == [body("a"), body("b"), body("c")]


def test_a_batch_that_settled_first_is_stored_and_a_bad_one_ends_its_link() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    send(peer, 0, azure(body("a"), body("b")), settled=True)
    assert stored(node) == [body("a"), body("b")]
    send(peer, 1, azure(body("c"), b"garbage"), settled=True)
    (detach,) = peer.take("detach")
    assert names.DECODE_ERROR in str(detach.fields["error"])
    assert stored(node) == [body("a"), body("b")]


def test_a_sender_that_settles_second_gets_its_outcome() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node, rcv_settle_mode=UByte(1))
    send(peer, 0, azure(body("a"), body("b")))
    (said,) = peer.take("disposition")
    assert not said.fields["settled"]
    assert isinstance(said.fields["state"], Described)
    assert said.fields["state"].descriptor == ACCEPTED
    assert stored(node) == [body("a"), body("b")]


# -- outcomes


def test_a_bad_event_is_named_and_the_link_waits_for_its_sender() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    send(peer, 0, azure(body("a"), body("b"), b"garbage", body("c")))
    send(peer, 1, azure(body("d")))
    peer.transfer(0, 2, body("e"), message_format=UInt(0))
    found = states(peer)
    condition, description, index = found.pop(0)
    assert (condition, index) == (names.DECODE_ERROR, 2)
    assert str(description).startswith("event 2 of the batch: ")
    assert found == {1: RELEASED, 2: RELEASED}
    assert stored(node) == []
    send(peer, 3, write_sent_batch([body("a")], resumes=True))
    peer.transfer(0, 4, body("b"), message_format=UInt(0))
    assert states(peer) == {3: ACCEPTED, 4: ACCEPTED}
    assert stored(node) == [body("a"), body("b")]


def test_a_settled_event_on_a_waiting_link_ends_the_link() -> None:
    """Its sender would not learn that it is not stored."""
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    send(peer, 0, azure(body("a"), b"garbage"))
    peer.transfer(0, 1, body("e"), message_format=UInt(0), settled=True)
    (detach,) = peer.take("detach")
    assert names.ILLEGAL_STATE in str(detach.fields["error"])
    assert stored(node) == []


def test_a_batch_is_accepted_when_all_its_events_are_durable() -> None:
    node = InMemoryNode({"temps": 2}, store=MemoryStore(auto=False))
    peer = producing(node)
    send(peer, 0, write_sent_batch([to_partition("0"), to_partition("1")]))
    assert states(peer) == {}
    node.store.complete()
    node.run()
    assert states(peer) == {0: ACCEPTED}
    assert (len(stored(node, 0)), len(stored(node, 1))) == (1, 1)


def to_partition(name: str) -> bytes:
    return encode(Described(ULong(0x71), {Symbol(names.TARGET_PARTITION): Symbol(name)})) + body(name)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(DiskFullError("full"), names.RESOURCE_LIMIT_EXCEEDED), (StorageError("broken"), MODIFIED)],
)
def test_a_batch_with_a_partition_that_fails_is_not_accepted(error: StorageError, outcome: object) -> None:
    node = InMemoryNode({"temps": 2}, store=MemoryStore(auto=False))
    peer = producing(node)
    send(peer, 0, write_sent_batch([to_partition("0"), to_partition("1")]))
    node.store.fail(node.store.logs["temps"].partitions[1], error)
    node.store.complete()
    node.run()
    (found,) = states(peer).values()
    assert (found[0] if isinstance(found, tuple) else found) == outcome


def test_a_repeated_batch_whose_events_are_in_two_commits_waits_for_both() -> None:
    node = InMemoryNode({"temps": 1}, store=MemoryStore(auto=False))
    numbers = [with_sequence(body(str(number)), number) for number in range(6)]
    properties = {Symbol(names.PRODUCER_ID): "p"}
    peer = producing(node, properties=properties)
    send(peer, 0, write_sent_batch(numbers[:2]))
    send(peer, 1, write_sent_batch(numbers[2:4]))
    again = producing(node, properties=properties, name="again")
    send(again, 0, write_sent_batch(numbers))
    assert states(again) == {}
    node.store.complete()
    node.run()
    assert states(peer) == {0: ACCEPTED}
    assert states(again) == {}
    while node.store.in_flight:
        node.store.complete()
        node.run()
    assert states(again) == {0: ACCEPTED}
    assert len(stored(node)) == 6


# -- limits


def test_a_batch_of_too_many_events_is_rejected() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(batch_events=10))
    peer = producing(node, batched=False)
    send(peer, 0, azure(*[EVENT] * 11))
    send(peer, 1, azure(*[EVENT] * 10))
    found = states(peer)
    assert found[0][0] == names.LINK_MESSAGE_SIZE_EXCEEDED
    assert found[1] == ACCEPTED
    assert len(stored(node)) == 10


def test_a_batch_larger_than_a_message_may_be_ends_its_link() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=4096))
    peer = producing(node)
    send(peer, 0, write_sent_batch([EVENT] * 400))
    (detach,) = peer.take("detach")
    assert names.LINK_MESSAGE_SIZE_EXCEEDED in str(detach.fields["error"])
    assert stored(node) == []


def test_many_batches_in_one_read_give_other_connections_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of bytes may hold thousands of batches. What does not fit into a loop iteration waits, and what
    came after it, here the detach, waits too.
    """
    let_connections_take(-1.0, monkeypatch)
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    other = producing(node, name="other")
    frames = [
        frame_of(
            "transfer",
            azure(body(f"{number} 0"), body(f"{number} 1")),
            handle=UInt(0),
            delivery_id=UInt(number),
            delivery_tag=b"%d" % number,
            message_format=BATCH,
        )
        for number in range(20)
    ]
    detach = frame_of("detach", handle=UInt(0), closed=True)
    last = frame_of(
        "transfer", azure(body("other")), handle=UInt(0), delivery_id=UInt(0), delivery_tag=b"0",
        message_format=BATCH,
    )  # fmt: skip
    peer._out += b"".join([*frames, detach])
    other._out += last
    node.run()
    assert stored(node).index(body("other")) < 20
    assert [each for each in stored(node) if each != body("other")] == [
        body(f"{number} {index}") for number in range(20) for index in range(2)
    ]
    assert len(peer.take("detach")) == 1


def test_events_of_batches_count_in_the_figures_of_the_log() -> None:
    node = InMemoryNode({"temps": 1})
    send(producing(node), 0, azure(body("a"), body("b")))
    counters = node.service.node.counters["temps"]
    assert (counters.events_in, counters.bytes_in) == (2, len(body("a")) * 2)


# -- compressed batches

ZEROS = compressed(azure(*[b"\x00\x53\x75\xa0\xf0" + bytes(240)] * 4000), codec("zstd"))
"""A small transfer that is a megabyte when it is decompressed."""
ZEROS_BYTES = 4000 * 245


def block(count: int) -> bytes:
    """Transfers that arrive in one read, and the detach of their link."""
    frames = [
        frame_of(
            "transfer",
            ZEROS,
            handle=UInt(0),
            delivery_id=UInt(number),
            delivery_tag=b"%d" % number,
            message_format=BATCH,
        )
        for number in range(count)
    ]
    return b"".join([*frames, frame_of("detach", handle=UInt(0), closed=True)])


def test_small_transfers_with_much_content_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read brought is decompressed only as far as there is space; then the connection waits."""
    assert len(ZEROS) < 1000
    # This is about the disk, and the machine may be slow.
    let_connections_take(60.0, monkeypatch)
    monkeypatch.setattr("amqp_streams.server.links.turns.BUDGET_S", 60.0)
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(pending_bytes=3 << 20), block_bytes=1 << 18)
    peer = producing(node)
    peer._out += block(40)
    node.run()
    rounds = 0
    while store.in_flight:
        assert 0 < store.pending_bytes < (3 << 20) + ZEROS_BYTES
        assert not peer.channel.reading
        assert peer.take("detach") == []
        store.complete()
        node.run()
        rounds += 1
    assert rounds >= 10, "about four batches fit each time"
    assert states(peer) == dict.fromkeys(range(40), ACCEPTED)
    assert len(peer.take("detach")) == 1
    assert node.store.logs["temps"].partitions[0].end == 160_000
    assert peer.channel.reading


def test_a_quota_counts_the_decompressed_bytes() -> None:
    node = InMemoryNode(
        {"temps": 1},
        quotas={"alice": Quota(bytes_in=1 << 20)},
        limits=Limits(idle_timeout_ms=8000),
        block_bytes=1 << 18,
    )
    peer = producing(node, login=Login("alice"))
    peer._out += block(10)
    node.run()
    ends = [node.store.logs["temps"].partitions[0].end]
    while ends[-1] < 40_000 and len(ends) < 100:
        node.advance(1000)
        ends.append(node.store.logs["temps"].partitions[0].end)
    assert ends[0] <= 12_000, "one second's worth, as much debt again, and one batch"
    assert 6 <= len(ends) <= 12


def test_a_connection_that_waits_for_the_disk_may_be_lost() -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store, limits=Limits(pending_bytes=1 << 20), block_bytes=1 << 18)
    peer = producing(node)
    peer._out += block(5)
    node.run()
    peer.channel.abort()
    node.run()
    while store.in_flight:
        store.complete()
        node.run()
    assert store.pending_bytes == 0
    assert node.store.logs["temps"].partitions[0].end % 4000 == 0
