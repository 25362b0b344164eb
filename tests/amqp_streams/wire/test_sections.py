"""Sections are found in every encoding. The stored bytes are the sent ones without the delivery
annotations.
"""

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol

from amqp_streams.errors import WireError
from amqp_streams.names import GROUP_KEY, TARGET_PARTITION
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong, decode
from amqp_streams.wire.layout import descriptor_at
from amqp_streams.wire.sections import (
    ANNOTATIONS_SIZE_MAX,
    MessagesRefusedError,
    bare_message_start,
    delivery_annotations,
    group_key,
    message_annotations,
    properties_to,
    sections,
    strip,
    strip_batch,
    target_partition,
    with_delivery_count,
    without_annotations,
)
from tests.amqp_streams.wire import values as strategies
from tests.amqp_streams.wire.messages import DATA, FORMS, VALUES, Form, long, messages, short, wide

BODIES: dict[str, Any] = {"data": b"\x00abc", "value": "text", "sequence": [1, 2]}


@given(messages())
def test_stripping_removes_the_delivery_annotations_and_nothing_else(
    message: tuple[list[int], list[bytes]],
) -> None:
    codes, parts = message
    received = b"".join(parts)
    size, stored = strip(received)
    assert stored == b"".join([part for code, part in zip(codes, parts, strict=True) if code != 0x71])
    assert size == (len(parts[0]) if codes[0] == 0x70 else 0)
    if 0x71 not in codes:
        assert stored is received


@given(messages())
def test_annotations_are_read_wherever_they_are(message: tuple[list[int], list[bytes]]) -> None:
    codes, parts = message
    received = b"".join(parts)
    assert delivery_annotations(received) == (VALUES[0x71] if 0x71 in codes else {})
    assert message_annotations(received) == (VALUES[0x72] if 0x72 in codes else {})
    assert properties_to(received) == ("to" if 0x73 in codes else None)
    assert group_key(received) is None
    assert target_partition(received) is None


def proton_messages() -> list[Message]:
    """Every combination of sections that Proton can encode."""
    made = []
    for durable, instructions, annotations, identity, properties, (kind, body) in itertools.product(
        (False, True),
        (None, {symbol("a"): 1}),
        (None, {symbol("b"): 2}),
        (None, "id"),
        (None, {"x": 1}),
        BODIES.items(),
    ):
        message: Any = Message(body=body, inferred=kind != "value", durable=durable)
        message.instructions, message.annotations, message.properties = instructions, annotations, properties
        message.id = identity
        message.address = "an/address" if identity else None
        made.append(message)
    return made


def test_messages_of_proton_equal_those_that_proton_reads_without_delivery_annotations() -> None:
    for message in proton_messages():
        received = bytes(message.encode())
        size, stored = strip(received)
        read = Message()
        read.decode(stored)
        assert read.instructions is None
        assert (read.durable, read.id, read.annotations, read.properties) == (
            message.durable,
            message.id,
            message.annotations,
            message.properties,
        )
        assert read.body == message.body
        assert sections(stored)[0].end == size
        assert delivery_annotations(received) == (message.instructions or {})
        assert message_annotations(received) == (message.annotations or {})
        assert properties_to(received) == message.address


batches = st.lists(messages().map(lambda message: b"".join(message[1])) | st.binary(max_size=12), max_size=8)


alike = st.builds(
    lambda prefix, parts: [prefix + part for part in parts],
    messages().map(lambda message: message[1][0]),
    st.lists(
        st.sampled_from([DATA, short(0x73, []), b"", short(0x71, {}), b"\x00\x53", b"\x00\x53\x75\x40"]),
        max_size=8,
    ),
)


@given(batches | alike)
def test_a_batch_is_stripped_as_its_messages_are_one_by_one(batch: list[bytes]) -> None:
    kept: list[tuple[int, bytes]] = []
    refused: dict[int, str] = {}
    for index, message in enumerate(batch):
        try:
            kept.append(strip(message))
        except WireError as error:
            refused[index] = str(error)
    if refused:
        with pytest.raises(MessagesRefusedError) as raised:
            strip_batch(batch)
        whole = raised.value
        assert {index: str(reason) for index, reason in whole.refused.items()} == refused
        assert whole.index == min(refused)
        stored, sizes = whole.messages, whole.header_sizes
    else:
        stored, sizes = strip_batch(batch)
    assert list(zip(sizes, stored, strict=True)) == kept


@given(batches)
def test_a_batch_without_annotations_has_none_in_any_message(batch: list[bytes]) -> None:
    if without_annotations(batch):
        for message in batch:
            assert target_partition(message) is None
            assert group_key(message) is None


