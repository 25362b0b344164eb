"""A message is delivered with the message-format with which it was received, to each consumer and on each
path (AMQP 2.7.5).
"""

import errno
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits, LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.testing import Lateness, MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, Receiving, ScriptedPeer, filter_of, frame_of
from amqp_streams.testing_amqp.script import AMQP_HEADER, terminus
from amqp_streams.wire.batches import read_batch
from amqp_streams.wire.frames import Performative, frame
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

LARGE = 0x80013701
EVENT = b"\x00\x53\x75\xa0\x05event"
EARLIEST: Value = {
    Symbol("start"): Described(
        Symbol(names.FILTER_DELIVERY_ANNOTATIONS), {Symbol(names.OFFSET): "@earliest"}
    ),
}


def message(body: Any = "x", **fields: Any) -> bytes:
    return bytes(proton.Message(body=body, **fields).encode())


def opened(node: InMemoryNode) -> ScriptedPeer:
    peer = ScriptedPeer(node)
    peer.open()
    return peer


def producing(node: InMemoryNode, target: str | None = "temps") -> ScriptedPeer:
    peer = opened(node)
    peer.attach(0, target=target)
    return peer


def formats(node: InMemoryNode, index: int = 0, log: str = "temps") -> list[int]:
    partition = node.store.logs[log].partitions[index]
    found: list[int] = []
    while (chunk := partition.read(len(found), 1 << 20)) is not None:
        found += [0] * len(chunk) if chunk.formats is None else chunk.formats
    return found


def received(peer: ScriptedPeer) -> list[tuple[int, bytes]]:
    """Return the message-format and the end of the message of each delivery. Later transfers of a delivery
    repeat the format.
    """
    found: list[tuple[int, bytes]] = []
    more = False
    for one in peer.take("transfer"):
        number = int(str(one.fields["message-format"]))
        if more:
            assert found[-1][0] == number
            found[-1] = (number, found[-1][1] + one.payload)
        else:
            found.append((number, one.payload))
        more = bool(one.fields["more"])
    return [(number, payload[-len(EVENT) :]) for number, payload in found]


def states(peer: ScriptedPeer) -> dict[int, Described]:
    return {
        number: state
        for said in peer.take("disposition")
        for number in range(
            int(str(said.fields["first"])), int(str(said.fields["last"] or said.fields["first"])) + 1
        )
        if isinstance(state := said.fields["state"], Described)
    }


def refusals(peer: ScriptedPeer) -> dict[int, tuple[str, str]]:
    """Return condition and description of the rejected deliveries, by delivery-id."""
    return {
        number: (str(state.value[0].value[0]), str(state.value[0].value[1]))  # type: ignore[union-attr,index]
        for number, state in states(peer).items()
        if state.descriptor == ULong(0x25)
    }


# -- in


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 18])
@pytest.mark.parametrize("target", ["temps", None])
def test_messages_are_stored_with_their_formats(block_bytes: int, target: str | None) -> None:
    node = InMemoryNode({"temps": 1}, block_bytes=block_bytes)
    peer = producing(node, target)
    inner = frame_of(
        "transfer", EVENT, handle=UInt(0), delivery_id=UInt(1), delivery_tag=b"1", message_format=UInt(7)
    )
    addressed = message(body=inner) if target else message(body=inner, address="temps")
    peer.transfer(0, 0, addressed, message_format=UInt(0))
    peer.transfer(0, 1, addressed, message_format=UInt(0))
    peer.transfer(0, 2, addressed * 3, message_format=UInt(LARGE))
    peer.transfer(0, 3, addressed[:20], message_format=UInt(0), more=True)
    peer.transfer(0, 3, addressed[20:])
    peer.transfer(0, 4, addressed[:20], message_format=UInt(LARGE), more=True)
    peer.transfer(0, 4, addressed[20:], message_format=UInt(LARGE))
    peer.transfer(0, 5, addressed, message_format=UInt(1), settled=True)
    assert formats(node) == [0, 0, LARGE, 0, LARGE, 1]
    assert peer.take("detach") == []


