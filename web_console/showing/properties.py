"""Application properties as people type them: one `name=value` in a line. Pure."""

import re
from typing import Final

PROPERTIES_MAX: Final = 100
_INTEGER: Final = re.compile(r"-?\d{1,18}")
_NUMBER: Final = re.compile(r"-?\d{1,18}\.\d{1,18}")


def properties_of(text: str) -> dict[str, object]:
    """Return the properties of the lines; empty lines do not count.

    Whole numbers, decimal numbers, `true` and `false` have their types. Other values, and values in double
    quotes, are strings.

    Raises:
        ValueError: a line is not valid. The message names it.
    """
    found: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            message = f"Line {number} of the properties is not valid: write name=value."
            raise ValueError(message)
        if name.strip() in found:
            message = f"Line {number} of the properties has the name {name.strip()!r} a second time."
            raise ValueError(message)
        found[name.strip()] = _typed(value.strip())
    if len(found) > PROPERTIES_MAX:
        message = f"An event of the console has at most {PROPERTIES_MAX} properties."
        raise ValueError(message)
    return found


def _typed(value: str) -> object:
    if value in {"true", "false"}:
        return value == "true"
    if _INTEGER.fullmatch(value):
        return int(value)
    if _NUMBER.fullmatch(value):
        return float(value)
    quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value
