"""The patterns of LIKE.

A pattern is split at each `%` into pieces of fixed length. Each piece is matched at its first occurrence.
Steps are counted before they are taken: the length of the text once, and the length of a piece for each
position at which the piece may begin.

Spec: CESQL 3.4.3.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from service_parts.like import Matcher, Piece, Search, compiled, plain_matcher, wildcard_matcher

Spend: TypeAlias = Callable[[int], object]

_PARTS: Final = re.compile(r"\\([%_])|(%)|(_)|(.)", re.DOTALL)


def _free(_steps: int) -> None:
    """Do not count steps: for callers without a limit."""


def matcher(pattern: str, spend: Spend = _free) -> Matcher:
    r"""Return a function that decides whether a whole text matches.

    `%` matches any characters, `_` matches one. `\\%` and `\\_` match `%` and `_`. `spend` receives the
    number of steps before they are taken, and may raise.
    """
    pieces: list[Piece] = [[]]
    for escaped, anything, one, plain in _PARTS.findall(pattern):
        if anything:
            pieces.append([])
        else:
            pieces[-1].append(None if one else escaped or plain)
    if any(None in piece for piece in pieces):
        return wildcard_matcher(pieces, partial(_search, spend=spend), lambda text: spend(len(text)))
    matches = plain_matcher(pieces)
    if len(pieces) == 1 or all(not piece for piece in pieces[1:-1]):
        return matches  # only the ends of the text are examined, so no steps are counted

    def counted(text: str) -> bool:
        spend(len(text))
        return matches(text)

    return counted


def _search(piece: Piece, spend: Spend) -> Search:
    length, expression = len(piece), compiled(piece)
    ahead, literal = _longest_literal(piece)
    behind = length - ahead

    def search(text: str, at: int, end: int) -> int:
        if not literal:
            return at + length if at + length <= end else -1
        while True:
            # str.find on the longest literal is faster than the regular expression, which runs only where it
            # may match.
            found = text.find(literal, at + ahead, end - behind + len(literal))
            if found < 0:
                return -1
            spend(length)
            at = found - ahead
            if expression.match(text, at) is not None:
                return at + length
            at += 1

    return search


def _longest_literal(piece: Piece) -> tuple[int, str]:
    """Return the longest run of characters without `_`, and its position in the piece."""
    runs = [(0, "")]
    for at, one in enumerate(piece):
        if one is None:
            runs.append((at + 1, ""))
        else:
            runs[-1] = (runs[-1][0], runs[-1][1] + one)
    return max(runs, key=lambda run: len(run[1]))
