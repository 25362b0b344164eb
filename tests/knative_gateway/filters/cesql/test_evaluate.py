"""Closures of CloudEvents SQL: CESQL 3.4, 3.6, 3.7. Whole expressions: test_cesql."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.evaluate import closure
from knative_gateway.filters.cesql.expression import compile_expression, evaluate
from knative_gateway.filters.cesql.functions import BUILT_IN
from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import Node, Type
from knative_gateway.filters.refusal import ErrorKind, Failed, Primitive
from knative_gateway.filters.work import Work
from tests.knative_gateway.filters.printing import trees

EVENT: Mapping[str, object] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/s",
    "type": "t",
    "hop": "5",
    "ttl": "10",
    "sequence": 5,
    "flag": True,
    "word": "Abc",
    "binary": b"\x01\x02",
    "huge": 2**40,
}

VALUES = [
    # 3.4.1
    ("NOT TRUE", False),
    ("NOT FALSE", True),
    ("NOT 'true'", False),
    ("NOT 'FALSE'", True),
    ("NOT flag", False),
    ("NOT 0", True),
    ("-hop", -5),
    ("-sequence", -5),
    ("-TRUE", -1),
    ("-(-2147483647)", 2147483647),
    ("--'7'", 7),
    # 3.4.2: equality
    ("1 = 1", True),
    ("1 = 2", False),
    ("'a' = 'A'", False),
    ("word = 'Abc'", True),
    ("word = 'abc'", False),
    ("TRUE = TRUE", True),
    ("1 != 2", True),
    ("1 <> 1", False),
    ("'a' <> 'b'", True),
    # 3.7: the right operand's type
    ("hop = 5", True),
    ("hop = '5'", True),
    ("hop = '05'", False),
    ("'05' = sequence", True),
    ("sequence = '5'", True),
    ("5 = hop", True),
    ("sequence = hop", True),
    ("TRUE = 'true'", True),
    ("TRUE = 'TRUE'", False),
    ("'TRUE' = TRUE", True),
    ("flag = 'true'", True),
    ("flag = 1", True),
    ("1 = flag", True),
    ("7 = TRUE", True),
    ("FALSE = 0", True),
    ("huge = '1099511627776'", True),
    ("binary = 'AQI='", True),
    # 3.4.2: order and arithmetic
    ("hop < ttl", True),
    ("hop >= ttl", False),
    ("5 <= '5'", True),
    ("TRUE > FALSE", True),
    ("hop + sequence", 10),
    ("hop - TRUE", 4),
    ("hop * ttl", 50),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("7 / -2", -3),
    ("-7 / -2", 3),
    ("7 % 2", 1),
    ("-7 % 2", -1),
    ("7 % -2", 1),
    ("-7 % -2", -1),
    ("-2147483648 % -1", 0),
    ("2147483647 + 0", INTEGER_MAX),
    ("-2147483647 - 1", INTEGER_MIN),
    # 3.4.2: logic, 3.6: left to right
    ("TRUE AND flag", True),
    ("TRUE AND 0", False),
    ("FALSE OR 1", True),
    ("TRUE XOR 'true'", False),
    ("TRUE XOR FALSE", True),
    ("FALSE AND TRUE OR TRUE", True),
    ("TRUE OR TRUE AND FALSE", False),
    ("TRUE OR FALSE XOR TRUE", False),
    ("FALSE OR FALSE OR TRUE", True),
    ("TRUE AND TRUE AND FALSE", False),
    # 3.4.3
    ("word LIKE 'A%'", True),
    ("word NOT LIKE 'A%'", False),
    ("sequence LIKE '_'", True),
    ("flag LIKE 'tr%'", True),
    # 3.4.4
    ("EXISTS word", True),
    ("EXISTS WORD", True),
    ("EXISTS absent", False),
    # 3.4.5
    ("hop IN ('4', '5')", True),
    ("hop IN (4, 5)", True),
    ("hop NOT IN (4, 6)", True),
    ("sequence IN ('4', '05')", True),
    ("5 IN (hop)", True),
    ("TRUE IN ('x' = 'y', 'true')", True),
    ("'TRUE' IN (TRUE)", False),
    ("word IN (id, source)", False),
]


@pytest.mark.parametrize(("expression", "value"), VALUES)
def test_an_expression_has_its_value(expression: str, value: Primitive) -> None:
    """CESQL 3.4: the operators that MUST be supported; operands MUST be cast to the types that the operator
    takes.
    """
    result = evaluate(expression, EVENT)
    assert (result.value, result.errors) == (value, ())
    assert type(result.value) is type(value)


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("1 / 0", 0, ErrorKind.MATH),
        ("1 % 0", 0, ErrorKind.MATH),
        ("2147483647 + 1", 0, ErrorKind.MATH),
        ("-2147483648 - 1", 0, ErrorKind.MATH),
        ("65536 * 65536", 0, ErrorKind.MATH),
        ("-(-2147483648)", 0, ErrorKind.MATH),
        ("-2147483648 / -1", 0, ErrorKind.MATH),
        ("'x' + 1", 0, ErrorKind.CAST),
        ("huge + 1", 0, ErrorKind.CAST),
        ("'x' < 1", False, ErrorKind.CAST),
        ("'x' = 1", False, ErrorKind.CAST),
        ("'x' != 1", False, ErrorKind.CAST),
        ("'x' = TRUE", False, ErrorKind.CAST),
        ("'x' AND TRUE", False, ErrorKind.CAST),
        ("TRUE AND 'x'", False, ErrorKind.CAST),
        ("1 IN ('x', 1)", False, ErrorKind.CAST),
        ("-'x'", 0, ErrorKind.CAST),
        # as the conformance suite has it
        ("NOT 10", True, ErrorKind.CAST),
        ("NOT 'x'", True, ErrorKind.CAST),
    ],
)
def test_an_impossible_operation_is_an_error_and_the_zero_value(
    expression: str, value: Primitive, kind: ErrorKind
) -> None:
    """CESQL 3.3: an operator that fails MUST return a value and an error; without an obvious value, the zero
    value of the type.
    """
    result = evaluate(expression, EVENT)
    assert (result.value, [error.kind for error in result.errors]) == (value, [kind])
    assert type(result.value) is type(value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("absent", False),
        ("absent = ''", False),
        ("absent != ''", False),
        ("TRUE AND absent = ''", False),
        ("absent * 5", 0),
        ("1 / absent", 0),
        ("absent / 0", 0),
        ("'x' * absent", 0),
        ("-absent", 0),
        ("NOT absent", False),
        ("absent LIKE '%'", False),
        ("absent NOT LIKE '%'", False),
        ("absent IN (1)", False),
        ("1 IN (absent)", False),
        ("LENGTH(absent)", 0),
        ("CONCAT('a', absent)", ""),
        ("BOOL(absent)", False),
    ],
)
def test_a_missing_attribute_is_the_zero_value_of_its_type(expression: str, value: Primitive) -> None:
    """CESQL 3.2: MUST evaluate to the zero value for the return type of the subexpression, along with a
    MissingAttributeError.
    """
    result = evaluate(expression, EVENT)
    assert (result.value, [error.kind for error in result.errors]) == (value, [ErrorKind.MISSING_ATTRIBUTE])
    assert type(result.value) is type(value)


@pytest.mark.parametrize("name", ["id", "source", "specversion", "type"])
def test_required_attributes_always_exist(name: str) -> None:
    """CESQL 3.4.4: EXISTS MUST always return true for the REQUIRED context attributes."""
    assert evaluate(f"EXISTS {name}", {}).value is True


class Watched(dict[str, object]):
    """An event that records which attributes are read."""

    def __init__(self, **attributes: object) -> None:
        super().__init__(attributes)
        self.read: list[str] = []

    def get(self, key: str, default: object = None) -> object:
        self.read.append(key)
        return super().get(key, default)


@pytest.mark.parametrize(
    ("expression", "value", "read"),
    [
        ("no AND other", False, ["no"]),
        ("yes AND other", True, ["yes", "other"]),
        ("yes OR other", True, ["yes"]),
        ("no OR other", True, ["no", "other"]),
        ("no XOR other", True, ["no", "other"]),
        ("no AND other OR yes", True, ["no", "yes"]),
        ("yes OR other AND no", False, ["yes", "no"]),
        ("no AND other AND yes", False, ["no"]),
        ("yes OR other OR no", True, ["yes"]),
        ("no AND (1 / 0 = 1)", False, ["no"]),
        ("yes OR 1 / 0 = 1", True, ["yes"]),
        ("yes IN (yes, other)", True, ["yes", "yes"]),
    ],
)
def test_unneeded_operands_are_not_evaluated(expression: str, value: bool, read: list[str]) -> None:
    """CESQL 3.4.2, 3.6: AND and OR MUST be short-circuit evaluated: the right operand MUST NOT be
    evaluated.
    """
    event = Watched(yes=True, no=False, other=True)
    assert evaluate(expression, event).value is value
    assert event.read == read


EVENTS = st.fixed_dictionaries(
    {"id": st.just("1"), "source": st.sampled_from(("/s", "5", "true"))},
    optional={
        "subject": st.sampled_from(("abc", "", "50%")),
        "hop": st.sampled_from((5, "5", -7, "-7", 0)),
        "ttl": st.sampled_from((1, "1", 2**40)),
        "flag": st.sampled_from((True, False, "true", b"x")),
        "a1": st.sampled_from(("a_c", "FALSE")),
    },
)
KINDS = {str: Type.STRING, int: Type.INTEGER, bool: Type.BOOLEAN}


@given(trees(), EVENTS)
def test_evaluation_gives_a_value_of_the_declared_type_and_only_fails_in_one_way(
    tree: Node, event: dict[str, object]
) -> None:
    """CESQL 1: an evaluation is total, for any expression and event. The event does not change, and a second
    evaluation has the same result.
    """
    before = dict(event)
    run, type_ = closure(tree, BUILT_IN, Work())
    outcomes = []
    for _ in range(2):
        try:
            value = run(event)
            assert type_ in (Type.ANY, KINDS[type(value)])
            assert not isinstance(value, int) or INTEGER_MIN <= value <= INTEGER_MAX
            outcomes.append(repr(value))
        except Failed as failed:
            outcomes.append(str(failed.kind))
    assert outcomes[0] == outcomes[1]
    assert event == before


SCALARS = st.one_of(
    st.sampled_from(("5", "05", "x", "true", "TRUE", "")), st.sampled_from((0, 1, 5)), st.booleans()
)


@given(SCALARS, st.lists(SCALARS, min_size=1, max_size=4))
def test_it_makes_no_difference_to_in_whether_members_are_literals_or_attributes(
    value: Primitive, members: list[Primitive]
) -> None:
    event = {"value": value} | {f"m{number}": member for number, member in enumerate(members)}
    literals = ", ".join(f"'{member}'" if isinstance(member, str) else str(member) for member in members)
    attributes = ", ".join(f"m{number}" for number in range(len(members)))
    assert evaluate(f"value IN ({literals})", event) == evaluate(f"value IN ({attributes})", event)


DEEPEST = [
    "(" * 63 + "flag" + ")" * 63,
    "NOT " * 63 + "flag",
    " + ".join(["1"] * 62) + " = 62",
    " OR ".join([f"type = '{number}'" for number in range(400)]) + " OR flag",
    "word IN (" + ", ".join(f"'{number}'" for number in range(500)) + ", 'Abc')",
]


@pytest.mark.parametrize("expression", DEEPEST, ids=range(5))
def test_expressions_within_the_limits_do_not_exhaust_the_stack(expression: str) -> None:
    compiled = compile_expression(expression)
    assert compiled.evaluate(EVENT).errors == ()
    assert compiled.matches(EVENT) is ("NOT" not in expression)