def test_a_batch_of_messages_that_look_alike_is_known_to_have_no_annotations() -> None:
    header = short(0x70, [True, 3])
    for prefix in (b"", header, short(0x70, [])):
        assert without_annotations([prefix + DATA, prefix + short(0x73, []) + DATA])
        assert not without_annotations([prefix + DATA, prefix + short(0x72, {}) + DATA])
    assert without_annotations([])


def test_a_batch_that_stays_as_it_is_is_not_copied() -> None:
    batch = [DATA, short(0x72, {}) + DATA]
    assert strip_batch(batch)[0] is batch


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "without a section"),
        (b"\x00", "not a section"),
        (b"hello", "not a section"),
        (b"\x00\x53\x79\x40", "not a section"),
        (b"\x00\x53\x14\x45", "not a section"),
        (b"\x00\xa3\x04amqp\x40", "not a section"),
        (b"\x00\x53\x70", "beyond the end"),
        (b"\x00\x53\x70\xa1\x00" + DATA, "not a constructor of header"),
        (short(0x70, [True]) + b"junk", "not a section"),
        (short(0x70, [True]) * 2 + DATA, "header at byte 7 is out of order or occurs twice"),
        (short(0x70, ["x" * 260]) + DATA, "255 are allowed"),
        (short(0x71, {Symbol("a"): 1}), "without a section"),
        (short(0x71, {}) + short(0x70, []) + DATA, "header at byte 6 is out of order"),
        (short(0x71, {}) * 2 + DATA, "delivery-annotations at byte 6 is out of order or occurs twice"),
        (short(0x71, {}) + b"junk", "not a section"),
        (short(0x71, {}) + short(0x71, {})[:4], "is out of order|beyond"),
        (b"\x00\x53\x71\xd1\xff\xff\xff\xff" + DATA, "beyond the end"),
    ],
)
def test_malformed_messages_are_refused_with_the_reason(message: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        strip(message)


ANY_HEAD = st.sampled_from(
    [
        b"\x00\x53\x70",
        b"\x00\x53\x71",
        b"\x00\x53\x72",
        b"\x00\x53\x73",
        short(0x70, []),
        short(0x70, [True]),
        short(0x71, {}),
        b"",
    ]
)
KEY = b"\xa3\x17event-streams-group-key"
TARGET = b"\xa3\x1eevent-streams-target-partition"
nearly = st.builds(
    lambda parts, tail: b"".join(parts) + tail,
    st.lists(
        ANY_HEAD
        | st.sampled_from(
            [b"\x00\x53\x72\xc1\xff\x02" + KEY, b"\x00\x53\x71\xc1\x40\x02" + TARGET, KEY + b"\xa1", TARGET]
        ),
        max_size=4,
    ),
    st.binary(max_size=40),
)


@given(st.binary(max_size=100) | nearly)
def test_arbitrary_bytes_raise_nothing_but_wire_error(message: bytes) -> None:
    for look in (
        strip,
        sections,
        bare_message_start,
        delivery_annotations,
        message_annotations,
        group_key,
        target_partition,
        properties_to,
    ):
        with contextlib.suppress(WireError):
            look(message)
    try:
        size, stored = strip(message)
    except WireError:
        return
    assert 0 <= size <= min(255, len(stored))
    with contextlib.suppress(WireError):
        with_delivery_count(stored, size, 1)


@pytest.mark.parametrize("prefix", [b"", short(0x70, []), short(0x70, [True]), long(0x70, [True])])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("others", [{}, {Symbol("x-opt-a"): 1, Symbol("x-opt-b"): "y" * 300}])
@pytest.mark.parametrize("value", ["device-7", Symbol("device-7"), "é" * 200, ""])
def test_routing_hints_are_found_among_other_annotations(
    prefix: bytes, form: Form, others: dict, value: str
) -> None:
    for entries in ({Symbol(GROUP_KEY): value, **others}, {**others, Symbol(GROUP_KEY): value}):
        for front in (prefix, prefix + form(0x71, {})):
            assert group_key(front + form(0x72, entries) + DATA) == value
            assert type(group_key(front + form(0x72, entries) + DATA)) is str
    for entries in ({Symbol(TARGET_PARTITION): value, **others}, {**others, Symbol(TARGET_PARTITION): value}):
        assert target_partition(prefix + form(0x71, entries) + DATA) == value


def test_routing_hints_as_proton_writes_them_are_found() -> None:
    message = Message(body="x")
    message.instructions = {symbol(TARGET_PARTITION): symbol("3")}
    message.annotations = {symbol(GROUP_KEY): "device-7"}
    received = bytes(message.encode())
    assert (target_partition(received), group_key(received)) == ("3", "device-7")
    assert group_key(strip(received)[1]) == "device-7"


@pytest.mark.parametrize("value", [7, UInt(7), b"bytes", ["a"], True, Described(ULong(1), "x")])
def test_a_routing_hint_of_another_type_is_an_error(value: object) -> None:
    with pytest.raises(WireError, match="event-streams-group-key must be a string or symbol"):
        group_key(short(0x72, {Symbol(GROUP_KEY): value}) + DATA)
    with pytest.raises(WireError, match="event-streams-target-partition must be a string or symbol"):
        target_partition(short(0x71, {Symbol(TARGET_PARTITION): value}) + DATA)


@pytest.mark.parametrize(
    "other", [{Symbol("x"): GROUP_KEY}, {Symbol("event-streams-group-key-2"): "a"}, {Symbol(GROUP_KEY): None}]
)
def test_the_name_of_a_hint_elsewhere_is_not_a_hint(other: dict) -> None:
    assert group_key(short(0x72, other) + DATA) is None


@pytest.mark.parametrize("front", [b"", short(0x70, []), short(0x70, [True])])
@pytest.mark.parametrize("form", [short, wide])
def test_a_hint_in_the_other_annotations_does_not_count(front: bytes, form: Form) -> None:
    assert group_key(front + form(0x71, {Symbol(GROUP_KEY): "a"}) + DATA) is None
    assert target_partition(front + form(0x72, {Symbol(TARGET_PARTITION): "a"}) + DATA) is None


def test_annotations_too_large_to_search_are_refused_only_if_they_have_a_searched_name() -> None:
    large = {Symbol("x"): "y" * ANNOTATIONS_SIZE_MAX}
    assert group_key(short(0x72, large) + DATA) is None
    with pytest.raises(WireError, match="65536 are allowed"):
        group_key(short(0x72, {**large, Symbol(GROUP_KEY): "a"}) + DATA)


@pytest.mark.parametrize("tail", [b"", b"\xa1", b"\xa1\x05ab", KEY[:-1]])
def test_a_routing_hint_that_is_cut_by_the_end_of_its_section_is_an_error(tail: bytes) -> None:
    entries = b"\x02" + KEY + tail
    with pytest.raises(WireError):
        group_key(b"\x00\x53\x72\xc1" + bytes((len(entries),)) + entries + DATA[:3])


def test_a_routing_hint_that_is_not_text_is_an_error() -> None:
    with pytest.raises(WireError, match="invalid continuation"):
        group_key(b"\x00\x53\x72\xc1\x1e\x02" + KEY + b"\xa1\x02\xc3\x28" + DATA)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], None),
        (["id"], None),
        (["id", b"user", "to"], "to"),
        ([ULong(1), None, "to", "subject"], "to"),
        ([None, None, None, "s"], None),
        (["i" * 300, None, "to"], "to"),
    ],
)
def test_the_address_of_a_message_is_found(fields: list[object], expected: str | None) -> None:
    for prefix in (b"", short(0x70, []), short(0x72, {})):
        assert properties_to(prefix + short(0x73, fields) + DATA) == expected
    assert properties_to(DATA) is None


