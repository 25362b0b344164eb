"""How long to wait before a retry.

Spec: knative-delivery-design, "Delivery Specification"; knative-eventing-test-spec, DeliverySpec. They differ
about where counting begins; here the first wait is the backoff delay: linear d·n, exponential d·2^(n-1), n
from 1. Time and chance are arguments.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from knative_gateway.delivery.outcome import OVERLOADED, Answer
from knative_gateway.ports import BackoffPolicy, Delivery

WAIT_MAX_MS: Final = 24 * 3600 * 1000
"""The longest wait: a day."""
RETRY_AFTER_MAX_MS: Final = 5 * 60 * 1000
"""The longest wait that a subscriber may ask for if `retryAfterMax` is not set: asking for a year is a
mistake.
"""

_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)


def backoff_ms(delivery: Delivery, retry: int) -> int:
    """The wait before the `retry`-th retry, counted from 1, in milliseconds. It never decreases as `retry`
    increases.
    """
    assert retry >= 1, retry
    delay = delivery.backoff_delay_ms
    # 2^64 ms is above any cap: larger shifts would only make large numbers.
    wait = delay * retry if delivery.backoff_policy is BackoffPolicy.LINEAR else delay << min(retry - 1, 64)
    cap = WAIT_MAX_MS if delivery.backoff_max_ms is None else min(delivery.backoff_max_ms, WAIT_MAX_MS)
    return min(wait, cap)


def spread_ms(wait_ms: int, jitter: float, chance: float) -> int:
    """The wait less up to the fraction `jitter` of it, by `chance`; both are from 0 to 1.

    Retries of many events that failed together are spread in time.
    """
    return wait_ms - int(wait_ms * jitter * chance)


def retry_after_ms(value: str, at_ms: int) -> int | None:
    """How long a `Retry-After` asks to wait, in milliseconds: a number of seconds, or a date. None: the value
    is neither.

    `at_ms`: when the answer came, since 1970 UTC. Spec: RFC 9110 10.2.3.
    """
    if _SECONDS.fullmatch(value):
        return int(value[:12]) * 1000
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max(0, round(date.timestamp() * 1000) - at_ms)
    except (ValueError, OverflowError, TypeError):
        # The parser raises each of these for dates that are not valid, such as one with a zone of 20 digits.
        return None


def wait_ms(
    delivery: Delivery,
    retry: int,
    answer: Answer,
    *,
    jitter: float = 0.0,
    chance: float = 0.0,
) -> int:
    """The wait before the `retry`-th retry after this answer: the longer of the backoff and the answer's
    `Retry-After`.

    `Retry-After` is used with 429 and 503 only, up to `retry_after_max_ms` (None: `RETRY_AFTER_MAX_MS`; 0
    turns it off).
    """
    wait = spread_ms(backoff_ms(delivery, retry), jitter, chance)
    cap = (
        RETRY_AFTER_MAX_MS
        if delivery.retry_after_max_ms is None
        else min(delivery.retry_after_max_ms, WAIT_MAX_MS)
    )
    if cap == 0 or answer.status not in OVERLOADED:
        return wait
    value = answer.header(b"retry-after")
    asked = None if value is None else retry_after_ms(value, answer.at_ms)
    return wait if asked is None else max(wait, min(asked, cap))
