"""LIKE. Spec: FILTEX 6.4.3.2; Jakarta Messaging 3.8.1.2.

Law: matching takes at most as many steps as the length of the text times the length of the pattern's longest
piece, and the caller knows this number before it matches. The reason: a piece between two `%` has a fixed
length, and each `%` matches as few characters as possible, so the search never goes back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from service_parts.like import Piece, Search, compiled, plain_matcher, wildcard_matcher

PATTERN_MAX: Final = 256
"""The most characters of a pattern that comes from the message itself. `Limits` bounds a pattern in a filter.
"""
COMPILE_STEPS: Final = 1024
"""Steps (see `record.WORK_MAX`) to compile one character of such a pattern."""
_LINEAR_FROM: Final = 30_000
"""The length of a text, in characters, from which CPython's `str.find` is linear for every piece.

In a shorter text, the time can be the product of both lengths (CPython, `stringlib/fastsearch.h`).
"""
_COMPARED_A_STEP: Final = 8


@dataclass(frozen=True, slots=True)
class Matcher:
    """Decides whether a whole text matches a pattern.

    `piece`: the characters of the longest piece between two `%`; 0: nothing is searched for.
    """

    matches: Callable[[str], bool]
    piece: int = 0
    single: bool = False
    """The pattern has `_`, so a regular expression is tried at each position of the text."""

    def steps(self, text: str) -> int:
        """Return the most steps (see `record.WORK_MAX`) that matching this text takes."""
        if not self.piece:
            return 0
        size = len(text)
        if self.single:
            return size * self.piece
        return size + (size * self.piece // _COMPARED_A_STEP if size < _LINEAR_FROM else 0)


def pattern_parts(pattern: str, escape: str | None) -> list[Piece] | None:
    """Return the pieces between the `%`, as characters, with None for `_`.

    Returns None if the pattern ends with the escape character.
    """
    parts: list[Piece] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            parts[-1].append(escaped)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return parts


def matcher(pattern: str, escape: str | None) -> Matcher | None:
    """Compile a pattern. Returns None if it ends with the escape character."""
    parts = pattern_parts(pattern, escape)
    if parts is None:
        return None
    single = any(None in part for part in parts)
    # The first and the last piece are compared at the ends of the text, never searched for.
    piece = max(map(len, parts[1:-1]), default=0)
    return Matcher(wildcard_matcher(parts, _search) if single else plain_matcher(parts), piece, single)


def _search(piece: Piece) -> Search:
    find = compiled(piece).search

    def search(text: str, at: int, end: int) -> int:
        found = find(text, at, end)
        return -1 if found is None else found.end()

    return search
