"""Filter texts in all three dialects: read, compiled, evaluated. The first byte chooses the dialect and
whether the rest is the text itself or choices among the words of the grammar.
"""

from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.filters import compile_filters
from amqp_streams.wire.types import Described, Symbol
from fuzz.draw import Draw
from fuzz.target import Target
from fuzz.targets.engine.records import MESSAGES, check_refusal, judge
from fuzz.values import printed_number

_DIALECTS: Final = (names.FILTEX_SQL, names.FILTER_SQL, names.SELECTOR)
_WORDS: Final = """
 a b n kind x list array when text nan byte blob described long [x y] a.x a.x.y a.list[0] h.priority
 header.durable h.ttl
 p.to p.message-id p.contentType properties.subject m.x-opt-key f.sum footer.sum d.event-streams-offset
 d.event-streams-timestamp
 d.event-streams-source-partition delivery_annotations application-properties.b JMSType JMSPriority
 JMSXDeliveryCount amqp.content_type
 amqp.annotation.x-opt-offset amqp.annotation.x-opt-enqueued-time 'blue' "blue" '' 'a%' '%b%' '_l__'
 '@latest' '@earliest'
 '0000000000000002' '2026-01-31' 'PT1H' 'it''s' 0 1 5 18446744073709551615 0.5 1.5E3 INF NAN TRUE FALSE
 NULL 0xFF 1L .5 ( ) , . + - * / %
 = <> != < <= > >= AND OR NOT IN LIKE ESCAPE IS BETWEEN EXISTS( LOWER( UPPER( LEFT( RIGHT( SUBSTRING(
 UTC() DATE( acme:f(
 [ ] ]] '!'
"""
WORDS: Final = tuple(_WORDS.split())


def run(data: bytes) -> str:
    """One text against the fixed messages."""
    draw = Draw(data)
    choice = draw.byte()
    dialect = _DIALECTS[choice % len(_DIALECTS)]
    text = draw.rest().decode("utf-8", "replace") if choice < 0x80 else _made(draw)
    try:
        compiled = compile_filters({"f": Described(Symbol(dialect), text)})
    except PeerError as error:
        return check_refusal(error, names.INVALID_FIELD, len(text))
    return judge(compiled, MESSAGES)


def _made(draw: Draw) -> str:
    """A text of the grammar's words, half of the time in an order that the grammar could have."""
    if draw.chance(2):
        return draw.pick(("", " ")).join(draw.pick(WORDS) for _ in range(min(draw.left, 60)))
    return _predicate(draw, 0)


def _predicate(draw: Draw, depth: int) -> str:  # noqa: PLR0911  one for each kind
    if depth > 5:
        return "TRUE"
    match draw.below(10):
        case 0:
            return f"NOT {_predicate(draw, depth + 1)}"
        case 1 | 2:
            return (
                f"({_predicate(draw, depth + 1)} {draw.pick(('AND', 'OR', 'and'))}"
                f" {_predicate(draw, depth + 1)})"
            )
        case 3:
            return (
                f"{_expression(draw, depth)} {draw.pick(('', 'NOT '))}LIKE"
                f" {_expression(draw, depth)}{draw.pick(('', ' ESCAPE  ! '))}"
            )
        case 4:
            members = ", ".join(_expression(draw, depth) for _ in range(1 + draw.below(4)))
            return f"{_expression(draw, depth)} {draw.pick(('', 'NOT '))}IN ({members})"
        case 5:
            return f"{_expression(draw, depth)} IS {draw.pick(('', 'NOT '))}NULL"
        case 6:
            return f"EXISTS({draw.pick(WORDS[:24])})"
        case _:
            return (
                f"{_expression(draw, depth)} {draw.pick(('=', '<>', '!=', '<', '<=', '>', '>='))}"
                f" {_expression(draw, depth)}"
            )


def _expression(draw: Draw, depth: int) -> str:
    if depth > 5 or draw.chance(3):
        return printed_number(draw) if draw.chance(3) else draw.pick(WORDS[:60])
    match draw.below(4):
        case 0:
            return f"{_expression(draw, depth + 1)} {draw.pick('+-*/%')} {_expression(draw, depth + 1)}"
        case 1:
            return f"{draw.pick('+-')}{_expression(draw, depth + 1)}"
        case 2:
            return f"({_expression(draw, depth + 1)})"
        case _:
            arguments = ", ".join(_expression(draw, depth + 1) for _ in range(draw.below(4)))
            name = draw.pick(("LOWER", "UPPER", "LEFT", "RIGHT", "SUBSTRING", "UTC", "DATE", "acme:f"))
            return f"{name}({arguments})"


TARGET: Final = Target("texts", run, seconds_max=0.5, words=tuple(word.encode() for word in WORDS))
