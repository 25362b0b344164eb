"""Maps through Proton's own data; what a peer left out or broke is empty."""

from collections.abc import Iterator
from typing import Any

import pytest
from cproton_ffi import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import WireError
from amqp_streams.proton.terms import put_map, read_condition, read_map, read_symbols
from amqp_streams.wire.codec import Array, Described, Symbol, ULong, encode

values = st.none() | st.booleans() | st.integers(0, 1 << 40) | st.text(max_size=20) | st.text("abc", min_size=1).map(Symbol)


@pytest.fixture
def data() -> Iterator[Any]:
    made = lib.pn_data(16)
    yield made
    lib.pn_data_free(made)


@given(st.dictionaries(st.text("abc-", min_size=1, max_size=9), values | st.lists(values, max_size=3), max_size=4))
def test_what_is_put_is_read(entries: dict[str, object]) -> None:
    made = lib.pn_data(16)
    put_map(made, entries)
    assert read_map(made) == entries
    lib.pn_data_free(made)


def test_described_values_pass(data: Any) -> None:
    start = Described(ULong(0x200), {Symbol("a"): "b"})
    put_map(data, {"start": start})
    assert read_map(data) == {"start": start}


def test_what_has_no_amqp_type_is_a_wire_error(data: Any) -> None:
    with pytest.raises(WireError):
        put_map(data, {"a": object()})


def test_what_is_not_there_or_no_map_is_empty(data: Any) -> None:
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
    """AMQP 3.2: multiple values are an array, a single one may stand alone; whatever else a peer sends offers nothing."""
    encoded = encode(offered)
    assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)
    assert read_symbols(data) == symbols
    assert read_symbols(ffi.NULL) == []


def test_an_error_that_a_peer_did_not_give_has_our_name() -> None:
    connection = lib.pn_connection()
    condition = lib.pn_connection_condition(connection)
    assert read_condition(condition, "closed by the peer") == ("closed by the peer", "", {})
    lib.pn_condition_set_name(condition, b"amqp:not-allowed")
    assert read_condition(condition, "") == ("amqp:not-allowed", "", {})
    lib.pn_condition_set_description(condition, b"no \xff")
    put_map(lib.pn_condition_info(condition), {"field": "x"})
    assert read_condition(condition, "") == ("amqp:not-allowed", "no \ufffd", {"field": "x"})
    lib.pn_connection_release(connection)
