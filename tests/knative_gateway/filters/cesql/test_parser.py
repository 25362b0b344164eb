"""Trees of CloudEvents SQL: CESQL 2 and 3.6."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN, parse
from knative_gateway.filters.cesql.syntax import Attribute, Call, Compare, Constant, Exists, Logic, Node
from knative_gateway.filters.refusal import Limits, ParseError
from tests.knative_gateway.filters.printing import printed, trees


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        # 3.6: the order of precedence
        ("NOT a = b", "(NOT a) = b"),
        ("NOT a LIKE 'x'", "(NOT a) LIKE 'x'"),
        ("-a LIKE 'x'", "(-a) LIKE 'x'"),
        ("NOT EXISTS a", "NOT (EXISTS a)"),
        ("NOT -a", "NOT (-a)"),
        ("-NOT a", "-(NOT a)"),
        ("NOT ABS(a)", "NOT (ABS(a))"),
        ("EXISTS a AND EXISTS b", "(EXISTS a) AND (EXISTS b)"),
        ("a LIKE 'x' IN (b)", "(a LIKE 'x') IN (b)"),
        ("a * b LIKE 'x'", "a * (b LIKE 'x')"),
        ("a * b IN (c)", "a * (b IN (c))"),
        ("a * b NOT IN (c)", "a * (NOT (b IN (c)))"),
        ("a + b * c", "a + (b * c)"),
        ("a * b + c", "(a * b) + c"),
        ("a % b / c", "(a % b) / c"),
        ("a + b < c - d", "(a + b) < (c - d)"),
        ("a < b = c > d", "((a < b) = c) > d"),
        ("a = b AND c = d", "(a = b) AND (c = d)"),
        ("a AND NOT b", "a AND (NOT b)"),
        # 3.6: evaluated left to right when the precedence is equal
        ("a - b - c", "(a - b) - c"),
        ("a / b * c", "(a / b) * c"),
        ("a OR b AND c", "(a OR b) AND c"),
        ("a AND b OR c XOR d", "((a AND b) OR c) XOR d"),
        # 3.4.3, 3.4.5: NOT LIKE, NOT IN are NOT of the whole
        ("a NOT LIKE 'x'", "NOT (a LIKE 'x')"),
        ("a NOT IN (b, c)", "NOT (a IN (b, c))"),
        # 2.2: the sign belongs to a literal that follows at once, and is an operator between operands
        ("4-1", "4 - 1"),
        ("4 -1", "4 - 1"),
        ("4 - -1", "4 - (-1)"),
        ("--10", "-(-10)"),
        ("a <> b", "a != b"),
        ("((a))", "a"),
        ("Upper(ID) = subject", "UPPER(id) = subject"),
    ],
)
def test_the_operator_that_binds_closest_comes_first(written: str, meant: str) -> None:
    """CESQL 3.6: MUST be evaluated in order of precedence, and left to right when the precedence is equal."""
    assert shape(parse(written)) == shape(parse(meant))


def shape(node: Node) -> Node:
    """A chain of AND, OR, XOR is flat where it was written without parentheses: the same from left
    to right.
    """
    if not isinstance(node, Logic):
        return node
    first = shape(node.first)
    if isinstance(first, Logic):
        return Logic(first.first, first.rest + node.rest)
    return Logic(first, node.rest)


@given(trees())
def test_printed_expressions_parse_to_the_same(tree: Node) -> None:
    assert parse(printed(tree)) == tree


def test_names_of_attributes_are_lower_case_and_those_of_functions_upper_case() -> None:
    assert parse("SOURCE") == Attribute("source")
    assert parse("EXISTS Source") == Exists("source")
    assert parse("concat_ws(Id)") == Call("CONCAT_WS", (Attribute("id"),))


def test_names_of_attributes_are_letters_and_digits() -> None:
    """CESQL 2.2: value identifiers MUST follow the naming convention of CloudEvents' attributes."""
    assert parse("1a2b") == Attribute("1a2b")
    assert parse("EXISTS 1a2b") == Exists("1a2b")
    for wrong in ("my_attribute", "EXISTS my_attribute", "EXISTS 'a'", "EXISTS (a)", "my-attribute = _"):
        with pytest.raises(ParseError):
            parse(wrong)


