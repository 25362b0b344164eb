"""The type system as a whole: decode undoes encode, in value and in type."""

import math

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.codec import Described, Float, ULong, decode, encode, skip
from tests.amqp_streams.wire import values as strategies


@given(strategies.values)
def test_every_value_survives_the_wire(value: object) -> None:
    encoded = encode(value)
    decoded, end = decode(encoded)
    assert strategies.same(decoded, value)
    assert end == skip(encoded) == len(encoded)


@given(strategies.values, st.binary(max_size=20), st.binary(max_size=20))
def test_bytes_around_a_value_change_nothing(value: object, before: bytes, after: bytes) -> None:
    encoded = before + encode(value) + after
    decoded, end = decode(encoded, len(before))
    assert strategies.same(decoded, value)
    assert end == skip(encoded, len(before)) == len(encoded) - len(after)


def test_not_a_number_survives_in_both_widths() -> None:
    for nan in (math.nan, Float(math.nan)):
        decoded, _ = decode(encode(nan))
        assert type(decoded) is type(nan)
        assert math.isnan(decoded)


def test_described_values_nest() -> None:
    value = Described(ULong(1), Described(ULong(2), [Described(ULong(3), None)]))
    assert decode(encode(value))[0] == value