def test_a_message_keeps_its_format_if_the_attach_was_answered_later() -> None:
    """The node looks for a log that it does not know, and another node may have created it."""
    waiting: list[Any] = []
    store = MemoryStore(late=Lateness(waiting.append))
    node = InMemoryNode({"temps": 1}, store=store)
    store.create_elsewhere("theirs", LogSettings(), incarnation="1")
    peer = opened(node)
    peer.attach(0, target="theirs")
    while waiting:
        waiting.pop(0)()
        node.run()
    peer.transfer(0, 0, message(), message_format=UInt(LARGE))
    while waiting:
        waiting.pop(0)()
        node.run()
    assert not refusals(peer)
    assert formats(node, log="theirs") == [LARGE]


@pytest.mark.parametrize("target", [None, "2"])
def test_formats_go_with_their_messages_to_the_partitions(target: str | None) -> None:
    node = InMemoryNode({"temps": 4})
    peer = producing(node)
    keyed = [proton.Message(body="x") for _ in range(40)]
    for number, one in enumerate(keyed):
        if target is None:
            one.annotations = {proton.symbol(names.GROUP_KEY): f"key-{number % 7}"}
        else:
            one.instructions = {proton.symbol(names.TARGET_PARTITION): proton.symbol(target)}
    frames = [
        frame_of(
            "transfer",
            bytes(one.encode()),
            handle=UInt(0),
            delivery_id=UInt(number),
            delivery_tag=b"%d" % number,
            message_format=UInt(number % 7),
        )
        for number, one in enumerate(keyed)
    ]
    peer.write(b"".join(frames))
    found = [formats(node, index) for index in range(4)]
    assert sorted(number for some in found for number in some) == sorted(number % 7 for number in range(40))
    if target is None:
        assert all(not set(one) & set(other) for place, one in enumerate(found) for other in found[:place])
    else:
        assert found[2] == [number % 7 for number in range(40)]


def test_a_transfer_that_comes_together_with_its_attach_keeps_its_format() -> None:
    node = InMemoryNode({"temps": 1})
    peer = opened(node)
    attach = frame_of(
        "attach", name="l", handle=UInt(9), role=False, source=terminus(0x28, None), target=terminus(0x29,
        "temps"),
        initial_delivery_count=UInt(0),
    )  # fmt: skip
    first = frame_of(
        "transfer", EVENT, handle=UInt(9), delivery_id=UInt(0), delivery_tag=b"0", message_format=UInt(LARGE)
    )
    peer.write(attach + first)
    assert formats(node) == [LARGE]


def test_numbered_messages_keep_their_formats() -> None:
    node = InMemoryNode({"temps": 2})
    peer = opened(node)
    peer.attach(
        0, target="temps", properties={Symbol(names.PRODUCER_ID): "job", Symbol(names.PARTITION): Symbol("0")}
    )
    for index, number in enumerate((0, 1, 1, 2)):
        one = proton.Message(body="x")
        one.instructions = {proton.symbol(names.SEQUENCE): proton.ulong(number)}
        peer.transfer(0, index, bytes(one.encode()), message_format=UInt(number))
    assert formats(node) == [0, 1, 2]


def test_a_message_without_sections_is_refused_whatever_its_format() -> None:
    """The node adds delivery annotations, which needs sections."""
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    peer.write(
        b"".join(
            frame_of(
                "transfer",
                payload,
                handle=UInt(0),
                delivery_id=UInt(n),
                delivery_tag=b"%d" % n,
                message_format=UInt(LARGE + n),
            )
            for n, payload in enumerate((b"plain", EVENT, b"\xff\xfe", EVENT))
        )
    )
    assert {number: condition for number, (condition, _) in refusals(peer).items()} == dict.fromkeys(
        (0, 2), names.DECODE_ERROR
    )
    assert formats(node) == [LARGE + 1, LARGE + 3]


@pytest.mark.parametrize("field", [b"\x50\x07", b"\x53\x07", b"\xa1\x017", b"\x00\x53\x01\x52\x07"])
def test_a_format_that_is_not_a_uint_is_refused_and_its_neighbours_are_stored(field: bytes) -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    fields = b"\x43\x52\x01\xa0\x011" + field
    odd = frame(0, b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 4)) + fields + EVENT)
    before, after = (
        frame_of(
            "transfer",
            EVENT,
            handle=UInt(0),
            delivery_id=UInt(n),
            delivery_tag=b"%d" % n,
            message_format=UInt(n),
        )
        for n in (0, 2)
    )
    peer.write(before + odd + after)
    assert refusals(peer) == {
        1: (
            names.INVALID_FIELD,
            (
                "the message-format of this transfer is not a single uint, so the node cannot store it (AMQP"
                " 2.7.5)"
            ),
        )
    }
    assert formats(node) == [0, 2]


