"""Values of AMQP, of every type and shape, from choices."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final
from uuid import UUID

from amqp_streams.wire.types import (
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
from fuzz.draw import Draw

NAMES: Final = (
    "a", "b", "n", "kind", "x", "to", "subject", "message-id", "user-id", "priority", "durable",
    "delivery-count", "content-type",
    "event-streams-offset", "event-streams-timestamp", "event-streams-source-partition",
    "event-streams-target-partition",
    "event-streams-group-key", "event-streams-partition", "event-streams-consumer-group",
    "event-streams-epoch", "operation", "type",
    "name", "log", "partition", "partitions", "retention-ms", "segment-bytes", "offset", "timestamp",
    "position",
)  # fmt: skip
"""Keys that mean something somewhere."""
TEXTS: Final = (
    "", "a", "blue", "0", "1", "0000000000000000", "0000000000000002", "9999999999999999", "@earliest",
    "@latest", "events", "single",
    "$management", "events/$info", "event-log", "event-cursor", "event-consumer-group", "READ", "CREATE",
    "QUERY", "UPDATE", "DELETE",
    "&s:a", "&p:b", "&&", "&", "\x00", "\u00e9\U0001f600", "PT1H", "2026-01-31T12:00:00Z", "group", "a" * 300,
)  # fmt: skip
"""Texts that mean something somewhere."""
_EDGES: Final = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    1 << 31,
    (1 << 31) - 1,
    (1 << 32) - 1,
    1 << 62,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
_INTEGERS: Final[tuple[tuple[type, int, int], ...]] = (
    (UByte, 0, (1 << 8) - 1),
    (UShort, 0, (1 << 16) - 1),
    (UInt, 0, (1 << 32) - 1),
    (ULong, 0, (1 << 64) - 1),
    (Byte, -(1 << 7), (1 << 7) - 1),
    (Short, -(1 << 15), (1 << 15) - 1),
    (Int, -(1 << 31), (1 << 31) - 1),
    (int, -(1 << 63), (1 << 63) - 1),
    (Timestamp, -(1 << 63), (1 << 63) - 1),
)
_DEPTH_MAX: Final = 5


def value(draw: Draw, depth: int = 0) -> Value:
    """Any value."""
    makers = _SIMPLE if depth >= _DEPTH_MAX else _ALL
    return draw.pick(makers)(draw, depth)


def text(draw: Draw) -> str:
    """One that means something, or any."""
    return draw.text(24) if draw.chance(4) else draw.pick(TEXTS if draw.chance(2) else NAMES)


def mapping(draw: Draw, depth: int = 0) -> dict[Value, Value]:
    """A map, mostly with texts and symbols as keys."""
    return {_key(draw): value(draw, depth + 1) for _ in range(draw.below(6))}


def _key(draw: Draw) -> Value:
    return Symbol(_ascii(draw)) if draw.chance(2) else text(draw) if not draw.chance(8) else _integer(draw, 0)


def _ascii(draw: Draw) -> str:
    return text(draw).encode("ascii", "ignore").decode()


def _integer(draw: Draw, _depth: int) -> Value:
    kind, low, high = draw.pick(_INTEGERS)
    number = draw.pick(_EDGES) if draw.chance(2) else draw.number(draw.below(9))
    number = -number if draw.chance(3) else number
    return kind(min(high, max(low, number)))  # type: ignore[no-any-return]  # an integer type


def _float(draw: Draw, _depth: int) -> Value:
    number = draw.pick((0.0, -0.0, 0.5, 0.1, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"), 3.0))
    return Float(number) if draw.chance(2) and abs(number) < 1e38 else number


def _decimal(draw: Draw, _depth: int) -> Value:
    kind, width = draw.pick(((Decimal32, 4), (Decimal64, 8), (Decimal128, 16)))
    return kind(draw.number(width).to_bytes(width))


def _array(draw: Draw, _depth: int) -> Value:
    kind, low, high = draw.pick(_INTEGERS)
    if draw.chance(2):
        return Array(Symbol, tuple(Symbol(_ascii(draw)) for _ in range(draw.below(4))))
    return Array(kind, tuple(kind(min(high, max(low, draw.number(2)))) for _ in range(draw.below(4))))


def _described(draw: Draw, depth: int) -> Value:
    descriptor: Value = ULong(draw.pick(_CODES)) if draw.chance(2) else Symbol(_ascii(draw))
    return Described(descriptor, value(draw, depth + 1))


_CODES: Final = (
    *range(0x10, 0x19),
    *range(0x23, 0x2D),
    *range(0x70, 0x79),
    0x100,
    0x120,
    0x200,
    0x201,
    0x468C00000004,
)

_SIMPLE: Final[tuple[Callable[[Draw, int], Value], ...]] = (
    lambda _draw, _depth: None,
    lambda draw, _depth: draw.chance(2),
    _integer,
    _integer,
    _float,
    _decimal,
    lambda draw, _depth: Char(chr(draw.pick((0x20, 0x41, 0xE9, 0x1F600)))),
    lambda draw, _depth: UUID(int=draw.number(16)),
    lambda draw, _depth: draw.raw(24),
    lambda draw, _depth: text(draw),
    lambda draw, _depth: text(draw),
    lambda draw, _depth: Symbol(_ascii(draw)),
)
_ALL: Final = (
    *_SIMPLE,
    lambda draw, depth: [value(draw, depth + 1) for _ in range(draw.below(5))],
    mapping,
    _array,
    _described,
)


def printed_number(draw: Draw) -> str:
    """A number as texts have it."""
    whole = str(draw.pick(_EDGES))
    return draw.pick(
        (
            whole,
            f"{whole}.5",
            f"{whole[:3]}.0E{draw.below(400)}",
            f"-{whole}",
            "0.1",
            str(Decimal(draw.number(4)) / 7),
        )
    )
