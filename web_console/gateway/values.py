"""Values of the gateway's answers, read with bounds: an answer has what objects of users have. Pure."""

from collections.abc import Mapping
from typing import Any, Final

TEXT_MAX: Final = 500
"""Characters of a text on a page, if nothing else is said."""


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object, most: int) -> list[Mapping[str, Any]]:
    """Return at most `most` items of a list; items that are not mappings are empty."""
    return [mapping(each) for each in value[:most]] if isinstance(value, list) else []


def text(value: object, most: int = TEXT_MAX) -> str:
    """Return the value as a text of at most `most` characters, and a mark if it was longer. None is empty."""
    found = "" if value is None else str(value)
    return found if len(found) <= most else f"{found[:most]} …"


def number(value: object) -> int | None:
    """Return the value if it is an integer, and not a boolean."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