def test_refused_messages_use_up_credit_that_comes_back() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(credit=10))
    peer = producing(node)
    for number in range(100):
        fields = b"\x43\x52" + bytes((number,)) + b"\xa0\x01" + bytes((number,)) + b"\x50\x07"
        peer.write(frame(0, b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 4)) + fields + EVENT))
    *_, flow = peer.take("flow")
    assert int(str(flow.fields["delivery-count"])) + int(str(flow.fields["link-credit"])) > 100


def test_a_store_that_cannot_take_formats_refuses_only_the_messages_that_came_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = InMemoryNode({"temps": 1})

    def fail() -> None:
        raise StorageError(errno.errorcode[errno.EIO])

    monkeypatch.setattr(node.store, "allow_formats", fail)
    peer = producing(node)
    peer.transfer(0, 0, EVENT, message_format=UInt(0))
    peer.transfer(0, 1, EVENT, message_format=UInt(LARGE))
    peer.transfer(0, 2, EVENT, message_format=UInt(0))
    assert {number: state.descriptor for number, state in states(peer).items()} == {
        0: ULong(0x24),
        1: ULong(0x27),
        2: ULong(0x24),
    }
    assert formats(node) == [0, 0]


# -- out


def with_formats(*numbers: int, payload: bytes = EVENT) -> InMemoryNode:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    for index, number in enumerate(numbers):
        peer.transfer(0, index, payload, message_format=UInt(number))
    assert formats(node) == list(numbers)
    return node


def consuming(node: InMemoryNode, **fields: Any) -> ScriptedPeer:
    peer = opened(node)
    peer.attach(0, source="temps", filters=EARLIEST, **fields)
    return peer


@pytest.mark.parametrize("credit", [1, 3, 100])
@pytest.mark.parametrize("mode", [0, 1])
def test_each_delivery_has_the_format_of_its_message(credit: int, mode: int) -> None:
    numbers = [0, LARGE, 0, 1, 0xFFFFFFFF, 0, 0x43434343]
    peer = consuming(
        with_formats(*numbers), snd_settle_mode=Described(ULong(0), 0).value if mode == 0 else None
    )
    found: list[tuple[int, bytes]] = []
    for count in range(0, len(numbers) + credit, credit):
        peer.flow(0, credit, delivery_count=UInt(len(found)), next_incoming_id=UInt(count))
        found += received(peer)
    assert found == [(number, EVENT) for number in numbers]


def test_a_message_in_many_frames_has_its_format_in_each_and_what_looks_like_a_transfer_stays_as_it_is() -> (
    None
):
    """Long tags are read from transfers only, never from the content of a message."""
    like = b"\x00\x53\x14\xc0\x1b\x05\x43\x43\xa0\x10" + b"t" * 12 + b"FRMT" + b"\x43\x42"
    body = (like * 4000)[:90_000]
    payload = b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body
    node = with_formats(LARGE, 0, payload=payload)
    peer = ScriptedPeer(node)
    peer.open(max_frame_size=UInt(1000))
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.flow(0, 10)
    transfers = peer.take("transfer")
    assert {(str(one.fields["delivery-id"]), str(one.fields["message-format"])) for one in transfers} == {
        ("0", str(LARGE)),
        ("1", "0"),
    }
    for number in "01":
        whole = b"".join(one.payload for one in transfers if str(one.fields["delivery-id"]) == number)
        assert whole.endswith(payload)


def test_released_events_come_again_in_their_format() -> None:
    peer = consuming(with_formats(LARGE, 0))
    peer.flow(0, 10)
    assert [number for number, _ in received(peer)] == [LARGE, 0]
    for number in (0, 1):
        peer.send(
            "disposition", role=True, first=UInt(number), settled=True, state=Described(ULong(0x27), [True])
        )
    again = peer.take("transfer")
    assert [one.fields["message-format"] for one in again] == [LARGE, 0]
    assert [len(tag_of(one)) for one in again] == [12, 12]


def tag_of(one: Performative) -> bytes:
    tag = one.fields["delivery-tag"]
    assert isinstance(tag, bytes)
    return tag


