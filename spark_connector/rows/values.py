"""AMQP values as text, for maps of strings and for bodies that are not bytes. Pure.

string, symbol, char   unchanged
boolean                true, false
integers               decimal
float, double          the shortest text that reads back as the same value
decimals               hexadecimal bytes
uuid                   8-4-4-4-12 digits
timestamp              2026-01-31T12:00:00.000Z
binary                 base64
list, map, array       JSON, with these texts for values that JSON does not have
null                   null
"""

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from amqp_streams.client.raw import Described, Timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST_US: Final = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds since 1970 UTC."""
LATEST_US: Final = 253_402_300_799_999_999
"""The end of the year 9999."""


def text_of(value: object) -> str | None:
    """Return a value as text; None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    simple = json_of(value)
    return (
        simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False, separators=(",", ":"))
    )


def json_of(value: object) -> object:
    """Return a value as a JSON value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return moment(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        # JSON has no infinity and no NaN.
        return float(value) if math.isfinite(value) else str(float(value))
    return _other(value)


def _other(value: object) -> object:
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, bytes):
        # Decimals are instances of subclasses of bytes. They become hexadecimal; binary becomes base64.
        return base64.b64encode(value).decode() if type(value) is bytes else value.hex()
    if isinstance(value, dict):
        return {text_of(key) or "": json_of(item) for key, item in value.items()}
    if isinstance(value, Described):
        return json_of(value.value)
    items = getattr(value, "items", value)
    return [json_of(item) for item in items] if isinstance(items, list | tuple) else str(value)


def microseconds(at_ms: int) -> int:
    """Return a time in microseconds, the unit of Spark's timestamps.

    Raises:
        ValueError: a timestamp cannot represent the time.
    """
    return in_range(at_ms * 1000)


def in_range(at_us: int) -> int:
    """Return a time in microseconds since 1970 UTC if it is in the years 1 to 9999, the range of Spark.

    Spark can keep other times as well, but then Python fails for the whole result that contains the row.

    Raises:
        ValueError: it is not.
    """
    if not EARLIEST_US <= at_us <= LATEST_US:
        raise ValueError(f"the time {at_us // 1000} ms since 1970 is not in the years 1 to 9999")
    return at_us


def moment(at_ms: int) -> str:
    """Return a time in ISO 8601, or as a number if it is outside the range of dates."""
    try:
        return (
            (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except OverflowError:
        return str(at_ms)
