"""The wrappers: constructing is validating, and they stand for the Python value they resemble."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

INTEGERS = [
    (UByte, 0, 255),
    (UShort, 0, 65535),
    (UInt, 0, 2**32 - 1),
    (ULong, 0, 2**64 - 1),
    (Byte, -128, 127),
    (Short, -32768, 32767),
    (Int, -(2**31), 2**31 - 1),
    (Timestamp, -(2**63), 2**63 - 1),
]


@pytest.mark.parametrize(("kind", "low", "high"), INTEGERS)
def test_an_integer_type_takes_its_range_and_nothing_beyond(kind: type, low: int, high: int) -> None:
    assert (kind(low), kind(high)) == (low, high)
    for beyond in (low - 1, high + 1):
        with pytest.raises(ValueError, match=str(beyond)):
            kind(beyond)


@given(st.sampled_from(INTEGERS), st.data())
def test_an_integer_prints_as_a_number_and_shows_its_type_to_developers(
    row: tuple[type, int, int], data: st.DataObject
) -> None:
    kind, low, high = row
    number = data.draw(st.integers(low, high))
    assert (str(kind(number)), f"{kind(number)}") == (str(number), str(number))
    assert repr(kind(number)) == f"{kind.__name__}({number})"


def test_a_symbol_is_ascii_and_equals_the_string() -> None:
    assert Symbol("amqp:x") == "amqp:x"
    by_symbol: dict[str, int] = {Symbol("a"): 1}
    assert by_symbol["a"] == 1
    assert type(str(Symbol("a"))) is str
    with pytest.raises(ValueError, match="ASCII"):
        Symbol("é")


@pytest.mark.parametrize("text", ["", "ab", "\ud800"])
def test_a_char_is_one_unicode_character(text: str) -> None:
    assert Char("€") == "€"
    with pytest.raises(ValueError, match="exactly one"):
        Char(text)


def test_a_code_point_beyond_unicode_is_not_a_char() -> None:
    with pytest.raises(ValueError, match="Unicode"):
        Char.of(0x110000)


def test_a_float_is_rounded_to_32_bits_when_made() -> None:
    assert Float(0.1) != 0.1
    assert Float(Float(0.1)) == Float(0.1)
    assert math.isnan(Float(math.nan))
    assert repr(Float(0.5)) == "Float(0.5)"
    with pytest.raises(ValueError, match="32 bits"):
        Float(1e300)


@pytest.mark.parametrize(("kind", "width"), [(Decimal32, 4), (Decimal64, 8), (Decimal128, 16)])
def test_a_decimal_has_its_width(kind: type, width: int) -> None:
    assert kind(bytes(width)) == bytes(width)
    assert kind.__name__ in repr(kind(bytes(width)))
    with pytest.raises(ValueError, match=str(width)):
        kind(bytes(width + 1))
