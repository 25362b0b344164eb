"""Property filters, by the rules of FILTEX 4.1 and 4.2."""

from uuid import UUID

import pytest

from amqp_streams.filters.matching import property_condition
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.filters.values import FAILED
from amqp_streams.wire.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.amqp_streams.filters.messages import LIMITS, Sample

HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, FOOTER = 0x70, 0x71, 0x72, 0x73, 0x74, 0x78


def matches(section, reference, sample):
    return property_condition(section, reference, LIMITS)[0](sample.record())


VALUES = [
    # (reference, value in the message, matches)
    ("blue", "blue", True),
    ("blue", Symbol("blue"), True),
    (Symbol("blue"), "blue", True),
    ("blue", "Blue", False),
    ("blue", 5, False),
    ("b", Char("b"), False),
    (Char("b"), Char("b"), True),
    (5, UByte(5), True),
    (UShort(5), Int(5), True),
    (ULong(2**64 - 1), -1, False),
    (Byte(-1), -1, True),
    (5, 5.0, True),
    (5.0, UInt(5), True),
    (0.5, Float(0.5), True),
    (Float(0.1), 0.1, False),
    (5, 5.5, False),
    (5.5, 5, False),
    (float("nan"), float("nan"), False),
    (1, True, False),
    (True, 1, False),
    (True, True, True),
    (Timestamp(5), Timestamp(5), True),
    (5, Timestamp(5), True),
    (b"x", b"x", True),
    (b"x", "x", False),
    (b"abcd", Decimal32(b"abcd"), False),
    (Decimal32(b"abcd"), Decimal32(b"abcd"), True),
    (UUID(int=5), UUID(int=5), True),
    (UUID(int=5), str(UUID(int=5)), False),
    # modifiers
    ("&s:ue", "blue", True),
    ("&s:ue", Symbol("blue"), True),
    ("&s:ul", "blue", False),
    ("&p:bl", "blue", True),
    ("&p:ul", "blue", False),
    ("&p:", "", True),
    ("&p:5", 5, False),
    ("&&p:bl", "&p:bl", True),
    ("&&", "&", True),
    ("&&blue", "blue", False),
    (Symbol("&p:b"), "blue", False),
    (Symbol("&p:b"), "&p:b", True),
    # maps, lists, arrays, described values
    ({"x": 1}, {"x": UInt(1), "y": 2}, True),
    ({"x": 1, "z": None}, {"x": 1}, True),
    ({"x": 1, "z": 1}, {"x": 1}, False),
    ({"x": "&p:a"}, {"x": "abc"}, True),
    ({"x": 1}, [1], False),
    ([1, "x"], [1, "x", "more"], True),
    ([1, None], [1, "anything"], True),
    ([1, "x"], [1], False),
    ([1], Array(int, (1,)), False),
    (Array(int, (1, 2)), Array(UInt, (UInt(1), UInt(2))), True),
    (Array(int, (1,)), Array(int, (1, 2)), False),
    (Described(Symbol("a"), 5), Described(Symbol("b"), 5), True),
    ("x", Described(Symbol("b"), "x"), True),
    ([Described(Symbol("a"), 5)], [5], True),
    (None, "anything", True),
]


@pytest.mark.parametrize(("reference", "value", "expected"), VALUES)
def test_a_reference_value_matches_as_its_type_says(reference, value, expected):
    """FILTEX 4.1.1 to 4.1.5."""
    sample = Sample(application_properties={"key": value}, message_annotations={Symbol("key"): value})
    assert matches(APPLICATION, {"key": reference}, sample) is expected
    assert matches(MESSAGE, {Symbol("key"): reference}, sample) is expected


def test_a_field_that_is_not_there_matches_null_only():
    """FILTEX 4."""
    assert matches(APPLICATION, {"key": None}, Sample()) is True
    assert matches(APPLICATION, {"key": 5}, Sample()) is False
    assert matches(APPLICATION, {"key": 5}, Sample(application_properties=None)) is False
    assert matches(APPLICATION, {}, Sample()) is True
    assert matches(PROPERTIES, {"subject": None, "to": "x"}, Sample(properties=[None, None, "x"])) is True


def test_every_entry_must_match():
    sample = Sample(application_properties={"a": 1, "b": 2})
    assert matches(APPLICATION, {"a": 1, "b": 2}, sample) is True
    assert matches(APPLICATION, {"a": 1, "b": 3}, sample) is False


