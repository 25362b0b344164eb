"""Filters of Triggers: CESQL texts and all dialects. What validation accepts is compiled, chooses events as
the naive meaning of the filters does, alone and in the index of a Broker; evaluation never raises.
"""

from typing import Final

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from knative_gateway.filters.cesql.expression import compile_expression
from knative_gateway.filters.dialects import Filters, compile_filters
from knative_gateway.filters.index import Index
from knative_gateway.filters.refusal import ParseError
from knative_gateway.filters.validation import validate
from knative_gateway.filters.work import FilterWorkError
from tests.knative_gateway.filters.filtering import meaning

_WORDS: Final = """
 type source subject id time n flag bin absent specversion _a 1st AND OR XOR NOT IN LIKE EXISTS TRUE
 FALSE true
 ( ) , = != <> < <= > >= + - * / % 0 1 -1 2147483647 2147483648 -2147483648 00005 'a' 'it\\'s' "a\\"b"
 '%a_' '\\\\_' '%' ''
 LENGTH( CONCAT( CONCAT_WS( LOWER( UPPER( TRIM( LEFT( RIGHT( SUBSTRING( ABS( INT( BOOL( STRING( IS_INT(
 IS_BOOL( NONE(
"""
WORDS: Final = tuple(_WORDS.split())
_EVENTS: Final[tuple[dict[str, object], ...]] = (
    {"specversion": "1.0", "id": "1", "source": "/s", "type": "a"},
    {"specversion": "1.0", "id": "2", "source": "/s", "type": "ab", "subject": "", "n": 5, "flag": True},
    {
        "specversion": "0.3", "id": "3", "source": "x" * 300, "type": "a%b_c\\",
        "subject": "\u00e9\U0001f600" * 2000, "n": -(1 << 31),
        "flag": "TRUE", "bin": b"\x00\xff" * 100, "time": "2026-01-31T12:00:00Z",
        "datacontenttype": "Text/PLAIN; x=1",
    },
)  # fmt: skip
_LONG: Final[dict[str, object]] = {
    "specversion": "1.0",
    "id": "4",
    "source": "/s",
    "type": "a",
    "subject": "ab" * 100_000,
}
"""For expressions only: what a text of this length costs must not depend on how often it is named."""
_NAMES: Final = ("type", "source", "subject", "n", "flag", "absent", "Type", "", "datamediatype", "time")
_VALUES: Final = ("a", "ab", "", "5", "true", "/s", "text/plain", 5, None, ["a"])
_DIALECTS: Final = (
    "exact",
    "prefix",
    "suffix",
    "all",
    "any",
    "not",
    "cesql",
    "sql",
    "attributes",
    "regex",
    "",
)


def run(data: bytes) -> str:
    """The first byte chooses: a text as it is, of words, or filters of every dialect."""
    draw = Draw(data)
    match draw.byte() % 4:
        case 0:
            return _expression(draw.rest().decode("utf-8", "replace"))
        case 1:
            separator = draw.pick((" ", "", " ", "\n"))
            return _expression(separator.join(draw.pick(WORDS) for _ in range(min(draw.left, 3000))))
        case _:
            return _filters(
                [[_filter(draw, 0) for _ in range(draw.below(4))] for _ in range(1 + draw.below(3))]
            )


def _expression(text: str) -> str:
    try:
        expression = compile_expression(text)
    except ParseError as error:
        if not 1 <= error.position <= len(text) + 1:
            message = f"position {error.position} of a text of {len(text)} characters"
            raise WrongError(message) from error
        return "".join("#" if character.isdigit() else character for character in error.reason)[:30]
    shown = []
    for event in (*_EVENTS, _LONG):
        result = expression.evaluate(event)
        if len(result.errors) > 1:
            message = f"{len(result.errors)} errors of one evaluation"
            raise WrongError(message)
        try:
            passed = expression.matches(event)
        except FilterWorkError:
            shown.append("work")
            continue
        if passed is not (result.value is True and not result.errors):
            message = f"matches says {passed}, the value is {result}"
            raise WrongError(message)
        shown.append(str(passed) + "".join(error.kind for error in result.errors))
    return " ".join(shown)


def _filter(draw: Draw, depth: int) -> object:
    if draw.chance(24):
        return draw.pick((None, "exact", 5, [], {}))
    dialect = draw.pick(_DIALECTS[:8] if not draw.chance(12) else _DIALECTS)
    content: object
    match dialect:
        case "all" | "any":
            content = [_filter(draw, depth + 1) for _ in range(draw.below(4))] if depth < 70 else []
        case "not":
            content = _filter(draw, depth + 1) if depth < 70 else {}
        case "cesql" | "sql":
            content = " ".join(draw.pick(WORDS) for _ in range(1 + draw.below(5)))
        case _:
            content = {
                draw.pick(_NAMES[:6] if not draw.chance(8) else _NAMES): _value(draw)
                for _ in range(draw.below(3))
            }
    return (
        {dialect: content} if not draw.chance(24) else {dialect: content, draw.pick(_DIALECTS): _value(draw)}
    )


def _value(draw: Draw) -> object:
    return draw.pick(_VALUES[:7] if not draw.chance(8) else _VALUES)


def _filters(of_subscribers: list[list[object]]) -> str:
    accepted: list[Filters] = []
    problems: list[str] = []
    for filters in of_subscribers:
        found = validate(filters)
        if found:
            if not all(problem.field.startswith("filters[") and problem.message for problem in found):
                message = f"a problem without its place: {found}"
                raise WrongError(message)
            problems.append(found[0].message[:20])
        else:
            accepted.append(filters)  # type: ignore[arg-type]  # validated
    index = Index([(place, filters) for place, filters in enumerate(accepted)])
    for event in _EVENTS:
        alone = [place for place, filters in enumerate(accepted) if compile_filters(filters).matches(event)]
        naive = [place for place, filters in enumerate(accepted) if meaning(filters, event)]
        if not alone == index.matching(event) == naive:
            message = f"alone {alone}, by the index {index.matching(event)}, naively {naive}"
            raise WrongError(message)
    return f"{len(accepted)} {problems[:2]}"


TARGET: Final = Target(
    "triggers",
    run,
    seconds_max=0.2,
    seconds_per_kib=0.05,
    words=tuple(word.encode() for word in WORDS),
)
