"""Outcomes over a log: two are final, and two cause another delivery."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.streams.consuming.outcome import ATTEMPTS_MAX, Again, Outcome, after


@pytest.mark.parametrize(
    ("outcome", "failed", "undeliverable_here", "verdict"),
    [
        (Outcome.ACCEPTED, False, False, None),
        (Outcome.REJECTED, False, False, None),
        (Outcome.NONE, False, False, None),
        (Outcome.RELEASED, False, False, Again(3)),
        (Outcome.RELEASED, True, False, Again(3)),
        (Outcome.MODIFIED, False, False, Again(3)),
        (Outcome.MODIFIED, True, False, Again(4)),
        (Outcome.MODIFIED, False, True, None),
        (Outcome.MODIFIED, True, True, None),
    ],
)
def test_the_table_of_outcomes(
    outcome: Outcome, failed: bool, undeliverable_here: bool, verdict: Again | None
) -> None:
    assert after(outcome, delivery_count=3, failed=failed, undeliverable_here=undeliverable_here) == verdict


@given(st.sampled_from(Outcome), st.integers(0, ATTEMPTS_MAX), st.booleans(), st.booleans())
def test_delivery_counts_never_fall_and_stay_in_their_field(
    outcome: Outcome, count: int, failed: bool, here: bool
) -> None:
    verdict = after(outcome, delivery_count=count, failed=failed, undeliverable_here=here)
    assert verdict is None or count <= verdict.delivery_count <= ATTEMPTS_MAX
