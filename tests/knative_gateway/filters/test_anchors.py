"""The values that an event must have to pass a filter."""

import pytest
from hypothesis import given

from knative_gateway.filters.anchors import Anchor, anchors
from knative_gateway.filters.attributes import lookup
from tests.knative_gateway.filters.filtering import EVENTS, FILTERS, Filter, meaning


def anchor(name: str, *values: str, whole: bool = False) -> Anchor:
    return Anchor(name, frozenset(values), whole)


A, B = {"exact": {"type": "a"}}, {"exact": {"type": "b"}}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], []),
        ([A], [anchor("type", "a", whole=True)]),
        ([{}, A], [anchor("type", "a", whole=True)]),
        ([A, {"exact": {"id": "1"}}], [anchor("type", "a"), anchor("id", "1")]),
        ([{"exact": {"type": "a", "id": "1"}}], [anchor("type", "a"), anchor("id", "1")]),
        ([{"attributes": {"type": "a", "id": ""}}], [anchor("type", "a")]),
        ([{"attributes": {"type": ""}}], []),
        ([{"any": [A, B]}], [anchor("type", "a", "b", whole=True)]),
        ([{"any": [A, {"exact": {"type": "b", "id": "1"}}]}], [anchor("type", "a", "b")]),
        ([{"any": [A, {"exact": {"id": "1"}}]}], []),
        ([{"any": [A, {"prefix": {"type": "b"}}]}], []),
        ([{"any": [A, {}]}], [anchor("type", "a", whole=True)]),
        ([{"all": [A, {"prefix": {"id": "1"}}]}], [anchor("type", "a")]),
        ([{"all": [A]}], [anchor("type", "a", whole=True)]),
        ([A, {"prefix": {"id": "1"}}], [anchor("type", "a")]),
        ([{"not": A}], []),
        ([{"prefix": {"type": "a"}}], []),
        ([{"exact": {"dataschema": "a"}}], []),
        ([{"cesql": "type = 'a'"}], [anchor("type", "a", whole=True)]),
        ([{"cesql": "'a' = type"}], []),
        ([{"cesql": "type = 5"}], []),
        ([{"cesql": "type != 'a'"}], []),
        ([{"cesql": "type = 'a' AND id LIKE 'x%'"}], [anchor("type", "a")]),
        ([{"cesql": "type = 'a' OR type = 'b'"}], [anchor("type", "a", "b", whole=True)]),
        ([{"cesql": "type = 'a' OR id = 'b'"}], []),
        ([{"cesql": "type = 'a' XOR type = 'b'"}], []),
        ([{"cesql": "type = 'a' AND id = 'b' OR id = 'c'"}], []),
        ([{"cesql": "type IN ('a', 'b')"}], [anchor("type", "a", "b")]),
        ([{"cesql": "type IN ('a', source)"}], []),
        ([{"cesql": "type IN ('a', 5)"}], []),
        ([{"cesql": "type IN ('05')"}], []),
        ([{"cesql": "type IN ('True')"}], []),
        ([{"cesql": "type IN ('5', 'true')"}], [anchor("type", "5", "true")]),
        ([{"cesql": "type NOT IN ('a')"}], []),
    ],
)
def test_an_anchor_is_found_where_it_is_certain(filters: list[Filter], expected: list[Anchor]) -> None:
    assert anchors(filters) == expected


@given(FILTERS, EVENTS)
def test_no_event_passes_without_what_an_anchor_asks_for(
    filters: list[Filter], event: dict[str, object]
) -> None:
    for found in anchors(filters):
        held = lookup(found.name)(event) in found.values
        assert held or not meaning(filters, event)
        assert not found.whole or held is meaning(filters, event)
