import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    is_false,
    is_ready,
    is_true,
    is_unknown,
    living,
    status_of,
    summary,
)

STATUSES = st.sampled_from([TRUE, FALSE, UNKNOWN])


@given(st.lists(STATUSES, max_size=5))
def test_ready_is_false_if_any_is_else_unknown_if_any_is_else_true(statuses: list[str]) -> None:
    conditions = [Condition(f"C{index}", status, "Why") for index, status in enumerate(statuses)]
    expected = FALSE if FALSE in statuses else UNKNOWN if UNKNOWN in statuses else TRUE
    assert summary(conditions).status == expected


def test_ready_says_why_not() -> None:
    conditions = [
        is_unknown("A", "Waiting", "for b"),
        is_false("B", "Broken", "here"),
        is_false("C", "Also", "there"),
    ]
    assert summary(conditions) == Condition("Ready", FALSE, "Broken", "here")
    assert summary(conditions[:1]) == Condition("Ready", UNKNOWN, "Waiting", "for b")


def test_a_condition_that_is_not_true_needs_a_reason() -> None:
    with pytest.raises(AssertionError):
        Condition("A", FALSE)


def test_a_time_of_transition_changes_with_the_status_only() -> None:
    t1, t2, t3 = (f"2026-01-31T12:00:0{second}Z" for second in (1, 2, 3))
    first = {"status": {"conditions": living([is_true("A"), is_false("B", "Broken", "one")], {}, t1)}}
    second = {"status": {"conditions": living([is_true("A"), is_false("B", "Worse", "two")], first, t2)}}
    third = {"status": {"conditions": living([is_true("A"), is_true("B")], second, t3)}}
    times = [
        {each["type"]: each["lastTransitionTime"] for each in object_["status"]["conditions"]}
        for object_ in (first, second, third)
    ]
    assert times == [
        {"A": t1, "B": t1, "Ready": t1},
        {"A": t1, "B": t1, "Ready": t1},
        {"A": t1, "B": t3, "Ready": t3},
    ]
    assert second["status"]["conditions"][1] == {
        "type": "B",
        "status": "False",
        "reason": "Worse",
        "message": "two",
        "lastTransitionTime": t1,
    }


def test_conditions_are_read_from_an_object() -> None:
    object_ = {"status": {"conditions": living([is_true("A")], {}, "t")}}
    assert is_ready(object_)
    assert status_of(object_, "A") == TRUE
    assert status_of(object_, "None") == ""
    assert not is_ready({})
