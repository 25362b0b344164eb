"""Bytes in AMQP's type system -> values (AMQP 1.0 part 1, section 1.6).

One law: for any bytes whatever the answer is a value or a WireError that names a byte position; never another
exception, never more memory than a fixed multiple of the bytes, never deeper than DEPTH_MAX. Wherever
`decode` succeeds, `skip` ends at the same byte, but for values with more than DESCRIBED_MAX descriptors that
no list, map or array holds.

The first half of a constructor's code tells the width of what follows:
0x4_ nothing, 0x5_ 1 byte, 0x6_ 2, 0x7_ 4, 0x8_ 8, 0x9_ 16, 0xA_ 0xC_ 0xE_ a 1-byte size, 0xB_ 0xD_ 0xF_ a
4-byte size.
"""

import struct
from collections.abc import Callable
from typing import Final
from uuid import UUID

from amqp_streams.errors import WireError
from amqp_streams.wire.types import (
    DEPTH_MAX,
    UUID_KEYS_MAX,
    ZERO_WIDTH_ITEMS_MAX,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

DESCRIBED_MAX: Final = 4096
"""How many descriptors `skip` accepts in one value. Each costs a step, and a message has space for millions
of them.
"""
_DESCRIBED: Final = 0x00
_KEYS: Final = (str, int, bytes, float, UUID, type(None))
_LIST0: Final = 0x45


def decode(data: bytes, at: int = 0) -> tuple[Value, int]:
    """Return the value that starts at byte `at`, and the byte after it.

    Of equal keys in one map the last one counts. A symbol and a string with the same text are equal.

    Raises:
        WireError: an unknown constructor, missing bytes, contradictory sizes, text that is not valid UTF-8,
        nesting deeper than DEPTH_MAX, or a compound value as a key.
    """
    # A negative index would read from the end of `data`.
    assert at >= 0
    return _decode(data, at, DEPTH_MAX)


def skip(data: bytes, at: int = 0) -> int:
    """Return the byte after the value that starts at `at`. The content of the value is not checked.

    Raises:
        WireError: an unknown constructor, more than DESCRIBED_MAX descriptors, or the value exceeds the end
        of `data`.
    """
    pending = 1  # values still to skip: a described value counts as two, the descriptor and the value
    start, described = at, 0
    # No check of bounds for each byte: `data[at]` raises IndexError at the end, and slices that end early are
    # found below.
    try:
        while pending:
            code = data[at]
            width = _WIDTHS[code]
            at += 1
            # The most frequent widths first: this loop runs for each value of each message.
            if width >= 0:
                at += width
                pending -= 1
            elif width == -1:
                at += 1 + data[at]
                pending -= 1
            elif width == -4:
                at += 4 + int.from_bytes(data[at : at + 4])
                pending -= 1
            elif code == _DESCRIBED:
                pending += 1
                described += 1
                # Nested descriptors do not end by themselves: each byte may be one more.
                if described > DESCRIBED_MAX:
                    message = f"the value at byte {start} has more than {DESCRIBED_MAX} descriptors"
                    raise WireError(message)
            else:
                raise _unknown(code, at - 1)
    except IndexError:
        raise _short(start, len(data)) from None
    # The last step may have gone beyond the end: its size is the peer's claim.
    if at > len(data):
        raise _short(start, len(data))
    return at


def few_values(data: bytes, at: int, values_max: int) -> bool:
    """Whether the value that starts at byte `at` contains at most `values_max` values.

    The cost of decoding depends on this number.

    Only counts: `decode` reports errors inside the value.

    Raises:
        WireError: see `skip`.
    """
    end, values = skip(data, at), 0
    while at < end:
        values += 1
        if values > values_max:
            return False
        code = data[at]
        width = _WIDTHS[code]
        begin = at + 1 - width  # after the size, if the constructor has one
        if width >= 0:
            at += 1 + width
        elif code == _DESCRIBED or (code not in _VARIABLE and code not in _COMPOUND):
            at += 1
        elif code in _COMPOUND and _COMPOUND[code] is not _array:
            at = begin - width  # after the count: the items follow
        else:
            if code in _COMPOUND:
                # The items of an array share a constructor, so they are counted and not walked.
                values += int.from_bytes(data[begin : begin - width])
            at = begin + int.from_bytes(data[at + 1 : begin])
    return values <= values_max


def _decode(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    if at >= len(data):
        raise _short(at, len(data))
    code = data[at]
    if code == _DESCRIBED:
        _check_depth(at, depth)
        descriptor, middle = _decode(data, at + 1, depth - 1)
        value, end = _decode(data, middle, depth - 1)
        return Described(descriptor, value), end
    return _body(code, data, at + 1, depth)


def _body(code: int, data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """Decode the value with the constructor `code`, whose bytes begin at `at`.

    The items of an array share one constructor.
    """
    width = _WIDTHS[code]
    if width >= 0:
        end = at + width
        if end > len(data):
            raise _short(at, len(data))
        try:
            return _FIXED[code](data[at:end]), end
        except ValueError as error:
            raise _wrong(error, at) from None
    if code not in _VARIABLE and code not in _COMPOUND:
        raise _unknown(code, at - 1)
    size_width = -width
    begin = at + size_width
    end = begin + int.from_bytes(data[at:begin])
    # Before slicing: a slice that is too short raises nothing, and the value would be read from fewer bytes.
    if begin > len(data) or end > len(data):
        raise _short(at, len(data))
    if code in _VARIABLE:
        try:
            return _VARIABLE[code](data[begin:end]), end
        except ValueError as error:
            raise _wrong(error, begin) from None
    _check_depth(at, depth)
    # The count stands inside the size. A size that is too small would let the count be read from the next
    # value.
    if begin + size_width > end:
        message = f"the size of a list, map or array at byte {at} has no room for its count"
        raise WireError(message)
    count = int.from_bytes(data[begin : begin + size_width])
    value, reached = _COMPOUND[code](data, begin + size_width, end, count, depth - 1)
    # Items and size are two claims about the same bytes. A parser that believes the other one would read
    # something else.
    if reached != end:
        message = f"a list, map or array ends at byte {reached} by its items and at byte {end} by its size"
        raise WireError(message)
    return value, end


def _list(data: bytes, at: int, end: int, count: int, depth: int) -> tuple[Value, int]:
    _check_count(count, at, end)
    items: list[Value] = []
    for _ in range(count):
        item, at = _decode(data, at, depth)
        items.append(item)
    return items, at


def _map(data: bytes, at: int, end: int, count: int, depth: int) -> tuple[Value, int]:
    _check_count(count, at, end)
    if count % 2:
        message = f"a map with an odd number of items ({count}) before byte {at}"
        raise WireError(message)
    pairs: dict[Value, Value] = {}
    for _ in range(count // 2):
        start = at
        key, at = _decode(data, at, depth)
        # A UUID is hashed by Python code that an attacker can make collide, hence the limit. Lists and maps
        # have no hash at all.
        if not isinstance(key, _KEYS) or (isinstance(key, UUID) and len(pairs) >= UUID_KEYS_MAX):
            message = f"a {type(key).__name__} as a key of a map at byte {start} is not supported"
            raise WireError(message)
        pairs[key], at = _decode(data, at, depth)
    return pairs, at


def _array(data: bytes, at: int, end: int, count: int, depth: int) -> tuple[Value, int]:
    descriptor: Symbol | ULong | None = None
    if at < end and data[at] == _DESCRIBED:
        start = at + 1
        described, at = _decode(data, start, depth)
        if not isinstance(described, Symbol | ULong):
            message = (
                f"the items of an array are described by a {type(described).__name__} at byte {start}, not by"
                " a symbol or ulong"
            )
            raise WireError(message)
        descriptor = described
    if at >= end:
        raise _short(at, end)
    code = data[at]
    if code not in _ELEMENTS:
        raise _unknown(code, at)
    # Items without bytes cost memory that the message does not pay for.
    if _WIDTHS[code] == 0 and count > ZERO_WIDTH_ITEMS_MAX:
        message = f"an array at byte {at} has {count} items of no bytes; {ZERO_WIDTH_ITEMS_MAX} are allowed"
        raise WireError(message)
    at += 1
    if _WIDTHS[code] != 0:
        _check_count(count, at, end)
    items: list[Value] = []
    for _ in range(count):
        item, at = _body(code, data, at, depth)
        items.append(item)
    return Array(_ELEMENTS[code], tuple(items), descriptor), at


def _check_depth(at: int, depth: int) -> None:
    if depth <= 1:
        message = f"a value at byte {at} is nested more than {DEPTH_MAX} levels deep"
        raise WireError(message)


def _check_count(count: int, at: int, end: int) -> None:
    # each item needs at least one byte: an impossible count must not cause an allocation
    if count > end - at:
        message = f"{count} items cannot be in the {end - at} bytes at byte {at}"
        raise WireError(message)


def _short(at: int, end: int) -> WireError:
    return WireError(f"the value at byte {at} goes beyond the end, byte {end}")


def _unknown(code: int, at: int) -> WireError:
    return WireError(f"{code:#04x} at byte {at} is not the constructor of a value")


def _wrong(error: ValueError, at: int) -> WireError:
    reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
    return WireError(f"the value at byte {at} is wrong: {reason}")


def _boolean(data: bytes) -> Value:
    if data[0] > 1:
        message = f"{data[0]:#04x} is not a boolean"
        raise ValueError(message)
    return data[0] == 1


def _fixed(layout: str, kind: Callable[[int], Value]) -> Callable[[bytes], Value]:
    unpack = struct.Struct(">" + layout).unpack
    return lambda data: kind(unpack(data)[0])


def _double(data: bytes) -> Value:
    number: float = struct.unpack(">d", data)[0]
    return number


def _float(data: bytes) -> Value:
    return Float(struct.unpack(">f", data)[0])


_FIXED: Final[dict[int, Callable[[bytes], Value]]] = {
    0x40: lambda _data: None,
    0x41: lambda _data: True,
    0x42: lambda _data: False,
    0x43: lambda _data: UInt(0),
    0x44: lambda _data: ULong(0),
    _LIST0: lambda _data: [],
    0x50: _fixed("B", UByte),
    0x51: _fixed("b", Byte),
    0x52: _fixed("B", UInt),
    0x53: _fixed("B", ULong),
    0x54: _fixed("b", Int),
    0x55: _fixed("b", int),
    0x56: _boolean,
    0x60: _fixed("H", UShort),
    0x61: _fixed("h", Short),
    0x70: _fixed("I", UInt),
    0x71: _fixed("i", Int),
    0x72: _float,
    0x73: _fixed("I", Char.of),
    0x74: Decimal32,
    0x80: _fixed("Q", ULong),
    0x81: _fixed("q", int),
    0x82: _double,
    0x83: _fixed("q", Timestamp),
    0x84: Decimal64,
    0x94: Decimal128,
    0x98: lambda data: UUID(bytes=data),
}

_VARIABLE: Final[dict[int, Callable[[bytes], Value]]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: bytes.decode,
    0xB1: bytes.decode,
    0xA3: lambda data: Symbol(data.decode("ascii")),
    0xB3: lambda data: Symbol(data.decode("ascii")),
}

_COMPOUND: Final[dict[int, Callable[[bytes, int, int, int, int], tuple[Value, int]]]] = {
    0xC0: _list,
    0xD0: _list,
    0xC1: _map,
    0xD1: _map,
    0xE0: _array,
    0xF0: _array,
}

_UNKNOWN: Final = -9


def _width(code: int) -> int:
    if code in _FIXED:
        return (0, 1, 2, 4, 8, 16)[(code >> 4) - 4]
    if code in _VARIABLE or code in _COMPOUND:
        return -4 if code & 0x10 else -1
    return _UNKNOWN


_WIDTHS: Final = tuple(_width(code) for code in range(256))

_ELEMENTS: Final[dict[int, type]] = {
    0x40: type(None),
    **dict.fromkeys((0x41, 0x42, 0x56), bool),
    **dict.fromkeys((0x43, 0x52, 0x70), UInt),
    **dict.fromkeys((0x44, 0x53, 0x80), ULong),
    **dict.fromkeys((_LIST0, 0xC0, 0xD0), list),
    **dict.fromkeys((0xC1, 0xD1), dict),
    **dict.fromkeys((0xE0, 0xF0), Array),
    **dict.fromkeys((0xA0, 0xB0), bytes),
    **dict.fromkeys((0xA1, 0xB1), str),
    **dict.fromkeys((0xA3, 0xB3), Symbol),
    **dict.fromkeys((0x54, 0x71), Int),
    **dict.fromkeys((0x55, 0x81), int),
    0x50: UByte,
    0x51: Byte,
    0x60: UShort,
    0x61: Short,
    0x72: Float,
    0x73: Char,
    0x74: Decimal32,
    0x82: float,
    0x83: Timestamp,
    0x84: Decimal64,
    0x94: Decimal128,
    0x98: UUID,
}
