"""LIKE. Spec: FILTEX 6.4.3.2; Jakarta Messaging 3.8.1.2.

Law: the steps for one text are at most the product of its length and that of the pattern's longest piece, and known before they are taken:
between two `%` there is no choice, and each takes as few characters as it can.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PATTERN_MAX: Final = 256
"""Characters of a pattern that comes from the message itself."""
COMPILE_STEPS: Final = 1024
"""Steps (see `record.WORK_MAX`) that a character of such a pattern takes to compile."""
_LINEAR_FROM: Final = 30_000
"""Characters of a text in which Python finds any other in linear time; in shorter ones it may compare each place with all of it."""
_COMPARED_A_STEP: Final = 8


@dataclass(frozen=True, slots=True)
class Matcher:
    """What tells whether a whole text matches. `piece`: characters of the longest piece that is searched; 0: none is."""

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


def pattern_parts(pattern: str, escape: str | None) -> list[list[str | None]] | None:
    """The pieces between the `%`: characters, with None for `_`. None if the pattern ends with the escape character."""
    parts: list[list[str | None]] = [[]]
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
    return Matcher(_with_single_wildcards(parts) if single else _plain(parts), piece, single)


def _plain(parts: list[list[str | None]]) -> Callable[[str], bool]:
    texts = ["".join(character or "" for character in part) for part in parts]
    match texts:
        case [exact]:
            return exact.__eq__
        case [prefix, ""]:
            return lambda text: text.startswith(prefix)
        case ["", suffix]:
            return lambda text: text.endswith(suffix)
        case ["", inner, ""]:
            return lambda text: inner in text
        case _:
            return _in_order(texts[0], texts[1:-1], texts[-1])


def _in_order(prefix: str, inner: list[str], suffix: str) -> Callable[[str], bool]:
    def matches(text: str) -> bool:
        end = len(text) - len(suffix)
        at = len(prefix)
        if end < at or not (text.startswith(prefix) and text.endswith(suffix)):
            return False
        for part in inner:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True

    return matches


def _with_single_wildcards(parts: list[list[str | None]]) -> Callable[[str], bool]:
    # Each piece has a fixed length, so the expressions have nothing to try twice.
    pieces = [re.compile("".join("." if character is None else re.escape(character) for character in part), re.DOTALL) for part in parts]
    first, last = pieces[0], pieces[-1]
    last_length = len(parts[-1])

    def matches(text: str) -> bool:
        if len(pieces) == 1:
            return first.fullmatch(text) is not None
        end = len(text) - last_length
        begin = first.match(text)
        if begin is None or begin.end() > end or last.match(text, end) is None:
            return False
        at = begin.end()
        for piece in pieces[1:-1]:
            found = piece.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches
