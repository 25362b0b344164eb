"""Numbers, sizes, durations and times as people read them. Pure."""

from datetime import UTC, datetime


def count(number: float | None) -> str:
    """A whole number: `1,234,567`; a dash for None."""
    return "-" if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    """A size: `1.5 MiB`."""
    if number is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def rate(number: float | None) -> str:
    """Events in a second: `12.5/s`; small rates have a decimal."""
    if number is None:
        return "-"
    return f"{number:.1f}/s" if 0 < number < 100 else f"{number:,.0f}/s"


def bounded(given: str | None, default: int, most: int) -> int:
    """Return a number that a person typed, at least 1 and at most `most`; `default` if it is not a number."""
    number = int(given) if given and given.isascii() and given.isdigit() and len(given) < 10 else default
    return min(max(number, 1), most)


def duration(ms: int | None) -> str:
    """A duration in the notation of the settings: `7d`, `1h30m`; `forever` for None."""
    if ms is None:
        return "forever"
    parts = []
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        whole, ms = divmod(ms, length)
        if whole:
            parts.append(f"{whole}{unit}")
    return "".join(parts) or "0"


def time(ms: int | None) -> str:
    """A time in UTC: `2026-11-22 10:23:17.874Z`; a dash for None and for times that no calendar has."""
    try:
        # Not a division: the result must have exactly the milliseconds that were given.
        moment = None if ms is None else datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        moment = None
    return "-" if moment is None or ms is None else f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"


def kept(retention_ms: int | None, retention_bytes: int | None) -> str:
    """How long events are kept, and how many bytes of a partition."""
    age = duration(retention_ms)
    return age if retention_bytes is None else f"{age}, {size(retention_bytes)} a partition"
