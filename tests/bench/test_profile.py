"""Summing up sampled stacks."""

from bench.profile import count, render

STACKS = [
    "MainThread;main (a/b/serve.py:10);turn (a/b/driver.py:20) 30",
    "MainThread;main (a/b/serve.py:11);turn (a/b/driver.py:25);pn_link_recv (libproton.so) 10",
]


def test_lines_of_one_function_are_one_function() -> None:
    costs = count(STACKS)
    assert costs.total == 40
    assert costs.own == {"turn (b/driver.py)": 30, "pn_link_recv (libproton.so)": 10}
    assert costs.below["turn (b/driver.py)"] == 40


def test_a_function_that_calls_itself_counts_once_below() -> None:
    assert count(["f (x.py:1);f (x.py:2) 5"]).below == {"f (x.py)": 5}


def test_a_thread_that_waits_for_work_is_not_at_work() -> None:
    costs = count([*STACKS, "MainThread;Runner.run (asyncio/runners.py:118) 60"])
    assert (costs.total, costs.waiting) == (40, 60)


def test_the_dearest_functions_come_first_with_their_share() -> None:
    assert render(count(STACKS), rows=1).splitlines()[3].split() == ["75.0%", "turn", "(b/driver.py)"]