def test_header_fields_have_their_defaults():
    """FILTEX 4.2.1."""
    for sample in (Sample(), Sample(header=[None, None])):
        wanted = {
            "durable": False,
            "priority": UByte(4),
            "first_acquirer": False,
            Symbol("delivery-count"): UInt(0),
        }
        assert matches(HEADER, wanted, sample) is True
        assert matches(HEADER, {"priority": UByte(5)}, sample) is False
        assert matches(HEADER, {"ttl": UInt(5)}, sample) is False
    assert (
        matches(
            HEADER, {"priority": 7, "ttl": UInt(9), "durable": True}, Sample(header=[True, UByte(7), UInt(9)])
        )
        is True
    )


def test_every_section_has_its_filter():
    """FILTEX 4.2.1 to 4.3; the delivery annotations are those that the node writes."""
    sample = Sample(
        message_annotations={Symbol("x-opt-key"): "k", ULong(7): "numbered"},
        properties=[
            "id",
            b"user",
            "to",
            "subject",
            "back",
            5,
            Symbol("text/plain"),
            None,
            Timestamp(1),
            Timestamp(2),
            "g",
            UInt(3),
            "r",
        ],
        footer={Symbol("sum"): 12},
        number=42,
        timestamp_ms=1234,
    )
    assert matches(MESSAGE, {Symbol("x-opt-key"): "k", ULong(7): "numbered"}, sample) is True
    assert matches(MESSAGE, {ULong(8): "numbered"}, sample) is False
    assert matches(FOOTER, {"sum": 12}, sample) is True
    assert (
        matches(
            DELIVERY,
            {Symbol("event-streams-offset"): "0000000000000042", "event-streams-timestamp": 1234},
            sample,
        )
        is True
    )
    assert matches(DELIVERY, {"event-streams-source-partition": Symbol("3")}, sample) is True
    assert matches(DELIVERY, {"event-streams-offset": "&p:00000000000000"}, sample) is True
    assert matches(DELIVERY, {"other": 1}, sample) is False
    wanted = {
        "message-id": "id",
        "user_id": b"user",
        "to": "&p:t",
        "subject": "subject",
        "replyTo": "back",
        "correlation-id": ULong(5),
        "content-type": "text/plain",
        "absolute-expiry-time": Timestamp(1),
        "creation-time": Timestamp(2),
        "group-id": Symbol("g"),
        "group-sequence": 3,
        "reply-to-group-id": "r",
    }
    assert matches(PROPERTIES, wanted, sample) is True
    for key in wanted:
        assert matches(PROPERTIES, {**wanted, key: None}, sample) is True


@pytest.mark.parametrize(
    ("section", "reference", "position", "words"),
    [
        (HEADER, {"durable": True, "prio": 1}, 2, "no field 'prio'"),
        (HEADER, {"durable": 1}, 1, "durable cannot be a int"),
        (HEADER, {"priority": True}, 1, "priority cannot be a bool"),
        (PROPERTIES, {"subject": 5}, 1, "subject cannot be a int"),
        (PROPERTIES, {"user-id": "x"}, 1, "user-id cannot be a str"),
        (PROPERTIES, {"message-id": 1.5}, 1, "message-id cannot be a float"),
        (PROPERTIES, {"to": Char("x")}, 1, "to cannot be a Char"),
        (PROPERTIES, {5: "x"}, 1, "name of type int"),
        (APPLICATION, {5: "x"}, 1, "name of type int"),
        (MESSAGE, {b"x": "x"}, 1, "name of type bytes"),
        (APPLICATION, {"a": 1, "b": "&x:y"}, 2, "known modifier"),
        (APPLICATION, {"a": ["&"]}, 1, "known modifier"),
        (APPLICATION, "text", None, "must be a map"),
        (APPLICATION, {str(n): n for n in range(65)}, 65, "64 are allowed"),
        (APPLICATION, {"a": list(range(64))}, 65, "64 are allowed"),
    ],
)
def test_a_field_that_a_section_cannot_have_refuses_the_filter(section, reference, position, words):
    """FILTEX 4: validation MUST fail."""
    with pytest.raises(FilterError) as error:
        property_condition(section, reference, Limits())
    assert error.value.position == position
    assert words in error.value.reason


def test_a_broken_section_fails_and_does_not_raise():
    record = Sample().record()
    record.turn_to(b"\x00\x53\x74\xc1\x0a\x02\xa1\x03key\xa1\x09x", 7, 1000)
    assert property_condition(APPLICATION, {"key": "x"}, LIMITS)[0](record) is FAILED
    record.turn_to(b"\x00\x53\x73\xc0\x04\x04\x40\x40", 7, 1000)
    assert property_condition(PROPERTIES, {"subject": "x"}, LIMITS)[0](record) is FAILED
    record.turn_to(b"garbage", 7, 1000)
    assert property_condition(FOOTER, {ULong(5): "x"}, LIMITS)[0](record) is FAILED
