"""Filters and events at random, and the meaning of filters written down as plainly as can be."""

from collections.abc import Mapping, Sequence
from typing import cast

from hypothesis import strategies as st

from knative_gateway.filters.attributes import lookup
from knative_gateway.filters.cesql.expression import compile_expression

Filter = Mapping[str, object]

NAMES = st.sampled_from(("type", "source", "subject", "number", "flag", "absent"))
VALUES = st.sampled_from(("a", "ab", "abc", "b", "5", "05", "true", "TRUE"))
EXPRESSIONS = st.sampled_from(
    (
        "type = 'a'",
        "type = 'a' OR type = 'b'",
        "type = 'a' OR source = 'b'",
        "type = 'a' AND EXISTS subject",
        "type = 'a' XOR source = 'a'",
        "type IN ('a', 'abc')",
        "number IN ('5', 'a')",
        "number IN ('05', '7')",
        "number = '5'",
        "number = 5",
        "'05' = number",
        "flag = 'true'",
        "flag IN ('TRUE', 'b')",
        "flag IN ('true')",
        "subject NOT IN ('a', 'b')",
        "NOT (type = 'a')",
        "type != 'a' OR source = 'a'",
        "type LIKE 'a%' AND source IN ('a', 'b') AND number < 6",
        "TRUE",
        "'true'",
        "absent = 'a'",
        "(type = 'a' OR type = 'ab') AND (source = 'a' OR subject = 'a')",
        "NONE",
    )
)
MAPS = st.dictionaries(NAMES, VALUES, max_size=2)


def _more(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    some = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(lambda content: {"all": content}, some),
        st.builds(lambda content: {"any": content}, some),
        st.builds(lambda content: {"not": content}, inner),
    )


LEAVES: st.SearchStrategy[Filter] = st.one_of(
    st.builds(lambda name, content: {name: content}, st.sampled_from(("exact", "prefix", "suffix")), MAPS),
    st.builds(
        lambda content: {"attributes": content},
        st.dictionaries(NAMES, st.one_of(VALUES, st.just("")), max_size=2),
    ),
    st.builds(lambda name, content: {name: content}, st.sampled_from(("cesql", "sql")), EXPRESSIONS),
    st.just({}),
)
FILTERS = st.lists(st.recursive(LEAVES, _more, max_leaves=6), max_size=3)
EVENTS = st.fixed_dictionaries(
    {"id": st.just("1"), "type": VALUES, "source": VALUES},
    optional={
        "subject": st.sampled_from(("a", "b", "")),
        "number": st.sampled_from((5, 7, "5", "05")),
        "flag": st.sampled_from((True, False, "true", "TRUE")),
    },
)


def meaning(filters: Sequence[Filter], event: Mapping[str, object]) -> bool:
    """Return whether an event passes. Without filters, every event passes."""
    return all(one(each, event) is not False for each in filters)


# One line for each dialect.
def one(filter_: Filter, event: Mapping[str, object]) -> bool | None:  # noqa: PLR0911
    """Return whether an event passes one filter; None if the filter is not valid."""
    for dialect, content in filter_.items():
        if not content:
            continue
        if dialect in ("cesql", "sql"):
            return compile_expression(cast("str", content)).matches(event)
        if dialect == "not":
            inner = one(cast("Filter", content), event)
            return None if inner is None else not inner
        if dialect in ("all", "any"):
            each = [
                result
                for inner_ in cast("Sequence[Filter]", content)
                if (result := one(inner_, event)) is not None
            ]
            return (all(each) if dialect == "all" else any(each)) if each else None
        pairs = [(lookup(name)(event), wanted) for name, wanted in cast("Mapping[str, str]", content).items()]
        match dialect:
            case "exact":
                return all(value == wanted for value, wanted in pairs)
            case "prefix":
                return all(value is not None and value.startswith(wanted) for value, wanted in pairs)
            case "suffix":
                return all(value is not None and value.endswith(wanted) for value, wanted in pairs)
            case "attributes":
                return all(value is not None and wanted in ("", value) for value, wanted in pairs)
    return None
