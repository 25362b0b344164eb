"""ISO 8601 durations of the delivery settings: PT0.5S, PT1M30S, P1DT2H, P1W.

Years and months do not have a fixed length and are refused. Only the last part may have a fraction, with a
point or a comma.

Spec: knative-delivery-design, "Delivery Specification".
"""

import re
from fractions import Fraction
from typing import Final

DURATION_MS_MAX: Final = 366 * 24 * 3600 * 1000
"""One year. A longer value is assumed to be a mistake."""

_UNITS_MS: Final = {"W": 604_800_000, "D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1000}
_NUMBER: Final = r"([0-9]{1,15}(?:[.,][0-9]{1,15})?)"
_DURATION: Final = re.compile(
    rf"P(?:{_NUMBER}W|(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)"
)
_ORDER: Final = "WDHMS"


def duration_ms(written: str) -> int:
    """Return a duration in milliseconds, rounded up, so that a short wait does not become 0.

    Raises:
      ValueError: `written` is not a duration, or is longer than a year. The message describes what is
      expected.
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
    """Return a duration in ISO 8601, in seconds only."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"PT{seconds}S" if not rest else f"PT{seconds}.{rest:03d}".rstrip("0") + "S"
