"""Durations and sizes: text such as `7d` and `10GiB` -> numbers. Pure."""

import re
from typing import Final

MILLISECONDS_MAX: Final = 1000 * 365 * 86_400_000
"""The longest duration: a thousand years."""
BYTES_MAX: Final = 1 << 60
"""The largest size."""
_DURATION_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_SIZE_UNITS: Final[dict[str, int]] = {"": 1, "b": 1} | {
    f"{letter}{ending}": base ** (power + 1)
    for power, letter in enumerate("kmgt")
    for ending, base in (("b", 1000), ("ib", 1024))
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")


def duration_ms(text: str) -> int:
    """Parse a duration in whole milliseconds: `500ms`, `30s`, `30m`, `12h`, `7d`, `2w`, `1h30m`, `1.5h`, `0`.

    Raises:
        ValueError: the text is anything else, for example a number other than 0 without a unit.
    """
    text = text.strip()
    parts = list(_DURATION_PART.finditer(text))
    if text == "0":
        return 0
    # The parts must be the whole text: `finditer` skips what it does not match.
    if not parts or "".join(part[0] for part in parts) != text:
        message = (
            f"{text!r} is not a valid duration: use a number with a unit (ms, s, m, h, d, w), for example"
            " 500ms, 30m, 12h, 7d or 1h30m"
        )
        raise ValueError(message)
    milliseconds = sum(float(part[1]) * _DURATION_UNITS[part[2]] for part in parts)
    if milliseconds > MILLISECONDS_MAX:
        message = f"{text[:32]!r} is longer than the longest duration, 1000 years"
        raise ValueError(message)
    return round(milliseconds)


def byte_count(text: str) -> int:
    """Parse a size in bytes: `1000000`, `64KiB`, `512MiB`, `10GiB` (powers of 1024), `10GB` (powers of 1000).

    Upper and lower case are equal.

    Raises:
        ValueError: the text is anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        message = (
            f"{text!r} is not a valid size: use a number of bytes, or a number with a unit "
            "(B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), for example 512MiB"
        )
        raise ValueError(message)
    # Exact: a float would round a large number of bytes.
    if "." not in found[1]:
        return int(found[1]) * unit
    if (size := float(found[1]) * unit) > BYTES_MAX:
        message = f"{text[:32]!r} is more than the largest size, {BYTES_MAX} bytes"
        raise ValueError(message)
    return round(size)
