"""The wait before a retry. Pure: time and chance are arguments.

The two specifications differ about the first wait. Here it is the backoff delay d; the n-th wait is d·n
(linear) or d·2^(n-1) (exponential), with n from 1.

Spec: knative-delivery-design, "Delivery Specification"; knative-eventing-test-spec, DeliverySpec.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from knative_gateway.delivery.outcome import OVERLOADED, Answer
from knative_gateway.ports import BackoffPolicy, Delivery

WAIT_MAX_MS: Final = 24 * 3600 * 1000
"""The maximum wait: a day."""
RETRY_AFTER_MAX_MS: Final = 5 * 60 * 1000
"""The maximum wait that a subscriber may request if `retryAfterMax` is not set. A longer one, for example a
year, is a mistake.
"""

_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)


def backoff_ms(delivery: Delivery, retry: int) -> int:
    """Return the wait in milliseconds before a retry. `retry`: the number of the retry, from 1.

    The wait does not decrease as `retry` increases.
    """
    assert retry >= 1, retry
    delay = delivery.backoff_delay_ms
    # 2^64 ms is above any limit. Larger shifts would only make large numbers.
    wait = delay * retry if delivery.backoff_policy is BackoffPolicy.LINEAR else delay << min(retry - 1, 64)
    cap = WAIT_MAX_MS if delivery.backoff_max_ms is None else min(delivery.backoff_max_ms, WAIT_MAX_MS)
    return min(wait, cap)


def spread_ms(wait_ms: int, jitter: float, chance: float) -> int:
    """Shorten a wait by up to the fraction `jitter`, by `chance`; both are from 0 to 1.

    Retries of events that failed together are then spread in time.
    """
    return wait_ms - int(wait_ms * jitter * chance)


def retry_after_ms(value: str, at_ms: int) -> int | None:
    """Return the wait in milliseconds that a `Retry-After` requests; None if the value is not valid.

    The value is a number of seconds or a date. `at_ms`: the time of the answer, since 1970 UTC.

    Spec: RFC 9110, 10.2.3.
    """
    if _SECONDS.fullmatch(value):
        # Twelve digits are longer than any cap. int() of a header of many kilobytes would be slow.
        return int(value[:12]) * 1000
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        return max(0, round(date.timestamp() * 1000) - at_ms)
    except (ValueError, OverflowError, TypeError):
        # The parser raises each of these for dates that are not valid, for example with a zone of 20 digits.
        return None


def wait_ms(
    delivery: Delivery,
    retry: int,
    answer: Answer,
    *,
    jitter: float = 0.0,
    chance: float = 0.0,
) -> int:
    """Return the wait before a retry after this answer: the backoff, or the answer's `Retry-After` if it is
    longer.

    `Retry-After` is used only with 429 and 503, and limited by `retry_after_max_ms` (None:
    `RETRY_AFTER_MAX_MS`; 0: it is ignored).
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
