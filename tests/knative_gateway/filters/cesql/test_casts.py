"""Casts of CloudEvents SQL: CESQL 3.2, 3.7."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.casts import (
    CASTS,
    as_boolean,
    as_integer,
    as_string,
    canonical,
    primitive,
    type_of,
)
from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import Type
from knative_gateway.filters.refusal import ErrorKind, Failed, Primitive

INTEGERS = st.integers(INTEGER_MIN, INTEGER_MAX)
PRIMITIVES = st.one_of(st.text(), INTEGERS, st.booleans())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (5, "5"),
        (-7, "-7"),
        (0, "0"),
        (INTEGER_MIN, "-2147483648"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_everything_has_a_string(value: Primitive, text: str) -> None:
    """CESQL 3.7: Integer -> String and Boolean -> String MUST be supported."""
    assert as_string(value) == text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("-0", 0),
        ("2147483647", INTEGER_MAX),
        ("-2147483648", INTEGER_MIN),
        ("0" * 5000 + "5", 5),
        (True, 1),
        (False, 0),
        (5, 5),
    ],
)
def test_a_text_that_is_an_integer_becomes_one(value: Primitive, number: int) -> None:
    """CESQL 3.7: String -> Integer and Boolean -> Integer MUST be supported; a leading sign MAY be there."""
    cast = as_integer(value)
    assert cast == number
    assert type_of(cast) is Type.INTEGER


def test_a_text_that_is_longer_than_any_integer_is_not_looked_at() -> None:
    """A sender chooses its length, and a filter may cast it a thousand times."""
    with pytest.raises(Failed):
        as_integer("0" * (1 << 14) + "5")
    with pytest.raises(Failed):
        as_boolean("true" * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5",
        "5 ",
        "5.0",
        "0x5",
        "1_000",
        "\u0665",
        "²",
        "+",
        "--5",
        "abc",
        "2147483648",
        "-2147483649",
        "9" * 5000,
        "5\n",
    ],
)
def test_a_number_outside_32_bits_is_a_cast_error(text: str) -> None:
    with pytest.raises(Failed) as failed:
        as_integer(text)
    assert failed.value.kind is ErrorKind.CAST


@pytest.mark.parametrize(
    ("value", "boolean"),
    [("true", True), ("TRUE", True), ("False", False), (0, False), (1, True), (-50, True), (True, True)],
)
def test_a_text_that_is_true_or_false_becomes_a_boolean(value: Primitive, boolean: bool) -> None:
    """CESQL 3.7: Integer -> Boolean and String -> Boolean MUST be supported."""
    assert as_boolean(value) is boolean


@pytest.mark.parametrize("text", ["", "yes", "1", " true", "true "])
def test_a_text_that_is_neither_true_nor_false_is_a_cast_error(text: str) -> None:
    with pytest.raises(Failed) as failed:
        as_boolean(text)
    assert failed.value.kind is ErrorKind.CAST


@given(PRIMITIVES)
def test_casts_give_their_type_or_a_cast_error(value: Primitive) -> None:
    for type_, cast in CASTS.items():
        with suppress(Failed):
            assert type_ is Type.ANY or type_of(cast(value)) is type_


@given(INTEGERS)
def test_an_integer_comes_back_from_its_string(number: int) -> None:
    assert as_integer(as_string(number)) == number


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("x", "x"),
        (True, True),
        (5, 5),
        (INTEGER_MAX + 1, "2147483648"),
        (INTEGER_MIN - 1, "-2147483649"),
        (b"\x01\x02", "AQI="),
        (2.5, "2.5"),
    ],
)
def test_a_value_without_a_type_of_the_language_is_a_string(value: object, seen: Primitive) -> None:
    """CESQL 3.2: a value that is not one of the primitive types MUST be represented by the String type."""
    assert primitive(value) == seen
    assert type(primitive(value)) is type(seen)
    assert canonical(value) == as_string(seen)
