"""Three-valued logic with failures, comparisons, decimals."""

from decimal import Decimal
from itertools import product

import pytest

from amqp_streams.filters.evaluation.sql import condition
from amqp_streams.filters.language.syntax import And, Constant, Dialect, Holds, Not, Or
from amqp_streams.filters.values import FAILED, TESTS, compare, conjunction, decimal, disjunction, negation
from amqp_streams.wire.types import Float, Int, Symbol, Timestamp, UByte
from tests.amqp_streams.filters.messages import Sample, application, truth

T, F, U, X = True, False, None, FAILED

AND = [
    (T, T, T), (T, F, F), (T, U, U), (T, X, X),
    (F, T, F), (F, F, F), (F, U, F), (F, X, F),
    (U, T, U), (U, F, F), (U, U, U), (U, X, X),
    (X, T, X), (X, F, F), (X, U, X), (X, X, X),
]  # fmt: skip
OR = [
    (T, T, T), (T, F, T), (T, U, T), (T, X, T),
    (F, T, T), (F, F, F), (F, U, U), (F, X, X),
    (U, T, T), (U, F, U), (U, U, U), (U, X, X),
    (X, T, T), (X, F, X), (X, U, X), (X, X, X),
]  # fmt: skip
TEXTS = {T: "TRUE", F: "FALSE", U: "none", X: "color"}


@pytest.mark.parametrize(("left", "right", "result"), AND)
def test_and_has_the_truth_table_of_three_valued_logic_and_keeps_failures(left, right, result):
    assert conjunction(left, right) is result
    assert truth(f"{TEXTS[left]} AND {TEXTS[right]}", application(color="blue")) is result


@pytest.mark.parametrize(("left", "right", "result"), OR)
def test_or_has_the_truth_table_of_three_valued_logic_and_keeps_failures(left, right, result):
    assert disjunction(left, right) is result
    assert truth(f"{TEXTS[left]} OR {TEXTS[right]}", application(color="blue")) is result


@pytest.mark.parametrize(("operand", "result"), [(T, F), (F, T), (U, U), (X, X)])
def test_not_has_the_truth_table_of_three_valued_logic_and_keeps_failures(operand, result):
    assert negation(operand) is result
    assert truth(f"NOT {TEXTS[operand]}", application(color="blue")) is result


@pytest.mark.parametrize(("left", "right"), list(product((True, False, None), repeat=2)))
def test_the_tables_of_jakarta_messaging_hold_for_selectors(left, right):
    """Jakarta Messaging 3.8.1.2:

    AND, OR and NOT of true, false and unknown, unknown being a NULL property.
    """
    words = {True: "TRUE", False: "FALSE", None: "none = 1"}
    both = truth(f"{words[left]} AND {words[right]}", Sample(), Dialect.SELECTOR)
    either = truth(f"{words[left]} OR {words[right]}", Sample(), Dialect.SELECTOR)
    assert both is conjunction(left, right)
    assert either is disjunction(left, right)


def test_longer_chains_are_as_their_pairs():
    for truths in product((T, F, U), repeat=3):
        operands = tuple(Holds(Constant(one)) for one in truths)
        record = Sample().record()
        assert condition(And(operands), FAILED)(record) is conjunction(
            conjunction(truths[0], truths[1]), truths[2]
        )
        assert condition(Or(operands), FAILED)(record) is disjunction(
            disjunction(truths[0], truths[1]), truths[2]
        )
        assert condition(Not(operands[0]), FAILED)(record) is negation(truths[0])


@pytest.mark.parametrize(
    ("left", "sign", "right", "result"),
    [
        (UByte(5), "=", 5, T),
        (Int(-1), "<", UByte(0), T),
        (2**53 + 1, "=", float(2**53), T),  # both as doubles (6.4.2.3)
        (0.1, "=", Decimal("0.1"), T),
        (Float(0.1), "=", Decimal("0.1"), T),
        (Float(0.1), "=", 0.1, F),
        (Float(1.5), ">", Decimal("1.25"), T),
        (3, "=", Decimal("3.0"), T),
        (float("inf"), ">", Decimal("1e6000"), T),
        (float("nan"), "=", Decimal(1), U),
        (Symbol("x"), "=", "x", T),
        (True, ">", False, T),
        (True, "=", 1, X),
        (Timestamp(5), "=", 5, T),
        (5, ">=", Timestamp(5), T),
        (Timestamp(1000), "=", "1970-01-01T00:00:01Z", T),
        (Timestamp(1000), "=", True, X),
        (Timestamp(1000), "=", 1000.0, X),
        (b"a", "<", b"b", T),
        ([1], "=", [1], X),
        ({}, "=", "x", X),
        (None, "=", None, U),
        (None, "=", FAILED, X),
    ],
)
def test_values_compare_as_their_types_say(left, sign, right, result):
    """FILTEX 6.3, 6.4.2.3."""
    assert compare(TESTS[sign], left, right) is result


@pytest.mark.parametrize(
    ("encoded", "number"),
    [
        ("32800001", Decimal(1)),
        ("b2800001", Decimal(-1)),
        ("32000001", Decimal("0.1")),
        ("6cb8967f", Decimal(9999999)),
        ("31c0000000000001", Decimal(1)),
        ("6c7386f26fc0ffff", Decimal(9999999999999999)),
        ("30400000000000000000000000000001", Decimal(1)),
        ("303e0000000000000000000000000019", Decimal("2.5")),
        ("78000000", Decimal("Infinity")),
        ("f800000000000000", Decimal("-Infinity")),
    ],
)
def test_decimals_of_the_wire_are_numbers(encoded, number):
    """IEEE 754-2008 3.5.2, binary integer form."""
    assert decimal(bytes.fromhex(encoded)) == number


def test_a_decimal_that_is_not_a_number_is_quiet():
    assert decimal(bytes.fromhex("7c000000")).is_qnan()
    assert decimal(bytes.fromhex("7e000000")).is_qnan()
    assert decimal(bytes.fromhex("6cbfffff")) == 0  # a significand of too many digits
