"""The patterns of LIKE: CESQL 3.4.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.like import matcher


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "ABC", ""]),
        ("%", ["", "a", "any\nthing"], []),
        ("a%", ["a", "abc", "a%"], ["", "ba"]),
        ("%c", ["c", "abc"], ["", "cb"]),
        ("%b%", ["b", "abc"], ["", "ac"]),
        ("a%b%c", ["abc", "azzbzzc", "abbcc", "a%b%c"], ["ac", "acb", "ab", "abcd"]),
        ("ab%ba", ["abba", "ab-ba"], ["aba"]),
        ("_", ["a", "_", "%", "\n", "é"], ["", "ab"]),
        ("a_c", ["abc", "a_c"], ["ac", "abbc"]),
        ("_b%", ["ab", "abc", "abcd1"], ["b", "acd", "aBc"]),
        ("%_", ["a", "abc"], [""]),
        ("%_%", ["a", "abc"], [""]),
        ("%a_c%", ["abc", "xxaacaxc"], ["ac", "xxaax"]),
        ("_%_", ["ab", "axxb"], ["a", ""]),
        ("abc\\%", ["abc%"], ["abcd", "abc\\%"]),
        ("a\\_c", ["a_c"], ["abc"]),
        ("\\%%", ["%", "%x"], ["x", ""]),
        ("a\\b", ["a\\b"], ["ab"]),
        ("a\\", ["a\\"], ["a"]),
        ("\\\\%", ["\\%"], ["\\", "\\\\"]),
        (".*", [".*"], ["abc"]),
        ("[a]", ["[a]"], ["a"]),
    ],
)
def test_a_pattern_takes_what_it_says_and_nothing_else(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    """CESQL 3.4.3: % any characters, _ one, both escaped with a backslash; any other character is itself,
    case sensitive.
    """
    matches = matcher(pattern)
    assert [text for text in matching if not matches(text)] == []
    assert [text for text in others if matches(text)] == []


def naive(pattern: str, text: str) -> bool:
    """Return the result by the definition, with all its choices."""
    if not pattern:
        return not text
    if pattern[:2] in ("\\%", "\\_"):
        return text[:1] == pattern[1] and naive(pattern[2:], text[1:])
    if pattern[0] == "%":
        return any(naive(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and naive(pattern[1:], text[1:])


@given(st.text("ab%_\\", max_size=7), st.text("ab%_\\", max_size=8))
def test_a_matcher_says_the_same_as_the_definition(pattern: str, text: str) -> None:
    assert matcher(pattern)(text) == naive(pattern, text)


def test_a_pattern_made_to_take_long_does_not() -> None:
    """The naive search would need 2^40 choices. The time limit of the test is the assertion."""
    text = "a" * 20_000
    assert not matcher("%a" * 40 + "b")(text)
    assert not matcher("%a_" * 40 + "b")(text)
    assert matcher("%a" * 40 + "%")(text)
