"""Seeded runs of a whole node: whatever fails, nothing accepted is lost, and in the calm everything is done.

Each group of seeds is a test of its own, so that several processes share them. A failure prints the command
that repeats it.
"""

import pytest

from tests.simulation.runner import SEEDS_A_TEST, TESTS, failure_of


@pytest.mark.parametrize("group", range(TESTS))
def test_whatever_fails_nothing_accepted_is_lost_and_in_the_calm_everything_is_done(group: int) -> None:
    failures = [
        words
        for seed in range(group * SEEDS_A_TEST, (group + 1) * SEEDS_A_TEST)
        if (words := failure_of(seed)) is not None
    ]
    assert not failures, "\n".join(failures)
