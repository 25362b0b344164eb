"""Anchors of filters: an attribute and the values that an event must have to pass. The index looks events up
by them.

An anchor is necessary, not sufficient: an event whose attribute does not have one of the values does not pass
the filter. If this is not certain, the filter does not have an anchor.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.filters.attributes import DERIVED
from knative_gateway.filters.cesql.casts import as_boolean, as_integer, as_string
from knative_gateway.filters.cesql.parser import parse
from knative_gateway.filters.cesql.syntax import Attribute, Compare, Constant, In, Logic, Node
from knative_gateway.filters.refusal import Failed
from knative_gateway.filters.validation import ATTRIBUTES, EXPRESSIONS


@dataclass(frozen=True, slots=True)
class Anchor:
    """The attribute `name` must have one of `values`. `whole`: the filter does not require anything else."""

    name: str
    values: frozenset[str]
    whole: bool = False


def anchors(filters: Sequence[Mapping[str, object]]) -> list[Anchor]:
    """Return all anchors of valid filters, which are ANDed.

    `whole` is set only if there is a single filter.
    """
    found = [anchor for filter_ in filters for anchor in _of_filter(filter_)]
    contents = [filter_ for filter_ in filters if any(filter_.values())]
    return found if len(contents) == 1 else [Anchor(each.name, each.values) for each in found]


def _of_filter(filter_: Mapping[str, object]) -> Iterator[Anchor]:
    for name, content in filter_.items():
        if not content:
            continue
        if name in ("exact", ATTRIBUTES) and isinstance(content, Mapping):
            yield from _of_map(content)
        elif name == "all" and isinstance(content, Sequence):
            yield from anchors(content)
        elif name == "any" and isinstance(content, Sequence):
            yield from _of_any([anchors([each]) for each in content if any(each.values())])
        elif name in EXPRESSIONS and isinstance(content, str):
            yield from _of_expression(parse(content))


def _of_map(content: Mapping[str, str]) -> Iterator[Anchor]:
    for name, wanted in content.items():
        # A derived attribute is computed from others and is not in the event, so it cannot be looked up.
        if wanted and name not in DERIVED:
            yield Anchor(name, frozenset((wanted,)), whole=len(content) == 1)


def _of_any(alternatives: Sequence[Iterable[Anchor]]) -> Iterator[Anchor]:
    """Return the attributes on which every alternative has an anchor."""
    by_name = [{anchor.name: anchor for anchor in alternative} for alternative in alternatives]
    for name in by_name[0] if by_name else ():
        of_name = [found[name] for found in by_name if name in found]
        if len(of_name) == len(by_name):
            yield Anchor(
                name,
                frozenset().union(*(each.values for each in of_name)),
                whole=all(each.whole for each in of_name),
            )


def _of_expression(node: Node) -> Iterator[Anchor]:
    match node:
        # Only texts: with a literal of another type, the attribute is cast, and several texts are equal to
        # it.
        case Compare("=", Attribute(name), Constant(str() as wanted)):
            yield Anchor(name, frozenset((wanted,)), whole=True)
        case In(Attribute(name), members):
            values = [
                member.value
                for member in members
                if isinstance(member, Constant) and isinstance(member.value, str)
            ]
            # IN casts the members to the type of the attribute. Only members that survive the casts unchanged
            # can be compared as text.
            if len(values) == len(members) and all(map(_survives_casts, values)):
                yield Anchor(name, frozenset(values))
        case Logic(first, rest):
            operands = [first, *(operand for _, operand in rest)]
            connectives = {connective for connective, _ in rest}
            if connectives == {"AND"}:
                yield from (
                    Anchor(each.name, each.values) for operand in operands for each in _of_expression(operand)
                )
            # A mixed chain is evaluated from left to right, without precedence, so its operands are neither
            # necessary nor alternatives.
            elif connectives == {"OR"}:
                yield from _of_any([list(_of_expression(operand)) for operand in operands])
        case _:
            return


_CASTS: Final = (as_integer, as_boolean)


def _survives_casts(member: str) -> bool:
    """Return whether casting a text to Integer or Boolean and back gives the same text, or the cast fails."""
    for cast in _CASTS:
        try:
            value = cast(member)
        except Failed:
            continue
        if as_string(value) != member:
            return False
    return True
