"""Values -> bytes in AMQP's type system, each in its most compact encoding (AMQP 1.0 part 1, section 1.6).

One law: decode(encode(value)) == value. What cannot be encoded is a WireError and nothing else.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, cast
from uuid import UUID

from amqp_streams.errors import WireError
from amqp_streams.wire.types import (
    DEPTH_MAX,
    LONG_MAX,
    LONG_MIN,
    ZERO_WIDTH_ITEMS_MAX,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
)

_SMALL: Final = 1 << 8
_SIZE_MAX: Final = (1 << 32) - 1
_SMALL_SIGNED: Final = range(-128, 128)


def encode(value: object) -> bytes:
    """Encode one value, including its constructor.

    A subclass is encoded as its base type (an IntEnum as a long, a StrEnum as a string), a tuple as a list.

    Raises:
        WireError: the value has no AMQP type, is an int beyond 64 bits, is not valid Unicode, or has more
        than DEPTH_MAX levels.
    """
    return _encode(value, DEPTH_MAX)


def encode_list(items: Sequence[object]) -> bytes:
    """Encode a list without its trailing nulls, as the fields of performatives and sections are written."""
    count = len(items)
    while count and items[count - 1] is None:
        count -= 1
    return encode(list(items[:count]))


def _encode(value: object, depth: int) -> bytes:
    if depth == 0:
        message = f"a value nested more than {DEPTH_MAX} levels deep is not encoded"
        raise WireError(message)
    # By the exact type: a chain of `isinstance` would cost more than the encoding.
    encoder = _ENCODERS.get(type(value)) or _inherited(type(value))
    return encoder(value, depth)


def _inherited(kind: type) -> "_Encoder":
    for base in kind.__mro__[1:]:
        if base in _ENCODERS:
            return _ENCODERS[base]
    message = f"{kind.__name__} has no AMQP type"
    raise WireError(message)


_Encoder = Callable[[object, int], bytes]


def _null(_value: object, _depth: int) -> bytes:
    return b"\x40"


def _boolean(value: object, _depth: int) -> bytes:
    return b"\x41" if value else b"\x42"


def _long(value: object, _depth: int) -> bytes:
    number = cast("int", value)
    if number in _SMALL_SIGNED:
        return struct.pack(">Bb", 0x55, number)
    if not LONG_MIN <= number <= LONG_MAX:
        message = f"{number} does not fit a long"
        raise WireError(message)
    return struct.pack(">Bq", 0x81, number)


def _unsigned(zero: int, small: int, wide: str) -> _Encoder:
    full = struct.Struct(">B" + wide)
    code = 0x70 if wide == "I" else 0x80

    def encoder(value: object, _depth: int) -> bytes:
        number = cast("int", value)
        if number == 0:
            return bytes((zero,))
        return bytes((small, number)) if number < _SMALL else full.pack(code, number)

    return encoder


def _int(value: object, _depth: int) -> bytes:
    number = cast("int", value)
    return struct.pack(">Bb", 0x54, number) if number in _SMALL_SIGNED else struct.pack(">Bi", 0x71, number)


def _fixed(code: int, layout: str) -> _Encoder:
    pack = struct.Struct(">B" + layout).pack
    return lambda value, _depth: pack(code, value)


def _verbatim(code: int) -> _Encoder:
    constructor = bytes((code,))
    return lambda value, _depth: constructor + cast("bytes", value)


def _char(value: object, _depth: int) -> bytes:
    return struct.pack(">BI", 0x73, ord(cast("str", value)))


def _uuid(value: object, _depth: int) -> bytes:
    return b"\x98" + cast("UUID", value).bytes


def _variable(small: int, data: bytes) -> bytes:
    size = len(data)
    if size < _SMALL:
        return bytes((small, size)) + data
    if size > _SIZE_MAX:
        message = f"{size} bytes are too many for one value"
        raise WireError(message)
    return struct.pack(">BI", small | 0x10, size) + data


def _binary(value: object, _depth: int) -> bytes:
    return _variable(0xA0, bytes(cast("bytes", value)))


def _string(value: object, _depth: int) -> bytes:
    return _variable(0xA1, _utf8(cast("str", value)))


def _symbol(value: object, _depth: int) -> bytes:
    return _variable(0xA3, cast("str", value).encode("ascii"))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        message = f"a string is not valid Unicode: {error.reason} at character {error.start}"
        raise WireError(message) from None


def _compound(small: int, count: int, body: bytes) -> bytes:
    # The size includes the count, which has one byte here and four below.
    if len(body) + 1 < _SMALL and count < _SMALL:
        return bytes((small, len(body) + 1, count)) + body
    if len(body) + 4 > _SIZE_MAX:
        message = f"{len(body)} bytes are too many for one value"
        raise WireError(message)
    return struct.pack(">BII", small | 0x10, len(body) + 4, count) + body


def _list(value: object, depth: int) -> bytes:
    items = cast("list[object]", value)
    if not items:
        return b"\x45"
    return _compound(0xC0, len(items), b"".join([_encode(item, depth - 1) for item in items]))


def _map(value: object, depth: int) -> bytes:
    pairs = cast("dict[object, object]", value)
    body = b"".join([_encode(part, depth - 1) for pair in pairs.items() for part in pair])
    return _compound(0xC1, 2 * len(pairs), body)


def _described(value: object, depth: int) -> bytes:
    described = cast("Described", value)
    return b"\x00" + _encode(described.descriptor, depth - 1) + _encode(described.value, depth - 1)


def _array(value: object, depth: int) -> bytes:
    array = cast("Array", value)
    if array.element not in _ELEMENTS:
        message = f"{array.element.__name__} is not a type of an array's items"
        raise WireError(message)
    constructor, width, convert = _ELEMENTS[array.element]
    if width == 0 and len(array.items) > ZERO_WIDTH_ITEMS_MAX:
        message = f"an array of {len(array.items)} nulls has more than {ZERO_WIDTH_ITEMS_MAX} items"
        raise WireError(message)
    # The items have no constructors of their own, so an item of another type would be read as this one.
    for item in array.items:
        if type(item) is not array.element:
            message = f"a {type(item).__name__} in an array of {array.element.__name__}"
            raise WireError(message)
    prefix = bytes((constructor,))
    if array.descriptor is not None:
        prefix = b"\x00" + _encode(array.descriptor, depth - 1) + prefix
    return _compound(
        0xE0, len(array.items), prefix + b"".join([convert(item, depth - 1) for item in array.items])
    )


def _widened(small: int) -> _Encoder:
    """An item without its constructor and in the 4-byte form, which all items of an array share."""

    def encoder(value: object, depth: int) -> bytes:
        whole = _encode(value, depth)
        code = whole[0]
        if code == small | 0x10:
            return whole[1:]
        # An empty list has no size in its own encoding, but needs one as an item.
        if code == 0x45:
            return b"\x00\x00\x00\x04\x00\x00\x00\x00"
        if code in {0xA0, 0xA1, 0xA3}:
            return b"\x00\x00\x00" + whole[1:]
        return struct.pack(">II", whole[1] + 3, whole[2]) + whole[3:]

    return encoder


def _packed(layout: str) -> _Encoder:
    pack = struct.Struct(">" + layout).pack
    return lambda value, _depth: pack(value)


def _item_long(value: object, depth: int) -> bytes:
    _long(value, depth)  # its check of the range
    return struct.pack(">q", value)


# Two tables: how a value is written, and how an item of an array is (constructor, width or -1, bytes after
# the constructor).
_ENCODERS: Final[dict[type, _Encoder]] = {
    type(None): _null,
    bool: _boolean,
    UByte: _fixed(0x50, "B"),
    UShort: _fixed(0x60, "H"),
    UInt: _unsigned(0x43, 0x52, "I"),
    ULong: _unsigned(0x44, 0x53, "Q"),
    Byte: _fixed(0x51, "b"),
    Short: _fixed(0x61, "h"),
    Int: _int,
    int: _long,
    Float: _fixed(0x72, "f"),
    float: _fixed(0x82, "d"),
    Decimal32: _verbatim(0x74),
    Decimal64: _verbatim(0x84),
    Decimal128: _verbatim(0x94),
    Char: _char,
    Timestamp: _fixed(0x83, "q"),
    UUID: _uuid,
    bytes: _binary,
    bytearray: _binary,
    memoryview: _binary,
    Encoded: lambda value, _depth: cast("bytes", value),
    str: _string,
    Symbol: _symbol,
    list: _list,
    tuple: _list,
    dict: _map,
    Array: _array,
    Described: _described,
}

_ELEMENTS: Final[dict[type, tuple[int, int, _Encoder]]] = {
    type(None): (0x40, 0, lambda _value, _depth: b""),
    bool: (0x56, 1, lambda value, _depth: b"\x01" if value else b"\x00"),
    UByte: (0x50, 1, _packed("B")),
    UShort: (0x60, 2, _packed("H")),
    UInt: (0x70, 4, _packed("I")),
    ULong: (0x80, 8, _packed("Q")),
    Byte: (0x51, 1, _packed("b")),
    Short: (0x61, 2, _packed("h")),
    Int: (0x71, 4, _packed("i")),
    int: (0x81, 8, _item_long),
    Float: (0x72, 4, _packed("f")),
    float: (0x82, 8, _packed("d")),
    Decimal32: (0x74, 4, lambda value, _depth: cast("bytes", value)),
    Decimal64: (0x84, 8, lambda value, _depth: cast("bytes", value)),
    Decimal128: (0x94, 16, lambda value, _depth: cast("bytes", value)),
    Char: (0x73, 4, lambda value, _depth: struct.pack(">I", ord(cast("str", value)))),
    Timestamp: (0x83, 8, _packed("q")),
    UUID: (0x98, 16, lambda value, _depth: cast("UUID", value).bytes),
    bytes: (0xB0, -1, _widened(0xA0)),
    str: (0xB1, -1, _widened(0xA1)),
    Symbol: (0xB3, -1, _widened(0xA3)),
    list: (0xD0, -1, _widened(0xC0)),
    dict: (0xD1, -1, _widened(0xC1)),
    Array: (0xF0, -1, _widened(0xE0)),
}
