"""Strategies of AMQP values, shared by the tests of the codec."""

from typing import Any

from hypothesis import strategies as st

from amqp_streams.wire.codec import (
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
)

INTEGERS = (UByte, UShort, UInt, ULong, Byte, Short, Int, Timestamp)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=300)
symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
binaries = st.binary(max_size=300)
chars = st.characters(exclude_categories=["Cs"]).map(Char)
integers = st.sampled_from(INTEGERS).flatmap(lambda kind: st.integers(kind.LOW, kind.HIGH).map(kind))
floats = st.floats(width=32, allow_nan=False).map(Float)
doubles = st.floats(allow_nan=False)
decimals = (
    st.binary(min_size=4, max_size=4).map(Decimal32)
    | st.binary(min_size=8, max_size=8).map(Decimal64)
    | st.binary(min_size=16, max_size=16).map(Decimal128)
)
scalars = (
    st.none()
    | st.booleans()
    | longs
    | integers
    | floats
    | doubles
    | texts
    | symbols
    | binaries
    | chars
    | decimals
    | st.uuids()
)


def _arrays(children):
    kinds: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: longs,
        float: doubles,
        Float: floats,
        str: texts,
        Symbol: symbols,
        bytes: binaries,
        Char: chars,
        Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
        list: st.lists(children, max_size=3),
        dict: st.dictionaries(symbols, children, max_size=3),
        Array: longs.map(lambda number: Array(int, (number,))),
        **{kind: st.integers(kind.LOW, kind.HIGH).map(kind) for kind in INTEGERS},
    }
    descriptors = st.none() | symbols | st.integers(0, ULong.HIGH).map(ULong)
    return st.sampled_from(sorted(kinds, key=lambda kind: kind.__name__)).flatmap(
        lambda kind: st.builds(
            Array, st.just(kind), st.lists(kinds[kind], max_size=4).map(tuple), descriptors
        )
    )


def _compounds(children):
    # Keys of one type: a symbol and a string, or 1 and true, are equal in Python.
    maps = st.dictionaries(symbols, children, max_size=4) | st.dictionaries(longs, children, max_size=4)
    # Not described twice: Proton, which some tests compare with, loses its way there.
    once = children.filter(lambda value: not isinstance(value, Described))
    described = st.builds(Described, symbols | st.integers(0, ULong.HIGH).map(ULong), once)
    return st.lists(children, max_size=5) | maps | described | _arrays(children)


values = st.recursive(scalars, _compounds, max_leaves=12)


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(list(one.items())[i][j], list(other.items())[i][j]) for i in range(len(one)) for j in (0, 1)
        )
    if isinstance(one, Array):
        kinds = one.element is other.element and same(one.descriptor, other.descriptor)
        return kinds and len(one.items) == len(other.items) and all(map(same, one.items, other.items))
    if isinstance(one, Described):
        return same(one.descriptor, other.descriptor) and same(one.value, other.value)
    return repr(one) == repr(other)
