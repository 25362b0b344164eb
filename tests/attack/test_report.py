"""The judgement of the attacks."""

import pytest

from attack.neighbour import Measured
from attack.report import NOISE_MS, RATIO_MAX, BrokenError, Found, expect, judged, table

CALM = {"amqp": Measured((10.0,) * 100)}


def during(ms: float, *errors: str) -> dict[str, Measured]:
    return {"amqp": Measured((ms,) * 100, errors)}


def test_a_neighbour_that_notices_nothing_has_no_complaint() -> None:
    assert judged(CALM, during(10.0 * RATIO_MAX), is_quiet=True) == []


def test_a_neighbour_that_is_slower_complains_on_a_quiet_machine_only() -> None:
    slow = during(10.0 * RATIO_MAX + NOISE_MS + 1)
    assert "p99" in judged(CALM, slow, is_quiet=True)[0]
    assert judged(CALM, slow, is_quiet=False) == []


def test_an_error_of_the_neighbour_is_a_complaint_everywhere() -> None:
    assert "no answer" in judged(CALM, during(1.0, "no answer"), is_quiet=False)[0]


def test_a_round_trip_that_is_not_complete_counts_with_its_time_so_far() -> None:
    assert Measured((1.0, 1.0), waiting_ms=900.0).p99 == 900.0


def test_a_promise_that_is_not_kept_breaks_an_attack() -> None:
    expect(1, "held")
    with pytest.raises(BrokenError, match="not held"):
        expect(0, "not held")


def test_the_table_shows_what_the_attacker_got_and_the_verdict() -> None:
    found = Found("a flood", "listeners", "a turn", "1,000 frames", {"amqp": 2.0}, {"amqp": 3.0})
    shown = table([found])
    assert "1.50" in shown
    assert "got: 1,000 frames" in shown
    assert shown.splitlines()[1].endswith("held")
    broken = Found("a flood", "listeners", "a turn", "", {}, {}, ("the node ended",))
    assert "BROKEN" in table([broken])
    assert "the node ended" in table([broken])
