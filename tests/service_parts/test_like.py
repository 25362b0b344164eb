"""Pieces of LIKE patterns, matched without trying anything twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_parts.like import Piece, Search, compiled, plain_matcher, wildcard_matcher


def search(piece: Piece) -> Search:
    """Return the result of the regular expression of the piece."""

    def find(text: str, at: int, end: int) -> int:
        found = compiled(piece).search(text, at, end)
        return -1 if found is None else found.end()

    return find


def naive(pieces: list[Piece], text: str) -> bool:
    """Return the result by the definition, with all its choices."""
    head = pieces[0]
    if len(text) < len(head) or any(one not in (None, text[at]) for at, one in enumerate(head)):
        return False
    rest = text[len(head) :]
    if len(pieces) == 1:
        return not rest
    return any(naive(pieces[1:], rest[at:]) for at in range(len(rest) + 1))


PIECES = st.lists(
    st.lists(st.sampled_from(["a", "b", "%", "\n"]) | st.none(), max_size=3), min_size=1, max_size=4
)
PLAIN = st.lists(st.lists(st.sampled_from(["a", "b", "%", "\n"]), max_size=3), min_size=1, max_size=4)
TEXTS = st.text("ab%\n", max_size=8)


@given(PIECES, TEXTS)
def test_pieces_with_wildcards_match_as_the_definition_says(pieces: list[Piece], text: str) -> None:
    assert wildcard_matcher(pieces, search)(text) is naive(pieces, text)


@given(PLAIN, TEXTS)
def test_plain_pieces_match_as_the_definition_says(pieces: list[Piece], text: str) -> None:
    assert plain_matcher(pieces)(text) is naive(pieces, text)


def test_a_caller_may_stop_before_the_inner_pieces_are_searched() -> None:
    def refuse(text: str) -> None:
        raise OverflowError(len(text))

    matches = wildcard_matcher([["a"], [None, "b"], []], search, refuse)
    assert not matches("xb"), "the first piece decides alone"
    with pytest.raises(OverflowError, match="3"):
        matches("axb")
