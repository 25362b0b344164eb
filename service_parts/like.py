"""Patterns of LIKE, which FILTEX 6.4.3.2 and CESQL 3.4.3 define alike: `%` matches any characters, `_` one.

Pure.

A pattern is a sequence of pieces between its `%`. Law: each piece has a fixed length and matches at its first
occurrence, so the search never goes back. Callers interpret escapes, which differ in the two languages, and
limit the work.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

Piece: TypeAlias = list[str | None]
"""Characters; None stands for `_`."""
Matcher: TypeAlias = Callable[[str], bool]
Search: TypeAlias = Callable[[str, int, int], int]
"""Takes a text, a start and an end. Returns the end of the first occurrence of a piece between them, or -1.
"""


def plain_matcher(pieces: Sequence[Piece]) -> Matcher:
    """Return a function that decides whether a whole text matches pieces without `_`."""
    texts = ["".join(character or "" for character in piece) for piece in pieces]
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


def _in_order(prefix: str, inner: list[str], suffix: str) -> Matcher:
    def matches(text: str) -> bool:
        # The suffix is reserved at the end, so that no inner piece takes its characters.
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


def wildcard_matcher(
    pieces: Sequence[Piece], search: Callable[[Piece], Search], looked: Callable[[str], object] | None = None
) -> Matcher:
    """Like `plain_matcher`, for pieces with `_`. `search` returns the search function of an inner piece.

    `looked` is called with the text before the inner pieces are searched for. It may raise to prevent that.
    """
    first, last = compiled(pieces[0]), compiled(pieces[-1])
    inner = [search(piece) for piece in pieces[1:-1]]
    last_length = len(pieces[-1])

    def matches(text: str) -> bool:
        if len(pieces) == 1:
            return first.fullmatch(text) is not None
        end = len(text) - last_length
        begin = first.match(text)
        # Prefix and suffix must not share characters.
        if begin is None or begin.end() > end or last.match(text, end) is None:
            return False
        if looked is not None:
            looked(text)
        at = begin.end()
        for find in inner:
            at = find(text, at, end)
            if at < 0:
                return False
        return True

    return matches


def compiled(piece: Piece) -> re.Pattern[str]:
    """Return the regular expression of one piece."""
    return re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL)
