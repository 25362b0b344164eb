"""Filter sets as they are on the wire: property filters, groups, kinds by symbol and by code, values of every
type.
"""

from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.filters import compile_filters
from amqp_streams.filters.kinds import CODES
from amqp_streams.wire.types import Described, Symbol, ULong, Value
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.records import check_refusal, judge, messages
from fuzz.targets.engine.texts import WORDS
from fuzz.values import mapping, text, value

_KINDS: Final = tuple(CODES.values())


def run(data: bytes) -> str:
    """One filter set against messages of choices."""
    draw = Draw(data)
    filters: dict[str, Value] = {
        f"{text(draw)[:8]}{place}": _filter(draw, 0) for place in range(1 + draw.below(3))
    }
    try:
        compiled = compile_filters(filters)
    except PeerError as error:
        if error.info.get("filter") not in {name[:64] for name in filters}:
            message = f"refused for {error.info.get('filter')!r}, which is none of {list(filters)}"
            raise WrongError(message) from error
        return check_refusal(error, names.INVALID_FIELD)
    return f"{len(compiled.in_force)} in force, {judge(compiled, messages(draw))}"


def _filter(draw: Draw, depth: int) -> Value:
    kind = draw.pick(_KINDS)
    descriptor: ULong | Symbol = ULong(draw.pick(tuple(CODES))) if draw.chance(3) else Symbol(kind)
    if isinstance(descriptor, ULong):
        kind = CODES[descriptor]
    if draw.chance(12):
        return Described(value(draw), value(draw))
    return Described(descriptor, _content(draw, kind, depth))


def _content(draw: Draw, kind: str, depth: int) -> Value:
    if draw.chance(10):
        return value(draw)
    if kind in (names.FILTEX_ALL, names.FILTEX_ANY, names.FILTEX_NOT):
        return [_filter(draw, depth + 1) for _ in range(draw.below(4))] if depth < 6 else []
    if kind in (names.FILTEX_SQL, names.FILTER_SQL, names.SELECTOR):
        return " ".join(draw.pick(WORDS) for _ in range(1 + draw.below(9)))
    if kind in (names.FILTEX_TRUE, names.FILTEX_FALSE):
        return draw.chance(2)
    return mapping(draw)


TARGET: Final = Target("filters", run, seconds_max=0.5)
