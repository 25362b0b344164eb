"""Objects as stored text."""

import json
from collections.abc import Mapping


def written(object_: Mapping[str, object]) -> str:
    """Return JSON in ASCII. Both databases accept it for all values: PostgreSQL, for example, refuses NUL in
    a text.
    """
    return json.dumps(object_, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def read(document: str) -> dict[str, object]:
    """Return the object of a text from `written`."""
    value = json.loads(document)
    assert isinstance(value, dict)
    return value
