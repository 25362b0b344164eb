"""LIKE. Spec: FILTEX 6.4.3.2; Jakarta Messaging 3.8.1.2.

Law: matching a text takes at most as many steps as the product of its length and the length of the pattern's
longest piece, and this is known before: between two `%` nothing varies, and each `%` takes as few characters
as possible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from service_parts.like import Piece, Search, compiled, plain_matcher, wildcard_matcher

PATTERN_MAX: Final = 256
"""Characters of a pattern that comes from the message itself."""
COMPILE_STEPS: Final = 1024
"""Steps (see `record.WORK_MAX`) that a character of such a pattern takes to compile."""
_LINEAR_FROM: Final = 30_000
"""Characters of a text in which Python finds any other in linear time.

In shorter ones it may compare each place with all of it.
"""
_COMPARED_A_STEP: Final = 8


@dataclass(frozen=True, slots=True)
class Matcher:
    """Decides whether a whole text matches. `piece`: length of the longest piece to search for; 0: none."""

    matches: Callable[[str], bool]
    piece: int = 0
    single: bool = False
    """It has `_`: an expression is tried at each place."""

    def steps(self, text: str) -> int:
        """How many steps (see `record.WORK_MAX`) it takes to look at this text, at most."""
        if not self.piece:
            return 0
        size = len(text)
        if self.single:
            return size * self.piece
        return size + (size * self.piece // _COMPARED_A_STEP if size < _LINEAR_FROM else 0)


def pattern_parts(pattern: str, escape: str | None) -> list[Piece] | None:
    """The pieces between the `%`: characters, with None for `_`.

    None if the pattern ends with the escape character.
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
    """What tells whether a whole text matches; None if the pattern ends with the escape character."""
    parts = pattern_parts(pattern, escape)
    if parts is None:
        return None
    single = any(None in part for part in parts)
    piece = max(map(len, parts[1:-1]), default=0)
    return Matcher(wildcard_matcher(parts, _search) if single else plain_matcher(parts), piece, single)


def _search(piece: Piece) -> Search:
    find = compiled(piece).search

    def search(text: str, at: int, end: int) -> int:
        found = find(text, at, end)
        return -1 if found is None else found.end()

    return search
