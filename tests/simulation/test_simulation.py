"""Seeded runs of a whole node: whatever fails, nothing accepted is lost, and in the calm everything is done.

Each group of seeds is a test of its own, so that several processes share them. A failure prints the command
that repeats it.
"""

import pytest

from tests.simulation.runner import SEEDS_A_TEST, TESTS, failure_of


@pytest.mark.parametrize("group", range(TESTS))
def test_no_accepted_event_is_lost_under_any_failure_and_everything_is_processed_afterwards(
    group: int,
) -> None:
    failures = [
        words
        for seed in range(group * SEEDS_A_TEST, (group + 1) * SEEDS_A_TEST)
        if (words := failure_of(seed)) is not None
    ]
    assert not failures, "\n".join(failures)
