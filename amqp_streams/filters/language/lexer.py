"""Text -> tokens, for all three dialects. Spec: FILTEX 6.4.4.2, 6.4.4.6; Jakarta Messaging 3.8.1.

Laws: positions are characters of the text, from 0 here and from 1 in errors for peers. For any text the
result is tokens or a `FilterError`. A `[` after a name or a `]` opens an index; any other `[` opens a
delimited identifier.
"""

import re
import unicodedata
from decimal import Decimal
from enum import Enum
from math import isinf
from typing import Final, NamedTuple

from amqp_streams.filters.language.syntax import Dialect, Literally
from amqp_streams.filters.refusal import FilterError, Limits

RESERVED: Final = frozenset(("AND", "OR", "NOT", "IS", "IN", "LIKE", "ESCAPE", "NULL", "TRUE", "FALSE"))
RESERVED_SQL: Final = RESERVED | {"EXISTS", "INF", "NAN"}
RESERVED_SELECTOR: Final = RESERVED | {"BETWEEN"}


class Kind(Enum):
    """The kinds of tokens."""

    NAME = "name"
    DELIMITED = "delimited identifier"
    CONSTANT = "constant"
    KEYWORD = "keyword"
    MARK = "mark"
    END = "end of the text"


class Token(NamedTuple):
    """A token of a filter text.

    `text`: the name, keyword (in capitals) or mark, or the constant as written. `value`: of a constant.
    `start` (inclusive) and `end` (exclusive): characters of the filter text.
    """

    kind: Kind
    text: str
    value: Literally
    start: int
    end: int


_SPACE: Final = re.compile(r"\s+")
_NAME: Final = re.compile(r"[^\W\d]\w*")
_NAME_SELECTOR: Final = re.compile(
    r"amqp\.(?:message_?)?annotation\.[^\W\d](?:[\w.:$]|-(?=[^\W\d]))*|(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*"
)
_BINARY: Final = re.compile(r"0[xX](\w*)")
# This accepts more than the grammar: a sign of the exponent, a coefficient without a point, and a small `e`.
# Such a text has no other meaning, and programs write numbers like that.
_NUMBER: Final = re.compile(r"(?P<whole>\d+)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")
_NUMBER_SELECTOR: Final = re.compile(
    r"(?:(?P<whole>\d+)(?P<fraction>\.\d*)?|(?P<bare>\.\d+))(?P<exponent>[eE][+-]?\d+)?(?P<suffix>[lLfFdD]?)"
)
_STRING: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_DELIMITED: Final = re.compile(r"\[((?:[^\[\]]|\[\[|\]\])*)\](?!\])")
_MARK: Final = re.compile(r"<>|!=|>=|<=|[=<>+\-*/%(),.:\[\]]")
_INTEGER_MAX: Final = (1 << 64) - 1


def tokens(text: str, dialect: Dialect, limits: Limits) -> list[Token]:
    """Split `text` into tokens. The last token is of kind END.

    Raises:
        FilterError: `text` contains something that is not a token, or has more tokens or characters than
            `limits` allows.
    """
    # First: all further work is proportional to the length.
    if len(text) > limits.characters:
        reason = f"the text has {len(text)} characters; at most {limits.characters} are allowed"
        raise FilterError(reason, limits.characters + 1)
    found: list[Token] = []
    at = _skip_space(text, 0)
    while at < len(text):
        if len(found) >= limits.tokens:
            reason = f"the text has more than {limits.tokens} tokens"
            raise FilterError(reason, at + 1)
        token = _token(text, at, found, dialect)
        found.append(token)
        at = _skip_space(text, token.end)
    found.append(Token(Kind.END, "", None, len(text), len(text)))
    return found


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _token(text: str, at: int, before: list[Token], dialect: Dialect) -> Token:
    character = text[at]
    if character in "'\"":
        return _string(text, at, dialect)
    if character.isdecimal() or (
        character == "." and dialect is Dialect.SELECTOR and text[at + 1 : at + 2].isdecimal()
    ):
        return _number(text, at, dialect)
    # The two meanings of `[` differ only by what precedes it.
    if character == "[" and dialect is not Dialect.SELECTOR and not _ends_field(before):
        return _delimited(text, at)
    name = (_NAME_SELECTOR if dialect is Dialect.SELECTOR else _NAME).match(text, at)
    if name:
        return _word(name[0], at, before, dialect)
    mark = _MARK.match(text, at)
    if mark is None:
        reason = f"unexpected character {_shown(character)}"
        raise FilterError(reason, at + 1)
    return Token(Kind.MARK, "<>" if mark[0] == "!=" else mark[0], None, at, mark.end())


def _ends_field(before: list[Token]) -> bool:
    return bool(before) and (before[-1].kind in (Kind.NAME, Kind.DELIMITED) or before[-1].text == "]")


