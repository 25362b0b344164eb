"""Whole expressions of CloudEvents SQL: CESQL 1, 3.3, 4.1 and 5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.expression import Result, compile_expression, evaluate, missing_functions
from knative_gateway.filters.cesql.functions import BUILT_IN, Function
from knative_gateway.filters.cesql.syntax import Node, Type
from knative_gateway.filters.refusal import ErrorKind, Limits, ParseError, Primitive
from tests.knative_gateway.filters.cesql.test_evaluate import EVENTS
from tests.knative_gateway.filters.printing import printed, trees

EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "https://example.com/a",
    "type": "com.example.created",
    "sequence": 10,
    "hop": "3",
    "ttl": "12",
}


@pytest.mark.parametrize(
    ("expression", "extra", "passes"),
    [
        # section 5: the examples of the specification
        ("EXISTS subject", {"subject": "x"}, True),
        ("EXISTS subject", {}, False),
        ("firstname = 'Ada'", {"firstname": "Ada"}, True),
        ("firstname = 'Ada'", {"firstname": "ada"}, False),
        ("firstname = 'Ada' OR subject = 'Ada'", {"firstname": "Bob", "subject": "Ada"}, True),
        (
            "(firstname = 'Ada' AND lastname = 'Byron') OR subject = 'Ada Byron'",
            {"firstname": "Ada", "lastname": "Byron"},
            True,
        ),
        (
            "(firstname = 'Ada' AND lastname = 'Byron') OR subject = 'Ada Byron'",
            {"firstname": "Bob", "subject": "Ada Byron"},
            True,
        ),
        (
            "(firstname = 'Ada' AND lastname = 'Byron') OR subject = 'Ada Byron'",
            {"firstname": "Ada", "lastname": "King"},
            False,
        ),
        ("sequence = 10", {}, True),
        ("hop < ttl", {}, True),
        ("int(hop) < int(ttl) and int(hop) < 1000", {}, True),
        ("INT(hop) < INT(ttl) AND INT(hop) < 1000", {"hop": "13"}, False),
        # the dialects of the Subscriptions API, said in this language
        ("source LIKE 'https://%'", {}, True),
        ("type LIKE '%.created' AND source LIKE '%/b'", {}, False),
        ("type IN ('com.example.deleted', 'com.example.created')", {}, True),
    ],
)
def test_an_expression_passes_events(expression: str, extra: dict[str, object], passes: bool) -> None:
    assert compile_expression(expression).matches({**EVENT, **extra}) is passes


@pytest.mark.parametrize(
    "expression", ["1", "'true'", "10", "source", "LENGTH(source)", "CONCAT('tr', 'ue')"]
)
def test_only_the_boolean_true_passes_an_event(expression: str) -> None:
    """CESQL 1.2: the output MUST be a Boolean; if it is not, the event MUST NOT pass the filter."""
    compiled = compile_expression(expression)
    assert compiled.evaluate(EVENT).errors == ()
    assert compiled.matches(EVENT) is False


@pytest.mark.parametrize(
    "expression",
    [
        "absent",
        "absent != 'x'",
        "NOT 10",
        "NOT (1 / 0 = 1)",
        "NONE()",
        "TRUE AND absent",
        "absent OR TRUE",
        "1 / 0 = 0",
    ],
)
def test_an_expression_with_an_error_passes_no_event(expression: str) -> None:
    """CESQL 1.2: if any errors are returned, the event MUST NOT pass the filter."""
    compiled = compile_expression(expression)
    assert len(compiled.evaluate(EVENT).errors) == 1
    assert compiled.matches(EVENT) is False


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("(", ErrorKind.PARSE),
        ("1 / 0", ErrorKind.MATH),
        ("INT('x')", ErrorKind.CAST),
        ("absent", ErrorKind.MISSING_ATTRIBUTE),
        ("NONE()", ErrorKind.MISSING_FUNCTION),
        ("LEFT('a', -1)", ErrorKind.FUNCTION_EVALUATION),
    ],
)
def test_every_kind_of_error_is_reported(expression: str, kind: ErrorKind) -> None:
    """CESQL 3.3: every engine MUST support these error types."""
    assert [error.kind for error in evaluate(expression, EVENT).errors] == [kind]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("LEFT('abc', -1)", "abc"),
        ("(LEFT('abc', -1))", "abc"),
        ("LENGTH(LEFT('abc', -1))", 0),
        ("ABS(-2147483648)", 2147483647),
        ("ABS(-2147483648) - 1", 0),
        ("UPPER(LEFT('abc', -1))", ""),
        ("LEFT('abc', -1) = 'abc'", False),
        ("NOT (NOT 10)", False),
    ],
)
def test_the_value_with_an_error_is_that_of_the_whole_expression(expression: str, value: Primitive) -> None:
    """CESQL 4.1, fail fast: the zero value of the expression's type; the failing function's own value only if
    it is all there is.
    """
    result = evaluate(expression, EVENT)
    assert result.value == value
    assert type(result.value) is type(value)
    assert len(result.errors) == 1


def test_where_the_type_is_not_known_boolean_is_assumed() -> None:
    """CESQL 3.2: the engine MUST assume a return type of Boolean."""
    assert compile_expression("absent").type is Type.ANY
    assert evaluate("absent", EVENT).value is False
    assert evaluate("NONE(absent)", EVENT).value is False


def test_a_text_that_cannot_be_read_is_a_value_too_if_one_wants() -> None:
    result = evaluate("a = ", EVENT)
    assert result.value is False
    assert result.errors[0].reason.startswith(
        "parse error: syntax error: found end of the expression, expected an attribute"
    )
    assert result.errors[0].reason.endswith(", at character 5")
    with pytest.raises(ParseError):
        compile_expression("a = ")
    with pytest.raises(ParseError, match="3 are allowed"):
        compile_expression("a = 5", limits=Limits(characters=3))


def test_calls_of_functions_that_do_not_exist_are_found_before_any_event() -> None:
    """CESQL 3.3: error checks SHOULD be done at compile time where possible."""
    expression = compile_expression(
        "NOT (-NONE(1) + 1 < ABS(OTHER()) AND x LIKE 'a') OR x IN (1, NONE(1), LENGTH(), NONE(1, 2)) OR"
        " EXISTS x"
    )
    assert missing_functions(expression) == ["NONE/1", "OTHER/0", "LENGTH/0", "NONE/2"]
    assert missing_functions(compile_expression("LENGTH(x) = 1")) == []
    assert (
        missing_functions(
            compile_expression("NONE()"), BUILT_IN.more((Function("NONE", (), Type.STRING, str),))
        )
        == []
    )


@given(trees(), EVENTS)
def test_any_expression_has_a_result_and_passes_what_its_result_says(
    tree: Node, event: dict[str, object]
) -> None:
    expression = compile_expression(printed(tree))
    result = expression.evaluate(event)
    assert isinstance(result.value, str | int)
    assert len(result.errors) <= 1
    assert expression.matches(event) is (result.value is True and not result.errors)
    assert expression.evaluate(event) == result


@given(trees(), EVENTS)
def test_a_part_may_be_replaced_by_its_value(tree: Node, event: dict[str, object]) -> None:
    """CESQL 1: referential transparency, for parts without errors."""
    part = compile_expression(printed(tree)).evaluate(event)
    if part.errors:
        return
    shown = repr(part.value).upper() if isinstance(part.value, bool) else repr(part.value)
    if isinstance(part.value, str):
        shown = "'" + part.value.replace("'", "\\'") + "'"
    for whole in ("STRING({})", "({}) = 'x'", "BOOL(CONCAT({}))", "({}) LIKE '%a%'", "({}) IN ('5', 'true')"):
        assert evaluate(whole.format(printed(tree)), event) == evaluate(whole.format(shown), event)


@given(st.text(max_size=60))
def test_any_text_has_a_result(text: str) -> None:
    assert isinstance(evaluate(text, EVENT), Result)
