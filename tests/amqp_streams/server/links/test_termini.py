"""The answer to an attach has the values that are in force."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, symbols, terminus
from amqp_streams.testing_amqp.script import SOURCE_FIELDS
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, Timestamp, UByte, UInt, ULong, Value
from tests.amqp_streams.decoded import condition, description

FILTER = Symbol(names.FILTER_DELIVERY_ANNOTATIONS)


def answered(node: InMemoryNode | None = None, **fields: Any) -> Performative:
    """Return the attach that answers an attach of the test."""
    peer = ScriptedPeer(node or InMemoryNode({"temps": 2}))
    peer.open()
    (attach,) = peer.attach(0, **fields)
    return attach


def source_of(attach: Performative) -> dict[str, Value]:
    source = attach.fields["source"]
    assert isinstance(source, Described)
    assert isinstance(source.value, list)
    values = [*source.value, *[None] * len(SOURCE_FIELDS)]
    return dict(zip(SOURCE_FIELDS, values, strict=False))


def filters_of(attach: Performative) -> Value:
    return source_of(attach)["filter"]


def test_a_source_is_answered_as_it_is_in_force() -> None:
    """The source copies events, is as durable as a kept cursor, and supports four outcomes, independent of
    the request.
    """
    asked = terminus(
        0x28,
        "temps",
        durable=UInt(2),
        expiry_policy=Symbol("never"),
        timeout=UInt(99),
        distribution_mode=Symbol("move"),
        default_outcome=Described(ULong(0x26), []),
    )
    source = source_of(answered_with(asked))
    assert source["address"] == "temps"
    assert (source["durable"], source["expiry-policy"]) == (UInt(1), "never")
    assert source["timeout"] in {None, UInt(0)}
    assert source["distribution-mode"] == "copy"
    assert symbols(source["outcomes"]) == [
        "amqp:accepted:list",
        "amqp:rejected:list",
        "amqp:released:list",
        "amqp:modified:list",
    ]


@pytest.mark.parametrize(
    ("durable", "expiry"),
    [(0, "never"), (1, "link-detach"), (2, "session-end"), (2, "connection-close"), (None, None), (2, None)],
)
def test_a_source_that_does_not_ask_for_both_durability_and_no_end_ends_with_its_link(
    durable: int | None, expiry: str | None
) -> None:
    """AMQP 3.5.5, 3.5.6: a terminus that expires need not be kept."""
    asked = terminus(
        0x28,
        "temps",
        durable=None if durable is None else UInt(durable),
        expiry_policy=expiry and Symbol(expiry),
    )
    source = source_of(answered_with(asked))
    assert source["durable"] in {None, UInt(0)}
    assert source["expiry-policy"] in {None, "link-detach"}


def answered_with(source: Described) -> Performative:
    peer = ScriptedPeer(InMemoryNode({"temps": 2}))
    peer.open()
    peer.send("attach", name="l", handle=UInt(0), role=True, source=source, target=terminus(0x29, "mine"))
    (attach,) = peer.take("attach")
    assert peer.take("detach") == []
    return attach


@pytest.mark.parametrize("descriptor", [FILTER, ULong(names.FILTER_DELIVERY_ANNOTATIONS_CODE)])
@pytest.mark.parametrize("offset", [Symbol("@earliest"), "@earliest"])
def test_filters_in_force_are_echoed_as_they_came(descriptor: Value, offset: Value) -> None:
    given: Value = {
        Symbol("mine"): Described(
            descriptor, {Symbol(names.OFFSET): offset, Symbol(names.TIMESTAMP): Timestamp(5)}
        )
    }
    assert filters_of(answered(source="temps", filters=given)) == given


def test_filters_that_are_not_in_force_are_left_out() -> None:
    known: dict[Value, Value] = {
        Symbol("known"): Described(FILTER, {Symbol(names.OFFSET): Symbol("@earliest")})
    }
    unknown: dict[Value, Value] = {Symbol("other"): Described(Symbol("vendor:some-filter"), "a > 1")}
    assert filters_of(answered(source="temps", filters=known | unknown)) == known
    assert filters_of(answered(source="temps", filters=unknown)) is None
    assert filters_of(answered(source="temps")) is None


@pytest.mark.parametrize("name", ["é", "名", Symbol("a b"), "", 7])
def test_a_filter_may_be_called_anything_and_never_breaks_the_connection(name: Value) -> None:
    """The standard requires a symbol, but clients send other types."""
    given: Value = {name: Described(FILTER, {Symbol(names.OFFSET): Symbol("@earliest")})}
    peer = ScriptedPeer(InMemoryNode({"temps": 1}))
    peer.open()
    answers = peer.attach(0, source="temps", filters=given)
    assert [each.name for each in answers] in [["attach"], ["attach", "detach"]]
    assert not peer.lost


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"source": "temps", "filters": {FILTER: Described(FILTER, "no map")}}, names.INVALID_FIELD),
        (
            {"source": "temps", "filters": {FILTER: Described(FILTER, {Symbol(names.OFFSET): Symbol("7")})}},
            names.INVALID_FIELD,
        ),
        ({"source": "nowhere"}, names.NOT_FOUND),
        ({"target": "nowhere"}, names.NOT_FOUND),
        ({"target": "temps", "properties": {Symbol(names.PARTITION): Symbol("9")}}, names.NOT_FOUND),
        ({"source": "temps", "properties": {Symbol(names.PARTITION): Symbol("9")}}, names.NOT_FOUND),
        ({"source": "temps", "properties": {Symbol(names.PARTITION): 1}}, names.INVALID_FIELD),
    ],
)
def test_a_refused_link_is_attached_with_a_null_terminus_and_detached_with_the_reason(
    fields: dict[str, Any], condition: str
) -> None:
    """AMQP 2.6.3: clients recognize a refusal by the null terminus, and need `closed` and an error."""
    peer = ScriptedPeer(InMemoryNode({"temps": 2}))
    peer.open()
    attach, detach = peer.attach(0, **fields)
    assert attach.fields["source" if "source" in fields else "target"] is None
    assert detach.fields["closed"] is True
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == condition
    assert error.value[1]


def test_a_malformed_filter_is_named_in_the_errors_info() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 2}))
    peer.open()
    _, detach = peer.attach(0, source="temps", filters={Symbol("mine"): Described(FILTER, {Symbol("x"): 1})})
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[2] == {"field": "filter", "filter": "mine", "position": "1"}


def test_filters_nested_beyond_what_is_read_are_refused_as_filters() -> None:
    """Operators see refused filters (`filter_refused`), also this one."""
    group = proton.Described(proton.ulong(0x110), None)
    for _ in range(20):
        group = proton.Described(proton.ulong(0x102), [group])
    receiver = EnginePair(InMemoryNode({"temps": 1})).receiver(
        "temps", filters={proton.symbol("deep"): group}
    )
    assert receiver.refused == names.DECODE_ERROR
    error = condition(receiver.link)
    assert description(error).startswith("filter: a value at byte")
    assert error.info == {"field": "filter"}


def test_filters_are_bounded_in_size() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}, limits=Limits(filter_bytes=256)))
    peer.open()
    many: Value = {
        Symbol(f"f{index}"): Described(FILTER, {Symbol(names.OFFSET): Symbol("@earliest")})
        for index in range(9)
    }
    _, detach = peer.attach(0, source="temps", filters=many)
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize(("sender", "receiver"), [(None, None), (0, 0), (1, 0), (2, 0), (0, 1), (2, 1)])
def test_settle_modes_are_answered_as_they_will_be_used(sender: int | None, receiver: int | None) -> None:
    modes: dict[str, Any] = {}
    if sender is not None and receiver is not None:
        modes = {"snd_settle_mode": UByte(sender), "rcv_settle_mode": UByte(receiver)}
    consumer = answered(source="temps", **modes).fields
    assert consumer["snd-settle-mode"] == (1 if sender == 1 else 0), "this sender settles all or none"
    assert consumer["rcv-settle-mode"] in ({receiver or 0} | ({None} if not receiver else set()))
    producer = answered(target="temps", **modes).fields
    assert producer["snd-settle-mode"] in {2 if sender is None else sender, None}
    assert producer["rcv-settle-mode"] in ({receiver or 0} | ({None} if not receiver else set()))


def test_the_peers_own_terminus_is_echoed() -> None:
    pair = EnginePair(InMemoryNode({"temps": 1}))

    def mine(link: Any) -> None:
        link.target.address = "my-address"

    assert pair.receiver("temps", prepare=mine).link.remote_target.address == "my-address"
    sender = pair.sender("temps", prepare=lambda link: setattr(link.source, "address", "my-source"))
    assert (sender.link.remote_source.address, sender.link.remote_target.address) == ("my-source", "temps")


def test_links_say_the_largest_message() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=5000))
    assert answered(node, target="temps").fields["max-message-size"] == 5000
    assert answered(node, source="temps").fields["max-message-size"] == 5000


def test_a_durable_target_is_answered_as_not_durable() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}))
    peer.open()
    target = terminus(0x29, "temps", durable=UInt(2))
    peer.send(
        "attach",
        name="l",
        handle=UInt(0),
        role=False,
        source=terminus(0x28, None),
        target=target,
        initial_delivery_count=UInt(0),
    )
    (attach,) = peer.take("attach")
    answer = attach.fields["target"]
    assert isinstance(answer, Described)
    assert isinstance(answer.value, list)
    assert answer.value[0] == "temps"
    assert answer.value[1:2] in [[], [None], [UInt(0)]]


def test_transactions_are_not_implemented() -> None:
    peer = ScriptedPeer(InMemoryNode())
    peer.open()
    coordinator = Described(ULong(0x30), [])
    peer.send(
        "attach",
        name="l",
        handle=UInt(0),
        role=False,
        source=terminus(0x28, None),
        target=coordinator,
        initial_delivery_count=UInt(0),
    )
    (detach,) = peer.take("detach")
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.NOT_IMPLEMENTED
    assert not peer.lost


@pytest.mark.parametrize(
    "properties", [{Symbol("x"): {Symbol("deep"): [1, [2, [3]]]}}, {}, {Symbol("big"): "x" * 5000}]
)
def test_unknown_properties_do_no_harm(properties: Value) -> None:
    assert answered(source="temps", properties=properties).fields["properties"] is None


def test_a_wrongly_typed_map_of_properties_refuses_the_link() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}))
    peer.open()
    peer.attach(0, source="temps", properties=["no", "map"])
    assert not peer.lost


def test_proton_sees_its_filter_answered() -> None:
    pair = EnginePair(InMemoryNode({"temps": 1}))
    receiver = pair.receiver("temps", filters=filter_of("@earliest", 5, code=True))
    filters = receiver.link.remote_source.filter
    filters.rewind()
    filters.next()
    echoed = filters.get_object()[names.FILTER_DELIVERY_ANNOTATIONS]
    assert isinstance(echoed, proton.Described)
    assert echoed.value == {names.OFFSET: "@earliest", names.TIMESTAMP: 5}


@pytest.mark.parametrize("block_bytes", [1, 1 << 18])
@pytest.mark.parametrize(
    "fields",
    [
        {"name": "mine\0x", "source": "temps"},
        {"source": "temps\0x"},
        {"source": "temps", "target": "back\0"},
        {"target": "temps\0/$info"},
    ],
)
def test_a_name_with_a_nul_is_refused_and_means_nothing_else(
    fields: dict[str, Any], block_bytes: int
) -> None:
    """The engine returns names as C strings: the part after the NUL is lost."""
    peer = ScriptedPeer(InMemoryNode({"temps": 1}, block_bytes=block_bytes))
    peer.open()
    (own,) = peer.attach(7, source="temps", name="mine")
    assert own.fields["source"] is not None
    attach, detach = peer.attach(0, **fields)
    assert (attach.fields["source"], attach.fields["target"]) == (None, None)
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.INVALID_FIELD
    assert "NUL" in str(error.value[1])
    assert peer.take("detach") == [], "the link of the shorter name stays"
    (other,) = peer.attach(8, source="temps")
    assert other.fields["source"] is not None, "the shorter address can still be used"


def test_a_container_id_with_a_nul_ends_the_connection_with_the_reason() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}))
    peer.open(container_id="me\0you")
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.INVALID_FIELD
