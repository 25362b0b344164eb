"""AMQP values as text: what maps of strings and bodies that are not bytes show. Pure.

string, symbol, char   as they are                  uuid        8-4-4-4-12 digits
boolean                true, false                  timestamp   2026-01-31T12:00:00.000Z
integers               decimal                      binary      base64
float, double          shortest that reads back     list, map, array   JSON, with these texts for what JSON has not
decimals               hexadecimal bytes            null        null
"""

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from amqp_streams.client.raw import Described, Timestamp
from spark_connector.planning.offsets import TIMESTAMP_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(value: object) -> str | None:
    """A value as text; None: null."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    simple = json_of(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False, separators=(",", ":"))


def json_of(value: object) -> object:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return moment(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return _other(value)


def _other(value: object) -> object:
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, bytes):
        # Decimals are bytes of a type of their own: nobody would take base64 for a number.
        return base64.b64encode(value).decode() if type(value) is bytes else value.hex()
    if isinstance(value, dict):
        return {text_of(key) or "": json_of(item) for key, item in value.items()}
    if isinstance(value, Described):
        return json_of(value.value)
    items = getattr(value, "items", value)
    return [json_of(item) for item in items] if isinstance(items, list | tuple) else str(value)


def microseconds(at_ms: int) -> int:
    """A time as Spark's timestamps have it. Raises ValueError: none can be so far from 1970."""
    if abs(at_ms) > TIMESTAMP_MAX:
        raise ValueError(f"the time {at_ms} ms since 1970 is further away than a timestamp can be")
    return at_ms * 1000


def moment(at_ms: int) -> str:
    """A time, ISO 8601; as a number where no calendar has it."""
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(at_ms)
