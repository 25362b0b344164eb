"""LIKE. Spec: FILTEX 6.4.3.2; Jakarta Messaging 3.8.1.2.

Law: the time for one text grows with the product of its length and the pattern's at worst, never faster: between two `%` there is no
choice, and each takes as few characters as it can.
"""

import re
from collections.abc import Callable
from typing import Final

SUBJECT_MAX: Final = 64 << 10
"""Characters of a text that a pattern with `_` is looked for in; a longer one does not match."""
PATTERN_MAX: Final = 256
"""Characters of a pattern that comes from the message itself."""

Matcher = Callable[[str], bool]


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
    return None if parts is None else _with_single_wildcards(parts) if any(None in part for part in parts) else _plain(parts)


def _plain(parts: list[list[str | None]]) -> Matcher:
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


def _in_order(prefix: str, inner: list[str], suffix: str) -> Matcher:
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


def _with_single_wildcards(parts: list[list[str | None]]) -> Matcher:
    # Each piece has a fixed length, so the expressions have nothing to try twice.
    pieces = [re.compile("".join("." if character is None else re.escape(character) for character in part), re.DOTALL) for part in parts]
    first, last = pieces[0], pieces[-1]
    last_length = len(parts[-1])

    def matches(text: str) -> bool:
        if len(text) > SUBJECT_MAX:
            return False
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
