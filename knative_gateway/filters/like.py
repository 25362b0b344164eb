"""The patterns of LIKE. Spec: CESQL 3.4.3.

Law: the time for one text grows with the product of its length and the pattern's at worst, never faster: what stands between two `%` has a
fixed length, and is taken where it is found first.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

Matcher: TypeAlias = Callable[[str], bool]
_PARTS: Final = re.compile(r"\\([%_])|(%)|(_)|(.)", re.DOTALL)


def matcher(pattern: str) -> Matcher:
    """What tells whether a whole text matches: `%` any characters, `_` one; `\\%` and `\\_` themselves, as everything else."""
    pieces: list[list[str | None]] = [[]]
    for escaped, anything, one, plain in _PARTS.findall(pattern):
        if anything:
            pieces.append([])
        else:
            pieces[-1].append(None if one else escaped or plain)
    return _with_single(pieces) if any(None in piece for piece in pieces) else _plain(["".join(filter(None, piece)) for piece in pieces])


def _plain(texts: list[str]) -> Matcher:
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


def _with_single(pieces: list[list[str | None]]) -> Matcher:
    compiled = [re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL) for piece in pieces]
    first, inner, last = compiled[0], compiled[1:-1], compiled[-1]
    last_length = len(pieces[-1])

    def matches(text: str) -> bool:
        if len(compiled) == 1:
            return first.fullmatch(text) is not None
        end = len(text) - last_length
        begin = first.match(text)
        if begin is None or begin.end() > end or last.match(text, end) is None:
            return False
        at = begin.end()
        for piece in inner:
            found = piece.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches
