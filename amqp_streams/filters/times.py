"""ISO 8601 texts -> milliseconds. Spec: FILTEX 6.3.2, 6.4.4.3 (DATE).

Laws: a time without a zone is UTC. In a duration a year has 365 days and a month 30: the standard does not
define their length.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NUMBER: Final = r"(\d{1,12}(?:[.,]\d{1,9})?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.ASCII,
)
_UNITS_MS: Final = tuple(
    1000 * seconds for seconds in (365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1)
)
_TEXT_MIN: Final = 8
_TEXT_MAX: Final = 64


def date_ms(text: str) -> int | None:
    """Return the milliseconds since 1970 of a date, with or without a time of day.

    None if it is not a date.
    """
    return _date_ms(text) if _TEXT_MIN <= len(text) <= _TEXT_MAX and text.isascii() else None


# A filter compares the same texts with each record.
@lru_cache(maxsize=256)
def _date_ms(text: str) -> int | None:
    try:
        parsed = datetime.fromisoformat(text)
        aware = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
        # Rounded down to whole milliseconds, in integers: a float would lose digits.
        return (aware - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration such as PT1H30M; None if the text is not a valid duration."""
    found = _DURATION.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if found is None:
        return None
    parts = zip(found.groups(), _UNITS_MS, strict=True)
    return round(sum(float(number.replace(",", ".")) * unit for number, unit in parts if number))


def moment(text: str) -> int | None:
    """Return the number that a text stands for when it is compared with a timestamp.

    The time of a date, or the length of a duration, in milliseconds. None if it is neither.
    """
    date = date_ms(text)
    # A date first: no text is both.
    return duration_ms(text) if date is None else date
