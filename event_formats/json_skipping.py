"""Finds the end of a large JSON value, in short steps. Pure.

The parser of the library reads a value in one call, which keeps the interpreter: a million bytes of numbers
take more than 100 ms. Here a step takes about a millisecond, so an event loop can do other work in between.
"""

import re
from collections.abc import Generator

# Public, but missing from its stub.
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Final

LARGE_CHARACTERS: Final = 32 << 10
"""A text up to this length is not large: one call of the parser takes at most a few milliseconds."""
DEPTH_MAX: Final = 500
"""Levels of nested objects and lists in a large value."""
STEP_VALUES: Final = 500
"""Values that one match of an expression covers. A shorter run of values is one match as well."""
_RUNS_A_STEP: Final = 4

_WS: Final = r"[ \t\n\r]*+"
# Without a bound on escapes, one match could take many milliseconds.
_STRING: Final = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){0,20}+"'
_NUMBER: Final = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+"
_SCALAR: Final = rf"(?>{_STRING}|{_NUMBER}|true|false|null|\[{_WS}\]|\{{{_WS}\}})"


def _pair(value: str) -> str:
    return rf"{_STRING}{_WS}:{_WS}{value}"


def _listed(value: str, more_max: int) -> str:
    return rf"{_WS}{value}{_WS}(?:,{_WS}{value}{_WS}){{0,{more_max}}}+"


# A small list or object of scalars counts as one value: most of the text of usual data is in such.
_SMALL: Final = rf"(?>{_SCALAR}|\[{_listed(_SCALAR, 9)}\]|\{{{_listed(_pair(_SCALAR), 9)}\}})"
_ITEMS: Final = re.compile(rf"(?:{_SMALL}{_WS},{_WS}){{0,{STEP_VALUES}}}+")
_MEMBERS: Final = re.compile(rf"(?:{_pair(_SMALL)}{_WS},{_WS}){{0,{STEP_VALUES}}}+")
_ONE: Final = re.compile(_SMALL)
_SPACE: Final = re.compile(_WS)


def value_end(text: str, at: int) -> Generator[None, None, int]:
    """Return where the value that begins at `at` ends. Yields between two steps.

    Raises:
        JSONDecodeError: the text is not JSON.
        RecursionError: values are nested too deeply.
    """
    ends: list[str] = []
    """The ends of the objects and lists that are open."""
    runs = 0
    while True:
        runs += 1
        if not runs % _RUNS_A_STEP:
            yield
        at, opened = _begin(text, at)
        if opened:
            ends.append(opened)
            if len(ends) > DEPTH_MAX:
                raise RecursionError
        else:
            at = _closed(text, at, ends)
            if not ends:
                return at
        is_object = ends[-1] == "}"
        run = (_MEMBERS if is_object else _ITEMS).match(text, at)
        assert run is not None, "an empty match is a match"
        at = _name_end(text, run.end()) if is_object else run.end()


def _begin(text: str, at: int) -> tuple[int, str]:
    """Return where a value ends, or where the first value in it begins, and its end."""
    one = _ONE.match(text, at)
    if one is not None:
        return one.end(), ""
    first = text[at : at + 1]
    if first == '"':
        return scanstring(text, at + 1, True)[1], ""
    if first in {"[", "{"}:
        return _skip(text, at + 1), "]" if first == "[" else "}"
    raise JSONDecodeError("expecting a value", text, at)


def _closed(text: str, at: int, ends: list[str]) -> int:
    """Return where the next value or name begins after a value; without `ends`, where the last one ends."""
    while ends:
        at = _skip(text, at)
        found = text[at : at + 1]
        if found == ",":
            return _skip(text, at + 1)
        if found != ends[-1]:
            raise JSONDecodeError("expecting ','", text, at)
        ends.pop()
        at += 1
    return at


def _name_end(text: str, at: int) -> int:
    """Return where the value of a member begins."""
    if text[at : at + 1] != '"':
        raise JSONDecodeError("expecting '\"'", text, at)
    at = _skip(text, scanstring(text, at + 1, True)[1])
    if text[at : at + 1] != ":":
        raise JSONDecodeError("expecting ':'", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "an empty match is a match"
    return found.end()