@pytest.mark.parametrize(
    "section",
    [
        short(0x73, [None, None, 5]),
        b"\x00\x53\x73\xc0\x02\x03\x40" + DATA,
        b"\x00\x53\x73\xc0\x00",
        b"\x00\x53\x73\xd0\x00\x00\x00\x02\x00\x00",
    ],
)
def test_a_malformed_to_field_is_an_error(section: bytes) -> None:
    with pytest.raises(WireError):
        properties_to(section)


headers = st.lists(st.none() | st.booleans(), max_size=1) | st.just([True, None, UInt(5000)])


@given(st.none() | headers, st.integers(0, 1 << 40), messages())
def test_the_delivery_count_changes_and_nothing_else(
    fields: list[object] | None, count: int, message: tuple[list[int], list[bytes]]
) -> None:
    rest = b"".join([part for code, part in zip(*message, strict=True) if code not in {0x70, 0x71}])
    header = b"" if fields is None else short(0x70, fields)
    written = with_delivery_count(header + rest, len(header), count)
    described, end = decode(written)
    assert isinstance(described, Described)
    assert isinstance(described.value, list)
    padded = [*(fields or []), *[None] * 4][:4]
    assert described.value == [*padded, UInt(min(count, 2**32 - 1))]
    assert written[end:] == rest


def test_proton_reads_the_delivery_count() -> None:
    size, stored = strip(bytes(Message(body="x", durable=True).encode()))
    read = Message()
    read.decode(with_delivery_count(stored, size, 7))
    assert (read.delivery_count, read.durable, read.body) == (7, True, "x")


@given(strategies.values)
def test_a_value_of_any_kind_may_be_a_body(value: object) -> None:
    message = short(0x77, value)
    assert strip(message) == (0, message)
    assert [section.code for section in sections(message)] == [0x77]


def test_the_end_of_a_message_is_named_where_a_section_is_expected() -> None:
    head = short(0x72, {})
    with pytest.raises(
        WireError, match=f"the message ends at byte {len(head)}, before a section with its body"
    ):
        descriptor_at(head, len(head))
