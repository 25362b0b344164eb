"""Types for the AMQP types that Python does not have. Spec: AMQP 1.0 part 1.

Law: constructors validate, so every value can be encoded. Each type is a subtype of the Python type that it
resembles, and its values compare equal to that type's: `UInt(5) == 5`, `Symbol("a") == "a"`. The other AMQP
types are Python's: null None, boolean bool, long int, double float, string str, binary bytes, uuid UUID, list
list, map dict.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias
from uuid import UUID

Value: TypeAlias = (
    "bool | int | float | str | bytes | UUID | list[Value] | dict[Value, Value] | Array | Described | None"
)

DEPTH_MAX: Final = 32
"""The most levels of values within values, to bound the use of the interpreter's stack. The standard's own
values have 6.
"""
ZERO_WIDTH_ITEMS_MAX: Final = 16
"""The most items of an array whose items take no bytes (null, true, …). Without a limit, an array of 10 bytes
can have 4 billion items.
"""
UUID_KEYS_MAX: Final = 256
"""The most UUIDs that are keys of one map. A peer can choose UUIDs with equal hashes, and the time to insert
them grows with the square of their number.
"""

LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
_UNICODE_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class _Integer(int):
    LOW: ClassVar[int]
    HIGH: ClassVar[int]
    __slots__ = ()

    def __new__(cls, value: int) -> Self:
        if not cls.LOW <= value <= cls.HIGH:
            message = f"{value} is not a {cls.__name__.lower()}: {cls.LOW} to {cls.HIGH}"
            raise ValueError(message)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    # By default, `str` is `__repr__`, with the name of the type: texts for people show the number only.
    __str__ = int.__repr__


class UByte(_Integer):
    """0 to 255."""

    LOW, HIGH = 0, (1 << 8) - 1
    __slots__ = ()


class UShort(_Integer):
    """16 bits unsigned."""

    LOW, HIGH = 0, (1 << 16) - 1
    __slots__ = ()


class UInt(_Integer):
    """32 bits unsigned."""

    LOW, HIGH = 0, (1 << 32) - 1
    __slots__ = ()


class ULong(_Integer):
    """64 bits unsigned."""

    LOW, HIGH = 0, (1 << 64) - 1
    __slots__ = ()


class Byte(_Integer):
    """-128 to 127."""

    LOW, HIGH = -(1 << 7), (1 << 7) - 1
    __slots__ = ()


class Short(_Integer):
    """16 bits signed."""

    LOW, HIGH = -(1 << 15), (1 << 15) - 1
    __slots__ = ()


class Int(_Integer):
    """32 bits signed."""

    LOW, HIGH = -(1 << 31), (1 << 31) - 1
    __slots__ = ()


Long = int
"""A plain int is encoded as a long. The encoder refuses a number that does not fit."""


class Timestamp(_Integer):
    """Milliseconds since the epoch, UTC; 64 bits signed."""

    LOW, HIGH = LONG_MIN, LONG_MAX
    __slots__ = ()


class Float(float):
    """IEEE 754 binary32. The constructor rounds, so that encoding and decoding do not change the value."""

    __slots__ = ()

    def __new__(cls, value: float) -> Self:
        try:
            # Rounded here and not in the encoder, so that a value compares equal to what the peer receives.
            (rounded,) = struct.unpack(">f", struct.pack(">f", value))
        except OverflowError:
            message = f"{value} does not fit 32 bits"
            raise ValueError(message) from None
        return super().__new__(cls, rounded)

    def __repr__(self) -> str:
        return f"Float({float(self)})"

    __str__ = float.__repr__


class _Decimal(bytes):
    WIDTH: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.WIDTH:
            message = f"{len(value)} bytes are not a {cls.__name__.lower()}: it has {cls.WIDTH}"
            raise ValueError(message)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes(self)!r})"

    __str__ = __repr__


class Decimal32(_Decimal):
    """IEEE 754-2008 decimal32 in binary integer form: its 4 bytes, not decoded."""

    WIDTH = 4


class Decimal64(_Decimal):
    """IEEE 754-2008 decimal64: its 8 bytes, not decoded."""

    WIDTH = 8


class Decimal128(_Decimal):
    """IEEE 754-2008 decimal128: its 16 bytes, not decoded."""

    WIDTH = 16


class Symbol(str):
    """A name from a constrained domain: ASCII. Compares equal to the same str."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if not value.isascii():
            message = f"{value!r} is not a symbol: ASCII only"
            raise ValueError(message)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Char(str):
    """A single Unicode character, surrogates excluded."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if len(value) != 1 or ord(value) in _SURROGATES:
            message = f"{value!r} is not a char: exactly one Unicode character"
            raise ValueError(message)
        return super().__new__(cls, value)

    @classmethod
    def of(cls, code_point: int) -> Self:
        """Return the character with this code point.

        Raises:
            ValueError: it is not a Unicode character.
        """
        if code_point > _UNICODE_MAX:
            message = f"{code_point:#x} is not a Unicode character"
            raise ValueError(message)
        return cls(chr(code_point))

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Encoded(bytes):
    """The bytes of an encoded value, which the encoder copies. So a large value can be encoded in steps."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """An array, whose items have one type: `Array(Symbol, ("0", "1"))`.

    `element`: the Python type for the AMQP type of the items (`int` for long, `type(None)` for null).
    `descriptor`: describes every item. The encoder, not the constructor, checks the types of the items.
    """

    element: type
    items: "tuple[Value, ...]"
    descriptor: "Symbol | ULong | None" = None


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that names its meaning.

    As a rule a symbol or a ulong, but any value is valid.
    """

    descriptor: "Value"
    value: "Value"
