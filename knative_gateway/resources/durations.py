"""ISO 8601 durations of the delivery settings: PT0.5S, PT1M30S, P1DT2H, P1W.

Spec: knative-delivery-design, "Delivery Specification".

Years and months have no fixed length and are refused; a fraction is allowed in the last part, with a point or
a comma.
"""

import re
from fractions import Fraction
from typing import Final

DURATION_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""A year: a longer wait is a mistake."""

_UNITS_MS: Final = {"W": 604_800_000, "D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000}
_NUMBER: Final = r"([0-9]{1,15}(?:[.,][0-9]{1,15})?)"
_DURATION: Final = re.compile(
    rf"P(?:{_NUMBER}W|(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)"
)
_ORDER: Final = "WDHMS"


def duration_ms(written: str) -> int:
    """Milliseconds of a duration; what is below one is rounded up, so that a wait is never none by rounding.

    Raises:
        ValueError: it is not a duration, or is longer than a year; the message says what is expected.
    """
    found = _DURATION.fullmatch(written)
    parts = (
        [(unit, value) for unit, value in zip(_ORDER, found.groups(), strict=True) if value] if found else []
    )
    if not parts or written.endswith("T") or any("." in value or "," in value for _, value in parts[:-1]):
        raise ValueError("expected an ISO 8601 duration, for example PT0.5S, PT2M or P1D")
    total = sum((Fraction(value.replace(",", ".")) * _UNITS_MS[unit] for unit, value in parts), Fraction(0))
    if total > DURATION_MS_MAX:
        raise ValueError("a duration must be at most one year")
    return -int(-total // 1)


def duration(milliseconds: int) -> str:
    """The duration in one part, in seconds."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"PT{seconds}S" if not rest else f"PT{seconds}.{rest:03d}".rstrip("0") + "S"
