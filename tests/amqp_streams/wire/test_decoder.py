"""Any bytes: a value or a WireError with a position; skip and decode agree."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import (
    Array,
    Described,
    Symbol,
    UByte,
    ULong,
    Value,
    decode,
    encode,
    few_values,
    skip,
)
from amqp_streams.wire.decoder import DESCRIBED_MAX
from tests.amqp_streams.wire import values as strategies

CODES = bytes.fromhex("00404142434445505152535455566061707172737480818283849498a0a1a3b0b1b3c0c1d0d1e0f0")
likely = st.lists(st.sampled_from(CODES) | st.integers(0, 8) | st.integers(0, 255), max_size=60).map(bytes)


def outcome(data: bytes, at: int = 0) -> int | None:
    """Return where decoding ends; None after a documented error."""
    try:
        _, end = decode(data, at)
    except WireError as error:
        assert "byte" in str(error)  # noqa: PT017  every error says where
        return None
    return end


@given(st.binary(max_size=200) | likely, st.integers(0, 5))
def test_arbitrary_bytes_are_a_value_or_a_wire_error(data: bytes, at: int) -> None:
    end = outcome(data, at)
    if end is not None:
        assert skip(data, at) == end
    else:
        with contextlib.suppress(WireError):
            assert at < skip(data, at) <= len(data)


@given(strategies.values, st.data())
def test_a_value_with_a_damaged_byte_is_a_value_or_a_wire_error(value: object, data: st.DataObject) -> None:
    damaged = bytearray(encode(value))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    end = outcome(bytes(damaged))
    assert end is None or skip(bytes(damaged)) == end


@given(strategies.values, st.data())
def test_a_value_cut_short_is_a_wire_error(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    assert outcome(cut) is None
    with pytest.raises(WireError):
        skip(cut)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", "byte 0"),
        ("3f", "0x3f at byte 0"),
        ("5602", "0x02 is not a boolean"),
        ("a1 02 c3 28", "invalid continuation byte"),
        ("a3 01 e9", "ordinal not in range"),
        ("73 00 00 d8 00", "exactly one Unicode character"),
        ("73 00 11 00 00", "0x110000"),
        ("c0 00", "no room for its count"),
        ("c0 03 01 41 41", "byte 4 by its items and at byte 5 by its size"),
        ("c0 02 02 41 41", "2 items cannot be"),
        ("c0 03 01 a1 05 61 61 61 61 61", "byte 10 by its items and at byte 5 by its size"),
        ("c1 02 01 41", "odd number"),
        ("c1 03 02 45 40", "list as a key"),
        ("c1 06 02 00 41 41 40", "beyond"),
        ("d0 ff ff ff ff 00 00 00 01 40", "beyond the end"),
        ("f0 00 00 00 05 ff ff ff ff 40", "4294967295 items of no bytes"),
        ("f0 00 00 00 05 ff ff ff ff 50", "cannot be in the 0 bytes"),
        ("e0 02 01 00", "beyond the end"),
        ("e0 05 01 00 41 50 01", "described by a bool"),
        ("e0 03 01 3f 01", "0x3f at byte 3"),
        ("e0 01 00", "byte 3"),
    ],
)
def test_malformed_bytes_are_reported_with_their_position(data: str, words: str) -> None:
    with pytest.raises(WireError, match=words):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize("unit", ["00", "c0 ff 01", "00 41", "f0 00 00 ff ff 00 00 00 01"])
def test_depth_is_bounded_however_it_is_made(unit: str) -> None:
    """A million descriptors, lists or arrays within each other end in an error, not in the interpreter's
    stack.
    """
    data = bytes.fromhex(unit) * 20_000
    with pytest.raises(WireError):
        decode(data)
    with contextlib.suppress(WireError):
        skip(data)


def test_a_value_of_very_many_descriptors_is_refused_before_they_are_all_passed() -> None:
    """The descriptors follow each other without a value. A message of 16 MiB would block the event loop of
    the node for seconds.
    """
    unit = b"\x00\x40"
    assert skip(unit * DESCRIBED_MAX + b"\x40") == 2 * DESCRIBED_MAX + 1
    with pytest.raises(WireError, match="descriptors"):
        skip(unit * (DESCRIBED_MAX + 1) + b"\x40")


def test_more_uuids_as_keys_than_allowed_are_refused() -> None:
    """The hashes of the keys can be chosen to collide."""
    pairs = b"".join(b"\x98" + number.to_bytes(16) + b"\x40" for number in range(257))
    with pytest.raises(WireError, match="UUID as a key"):
        decode(b"\xd1" + (len(pairs) + 4).to_bytes(4) + (514).to_bytes(4) + pairs)


def test_a_value_is_found_wherever_it_stands() -> None:
    data = encode("first") + encode([1, 2]) + encode(None)
    assert decode(data, 7) == ([1, 2], 14)
    assert (skip(data), skip(data, 7), skip(data, 14)) == (7, 14, 15)


def test_encodings_that_are_not_the_compact_ones_are_understood() -> None:
    assert decode(bytes.fromhex("b1 00000001 61")) == ("a", 6)
    assert decode(bytes.fromhex("80 0000000000000071")) == (ULong(0x71), 9)
    assert decode(bytes.fromhex("d0 00000004 00000000")) == ([], 9)
    assert decode(bytes.fromhex("5601")) == (True, 2)
    assert decode(bytes.fromhex("e0 04 02 a3 00 00")) == (Array(Symbol, (Symbol(""), Symbol(""))), 6)
    assert decode(bytes.fromhex("00 a3 01 61 00 a3 01 62 40")) == (
        Described(Symbol("a"), Described(Symbol("b"), None)),
        9,
    )


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (None, 1),
        ("text", 1),
        ([], 1),
        ([1, "a", b"b", [None, []], {}], 8),
        ({"a": [1, 2], "b" * 300: "c" * 300}, 7),
        (Described(ULong(0x70), [True]), 4),
        (Array(UByte, (UByte(1), UByte(2), UByte(3))), 4),
        ([0] * 300, 301),
    ],
)
def test_the_values_in_a_value_are_counted(value: Value, values: int) -> None:
    data = b"before" + encode(value) + b"behind"
    assert few_values(data, 6, values)
    assert not few_values(data, 6, values - 1)


@given(st.binary(max_size=50), st.integers(0, 20))
def test_counting_accepts_any_finite_bytes(inside: bytes, values_max: int) -> None:
    data = b"\xd0" + struct.pack(">II", 4 + len(inside), 1) + inside
    assert few_values(data, 0, values_max) in {True, False}
