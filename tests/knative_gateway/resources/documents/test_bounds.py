"""The limits on the size of documents."""

import pytest
from hypothesis import given

from knative_gateway.resources.documents.bounds import DEPTH_MAX, Budget, TooMuchError
from tests.knative_gateway.resources.test_objects import JSON


def count(value: object) -> int:
    """The naive count of values."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


@given(JSON)
def test_exactly_as_many_values_are_taken_as_exist(value: object) -> None:
    Budget(count(value)).spend(value)
    with pytest.raises(TooMuchError, match="values"):
        Budget(count(value) - 1).spend(value)


def test_names_and_texts_count() -> None:
    Budget(characters=6).spend({"abc": ["de", "f"]})
    with pytest.raises(TooMuchError, match="characters"):
        Budget(characters=5).spend({"abc": ["de", "f"]})


def test_a_spent_budget_stays_spent() -> None:
    budget = Budget(3)
    budget.spend([1])
    with pytest.raises(TooMuchError):
        budget.spend([1])


def test_depth_is_bounded() -> None:
    value: object = 1
    for _ in range(DEPTH_MAX):
        value = [value]
    Budget().spend(value)
    with pytest.raises(TooMuchError, match="deep"):
        Budget().spend([value])


def test_recursive_aliases_are_counted_at_each_use_and_refused_soon() -> None:
    value: list[object] = ["x"]
    for _ in range(90):
        value = [value, value]
    with pytest.raises(TooMuchError, match="values"):
        Budget().spend(value)
