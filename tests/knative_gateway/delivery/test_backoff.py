"""How long to wait: knative-delivery-design, "Delivery Specification"; knative-eventing-test-spec,
DeliverySpec; RFC 9110 10.2.3.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.backoff import (
    RETRY_AFTER_MAX_MS,
    WAIT_MAX_MS,
    backoff_ms,
    retry_after_ms,
    spread_ms,
    wait_ms,
)
from knative_gateway.ports import BackoffPolicy, Delivery
from tests.knative_gateway.delivery.made import AT_MS, answer

LINEAR, EXPONENTIAL = BackoffPolicy.LINEAR, BackoffPolicy.EXPONENTIAL
DELIVERIES = st.builds(
    Delivery,
    retry=st.integers(0, 100),
    backoff_policy=st.sampled_from(BackoffPolicy),
    backoff_delay_ms=st.integers(0, 10**9),
    backoff_max_ms=st.one_of(st.none(), st.integers(0, 10**9)),
    retry_after_max_ms=st.one_of(st.none(), st.integers(0, 10**12)),
)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [(LINEAR, [200, 400, 600, 800, 1000, 1200]), (EXPONENTIAL, [200, 400, 800, 1600, 3200, 6400])],
)
def test_waits_grow_as_the_policy_says_from_the_delay_on(policy: BackoffPolicy, waits: list[int]) -> None:
    """Delivery design: linear backoffDelay*n; exponential backoffDelay*2^n, with the first wait the delay
    itself (test specification: the initial delay when retrying)."""
    delivery = Delivery(backoff_policy=policy, backoff_delay_ms=200)
    assert [backoff_ms(delivery, retry) for retry in range(1, 7)] == waits


def test_a_delay_of_zero_does_not_wait() -> None:
    assert [backoff_ms(Delivery(), retry) for retry in (1, 2, 100)] == [0, 0, 0]


def test_a_cap_is_kept() -> None:
    delivery = Delivery(backoff_delay_ms=200, backoff_max_ms=1000)
    assert [backoff_ms(delivery, retry) for retry in range(1, 6)] == [200, 400, 800, 1000, 1000]


@given(DELIVERIES, st.integers(1, 10_000))
def test_waits_never_fall_and_never_pass_a_day(delivery: Delivery, retry: int) -> None:
    waits = [backoff_ms(delivery, number) for number in (retry, retry + 1, retry + 2)]
    assert waits == sorted(waits)
    assert (
        0
        <= waits[0]
        <= waits[2]
        <= min(WAIT_MAX_MS, WAIT_MAX_MS if delivery.backoff_max_ms is None else delivery.backoff_max_ms)
    )


@given(st.integers(0, WAIT_MAX_MS), st.floats(0, 1), st.floats(0, 1))
def test_jitter_only_takes_off_and_no_more_than_its_part(wait: int, jitter: float, chance: float) -> None:
    assert wait - wait * jitter - 1 <= spread_ms(wait, jitter, chance) <= wait
    assert spread_ms(wait, 0.0, chance) == wait


def test_jitter_is_off_unless_asked_for() -> None:
    delivery = Delivery(backoff_delay_ms=1000)
    assert wait_ms(delivery, 1, answer(500)) == 1000
    assert wait_ms(delivery, 1, answer(500), jitter=0.5, chance=1.0) == 500


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        ("0", 0),
        ("5", 5000),
        ("120", 120_000),
        ("Fri, 15 Jan 2027 08:00:10 GMT", 10_000),
        ("Friday, 15-Jan-27 08:00:10 GMT", 10_000),
        ("Fri Jan 15 08:00:10 2027", 10_000),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("", None),
        ("-5", None),
        ("5.5", None),
        ("soon", None),
        ("\u0665", None),
        ("Fri, 99 Foo 2027 08:00:10 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, asked: int | None) -> None:
    """RFC 9110 10.2.3, in all three forms of 5.6.7."""
    assert retry_after_ms(value, AT_MS) == asked


@given(
    st.one_of(
        st.text(max_size=40),
        st.from_regex(
            r"[A-Z][a-z]{2}, [0-9]{1,9} [A-Z][a-z]{2} [0-9]{1,9} [0-9]{1,6}:[0-9]{1,6}:[0-9]{1,6}"
            r" [A-Z+0-9]{1,9}"
        ),
    )
)
def test_any_retry_after_is_a_time_or_nothing(value: str) -> None:
    asked = retry_after_ms(value, AT_MS)
    assert asked is None or asked >= 0


@pytest.mark.parametrize(
    ("status", "retry_after_max_ms", "value", "wait"),
    [
        (503, None, b"5", 5000),
        (429, None, b"5", 5000),
        (500, None, b"5", 1000),
        (404, None, b"5", 1000),
        (503, 3000, b"5", 3000),
        (503, 30_000, b"5", 5000),
        (503, 0, b"5", 1000),
        (503, 500, b"5", 1000),
        (503, None, b"0", 1000),
        (503, None, b"soon", 1000),
        (503, None, b"999999999999999999999", RETRY_AFTER_MAX_MS),
        (503, 10**12, b"999999999999999999999", WAIT_MAX_MS),
        (503, None, b"Fri, 15 Jan 2027 08:00:10 GMT", 10_000),
        (503, None, b"Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 1000),
        (503, None, b"Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 1000),
        (503, None, b"Mon, 01 Jan 0001 00:00:00 +2359", 1000),
        (503, None, b"Fri, 31 Dec 9999 23:59:59 -2359", RETRY_AFTER_MAX_MS),
    ],
)
def test_retry_after_counts_with_429_and_503_up_to_its_cap(
    status: int, retry_after_max_ms: int | None, value: bytes, wait: int
) -> None:
    """The wait is never shorter than the backoff. PT0S disables Retry-After."""
    delivery = Delivery(backoff_delay_ms=1000, retry_after_max_ms=retry_after_max_ms)
    assert wait_ms(delivery, 1, answer(status, headers=((b"Retry-After", value),))) == wait


@given(DELIVERIES, st.integers(1, 100), st.sampled_from((None, 404, 429, 503)), st.binary(max_size=30))
def test_a_wait_is_at_least_the_backoff_and_at_most_a_day(
    delivery: Delivery, retry: int, status: int | None, value: bytes
) -> None:
    wait = wait_ms(delivery, retry, answer(status, headers=((b"retry-after", value),)))
    assert backoff_ms(delivery, retry) <= wait <= WAIT_MAX_MS
