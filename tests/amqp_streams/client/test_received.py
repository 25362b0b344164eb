"""Events as received: fields are decoded when they are read."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.events import Event
from amqp_streams.client.message import decoded
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import WireError
from amqp_streams.wire.annotations import AnnotationWriter
from amqp_streams.wire.codec import Described, Symbol, ULong, encode
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, sections

texts = st.text(max_size=300)
simple = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts | st.binary(max_size=300)


def test_the_position_in_the_log_is_read_from_the_delivery_annotations() -> None:
    annotations = AnnotationWriter("2").run(41, 1_700_000_000_123, 1)[0]
    sent = Event(b"x", key="k").encode()
    received = ReceivedEvent(annotations + sent)
    assert (received.partition, received.offset, received.timestamp_ms) == (
        "2",
        41,
        1_700_000_000_123,
    )
    assert received.delivery_annotations["event-streams-offset"] == "0000000000000041"
    assert received.key == "k"
    assert received.encode() == sent
    assert "<ReceivedEvent 2:41, " in repr(received)


def test_an_event_from_elsewhere_has_no_position() -> None:
    received = ReceivedEvent(Event(b"x").encode())
    assert (received.partition, received.offset, received.timestamp_ms) == (None, None, None)
    assert received.message_id is None


def test_several_data_sections_are_one_body_and_sequences_one_list() -> None:
    assert ReceivedEvent(b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b").body == b"ab"
    sequence = encode(Described(ULong(0x76), [1, 2])) + encode(Described(ULong(0x76), [3]))
    assert ReceivedEvent(sequence).body == [1, 2, 3]


def test_sections_described_by_name_are_understood() -> None:
    assert ReceivedEvent(encode(Described(Symbol("amqp:amqp-value:*"), "hello"))).body == "hello"


@given(st.binary(max_size=60))
def test_garbage_is_a_wire_error_and_nothing_else(garbage: bytes) -> None:
    received = ReceivedEvent(garbage)
    for name in ("body", "key", "properties", "subject", "offset", "delivery_annotations"):
        try:
            getattr(received, name)
        except WireError:
            continue


@given(st.dictionaries(texts, simple, max_size=6), st.integers(0, 80), st.integers(0, 255))
def test_broken_properties_are_read_as_the_decoder_reads_them(
    properties: dict[str, object], at: int, byte: int
) -> None:
    """For any wrong byte, the fast reader returns the same result as the decoder, or raises the same kind of
    error.
    """
    message = bytearray(Event(properties=properties).encode())
    message[at % len(message)] = byte
    received = ReceivedEvent(bytes(message))
    try:
        [section] = [
            section for section in sections(bytes(message)) if section.code == APPLICATION_PROPERTIES
        ]
        expected = decoded(bytes(message), section.start)
    except (WireError, ValueError):
        return
    assert received.properties == expected
    assert {type(value) for value in received.properties.values()} == {
        type(value) for value in expected.values()
    }
