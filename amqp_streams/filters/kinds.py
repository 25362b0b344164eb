"""The kinds of filters, by symbol and by code, and what each compiles to.

Spec: FILTEX 3-6; Event Streams 5.2; Apache's registry. Laws: a group with an unknown member is refused,
because its meaning depends on that member. A member that fails makes the group unknown (FILTEX 3). A member
that is not true because a field is missing does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.filters.bounds import EVERYTHING, NOTHING, Bounds, bounds_of
from amqp_streams.filters.evaluation.sql import Condition, condition
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import And, Dialect
from amqp_streams.filters.matching import property_condition
from amqp_streams.filters.needles import NOTHING_REQUIRED, Required, either, required
from amqp_streams.filters.record import Record
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.filters.values import FAILED, Truth, conjunction
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from amqp_streams.wire.offsets import Position, parse_offset
from amqp_streams.wire.types import Described, Value

CODES: Final[dict[int, str]] = {
    0x100: names.FILTEX_ALL,
    0x101: names.FILTEX_ANY,
    0x102: names.FILTEX_NOT,
    0x110: names.FILTEX_TRUE,
    0x111: names.FILTEX_FALSE,
    0x120: names.FILTEX_SQL,
    0x170: names.FILTEX_HEADER,
    0x171: names.FILTEX_DELIVERY_ANNOTATIONS,
    0x172: names.FILTEX_MESSAGE_ANNOTATIONS,
    0x173: names.FILTEX_PROPERTIES,
    0x174: names.FILTEX_APPLICATION_PROPERTIES,
    0x178: names.FILTEX_FOOTER,
    names.FILTER_DELIVERY_ANNOTATIONS_CODE: names.FILTER_DELIVERY_ANNOTATIONS,
    names.FILTER_SQL_CODE: names.FILTER_SQL,
    0x468C00000004: names.SELECTOR,
}
_GROUPS: Final = frozenset((names.FILTEX_ALL, names.FILTEX_ANY, names.FILTEX_NOT))
_CONSTANTS: Final = {names.FILTEX_TRUE: EVERYTHING, names.FILTEX_FALSE: NOTHING}
_TEXTS: Final = {
    names.FILTEX_SQL: Dialect.SQL,
    names.FILTER_SQL: Dialect.EVENT_STREAMS,
    names.SELECTOR: Dialect.SELECTOR,
}
_MAPS: Final = {
    names.FILTEX_HEADER: HEADER,
    names.FILTEX_DELIVERY_ANNOTATIONS: DELIVERY_ANNOTATIONS,
    names.FILTEX_MESSAGE_ANNOTATIONS: MESSAGE_ANNOTATIONS,
    names.FILTEX_PROPERTIES: PROPERTIES,
    names.FILTEX_APPLICATION_PROPERTIES: APPLICATION_PROPERTIES,
    names.FILTEX_FOOTER: FOOTER,
}
_KNOWN: Final = frozenset(CODES.values())
_ENTRY_WEIGHT: Final = 2
_CHARACTERS_PER_WEIGHT: Final = 4


@dataclass(frozen=True, slots=True)
class Part:
    """The compiled form of a filter. A record matches if it is within `bounds` and all `conditions` are true.

    `needles`: bytes that each matching message contains. `weight`: see `Compiled`.
    """

    bounds: Bounds = EVERYTHING
    conditions: tuple[Condition, ...] = ()
    needles: Required = NOTHING_REQUIRED
    weight: int = 0

    def joined(self, other: "Part") -> "Part":
        """Return a part that requires both."""
        return Part(
            self.bounds.narrowed(other.bounds),
            self.conditions + other.conditions,
            self.needles.both(other.needles),
            self.weight + other.weight,
        )

    def condition(self) -> Condition:
        """Return bounds and conditions as one closure.

        A member of ANY or NOT needs it: the group can select a record that is outside the member's bounds, so
        a reader must not skip by them.
        """
        bounds, conditions = self.bounds, self.conditions
        if bounds == EVERYTHING and len(conditions) == 1:
            return conditions[0]

        def holds(record: Record) -> Truth:
            result: Truth = bounds.within(record)
            for each in conditions:
                # A record outside the bounds needs no further evaluation.
                if result is False:
                    break
                result = conjunction(result, each(record))
            return result

        return holds


def kind_of(descriptor: Value) -> str | None:
    """The symbol of the filter kind that a descriptor (symbol or code) names; None if it is unknown."""
    if isinstance(descriptor, str):
        # FILTEX prints one symbol with a space.
        return descriptor.strip() if descriptor.strip() in _KNOWN else None
    return CODES.get(descriptor) if isinstance(descriptor, int) and not isinstance(descriptor, bool) else None


class Compiler:
    """Compiles the filters of one source, and counts them: `Limits.filters` is for all of them together."""

    __slots__ = ("_count", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0

    def part(self, kind: str, value: Value, depth: int = 0) -> Part:
        """Return the compiled form of a filter of this kind. `depth`: the number of enclosing groups.

        Raises:
            FilterError: the filter is malformed, has a wrong type, or exceeds a limit.
        """
        # Before the members are compiled: the peer chooses their number.
        self._count += 1
        if self._count > self._limits.filters:
            reason = f"there are more than {self._limits.filters} filters, including those in groups"
            raise FilterError(reason)
        if kind in _GROUPS:
            return self._group(kind, value, depth)
        if kind in _CONSTANTS:
            if value is not None and not isinstance(value, bool):
                reason = f"the value of {kind} must be a boolean (got {type(value).__name__})"
                raise FilterError(reason)
            return Part(_CONSTANTS[kind])
        if kind in _TEXTS:
            return _text(_TEXTS[kind], value, self._limits)
        if kind in _MAPS:
            holds, needles = property_condition(_MAPS[kind], value, self._limits)
            return Part(
                conditions=(holds,),
                needles=needles,
                weight=_ENTRY_WEIGHT * len(value if isinstance(value, dict) else ()),
            )
        return _position(value)

    def _group(self, kind: str, value: Value, depth: int) -> Part:
        if not isinstance(value, list) or not value:
            reason = (
                f"the value of {kind} must be a non-empty list of filters (got"
                f" {'[]' if value == [] else type(value).__name__})"
            )
            raise FilterError(reason)
        # Each level uses the interpreter's stack, here and for each record.
        if depth >= self._limits.depth:
            reason = f"groups are nested more than {self._limits.depth} levels deep"
            raise FilterError(reason)
        members = [self._member(number, member, depth + 1) for number, member in enumerate(value, 1)]
        # A top-level ALL means the same as its members listed in the source, so a reader can use their
        # bounds.
        if kind == names.FILTEX_ALL and depth == 0:
            return joined(members)
        # NOT requires nothing: a message without the needle matches it.
        needles = (
            either([member.needles for member in members]) if kind == names.FILTEX_ANY else NOTHING_REQUIRED
        )
        weight = sum(1 + member.weight for member in members)
        return Part(
            conditions=(_grouped(kind, [member.condition() for member in members]),),
            needles=needles,
            weight=weight,
        )

    def _member(self, number: int, member: Value, depth: int) -> Part:
        kind = kind_of(member.descriptor) if isinstance(member, Described) else None
        if not isinstance(member, Described) or kind is None:
            reason = f"member {number} of the group is not a known filter"
            raise FilterError(reason, number)
        try:
            return self.part(kind, member.value, depth)
        except FilterError as error:
            reason = f"member {number}: {error.reason}"
            raise FilterError(reason, error.position) from error


def _grouped(kind: str, conditions: list[Condition]) -> Condition:
    def holds(record: Record) -> Truth:
        matching = 0
        for each in conditions:
            truth = each(record)
            # FILTEX 3: also in ANY, where another member may be true.
            if truth is FAILED:
                return FAILED
            matching += truth is True
        if kind == names.FILTEX_ALL:
            return matching == len(conditions)
        return matching > 0 if kind == names.FILTEX_ANY else matching == 0

    return holds


def _text(dialect: Dialect, value: Value, limits: Limits) -> Part:
    # Event Streams 5.2.2 defines 0x201 as a restriction of 0x120, so the text may be described twice.
    while isinstance(value, Described):
        value = value.value
    if not isinstance(value, str):
        reason = f"the value must be a text (got {type(value).__name__})"
        raise FilterError(reason)
    node = parse(value, dialect, limits)
    unlike: Truth = False if dialect is Dialect.SELECTOR else FAILED
    # The length of the text stands for the number of its operations.
    whole = Part(weight=1 + len(value) // _CHARACTERS_PER_WEIGHT)
    for conjunct in node.operands if isinstance(node, And) else (node,):
        bounds = bounds_of(conjunct)
        # A conjunct that becomes a bound needs no condition: the reader looks only at records within the
        # bounds.
        if bounds is not None:
            whole = whole.joined(Part(bounds))
        else:
            whole = whole.joined(Part(EVERYTHING, (condition(conjunct, unlike),), required(conjunct)))
    return whole


def _position(value: Value) -> Part:
    if not isinstance(value, dict):
        reason = f"the value must be a map (got {type(value).__name__})"
        raise FilterError(reason)
    after: list[Position] = []
    after_ms: int | None = None
    for number, (key, wanted) in enumerate(value.items(), 1):
        if key == names.OFFSET and isinstance(wanted, str):  # a symbol, or the string that many clients send
            try:
                after.append(parse_offset(wanted))
            except ValueError as error:
                raise FilterError(str(error), number) from error
        elif key == names.TIMESTAMP and isinstance(wanted, int) and not isinstance(wanted, bool):
            after_ms = int(wanted)
        elif key in (names.OFFSET, names.TIMESTAMP):
            reason = f"{key} has the wrong type: an offset must be a symbol, a timestamp must be a timestamp"
            raise FilterError(reason, number)
        else:
            reason = (
                f"{str(key)[:64]!r} cannot be filtered on: use {names.OFFSET} or {names.TIMESTAMP} (5.2.1)"
            )
            raise FilterError(reason, number)
    return Part(Bounds(after=tuple(after), after_ms=after_ms))


def joined(parts: Iterable[Part]) -> Part:
    """Return one part that requires all `parts`."""
    whole = Part()
    for part in parts:
        whole = whole.joined(part)
    return whole
