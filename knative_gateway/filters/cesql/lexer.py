"""CESQL text -> tokens.

Keywords are recognized in any case. Positions count characters from 0 in tokens, and from 1 in messages. The
result is a list of tokens or a `ParseError`; nothing else is raised.

Spec: CESQL 2.2 to 2.4.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from knative_gateway.filters.refusal import Limits, ParseError

KEYWORDS: Final = frozenset(("AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"))


class Kind(Enum):
    """The kind of a token. A NAME is the name of an attribute, or of a function if a parenthesis follows."""

    NAME = "name"
    KEYWORD = "keyword"
    INTEGER = "integer"
    STRING = "string"
    MARK = "mark"
    END = "end of the expression"


class Token(NamedTuple):
    """One token. `text` is a keyword in capitals, the value of a string, or the text as written.

    `start` is inclusive, `end` exclusive.
    """

    kind: Kind
    text: str
    start: int
    end: int


_SPACE: Final = re.compile(r"[ \t\r\n]+")
_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
# A backslash also consumes the next character. A doubled quote stands for one quote, as in the grammar file
# of the specification.
_STRING: Final = re.compile(r"'(?:\\.|''|[^'\\])*'|\"(?:\\.|\"\"|[^\"\\])*\"", re.DOTALL)
_MARK: Final = re.compile(r"<>|!=|<=|>=|[=<>+\-*/%(),]")


def tokens(text: str, limits: Limits) -> list[Token]:
    """Return the tokens of `text`. The last one has the kind END.

    Raises:
      ParseError: a character cannot begin a token, or `text` exceeds a limit.
    """
    if len(text) > limits.characters:
        reason = f"the expression has {len(text)} characters, {limits.characters} are allowed"
        raise ParseError(reason, limits.characters + 1)
    found: list[Token] = []
    at = _skip_space(text, 0)
    while at < len(text):
        if len(found) >= limits.tokens:
            reason = f"the expression has more than {limits.tokens} words, literals and marks"
            raise ParseError(reason, at + 1)
        token = _token(text, at)
        found.append(token)
        at = _skip_space(text, token.end)
    found.append(Token(Kind.END, "", len(text), len(text)))
    return found


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _token(text: str, at: int) -> Token:
    if text[at] in "'\"":
        return _string(text, at)
    word = _WORD.match(text, at)
    if word:
        return _word(word[0], at, word.end())
    mark = _MARK.match(text, at)
    if mark is None:
        shown = repr(text[at]) if text[at].isprintable() else f"U+{ord(text[at]):04X}"
        reason = f"{shown} is not valid in an expression"
        raise ParseError(reason, at + 1)
    return Token(Kind.MARK, "!=" if mark[0] == "<>" else mark[0], at, mark.end())


def _word(word: str, start: int, end: int) -> Token:
    if word.isdigit():
        return Token(Kind.INTEGER, word, start, end)
    if word.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, word.upper(), start, end)
    return Token(Kind.NAME, word, start, end)


def _string(text: str, at: int) -> Token:
    r"""Return a string token. Only the escape of the enclosing quote is replaced: `\\%` belongs to LIKE, and
    any other backslash stands for itself.
    """
    found = _STRING.match(text, at)
    if found is None:
        reason = f"the string that begins with {text[at]} does not end"
        raise ParseError(reason, at + 1)
    quote = re.escape(text[at])
    value = re.sub(
        rf"\\{quote}|{quote}{quote}|(\\.)",
        lambda escape: escape[1] or text[at],
        found[0][1:-1],
        flags=re.DOTALL,
    )
    return Token(Kind.STRING, value, at, found.end())
