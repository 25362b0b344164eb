"""Tokens of CloudEvents SQL: CESQL 2.2 to 2.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.cesql.lexer import KEYWORDS, Kind, Token, tokens
from knative_gateway.filters.refusal import Limits, ParseError

LIMITS = Limits()


def texts(expression: str) -> list[tuple[Kind, str]]:
    return [(token.kind, token.text) for token in tokens(expression, LIMITS)[:-1]]


def test_words_literals_and_marks_are_distinguished() -> None:
    expression = "abc1 12 1a 'x' \"y\" TRUE Concat_Ws(,)"
    kinds = [
        Kind.NAME,
        Kind.INTEGER,
        Kind.NAME,
        Kind.STRING,
        Kind.STRING,
        Kind.KEYWORD,
        Kind.NAME,
        Kind.MARK,
        Kind.MARK,
        Kind.MARK,
    ]
    assert [kind for kind, _ in texts(expression)] == kinds


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keywords_are_known_in_any_case(keyword: str) -> None:
    """CESQL 2: keywords are case-insensitive."""
    for written in (keyword, keyword.lower(), keyword.title(), keyword.swapcase()):
        assert texts(written) == [(Kind.KEYWORD, keyword)]


@pytest.mark.parametrize("mark", ["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", ","])
def test_marks_are_taken_as_long_as_they_can_be(mark: str) -> None:
    assert texts(f"a{mark}b") == [(Kind.NAME, "a"), (Kind.MARK, mark), (Kind.NAME, "b")]


def test_the_diamond_is_the_other_way_to_say_not_equal() -> None:
    assert texts("a<>b") == texts("a!=b")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("''", ""),
        ("'abc'", "abc"),
        ('"abc"', "abc"),
        ("'it\\'s'", "it's"),
        ("'it''s'", "it's"),
        ('"say \\"x\\""', 'say "x"'),
        ('"say ""x"""', 'say "x"'),
        ("'a\"b'", 'a"b'),
        ('"a\'b"', "a'b"),
        ("'a\\%b'", "a\\%b"),
        ("'a\\b'", "a\\b"),
        ("'a\\\\'", "a\\\\"),
        ("'\\\"'", '\\"'),
        ("'two\nlines'", "two\nlines"),
        ("'é€'", "é€"),
    ],
)
def test_a_string_literal_says_its_value(written: str, value: str) -> None:
    """CESQL 2.2: only the quote that delimits a literal is escaped; other backslashes are for LIKE."""
    assert texts(written) == [(Kind.STRING, value)]


@pytest.mark.parametrize(
    ("expression", "position"),
    [("a = 'x", 5), ("a = \"x'", 5), ("a & b", 3), ("'\\'", 1), ("a.b", 2), ("é", 1), ("\x00", 1)],
)
def test_a_character_that_is_not_a_token_is_refused_at_its_position(expression: str, position: int) -> None:
    with pytest.raises(ParseError) as refused:
        tokens(expression, LIMITS)
    assert refused.value.position == position
    assert str(refused.value).startswith("parse error: syntax error: ")


def test_no_more_characters_or_tokens_are_taken_than_the_limits_say() -> None:
    limits = Limits(characters=10, tokens=3)
    assert len(tokens("a = bcdefg", limits)) == 4
    with pytest.raises(ParseError, match="11 characters, 10 are allowed"):
        tokens("a = bcdefgh", limits)
    with pytest.raises(ParseError, match="more than 3 words"):
        tokens("a = b + c", limits)


def attempted(text: str) -> tuple[list[Token], ParseError | None]:
    try:
        return tokens(text, LIMITS), None
    except ParseError as error:
        return [], error


@given(st.text(max_size=200))
def test_any_text_gives_tokens_that_cover_it_or_a_parse_error(text: str) -> None:
    found, refused = attempted(text)
    if refused:
        assert 1 <= refused.position <= len(text) + 1
        return
    at = 0
    for token in found:
        assert text[at : token.start].strip(" \t\r\n") == ""
        at = token.end
    assert found[-1].kind is Kind.END
