import pytest

from knative_gateway.resources.filter_rules import DEPTH_MAX, FILTERS_MAX, check_attributes, check_filters

GOOD: list[object] = [
    {"exact": {"type": "a", "source": "b"}},
    {"prefix": {"type": "a"}},
    {"suffix": {"1st": "a"}},
    {"all": [{"exact": {"type": "a"}}, {"any": []}]},
    {"any": [{"not": {"prefix": {"type": "a"}}}]},
    {"not": {}},
    {"cesql": "type = 'a'"},
    {"sql": "TRUE"},
    {},
]


def test_every_dialect_is_taken() -> None:
    assert check_filters(GOOD, "spec.filters") == []


@pytest.mark.parametrize(
    ("filter_", "field", "words"),
    [
        ({"exact": {"type": "a"}, "prefix": {"type": "b"}}, "spec.filters[0]", "multiple dialects found"),
        ({"exact": {"Type": "a"}}, "spec.filters[0].exact[Type]", 'invalid key name "Type"'),
        ({"exact": {"": "a"}}, "spec.filters[0].exact[]", "invalid key name"),
        ({"prefix": {"type": ""}}, "spec.filters[0].prefix.type", "not empty"),
        ({"suffix": {"type": 1}}, "spec.filters[0].suffix.type", "must be a text"),
        ({"exact": "type"}, "spec.filters[0].exact", "must be an object"),
        ({"all": {}}, "spec.filters[0].all", "must be a list"),
        ({"any": [{"not": {"exact": {"X": "a"}}}]}, "spec.filters[0].any[0].not[0].exact[X]", "invalid key name"),
        ({"cesql": 1}, "spec.filters[0].cesql", "must be a text"),
        ({"cesql": "x" * 20_000}, "spec.filters[0].cesql", "at most"),
        ({"regex": {"type": "."}}, "spec.filters[0].regex", "supported values"),
        ("exact", "spec.filters[0]", "one dialect"),
    ],
)
def test_what_is_no_filter_is_told_with_its_place(filter_: object, field: str, words: str) -> None:
    (cause,) = check_filters([filter_], "spec.filters")
    assert cause.field == field
    assert words in cause.words


def test_an_expression_is_judged_by_whoever_can_parse_it() -> None:
    (cause,) = check_filters([{"cesql": "a ="}], "spec.filters", lambda expression: f"parse error: {expression}")
    assert str(cause) == "spec.filters[0].cesql: Invalid value: parse error: a ="


def test_filters_have_their_limits() -> None:
    deep: object = {"exact": {"type": "a"}}
    for _ in range(DEPTH_MAX + 1):
        deep = {"not": deep}
    assert "nested" in check_filters([deep], "f")[0].words
    assert "at most" in check_filters([{"exact": {"type": "a"}}] * (FILTERS_MAX + 1), "f")[0].words


def test_names_of_attributes_are_checked_in_the_simple_filter_too() -> None:
    assert check_attributes({"type": "", "ext1": "x"}, "spec.filter.attributes") == []
    assert [cause.field for cause in check_attributes({"my-ext": "x"}, "spec.filter.attributes")] == ["spec.filter.attributes[my-ext]"]
    assert check_attributes(None, "spec.filter.attributes") == []
