"""The functions of filter texts. Spec: FILTEX 6.4.4.3.

Law: if an argument is NULL, the result is NULL. An argument of the wrong type or sign fails. An unknown
function returns NULL for any arguments.
"""

from collections.abc import Callable, Sequence
from typing import Final

from amqp_streams.filters.language.selector import DELIVERY_MODE, REDELIVERED
from amqp_streams.filters.times import date_ms
from amqp_streams.filters.values import FAILED, KINDS, TEXT_MAX, Kind, Outcome
from amqp_streams.wire.types import LONG_MAX, LONG_MIN, Timestamp

Function = Callable[[Sequence[Outcome]], Outcome]

_LANGUAGE_MAX: Final = 64
"""How many characters of a language tag are read."""
_DOTTED_I: Final = frozenset(("tr", "az"))
"""Languages in which i with and without a dot are different letters."""


def function(name: str) -> Function | None:
    """Return the function with this name, which checks its arguments; None if it is unknown.

    UTC is not included, because it needs the time.
    """
    known = _FUNCTIONS.get(name)
    if known is None:
        return None

    def call(arguments: Sequence[Outcome]) -> Outcome:
        if any(argument is FAILED for argument in arguments):
            return FAILED
        return None if any(argument is None for argument in arguments) else known(arguments)

    return call


def _lower(arguments: Sequence[Outcome]) -> Outcome:
    text, dotted = _text_and_language(arguments)
    if text is None:
        return FAILED
    # Python's `lower` and `upper` do not depend on a language.
    return (text.replace("\u0130", "i").replace("I", "\u0131") if dotted else text).lower()


def _upper(arguments: Sequence[Outcome]) -> Outcome:
    text, dotted = _text_and_language(arguments)
    if text is None:
        return FAILED
    return (text.replace("i", "\u0130") if dotted else text).upper()


def _text_and_language(arguments: Sequence[Outcome]) -> tuple[str | None, bool]:
    texts = [_text(argument) for argument in arguments]
    # A result can have more characters than its argument, and each function copies the text.
    if None in texts or len(texts[0] or "") > TEXT_MAX:
        return None, False
    return texts[0], (texts[1] or "")[:_LANGUAGE_MAX].lower().split("-")[0] in _DOTTED_I if len(
        texts
    ) > 1 else False


def _left(arguments: Sequence[Outcome]) -> Outcome:
    text, count = _text(arguments[0]), _count(arguments[1], 0)
    return FAILED if text is None or count is None else text[:count]


def _right(arguments: Sequence[Outcome]) -> Outcome:
    text, count = _text(arguments[0]), _count(arguments[1], 0)
    return FAILED if text is None or count is None else text[max(0, len(text) - count) :]


def _substring(arguments: Sequence[Outcome]) -> Outcome:
    text, start, count = _text(arguments[0]), _count(arguments[1], 1), _count(arguments[2], 0)
    return FAILED if text is None or start is None or count is None else text[start - 1 : start - 1 + count]


def _date(arguments: Sequence[Outcome]) -> Outcome:
    text = _text(arguments[0])
    milliseconds = None if text is None else date_ms(text)
    return (
        FAILED
        if milliseconds is None or not LONG_MIN <= milliseconds <= LONG_MAX
        else Timestamp(milliseconds)
    )


def _delivery_mode(arguments: Sequence[Outcome]) -> Outcome:
    return "PERSISTENT" if arguments[0] is True else "NON_PERSISTENT"


def _redelivered(arguments: Sequence[Outcome]) -> Outcome:
    return isinstance(arguments[0], int) and arguments[0] > 0


def _text(value: Outcome) -> str | None:
    return str(value) if KINDS.get(type(value)) is Kind.TEXT else None


def _count(value: Outcome, low: int) -> int | None:
    if KINDS.get(type(value)) is not Kind.NUMBER or not isinstance(value, int):
        return None
    return int(value) if value >= low else None


_FUNCTIONS: Final[dict[str, Function]] = {
    "LOWER": _lower,
    "UPPER": _upper,
    "LEFT": _left,
    "RIGHT": _right,
    "SUBSTRING": _substring,
    "DATE": _date,
    DELIVERY_MODE: _delivery_mode,
    REDELIVERED: _redelivered,
}
