"""Values through the engine's own data. An invalid value that matters is refused; any other invalid value is
read as empty.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from cproton_ffi import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import PeerError, WireError
from amqp_streams.proton.pointers import NULL
from amqp_streams.proton.values import (
    VALUE_BYTES_MAX,
    data_size,
    read_map,
    read_symbols,
    read_value,
    text,
    write_map,
    write_value,
)
from amqp_streams.wire.codec import Array, Described, Symbol, ULong, encode

values = (
    st.none()
    | st.booleans()
    | st.integers(0, 1 << 40)
    | st.text(max_size=20)
    | st.text("abc", min_size=1).map(Symbol)
)


@pytest.fixture
def data() -> Iterator[Any]:
    made = lib.pn_data(16)
    yield made
    lib.pn_data_free(made)


@given(
    st.dictionaries(
        st.text("abc-", min_size=1, max_size=9), values | st.lists(values, max_size=3), max_size=4
    )
)
def test_written_values_are_read_back(entries: dict[str, object]) -> None:
    made = lib.pn_data(16)
    write_map(made, entries)
    assert read_map(made) == entries
    lib.pn_data_free(made)


def test_described_values_pass(data: Any) -> None:
    start = Described(ULong(0x200), {Symbol("a"): "b"})
    write_map(data, {"start": start})
    assert read_map(data) == {"start": start}


def test_a_value_without_an_amqp_type_is_a_wire_error(data: Any) -> None:
    with pytest.raises(WireError):
        write_map(data, {"a": object()})


def test_an_absent_value_or_one_that_is_not_a_map_is_empty(data: Any) -> None:
    assert read_map(ffi.NULL) == {}
    assert read_map(data) == {}
    lib.pn_data_put_int(data, 5)
    assert read_map(data) == {}


@pytest.mark.parametrize(
    ("offered", "symbols"),
    [
        (Symbol("a"), ["a"]),
        (Array(Symbol, (Symbol("a"), Symbol("b"))), ["a", "b"]),
        (Array(int, (1, 2)), []),
        ([Symbol("a")], []),
        ({}, []),
        ("a", []),
        (5, []),
        (None, []),
    ],
)
def test_capabilities_are_symbols_or_none_at_all(data: Any, offered: object, symbols: list[str]) -> None:
    """AMQP 3.2: several values are an array, and a single value may be alone. A value of another type offers
    nothing.
    """
    encoded = encode(offered)
    assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)
    assert read_symbols(data) == symbols
    assert read_symbols(ffi.NULL) == []


@pytest.mark.parametrize(
    "value",
    [
        {Symbol("a"): 1},
        {"text": [1, None, True]},
        {Symbol("f"): Described(ULong(0x200), {Symbol("o"): "x"})},
        [],
    ],
)
def test_values_go_in_and_come_out(value: object) -> None:
    data = lib.pn_data(0)
    write_value(data, {Symbol("old"): 1})
    write_value(data, value)
    assert data_size(data) >= len(encode(value)), "the engine writes maps and lists with wide sizes"
    assert read_value(data) == value
    lib.pn_data_free(data)


def test_empty_and_absent_values_are_none() -> None:
    data = lib.pn_data(0)
    assert (read_value(data), read_value(NULL), data_size(NULL)) == (None, None, 0)
    lib.pn_data_free(data)


def test_a_value_beyond_all_measure_is_refused() -> None:
    data = lib.pn_data(0)
    write_value(data, {Symbol("a"): "x" * (1 << 20)})
    with pytest.raises(PeerError, match="resource-limit-exceeded"):
        read_value(data)
    lib.pn_data_free(data)


def test_a_value_nested_too_deeply_is_refused() -> None:
    data = lib.pn_data(0)
    deep = b"\x45"
    for _ in range(60):
        deep = b"\xc0" + bytes((len(deep) + 1, 1)) + deep
    assert lib.pn_data_decode(data, deep, len(deep)) == len(deep)
    with pytest.raises(PeerError, match="decode-error"):
        read_value(data)
    lib.pn_data_free(data)


def test_texts_are_for_people() -> None:
    assert text(NULL) is None
    assert text(ffi.new("char[]", b"caf\xc3\xa9")) == "café"
    assert text(ffi.new("char[]", b"\xff\xfe")) == "\ufffd\ufffd"


def test_a_value_is_read_twice_from_its_beginning(data: Any) -> None:
    write_map(data, {"a": 1})
    lib.pn_data_next(data)  # as a reader leaves it
    assert (read_value(data), read_map(data)) == ({"a": 1}, {"a": 1})


def test_irrelevant_values_are_empty_beyond_the_bound(data: Any) -> None:
    write_map(data, {"a": "x" * VALUE_BYTES_MAX})
    assert read_map(data) == {}
    write_value(data, Symbol("x" * VALUE_BYTES_MAX))
    assert read_symbols(data) == []