@pytest.mark.parametrize(
    ("written", "value"),
    [("2147483647", INTEGER_MAX), ("-2147483648", INTEGER_MIN), ("+7", 7), ("-0", 0), ("0007", 7)],
)
def test_an_integer_literal_says_its_value(written: str, value: int) -> None:
    assert parse(written) == Constant(value)


@pytest.mark.parametrize(
    "written", ["2147483648", "-2147483649", "- 2147483648", "9" * 5000, "99999999999999999999"]
)
def test_an_integer_literal_must_fit_32_bits(written: str) -> None:
    """CESQL 2.2: integer literals MUST be valid 32 bit signed integer values."""
    with pytest.raises(ParseError, match="does not fit 32 bits"):
        parse(written)


def test_leading_zeros_count_for_nothing() -> None:
    assert parse("0" * 5000 + "7") == Constant(7)


@pytest.mark.parametrize(
    "written", ["a LIKE 5", "a LIKE b", "a LIKE TRUE", "a LIKE ('x')", "a LIKE CONCAT('x')", "a LIKE"]
)
def test_the_pattern_of_like_is_a_string_literal(written: str) -> None:
    """CESQL 3.4.3: the pattern MUST be a string literal, otherwise the parser MUST return a parse error."""
    with pytest.raises(ParseError, match="pattern of LIKE"):
        parse(written)


@pytest.mark.parametrize("written", ["(a", "a)", "((a)", "(a))", "f(a", "()", "a IN (b", "a IN b"])
def test_nested_expressions_are_correctly_parenthesized(written: str) -> None:
    """CESQL 2.1: nested expressions MUST be correctly parenthesized."""
    with pytest.raises(ParseError):
        parse(written)


@pytest.mark.parametrize(
    ("written", "position"),
    [
        ("", 1),
        ("   ", 4),
        ("a b", 3),
        ("a AND", 6),
        ("AND a", 1),
        ("a = = b", 5),
        ("a NOT b", 3),
        ("a NOT", 3),
        ("NOT", 4),
        ("+a", 1),
        ("+ 5", 1),
        ("a IN ()", 7),
        ("a IN (b,)", 9),
        ("f(,)", 3),
        ("f1(a)", 1),
        ("1f(a)", 1),
        ("_f(a)", 1),
        ("'f'(a)", 4),
        ("(f)(a)", 4),
        ("EXISTS", 7),
        ("TRUE FALSE", 6),
        ("a, b", 2),
    ],
)
def test_a_text_that_is_not_an_expression_is_refused_at_its_character(written: str, position: int) -> None:
    with pytest.raises(ParseError) as refused:
        parse(written)
    assert refused.value.position == position


@pytest.mark.parametrize("opening", ["(", "NOT ", "-", "ABS(", "1 + (", "a IN (", "1 = "])
def test_nothing_nests_deeper_than_the_limit(opening: str) -> None:
    with pytest.raises(ParseError, match="nests deeper than 64"):
        parse(opening * 300 + "1")
    parse(opening * 20 + "1" + ")" * (20 * opening.count("(")))


def test_a_long_chain_of_alternatives_does_not_nest() -> None:
    chain = " OR ".join(f"type = 't{number}'" for number in range(400))
    tree = parse(chain)
    assert isinstance(tree, Logic)
    assert len(tree.rest) == 399
    assert isinstance(tree.first, Compare)


def test_a_limit_of_ones_own_is_kept() -> None:
    with pytest.raises(ParseError, match="nests deeper than 3"):
        parse("((((a))))", Limits(depth=3))


WORDS = st.sampled_from(
    (
        "a",
        "5",
        "'x'",
        "(",
        ")",
        ",",
        "=",
        "<",
        "+",
        "-",
        "*",
        "AND",
        "OR",
        "NOT",
        "LIKE",
        "IN",
        "EXISTS",
        "TRUE",
        "f(",
    )
)


@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_any_words_give_a_tree_or_a_parse_error(text: str) -> None:
    refused = None
    try:
        parse(text)
    except ParseError as error:
        refused = error
    assert refused is None or 1 <= refused.position <= len(text) + 1
