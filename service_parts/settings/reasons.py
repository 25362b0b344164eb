"""Messages for settings that are not valid, in plain words instead of Pydantic's. Pure."""

from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "missing": "is required",
    **dict.fromkeys(
        ("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "must be a whole number"
    ),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("string_type", "path_type"), "must be text"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "must be a table"),
    **dict.fromkeys(("byte_size", "byte_size_unit"), "must be a size, for example 1MiB"),
}
_SHOWN_MAX: Final = 64
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def reason(problem: Mapping[str, Any]) -> str:
    """Return why a value is not valid, as the end of a sentence that begins with the setting's name.

    `problem`: an entry of `ValidationError.errors()`.
    """
    context = problem.get("ctx", {})
    if problem["type"] == "value_error":
        return str(context["error"])
    words = _WORDS.get(problem["type"])
    if words is None:
        return str(problem["msg"])
    # Pydantic knows only the number; the name of the setting says that it is a size.
    is_size = bool(problem["loc"]) and "bytes" in str(problem["loc"][-1])
    shown = {
        name: _size(value) if is_size and isinstance(value, int) else value for name, value in context.items()
    }
    given = problem.get("input")
    got = (
        ""
        if problem["type"] == "missing" or isinstance(given, dict)
        else f" (got {repr(given)[:_SHOWN_MAX]})"
    )
    return words.format_map(shown) + got


def _size(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)
