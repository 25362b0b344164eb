"""Encodings are compact and readable by Proton, and values that cannot be encoded are reported."""

from enum import IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import (
    Array,
    Byte,
    Char,
    Described,
    Encoded,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
    encode_list,
)
from tests.amqp_streams.wire import values as strategies


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (ULong(0x71), "5371"),
        (ULong(1 << 63), "808000000000000000"),
        (0, "5500"),
        (-128, "5580"),
        (128, "810000000000000080"),
        (Int(-1), "54ff"),
        (Int(128), "7100000080"),
        (UByte(7), "5007"),
        (Byte(-1), "51ff"),
        (UShort(1), "600001"),
        (Short(-1), "61ffff"),
        (1.0, "823ff0000000000000"),
        (Float(1.0), "723f800000"),
        (Timestamp(1), "830000000000000001"),
        (Char("A"), "7300000041"),
        (UUID(int=1), "9800000000000000000000000000000001"),
        ("", "a100"),
        ("é", "a102c3a9"),
        (Symbol("a"), "a30161"),
        (b"\x01", "a00101"),
        ([], "45"),
        ([True], "c0020141"),
        ({}, "c10100"),
        ({Symbol("a"): None}, "c10502a3016140"),
        (Described(ULong(0x77), "x"), "005377a10178"),
        (Array(Symbol, (Symbol("a"),)), "e00701b30000000161"),
        (Array(Symbol, ()), "e00200b3"),
    ],
)
def test_the_most_compact_encoding_is_chosen(value: object, expected: str) -> None:
    assert encode(value).hex() == expected


@pytest.mark.parametrize(
    ("value", "small", "wide"),
    [
        ("x" * 255, 0xA1, None),
        ("x" * 256, None, 0xB1),
        ([None] * 254, 0xC0, None),
        ([None] * 255, None, 0xD0),
    ],
)
def test_sizes_widen_only_when_they_must(value: object, small: int | None, wide: int | None) -> None:
    assert encode(value)[0] == (small or wide)


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        object(),
        {1},
        "\ud800",
        [object()],
        {object(): 1},
        Array(set, ()),
        Array(int, (True,)),
        Array(type(None), (None,) * 17),
    ],
)
def test_a_value_without_an_encoding_is_a_wire_error(value: object) -> None:
    with pytest.raises(WireError):
        encode(value)


def test_nesting_is_bounded() -> None:
    deep: object = None
    for _ in range(31):
        deep = [deep]
    assert decode(encode(deep))[0] == deep
    with pytest.raises(WireError, match="32 levels"):
        encode([deep])


def test_subclasses_and_kin_are_written_as_what_they_are_derived_from() -> None:
    class Number(IntEnum):
        ONE = 1

    class Word(StrEnum):
        A = "a"

    assert encode(Number.ONE) == encode(1)
    assert encode(Word.A) == encode("a")
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")


@given(st.lists(st.none() | st.booleans(), max_size=20))
def test_trailing_nulls_of_fields_are_left_out(fields: list[object]) -> None:
    value, _ = decode(encode_list(fields))
    assert isinstance(value, list)
    assert not value or value[-1] is not None
    assert value + [None] * (len(fields) - len(value)) == fields


@given(strategies.values)
def test_proton_understands_every_written_value(value: object) -> None:
    data = Data()
    encoded = encode(value)
    assert data.decode(encoded) == len(encoded)
    # What Proton writes in its own way means the same to us.
    again, _ = decode(bytes(data.encode()))
    assert strategies.same(again, value)


@pytest.mark.parametrize(
    "array",
    [
        Array(str, ("", "x" * 255, "y" * 256)),
        Array(bytes, (b"", b"x" * 300)),
        Array(list, ([], [1], ["x" * 300])),
        Array(dict, ({}, {1: "x" * 300})),
        Array(Array, (Array(int, ()), Array(int, tuple(range(300))))),
    ],
)
def test_items_of_an_array_share_one_width_whatever_their_sizes(array: Array) -> None:
    assert strategies.same(decode(encode(array))[0], array)
    assert Data().decode(encode(array)) == len(encode(array))


@given(strategies.values)
def test_a_part_that_is_encoded_already_is_the_same_on_the_wire(value: object) -> None:
    assert encode([1, Encoded(encode(value)), {"key": Encoded(encode(value))}]) == encode(
        [1, value, {"key": value}]
    )