def test_a_cursor_that_is_kept_is_settled_by_deliveries_of_any_format() -> None:
    node = with_formats(LARGE, 0, 7)
    for expected, settled in ((3, 2), (1, 0)):
        pair = EnginePair(node, container="c")
        receiving = pair.receiver(
            "temps", name="kept", durable=True, credit=10, filters=filter_of("@earliest")
        )
        arrived = receiving.take()
        assert len(arrived) == expected
        for each in arrived[:settled]:
            pair.settle(each)
        node.run()
        pair.connection.close()
        node.run()


def test_a_connection_without_formats_is_not_rewritten() -> None:
    """A link with formats keeps the order of its frames, independent of other frames on the connection."""
    node = with_formats(0, 0, LARGE)
    pair = EnginePair(node)
    receiving = pair.receiver("temps", filters=filter_of("@earliest"), credit=2)  # fmt: skip
    assert [each.raw[-len(EVENT) :] for each in receiving.take()] == [EVENT, EVENT]
    pair.flow(receiving, 5)
    assert len(receiving.take()) == 1
    sender = pair.sender("temps")
    pair.send(sender, EVENT, EVENT)
    assert len(receiving.take()) == 2
    assert not pair.lost


def batched_links(
    node: InMemoryNode, *, known: bool, credit: int = 100, bytes_max: int = 1 << 20, where: str | None = None
) -> Receiving:
    def ask(link: Any) -> None:
        link.source.capabilities.put_object(proton.symbol(names.CAPABILITY_BATCHED_DELIVERIES))

    filters = filter_of("@earliest") | (
        {} if where is None else {"sql": proton.Described(proton.symbol(names.FILTEX_SQL), where)}
    )
    properties = {names.BATCH_BYTES: proton.ulong(bytes_max)} | ({names.BATCH_FORMATS: True} if known else {})
    receiving = EnginePair(node).receiver(
        "temps", filters=filters, credit=credit, prepare=ask, properties=properties
    )
    assert receiving.answered.get(names.BATCH_FORMATS) == (True if known else None)
    return receiving


@pytest.mark.parametrize("where", [None, "n IS NULL"])
@pytest.mark.parametrize("bytes_max", [4096, 1 << 20])
def test_a_batch_says_the_formats_of_its_events(where: str | None, bytes_max: int) -> None:
    numbers = [0, 0, LARGE, 0, 1] * 40
    node = with_formats(*numbers)
    batches = [
        read_batch(each.raw)
        for each in batched_links(node, known=True, bytes_max=bytes_max, where=where).arrived
    ]
    assert [
        batch.formats.get(index, 0) for batch in batches for index in range(len(batch.messages))
    ] == numbers
    assert all(
        len(each.raw) <= bytes_max
        for each in batched_links(node, known=True, bytes_max=bytes_max, where=where).arrived
    )


def test_a_batched_link_that_does_not_know_of_formats_is_closed_before_the_first_that_is_not_0() -> None:
    """The client would read such an event as one of format 0."""
    receiving = batched_links(with_formats(0, 0, LARGE, 0), known=False)
    batches = [read_batch(each.raw) for each in receiving.arrived]
    assert [(list(batch.offsets), batch.next_offset, batch.formats) for batch in batches] == [([0, 1], 2, {})]
    assert receiving.refused == names.NOT_IMPLEMENTED
    assert batched_links(with_formats(LARGE), known=False).arrived == []
    assert batched_links(with_formats(0, 0), known=False).refused is None


def test_filters_see_the_sections_of_a_message_of_any_format() -> None:
    node = InMemoryNode({"temps": 1})
    peer = producing(node)
    for number, payload in enumerate(
        (message(properties={"n": 1}), b"\x00\x53\x75", message(properties={"n": 1}), b"\x00\x53\x77\xff")
    ):
        peer.transfer(0, number, payload, message_format=UInt(LARGE + number))
    peer = opened(node)
    wanted: Value = {
        Symbol("where"): Described(
            Symbol(names.FILTEX_SQL), "n = 1 AND d.event-streams-offset >= '0000000000000000'"
        )
    }
    peer.attach(0, source="temps", filters=wanted)
    peer.flow(0, 10)
    assert [number for number, _ in received(peer)] == [LARGE, LARGE + 2]
    assert peer.take("detach") == []


def test_the_protocol_header_may_come_in_pieces() -> None:
    node = InMemoryNode({"temps": 1}, block_bytes=3)
    peer = ScriptedPeer(node, header=AMQP_HEADER)
    peer.open()
    peer.attach(0, target="temps")
    peer.transfer(0, 0, EVENT, message_format=UInt(LARGE))
    assert formats(node) == [LARGE]
