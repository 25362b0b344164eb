"""LIKE against a regular expression of the same meaning, and within its time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.filters.like import matcher, pattern_parts

_LETTERS = st.text("ab%_!\n", max_size=8)


@given(_LETTERS, _LETTERS, st.sampled_from([None, "!", "%", "_", "a"]))
def test_a_pattern_matches_what_its_regular_expression_matches(pattern, subject, escape):
    """FILTEX 6.4.3.2."""
    expression, characters, broken = "", iter(pattern), False
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            broken = escaped is None
            expression += re.escape(escaped or "")
        else:
            expression += {"%": ".*?", "_": "."}.get(character, re.escape(character))
    match = matcher(pattern, escape)
    assert (match is None) is broken
    if match is not None:
        assert match.matches(subject) is (re.fullmatch(expression, subject, re.DOTALL) is not None)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("ab%b%ba", "abba", False),
        ("ab%b%ba", "abbba", True),
        ("%a_c%", "xxabcxx", True),
        ("a_%_c%", "abbc", True),
        ("a_%_c%", "abc", False),
        ("x%_b_%y", "xabcy", True),
        ("x%_b_%y", "xaby", False),
        ("%_", "", False),
        ("_%", "\n", True),
    ],
)
def test_prefix_inner_pieces_and_suffix_do_not_overlap(pattern, subject, expected):
    match = matcher(pattern, None)
    assert match is not None
    assert match.matches(subject) is expected


def test_pieces_are_returned_with_their_wildcards():
    assert pattern_parts("a_%b!%", "!") == [["a", None], ["b", "%"]]
    assert pattern_parts("a!", "!") is None


def test_many_wildcards_over_a_long_text_take_no_time_to_speak_of():
    """With backtracking, the search would practically never end."""
    match = matcher("%a" * 100 + "%b", None)
    assert match is not None
    assert not match.matches("a" * 50_000)
    single = matcher("%_a" * 100 + "%b", None)
    assert single is not None
    assert not single.matches("a" * 50_000)


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("exact", 0),
        ("a%", 0),
        ("%a", 0),
        ("a_c%_d", 0),
        ("%_" + "a" * 99 + "%", 100 * 40_000),
        ("%ab%_c%", 2 * 40_000),
        ("%" + "a" * 1000 + "%", 40_000),
    ],
)
def test_the_steps_are_known_before_they_are_taken(pattern, steps):
    match = matcher(pattern, None)
    assert match is not None
    assert match.steps("a" * 40_000) == steps


def test_in_a_short_text_each_place_may_be_compared_with_all_of_a_piece():
    match = matcher("%" + "a" * 800 + "%", None)
    assert match is not None
    assert match.steps("a" * 2000) == 2000 + 2000 * 100
