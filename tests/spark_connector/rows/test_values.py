"""AMQP values as text."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.codec import Array, Decimal32, Described, Float, Symbol, Timestamp, UInt
from spark_connector.rows.values import text_of

IDENTITY = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("text", "text"),
        (Symbol("s"), "s"),
        (True, "true"),
        (UInt(7), "7"),
        (-3, "-3"),
        (0.1, "0.1"),
        (Float(0.5), "0.5"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Timestamp(1_769_860_800_123), "2026-01-31T12:00:00.123Z"),
        (Timestamp(1 << 62), "4611686018427387904"),
        (IDENTITY, "12345678-1234-5678-1234-567812345678"),
        (b"\x00\xff", "AP8="),
        (Decimal32(b"\x00\x01\x02\x03"), "00010203"),
        ([1, "a", None], '[1,"a",null]'),
        (Array(int, (1, 2)), "[1,2]"),
        ({"a": Timestamp(0), 5: [b"x"]}, '{"a":"1970-01-01T00:00:00.000Z","5":["eA=="]}'),
        (Described(Symbol("x"), "inside"), "inside"),
        ("ü", "ü"),
        (["ü"], '["ü"]'),
    ],
)
def test_values_have_a_text(value: object, text: str | None) -> None:
    assert text_of(value) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids(),
        st.lists,
    )
)
def test_every_value_has_a_text_but_null(value: object) -> None:
    assert isinstance(text_of(value), str) or value is None
