"""How the records of group members are evaluated."""

import pytest

from bench.group_journal import UNSETTLED_NS_MAX, Tenure, judge, quantile, tenures

MS = 1_000_000


def tenure(member: str, numbers: range, start_ms: int, *, killed_ms: int | None = None) -> Tenure:
    """One event a millisecond."""
    events = [((start_ms + index) * MS, number) for index, number in enumerate(numbers)]
    killed_ns = None if killed_ms is None else killed_ms * MS
    return Tenure(
        member, "0", start_ms * MS, events, None if killed_ns else (start_ms + len(numbers)) * MS, killed_ns
    )


def test_a_journal_is_read_up_to_where_a_kill_cut_it() -> None:
    lines = [
        "a 0 5 \n",
        "a 1 6 \n",
        "e 0 7 0\n",
        "r 0 8 \n",
        "e 1 9 4\n",
        "a 0 10 \n",
        "e 1 11 5\n",
        "e 1 12",
    ]
    assert tenures("m", lines, 13) == [
        Tenure("m", "0", 5, [(7, 0)], revoked_ns=8),
        Tenure("m", "1", 6, [(9, 4), (11, 5)], killed_ns=13),
        Tenure("m", "0", 10, [], killed_ns=13),
    ]


def test_tenures_that_follow_each_other_have_no_complaint_and_their_gaps_are_measured() -> None:
    found = [
        tenure("a", range(10), 0),
        tenure("b", range(10, 20), 15, killed_ms=30),
        tenure("c", range(19, 30), 40),
    ]
    verdict = judge(found, {"0": 30})
    assert verdict.complaints == []
    assert (verdict.after_move_ms, verdict.after_kill_ms) == ([6.0], [10.0])
    assert (verdict.done, verdict.repeated) == (30, 1)


def test_what_was_begun_and_not_accepted_is_no_business_of_the_group() -> None:
    assert judge([tenure("a", range(10), 0)], {"0": 8}).complaints == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([tenure("a", range(9), 0)], "1 accepted events were not done"),
        ([tenure("a", range(5), 0), tenure("b", range(6, 10), 20)], "1 events from 5 on were left out"),
        (
            [tenure("a", range(5), 0), tenure("b", range(4, 10), 20)],
            "repeats 1 events of a, which was not killed",
        ),
        ([tenure("a", range(0, 10, 2), 0)], "a did 2 after 0"),
        ([tenure("a", range(5), 0), tenure("b", range(5, 10), 4)], "had it together"),
        (
            [
                tenure("a", range(5), 0, killed_ms=UNSETTLED_NS_MAX // MS + 1),
                tenure("b", range(10), UNSETTLED_NS_MAX // MS + 2),
            ],
            "an event is repeated that was begun 2001 ms before",
        ),
        ([], "10 accepted events were not done"),
    ],
)
def test_every_broken_promise_is_told(found: list[Tenure], words: str) -> None:
    assert any(words in complaint for complaint in judge(found, {"0": 10}).complaints)


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0] * 99 + [7.0], 0.99) == 7.0
    assert quantile([], 0.5) == 0.0
