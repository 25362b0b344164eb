"""The functions of CloudEvents SQL and how more are added: CESQL 3.5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.expression import Result, evaluate
from knative_gateway.filters.cesql.functions import BUILT_IN, Function, Functions
from knative_gateway.filters.cesql.syntax import Type
from knative_gateway.filters.refusal import ErrorKind, EvaluationError, Failed, Primitive

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "word": "Straße"}


def outcome(expression: str, functions: Functions = BUILT_IN) -> tuple[Primitive, list[ErrorKind]]:
    result = evaluate(expression, EVENT, functions=functions)
    return result.value, [error.kind for error in result.errors]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("LENGTH('')", 0),
        ("LENGTH(word)", 6),
        ("LENGTH(-12)", 3),
        ("CONCAT()", ""),
        ("CONCAT('a', 1, TRUE)", "a1true"),
        ("CONCAT_WS('-')", ""),
        ("CONCAT_WS('-', 'a')", "a"),
        ("CONCAT_WS('-', 'a', 'b', 3)", "a-b-3"),
        ("LOWER('ÀB')", "àb"),
        ("UPPER('àb')", "ÀB"),
        ("TRIM(' \t a b \n')", "a b"),
        ("TRIM('\u00a0\u2003a\u3000')", "a"),
        ("TRIM('\x1fa\x1f')", "\x1fa\x1f"),
        ("LEFT(word, 4)", "Stra"),
        ("LEFT(word, 0)", ""),
        ("LEFT(word, 6)", "Straße"),
        ("LEFT(word, 100)", "Straße"),
        ("RIGHT(word, 2)", "ße"),
        ("RIGHT(word, 0)", ""),
        ("RIGHT(word, 100)", "Straße"),
        ("SUBSTRING(word, 5)", "ße"),
        ("SUBSTRING(word, 6)", "e"),
        ("SUBSTRING(word, -2)", "ße"),
        ("SUBSTRING(word, -6)", "Straße"),
        ("SUBSTRING(word, 0)", ""),
        ("SUBSTRING(word, 0, 3)", ""),
        ("SUBSTRING(word, 1, 3)", "Str"),
        ("SUBSTRING(word, -5, 3)", "tra"),
        ("SUBSTRING(word, 4, 100)", "aße"),
        ("SUBSTRING(word, 4, 0)", ""),
        ("SUBSTRING('abc', '2')", "bc"),
        ("ABS(-7)", 7),
        ("ABS('-7')", 7),
        ("ABS(TRUE)", 1),
        ("ABS(2147483647)", 2147483647),
        ("INT('-7')", -7),
        ("INT(TRUE)", 1),
        ("INT(5)", 5),
        ("BOOL('TRUE')", True),
        ("BOOL(0)", False),
        ("BOOL(-5)", True),
        ("STRING(FALSE)", "false"),
        ("STRING(-5)", "-5"),
        ("IS_INT('5')", True),
        ("IS_INT('x')", False),
        ("IS_BOOL('True')", True),
        ("IS_BOOL('x')", False),
    ],
)
def test_a_built_in_function_gives_what_its_table_says(expression: str, value: Primitive) -> None:
    """CESQL 3.5: the built-in functions that MUST be supported, 3.7: explicit casts.

    Characters are those of Unicode, not bytes.
    """
    assert evaluate(expression, EVENT) == Result(value)
    assert type(evaluate(expression, EVENT).value) is type(value)


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("LEFT('abc', -1)", "abc", ErrorKind.FUNCTION_EVALUATION),
        ("RIGHT('abc', -1)", "abc", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('abc', 4)", "", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('abc', -4)", "", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('', 1)", "", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('abc', 4, 1)", "", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('abc', 1, -1)", "", ErrorKind.FUNCTION_EVALUATION),
        ("SUBSTRING('abc', 0, -1)", "", ErrorKind.FUNCTION_EVALUATION),
        ("ABS(-2147483648)", 2147483647, ErrorKind.MATH),
        ("INT('x')", 0, ErrorKind.CAST),
        ("INT('2147483648')", 0, ErrorKind.CAST),
        ("BOOL('x')", False, ErrorKind.CAST),
        ("LEFT('abc', 'x')", "", ErrorKind.CAST),
    ],
)
def test_a_function_that_fails_returns_a_value_and_the_error(
    expression: str, value: Primitive, kind: ErrorKind
) -> None:
    """CESQL 3.5.3: in the event of an error a function MUST still return a valid value of its type."""
    assert outcome(expression) == (value, [kind])


@pytest.mark.parametrize(
    "expression",
    [
        "NONE()",
        "LENGTH()",
        "LENGTH('a', 'b')",
        "CONCAT_WS()",
        "SUBSTRING('a')",
        "SUBSTRING('a', 1, 1, 1)",
        "ABS()",
    ],
)
def test_a_call_that_cannot_be_dispatched_is_false_and_an_error(expression: str) -> None:
    """CESQL 3.5: the return value is false, and a MissingFunctionError is returned. The number of arguments
    distinguishes functions.
    """
    assert outcome(expression) == (False, [ErrorKind.MISSING_FUNCTION])


@given(st.text(max_size=20), st.integers(-25, 25), st.integers(-25, 25))
def test_parts_of_a_string_are_parts_of_it_whatever_the_numbers(text: str, one: int, other: int) -> None:
    event = {**EVENT, "word": text, "one": one, "other": other}
    for expression in (
        "LEFT(word, one)",
        "RIGHT(word, one)",
        "SUBSTRING(word, one)",
        "SUBSTRING(word, one, other)",
    ):
        value = evaluate(expression, event).value
        assert isinstance(value, str)
        assert value in text


def twice(text: str) -> str:
    return text * 2


TWICE = Function("TWICE", (Type.STRING,), Type.STRING, twice)


def test_functions_of_ones_own_are_called_like_the_others() -> None:
    """CESQL 3.5: an engine SHOULD allow users to define functions;

    MUST distinguish those of the same name by their arity.
    """
    functions = BUILT_IN.more(
        (TWICE, Function("TWICE", (Type.STRING, Type.INTEGER), Type.STRING, lambda text, times: text * times))
    )
    assert outcome("twice(12)", functions) == ("1212", [])
    assert outcome("TWICE('a', '3')", functions) == ("aaa", [])
    assert outcome("TWICE()", functions) == (False, [ErrorKind.MISSING_FUNCTION])
    assert outcome("LENGTH(TWICE('ab'))", functions) == (4, [])


def test_a_variadic_overload_is_longer_than_the_others_of_its_name() -> None:
    """CESQL 3.5: ABC(x), ABC(x, y) and ABC(x, y, z, ...) are valid together."""

    def count(*values: str) -> int:
        return len(values)

    text = Type.STRING
    one = Function("ABC", (text,), Type.INTEGER, count)
    two = Function("ABC", (text, text), Type.INTEGER, count)
    more = Function("ABC", (text, text, text), Type.INTEGER, count, text)
    functions = Functions((more, one, two))
    assert [functions.find("ABC", number) for number in range(6)] == [None, one, two, more, more, more]
    assert outcome("ABC(1, 2, 3, 4)", functions) == (4, [])


def test_definitions_that_cannot_be_distinguished_are_rejected() -> None:
    """CESQL 3.5: the engine MUST reject them."""
    text = Type.STRING
    any_number = Function("ABC", (), Type.INTEGER, lambda *values: len(values), text)
    three = Function("ABC", (text, text, text), Type.INTEGER, lambda *values: len(values))
    for wrong in ((any_number, three), (three, any_number), (three, three), (any_number, any_number)):
        with pytest.raises(ValueError, match="ABC"):
            Functions(wrong)
    with pytest.raises(ValueError, match="LENGTH"):
        BUILT_IN.more((Function("LENGTH", (text,), Type.INTEGER, len),))


def test_a_function_that_returns_something_else_than_it_said_fails_with_the_zero_value() -> None:
    """CESQL 3.5.3: the engine MUST return the zero value of the function's type and a
    FunctionEvaluationError.
    """

    def refuse(text: str) -> str:
        raise Failed(ErrorKind.FUNCTION_EVALUATION, text)

    functions = BUILT_IN.more(
        (
            Function("LIES", (Type.STRING,), Type.INTEGER, twice),
            # The lie itself.
            Function("NOTHING", (), Type.STRING, lambda: None),  # type: ignore[arg-type, return-value]
            Function("REFUSES", (Type.STRING,), Type.STRING, refuse),
        )
    )
    assert outcome("LIES('a')", functions) == (0, [ErrorKind.FUNCTION_EVALUATION])
    assert outcome("NOTHING()", functions) == ("", [ErrorKind.FUNCTION_EVALUATION])
    assert evaluate("REFUSES('x')", EVENT, functions=functions) == Result(
        "", (EvaluationError(ErrorKind.FUNCTION_EVALUATION, "x"),)
    )
