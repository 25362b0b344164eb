"""The parts of messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.wire.codec import Described, Symbol, Timestamp, UByte, ULong, encode
from amqp_streams.wire.types import Value
from spark_connector.rows.message_parts import BODY, Memory, section_value, take_apart
from spark_connector.rows.section_columns import MESSAGE_ANNOTATIONS

ALL = frozenset({MESSAGE_ANNOTATIONS, 0x73, 0x74, BODY})
texts = st.text(max_size=300)
simple = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts | st.binary(max_size=20)
events = st.builds(
    Event,
    st.binary(max_size=400) | texts | st.lists(simple, max_size=3) | st.none(),
    key=st.none() | texts,
    properties=st.none() | st.dictionaries(texts, simple, max_size=5),
    subject=st.none() | texts,
    annotations=st.none()
    | st.dictionaries(
        st.text(st.characters(codec="ascii"), min_size=1, max_size=9).map(lambda name: f"x-{name}"),
        simple,
        max_size=3,
    ),
)


def section(code: int, value: Value) -> bytes:
    return encode(Described(ULong(code), value))


@given(st.lists(events, max_size=6))
def test_sections_are_those_that_the_message_has(given_events: list[Event]) -> None:
    messages = [event.encode() for event in given_events]
    parts = take_apart(messages, ALL, kinds=True)
    assert not parts.faults
    for row, message in enumerate(messages):
        received = ReceivedEvent(message)
        for code, wanted in ((0x72, received.annotations), (0x74, received.properties)):
            found = list(parts.tables[code])[parts.codes[code][row]]
            assert (section_value(found) if found else {}) == wanted
        body = received.body
        if isinstance(body, bytes | str):
            assert parts.bodies[row] == (body if isinstance(body, bytes) else body.encode())
        elif body is None:
            assert parts.bodies[row] is None


@given(st.lists(events, min_size=1, max_size=6), st.sets(st.sampled_from(sorted(ALL)), min_size=1))
def test_wanting_less_gives_the_same_of_what_is_wanted(given_events: list[Event], wanted: set[int]) -> None:
    messages = [event.encode() for event in given_events]
    everything, some = take_apart(messages, ALL), take_apart(messages, frozenset(wanted))
    assert some.bodies == (everything.bodies if BODY in wanted else [])
    for code in wanted - {BODY}:
        assert some.codes[code] == everything.codes[code]
        assert some.tables[code] == everything.tables[code]


@given(st.lists(st.binary(max_size=40) | events.map(Event.encode), max_size=5), st.data())
def test_each_row_of_any_bytes_is_read_or_a_fault(messages: list[bytes], data: st.DataObject) -> None:
    damaged = []
    for message in messages:
        at = data.draw(st.integers(0, max(len(message) - 1, 0)))
        flipped = (
            message[:at] + bytes((message[at] ^ data.draw(st.integers(0, 255)),)) + message[at + 1 :]
            if message
            else message
        )
        damaged.append(flipped[: data.draw(st.integers(0, len(flipped)))])
    for wanted in (ALL, frozenset({BODY})):
        parts = take_apart(damaged, wanted, kinds=True)
        assert len(parts.bodies) == len(damaged)
        assert all(len(codes) == len(damaged) for codes in parts.codes.values())
        assert all(parts.bodies[row] is None for row in parts.faults)


@pytest.mark.parametrize(
    ("body", "octets", "kind"),
    [
        (section(0x75, b"one"), b"one", "data"),
        (section(0x75, b"one") + section(0x75, b"") + section(0x75, b"two"), b"onetwo", "data"),
        (section(0x75, b"x" * 300), b"x" * 300, "data"),
        (section(0x77, "text ü"), "text ü".encode(), "value"),
        (section(0x77, Symbol("sym")), b"sym", "value"),
        (section(0x77, b"\x00\x01"), b"\x00\x01", "value"),
        (section(0x77, None), None, "value"),
        (section(0x77, 42), b"42", "value"),
        (section(0x77, {"a": [1, True]}), b'{"a":[1,true]}', "value"),
        (section(0x77, Timestamp(0)), b"1970-01-01T00:00:00.000Z", "value"),
        (section(0x76, [1, "a"]) + section(0x76, [b"x"]), b'[1,"a","eA=="]', "sequence"),
        (section(0x75, b"one") + section(0x78, {Symbol("crc"): 1}), b"one", "data"),
        (b"", None, None),
    ],
)
def test_the_body_is_bytes_whatever_it_is_made_of(
    body: bytes, octets: bytes | None, kind: str | None
) -> None:
    front = section(0x70, [True]) + section(0x74, {"n": UByte(1)})
    for message in (front + body, body) if body else (front,):
        parts = take_apart([message], ALL, kinds=True)
        assert not parts.faults
        assert (parts.bodies, parts.kinds) == ([octets], [kind])
        assert take_apart([message], frozenset({BODY})).bodies == [octets]


def test_sections_with_long_descriptors_are_read_as_well() -> None:
    long = b"\x00\x80" + (0x74).to_bytes(8) + encode({"a": "b"}) + b"\x00\x53\x75\xa0\x01x"
    parts = take_apart([long], ALL)
    assert not parts.faults
    assert section_value(list(parts.tables[0x74])[parts.codes[0x74][0]]) == {"a": "b"}


def test_distinct_sections_are_kept_once() -> None:
    parts = take_apart([Event(b"x", key=f"k{row % 3}").encode() for row in range(100)], ALL)
    assert len(parts.tables[0x72]) == 3
    assert parts.codes[0x72][:4] == [0, 1, 2, 0]


def test_remembered_parts_are_bounded_and_read_once() -> None:
    asked: list[bytes] = []

    def read(text: bytes) -> object:
        asked.append(text)
        return None

    memory = Memory(read)
    memory(b"a")
    memory(b"a")
    assert asked == [b"a"]
    for number in range(10_000):
        memory(b"%d" % number)
    assert len(memory._known) <= 4096
    memory(b"x" * 10_000)
    assert b"x" * 10_000 not in memory._known
