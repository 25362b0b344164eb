"""The patterns of LIKE. Spec: CESQL 3.4.3.

Law: the steps that a text takes are counted as they are taken: its length once, and the length of what stands between two `%` for each
place where that may begin. What stands between two `%` has a fixed length, and is taken where it is found first.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

Matcher: TypeAlias = Callable[[str], bool]
Spend: TypeAlias = Callable[[int], object]
Piece: TypeAlias = list[str | None]
"""Characters; None: any one."""

_PARTS: Final = re.compile(r"\\([%_])|(%)|(_)|(.)", re.DOTALL)


def _free(_steps: int) -> None:
    """Steps that nobody counts."""


def matcher(pattern: str, spend: Spend = _free) -> Matcher:
    """What tells whether a whole text matches: `%` any characters, `_` one; `\\%` and `\\_` themselves, as everything else.

    `spend` is given the steps before they are taken, and may raise.
    """
    pieces: list[Piece] = [[]]
    for escaped, anything, one, plain in _PARTS.findall(pattern):
        if anything:
            pieces.append([])
        else:
            pieces[-1].append(None if one else escaped or plain)
    if any(None in piece for piece in pieces):
        return _with_single(pieces, spend)
    matches = _plain(["".join(filter(None, piece)) for piece in pieces])
    if len(pieces) == 1 or all(not piece for piece in pieces[1:-1]):
        return matches  # it looks at the ends only

    def counted(text: str) -> bool:
        spend(len(text))
        return matches(text)

    return counted


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


def _with_single(pieces: list[Piece], spend: Spend) -> Matcher:
    first, last = _compiled(pieces[0]), _compiled(pieces[-1])
    inner = [_search(piece, spend) for piece in pieces[1:-1]]
    last_length = len(pieces[-1])

    def matches(text: str) -> bool:
        if len(pieces) == 1:
            return first.fullmatch(text) is not None
        end = len(text) - last_length
        begin = first.match(text)
        if begin is None or begin.end() > end or last.match(text, end) is None:
            return False
        spend(len(text))
        at = begin.end()
        for search in inner:
            at = search(text, at, end)
            if at < 0:
                return False
        return True

    return matches


def _search(piece: Piece, spend: Spend) -> Callable[[str, int, int], int]:
    """What gives the end of the first place of a piece in a text between two positions; -1: there is none."""
    length, compiled = len(piece), _compiled(piece)
    ahead, literal = _longest_literal(piece)
    behind = length - ahead

    def search(text: str, at: int, end: int) -> int:
        if not literal:
            return at + length if at + length <= end else -1
        while True:
            found = text.find(literal, at + ahead, end - behind + len(literal))
            if found < 0:
                return -1
            spend(length)
            at = found - ahead
            if compiled.match(text, at) is not None:
                return at + length
            at += 1

    return search


def _longest_literal(piece: Piece) -> tuple[int, str]:
    """The longest run of characters without `_`, and where it begins."""
    runs = [(0, "")]
    for at, one in enumerate(piece):
        if one is None:
            runs.append((at + 1, ""))
        else:
            runs[-1] = (runs[-1][0], runs[-1][1] + one)
    return max(runs, key=lambda run: len(run[1]))


def _compiled(piece: Piece) -> re.Pattern[str]:
    return re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL)
