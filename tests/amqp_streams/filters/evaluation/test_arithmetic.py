"""Calculating with values. Spec: FILTEX 6.3.1, 6.4.4.1."""

from decimal import Decimal
from math import inf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.filters.evaluation.arithmetic import calculate, negative, positive
from amqp_streams.filters.values import FAILED, TEXT_MAX
from amqp_streams.wire.types import LONG_MAX, Char, Float, Symbol, Timestamp, UByte, ULong

LARGE = Decimal("9e6144")
CASES = [
    (UByte(200), "+", UByte(100), 300),
    (1, "-", UByte(2), -1),
    (ULong(2**64 - 1), "+", 1, nan),
    (-(2**63), "-", 1, nan),
    (2**32, "*", 2**32, nan),
    (2**32, "*", 2**31, 2**63),
    (7, "/", -2, Decimal("-3.5")),
    (-7, "/", -2, Decimal("3.5")),
    (8, "/", -2, -4),
    (1, "/", 3, Decimal("0." + "3" * 34)),
    (7, "div", -2, -3),
    (-7, "div", -2, 3),
    (7, "div", 0, nan),
    (1, "div", 0.5, 2.0),
    (1, "div", Decimal(8), Decimal("0.125")),
    (7, "%", -2, 1),
    (-7, "%", 2, -1),
    (7.5, "%", 2, 1),
    (Decimal("7.5"), "%", UByte(2), 1),
    (7, "%", 2.0, FAILED),
    (inf, "%", 2, nan),
    (7, "%", 0, nan),
    (7, "/", 0, nan),
    (1.5, "+", 1, 2.5),
    (1.5, "-", Float(0.5), 1.0),
    (1.5, "*", 2, 3.0),
    (1.5, "/", 2, 0.75),
    (1.5, "/", 0, nan),
    (1e308, "*", 10, nan),
    (inf, "*", 10, inf),
    (Decimal("0.1"), "+", Decimal("0.2"), Decimal("0.3")),
    (Decimal("0.3"), "-", 1, Decimal("-0.7")),
    (2, "*", Decimal("0.5"), Decimal("1.0")),
    (1, "/", Decimal(8), Decimal("0.125")),
    (1, "/", Decimal("0.0"), nan),
    (LARGE, "*", LARGE, nan),
    (Decimal("0.5"), "+", 0.25, 0.75),
    ("a", "+", Symbol("b"), "ab"),
    ("a", "-", "b", FAILED),
    ("a", "+", 1, FAILED),
    ("a", "+", Char("b"), FAILED),
    (True, "+", 1, FAILED),
    (b"a", "+", b"b", FAILED),
    ("a" * TEXT_MAX, "+", "b", FAILED),
    (Timestamp(5), "+", 5, Timestamp(10)),
    (5, "+", Timestamp(5), Timestamp(10)),
    (Timestamp(5), "-", Timestamp(7), Timestamp(-2)),
    (Timestamp(LONG_MAX), "+", 1, nan),
    (Timestamp(5), "*", 2, 10),
    (None, "+", 1, None),
    (None, "+", "a", None),
    (None, "+", FAILED, FAILED),
]


@pytest.mark.parametrize(("left", "operator", "right", "result"), CASES)
def test_operators_give_values_of_the_right_type(left, operator, right, result):
    found = calculate(operator, left, right)
    if isinstance(result, float) and isnan(result):
        assert isinstance(found, float)
        assert isnan(found)
    else:
        assert found == result
        assert type(found) is type(result)


def test_signs_are_for_numbers():
    assert (negative(UByte(5)), negative(1.5), negative(Decimal("0.5")), negative(None)) == (
        -5,
        -1.5,
        Decimal("-0.5"),
        None,
    )
    assert (positive(5), positive(None)) == (5, None)
    assert negative(ULong(2**63)) == -(2**63)
    too_small = negative(ULong(2**64 - 1))
    assert isinstance(too_small, float)
    assert isnan(too_small)
    assert {negative("5"), positive("5"), negative(Timestamp(5)), negative(FAILED), positive(True)} == {
        FAILED
    }


numbers = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.decimals(allow_nan=False)
    | st.builds(Timestamp, st.integers(-(2**63), 2**63 - 1))
)


@given(st.sampled_from("+-*/%"), numbers, numbers)
def test_no_numbers_make_an_operation_raise(operator, left, right):
    calculate(operator, left, right)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_quotient_and_remainder_make_up_the_dividend(left, right):
    assert calculate("div", left, right) * right + calculate("%", left, right) == left
