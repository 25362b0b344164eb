"""Times as people type them. Pure: the present is an argument."""

import re
from datetime import UTC, datetime
from typing import Final

_AGO: Final = re.compile(r"-(\d{1,6})(ms|s|m|h|d)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MS: Final = re.compile(r"\d{13}")


def time_ms(text: str, now_ms: int) -> int:
    """Return a time in milliseconds since 1970: an ISO time, UTC if it has no zone; `-15m`; or milliseconds.

    Raises:
        ValueError: the text is not a time.
    """
    text = text.strip()
    if found := _AGO.fullmatch(text):
        return now_ms - int(found[1]) * _UNITS[found[2]]
    if _MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text[:40])
    except ValueError:
        message = f"{text[:40]!r} is not a time: give 2026-11-21T06:30, or -15m for 15 minutes ago"
        raise ValueError(message) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
