"""Random trees of expressions and their text: parsing a printed tree returns the tree."""

from hypothesis import strategies as st

from knative_gateway.filters.cesql.lexer import KEYWORDS
from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Constant,
    Exists,
    In,
    Like,
    Logic,
    Negative,
    Node,
    Not,
)

NAMES = st.sampled_from(("id", "source", "subject", "hop", "ttl", "flag", "absent", "1st", "a1"))
TEXTS = st.sampled_from(
    ("", "abc", "5", "-7", "05", "true", "FALSE", "it's", 'a"b', "50%", "a_c", "back\\slash", "é")
)
INTEGERS = st.sampled_from((0, 1, 5, -7, INTEGER_MIN, INTEGER_MAX))
CONSTANTS = st.builds(Constant, st.one_of(TEXTS, INTEGERS, st.booleans()))
PATTERNS = st.sampled_from(("%", "a%", "%c", "a_c", "%b%", "50\\%", "\\_%", ""))
CALLS = st.sampled_from(
    ("LENGTH", "CONCAT", "CONCAT_WS", "UPPER", "ABS", "LEFT", "SUBSTRING", "INT", "BOOL", "STRING", "MISSING")
)


def _more(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    rest = st.lists(st.tuples(st.sampled_from(("AND", "OR", "XOR")), inner), min_size=1, max_size=3).map(
        tuple
    )
    return st.one_of(
        st.builds(Not, inner),
        st.builds(Negative, inner),
        st.builds(Compare, st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), inner, inner),
        st.builds(Arithmetic, st.sampled_from(("+", "-", "*", "/", "%")), inner, inner),
        st.builds(Logic, inner, rest),
        st.builds(Like, inner, PATTERNS),
        st.builds(In, inner, some),
        st.builds(Call, CALLS, st.lists(inner, max_size=3).map(tuple)),
    )


def trees() -> st.SearchStrategy[Node]:
    """Any tree that has a text."""
    leaves = st.one_of(CONSTANTS, st.builds(Attribute, NAMES), st.builds(Exists, NAMES))
    return st.recursive(leaves, _more, max_leaves=12)


def printed(node: Node) -> str:  # noqa: PLR0911  one line for each kind
    """The text of a tree, everything in parentheses."""
    match node:
        case Constant(bool() as value):
            return str(value).upper()
        case Constant(int() as value):
            return str(value)
        case Constant(str() as value):
            return _quoted(value)
        case Attribute(name):
            assert name.upper() not in KEYWORDS
            return name
        case Exists(name):
            return f"EXISTS {name}"
        case Not(operand):
            return f"NOT ({printed(operand)})"
        case Negative(operand):
            return f"-({printed(operand)})"
        case Compare(operator, left, right) | Arithmetic(operator, left, right):
            return f"({printed(left)}) {operator} ({printed(right)})"
        case Logic(first, rest):
            return f"({printed(first)})" + "".join(
                f" {connective} ({printed(operand)})" for connective, operand in rest
            )
        case Like(operand, pattern):
            return f"({printed(operand)}) LIKE {_quoted(pattern)}"
        case In(operand, members):
            return f"({printed(operand)}) IN ({', '.join(map(printed, members))})"
        case Call(name, arguments):
            return f"{name}({', '.join(map(printed, arguments))})"
    raise AssertionError(node)


def _quoted(value: str) -> str:
    escaped = value.replace("'", "\\'")
    return f"'{escaped}'"
