"""Reads sections before the body as text and numbers. Each function reads the bytes of one section. Pure.

The bytes include the descriptor; b"" is a missing section. All functions raise WireError or ValueError if the
section is not valid.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

from amqp_streams.client.raw import Symbol, Timestamp, decode, key_section
from spark_connector.rows.message_parts import section_value
from spark_connector.rows.values import microseconds, text_of

Pairs = dict[str, str | None]
"""Names and texts.

A dictionary and not tuples, because Python's garbage collector tracks tuples, but not dictionaries of text.
"""

_KEY_AT: Final = 6
_SAMPLE: Final = key_section("k")
_KEY_NAME: Final = _SAMPLE[_KEY_AT:-3]
"""The name of the group key with its constructor, as in a section that has only the key."""
KEY_FRONT: Final = b"\x02" + _KEY_NAME + b"\xa1"
"""What precedes the size of a short key in such a section, after the five bytes of its head."""
_KEY_SYMBOL: Final = decode(_KEY_NAME, 0)[0]
_TWICE: Final = "a map has a key twice"


def key_of(section: bytes) -> str | None:
    """Return the group key in message annotations."""
    if not section:
        return None
    text_at = _KEY_AT + len(_KEY_NAME)
    # Hot path: a section with only the key, as the client and the gateway write it.
    plain = section[5] == 2 and section[_KEY_AT:text_at] == _KEY_NAME and section[text_at] == 0xA1
    if plain and text_at + 2 + section[text_at + 1] == len(section):
        return section[text_at + 2 :].decode()
    value = section_value(section)
    return text_of(value.get(_KEY_SYMBOL)) if isinstance(value, dict) else None


def pairs_of(section: bytes) -> Pairs | None:
    """Return names and values of a map, with the values as text."""
    found = typed_pairs(section)
    if found is None:
        return None
    # Usually all values are text already: then nothing is copied.
    for value in found.values():
        if type(value) is not str:
            return {name: value if type(value) is str else text_of(value) for name, value in found.items()}
    return cast("Pairs", found)


def typed_pairs(section: bytes) -> dict[str, object] | None:
    """Return names and values of a map."""
    if not section:
        return None
    kind = section[3]
    if kind == 0xC1:
        at, count = 6, section[5]
    elif kind == 0xD1:
        at, count = 12, int.from_bytes(section[8:12])
    else:
        return _decoded(section)
    found: dict[str, object] = {}
    end = len(section)
    # Hot path: nearly all producers write short strings. The general decoder reads everything else.
    for _ in range(count >> 1):
        if at + 1 >= end or section[at] not in (0xA1, 0xA3):
            return _decoded(section)
        value_at = at + 2 + section[at + 1]
        name = section[at + 2 : value_at].decode()
        if value_at + 1 < end and section[value_at] == 0xA1:
            at = value_at + 2 + section[value_at + 1]
            found[name] = section[value_at + 2 : at].decode()
        else:
            found[name], at = decode(section, value_at)
    if at != end or 2 * len(found) != count:
        return _decoded(section)
    return found


def _decoded(section: bytes) -> dict[str, object] | None:
    value = section_value(section)
    if not isinstance(value, dict):
        return None
    found = {str(text_of(name)): item for name, item in value.items()}
    if len(found) != len(value):
        raise ValueError(_TWICE)
    return found


def fields_of(section: bytes) -> list[object]:
    """Return the fields of the properties. The list is shorter if the last fields are not given."""
    value = section_value(section) if section else []
    return value if isinstance(value, list) else []


def field(index: int, read: Callable[[object], object]) -> Callable[[list[object]], object]:
    """Return a function that reads the field number `index` with `read`."""

    def found(fields: list[object]) -> object:
        return read(fields[index]) if index < len(fields) else None

    return found


def time_of(value: object) -> int | None:
    """Return microseconds since 1970 UTC; None if the value is not a timestamp."""
    return microseconds(int(value)) if isinstance(value, Timestamp) else None


def word_of(value: object) -> str | None:
    """Return the value as text, as `text_of` does."""
    return str(value) if isinstance(value, str | Symbol) else text_of(value)


FIELDS: Final = {
    "message_id": field(0, text_of),
    "subject": field(3, word_of),
    "correlation_id": field(5, text_of),
    "content_type": field(6, word_of),
    "creation_time": field(9, time_of),
}
"""Columns that are fields of the properties section (AMQP 1.0 core 3.2.4)."""


def pairs_at(rows: Sequence[Pairs | None]) -> tuple[list[int | None], list[str], list[str | None]]:
    """Return maps in the form of Arrow.

    The index where each map begins (None: a null), all keys, all values.
    """
    starts: list[int | None] = []
    keys: list[str] = []
    values: list[str | None] = []
    for row in rows:
        if row is None:
            starts.append(None)
            continue
        starts.append(len(keys))
        keys += row
        values += row.values()
    starts.append(len(keys))
    return starts, keys, values