def _word(word: str, at: int, before: list[Token], dialect: Dialect) -> Token:
    reserved = RESERVED_SELECTOR if dialect is Dialect.SELECTOR else RESERVED_SQL
    after_dot = bool(before) and before[-1].kind is Kind.MARK and before[-1].text == "."
    if word.upper() in reserved and not after_dot:  # after a dot, the grammar has only names
        return Token(Kind.KEYWORD, word.upper(), None, at, at + len(word))
    for index, character in enumerate(word):
        # `\w` of the expression accepts more than the grammar does.
        if not (character.isalpha() or character.isdecimal() or character in "_.$:-"):
            reason = f"an identifier with {_shown(character)} must be in brackets"
            raise FilterError(reason, at + index + 1)
    return Token(Kind.NAME, word, None, at, at + len(word))


def _string(text: str, at: int, dialect: Dialect) -> Token:
    found = _STRING.match(text, at)
    if found is None:
        reason = f"the text constant that begins with {text[at]} is not closed"
        raise FilterError(reason, at + 1)
    quote = text[at]
    if quote == '"' and dialect is Dialect.SELECTOR:
        reason = "text constants of a selector must be in single quotes"
        raise FilterError(reason, at + 1)
    value = found[0][1:-1]
    if dialect is not Dialect.SELECTOR:
        _refuse_control(value, at + 1, "a text constant")
    return Token(Kind.CONSTANT, found[0], value.replace(quote * 2, quote), at, found.end())


def _delimited(text: str, at: int) -> Token:
    found = _DELIMITED.match(text, at)
    if found is None:
        reason = "the identifier in brackets is not closed"
        raise FilterError(reason, at + 1)
    _refuse_control(found[1], at + 1, "an identifier")
    return Token(Kind.DELIMITED, found[1].replace("[[", "[").replace("]]", "]"), None, at, found.end())


def _refuse_control(value: str, start: int, what: str) -> None:
    for index, character in enumerate(value):
        if unicodedata.category(character) == "Cc":
            reason = f"{what} contains the control character {_shown(character)}"
            raise FilterError(reason, start + index + 1)


def _number(text: str, at: int, dialect: Dialect) -> Token:
    binary = _BINARY.match(text, at)
    if binary and dialect is Dialect.SELECTOR:
        return _hexadecimal(binary[0], at)
    if binary:
        return _binary(binary[0], binary[1], at)
    found = (_NUMBER_SELECTOR if dialect is Dialect.SELECTOR else _NUMBER).match(text, at)
    assert found is not None, text[at : at + 8]
    follows = text[found.end() : found.end() + 1]
    # `1OR` would otherwise be a number and a keyword.
    if follows.isalpha() or follows == "_":
        reason = f"{_shown(follows)} must not follow a number"
        raise FilterError(reason, found.end() + 1)
    parts = found.groupdict()
    value: Literally
    if parts["exponent"] or (
        dialect is Dialect.SELECTOR
        and (parts["fraction"] or parts["bare"] or parts["suffix"] in tuple("fFdD"))
    ):
        value = float(found[0].rstrip("fFdDlL"))
    elif parts["fraction"]:
        value = Decimal(found[0])
    else:
        value = int(parts["whole"])
    # A constant that no type can hold could not be compared with any field.
    beyond = value > _INTEGER_MAX if isinstance(value, int) else isinf(float(value))
    if beyond or (isinstance(value, Decimal) and len(value.as_tuple().digits) > 34):
        reason = f"{found[0][:40]} does not fit any number type"
        raise FilterError(reason, at + 1)
    return Token(Kind.CONSTANT, found[0], value, at, found.end())


def _binary(written: str, digits: str, at: int) -> Token:
    # `\w` also accepts digits of other scripts, which `fromhex` does not.
    plain = "".join(str(unicodedata.decimal(digit)) if digit.isdecimal() else digit for digit in digits)
    if not plain or len(plain) % 2 or re.fullmatch(r"[0-9A-Fa-f]+", plain) is None:
        reason = "a binary constant must be 0x and pairs of hexadecimal digits"
        raise FilterError(reason, at + 1)
    return Token(Kind.CONSTANT, written, bytes.fromhex(plain), at, at + len(written))


def _hexadecimal(written: str, at: int) -> Token:
    digits = written[2:].rstrip("lL")
    if not digits or re.fullmatch(r"[0-9A-Fa-f]{1,16}", digits) is None:
        reason = "a hexadecimal number must be 0x and 1 to 16 digits"
        raise FilterError(reason, at + 1)
    return Token(Kind.CONSTANT, written, int(digits, 16), at, at + len(written))


def _shown(character: str) -> str:
    return repr(character) if character.isprintable() else f"U+{ord(character):04X}"
