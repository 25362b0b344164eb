"""Property filters: a map of reference values -> a closure. Spec: FILTEX 4.1, 4.2.

Laws: all entries must match. A NULL reference matches every value. An absent header field has its default
value. A filter is refused if header or properties do not define its field, or define it with another type.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from amqp_streams.filters.evaluation.sql import Condition
from amqp_streams.filters.fields import FIELD_TYPES, POSITIONS, field_name
from amqp_streams.filters.needles import Required, key_needle, text_needle, value_needle
from amqp_streams.filters.record import Found, Getter, Record, whole_map, with_default
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.filters.values import FAILED, INTEGERS, KINDS, MISSING, Kind, Truth
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, NAMES
from amqp_streams.wire.types import Array, Described, Symbol, Timestamp, Value

Matcher: TypeAlias = Callable[[Value], bool]
_SUFFIX: Final = "&s:"
_PREFIX: Final = "&p:"
_ESCAPE: Final = "&&"
_NUMERIC: Final = frozenset((Kind.NUMBER, Kind.TIME))


def property_condition(section: int, reference: Value, limits: Limits) -> tuple[Condition, Required]:
    """Return a condition on a section, and the bytes that a matching message contains.

    The condition is true if the section matches the reference map.

    Raises:
        FilterError: `reference` is not a map, has a field that the section does not define, or exceeds
            `limits`. The position of the error is the entry's number, from 1.
    """
    if not isinstance(reference, dict):
        reason = f"the filter of {NAMES[section]} must be a map (got {type(reference).__name__})"
        raise FilterError(reason)
    # Before anything is compiled: the peer chooses the number of entries.
    _check_size(reference, limits)
    checks: list[tuple[Getter, Matcher]] = []
    needles = Required()
    for number, (key, wanted) in enumerate(reference.items(), 1):
        try:
            get, name = _getter(section, key, wanted)
            match = matcher(wanted)
        except FilterError as error:
            raise FilterError(error.reason, number) from error
        # FILTEX 4.1: NULL matches every value, so neither a check nor a needle follows. The entry itself was
        # checked.
        if wanted is None:
            continue
        checks.append((get, match))
        if section != DELIVERY_ANNOTATIONS:  # written at delivery: the stored bytes do not contain them
            needles = needles.both(_needle(wanted))
            if name is not None:
                needles = needles.both(key_needle(section, name))
    return _all_match(checks), needles


def matcher(reference: Value) -> Matcher:  # noqa: PLR0911 - one for each type
    """Return a function that decides whether the value of a field matches `reference`.

    Raises:
        FilterError: a text begins with `&` but not with a known modifier.
    """
    while isinstance(reference, Described):
        reference = reference.value
    if reference is None:
        return lambda _value: True
    if isinstance(reference, dict):
        inner = {key: matcher(value) for key, value in reference.items() if value is not None}
        return lambda value: (
            isinstance(value, dict)
            and all(key in value and match(_plain(value[key])) for key, match in inner.items())
        )
    if isinstance(reference, list):
        items = [matcher(item) for item in reference]
        return lambda value: isinstance(value, list) and len(value) >= len(items) and _pairwise(items, value)
    if isinstance(reference, Array):
        elements = [matcher(item) for item in reference.items]
        return lambda value: (
            isinstance(value, Array)
            and len(value.items) == len(elements)
            and _pairwise(elements, value.items)
        )
    # Not in a symbol: only strings have modifiers.
    if type(reference) is str and reference.startswith("&"):
        return _modified(reference)
    kind = KINDS.get(type(reference))
    if kind in _NUMERIC:
        assert isinstance(reference, int | float)
        return _number(reference)
    if kind is Kind.TEXT:
        return lambda value: (value.__class__ is str or value.__class__ is Symbol) and value == reference
    same = type(reference)
    return lambda value: type(value) is same and value == reference


def _pairwise(matchers: list[Matcher], values: "list[Value] | tuple[Value, ...]") -> bool:
    return all(match(_plain(value)) for match, value in zip(matchers, values, strict=False))


def _plain(value: Value) -> Value:
    while isinstance(value, Described):
        value = value.value
    return value


def _modified(reference: str) -> Matcher:
    rest = reference[len(_SUFFIX) :]
    if reference.startswith(_SUFFIX):
        return lambda value: KINDS.get(type(value)) is Kind.TEXT and str(value).endswith(rest)
    if reference.startswith(_PREFIX):
        return lambda value: KINDS.get(type(value)) is Kind.TEXT and str(value).startswith(rest)
    if reference.startswith(_ESCAPE):
        literal = reference[1:]
        return lambda value: value == literal and KINDS.get(type(value)) is Kind.TEXT
    reason = (
        f"{reference[:16]!r} does not begin with a known modifier: use '&s:' suffix, '&p:' prefix, or '&&'"
        " for a text with '&'"
    )
    raise FilterError(reason)


def _number(reference: float) -> Matcher:
    as_float = float(reference)
    whole = isinstance(reference, int)

    def matches(value: Value) -> bool:
        kind = value.__class__
        if whole and (kind in INTEGERS or kind is Timestamp):
            return value == reference
        return isinstance(value, int | float) and not isinstance(value, bool) and float(value) == as_float

    return matches


def _all_match(checks: list[tuple[Getter, Matcher]]) -> Condition:
    def holds(record: Record) -> Truth:
        result: Truth = True
        for get, match in checks:
            found = get(record)
            if found is FAILED:
                # The loop continues: an entry that does not match makes the whole filter false.
                result = FAILED
            elif (
                found is MISSING
                or found is None
                or not match(_plain(found) if found.__class__ is Described else found)
            ):
                return False
        return result

    return holds


def _getter(section: int, key: Value, wanted: Value) -> tuple[Getter, str | None]:
    if not isinstance(key, str):
        if section in POSITIONS or section == APPLICATION_PROPERTIES or not isinstance(key, int):
            reason = f"{NAMES[section]} cannot have a field name of type {type(key).__name__}"
            raise FilterError(reason)
        return _numbered(section, int(key)), None
    name = field_name(section, key)
    if name is None:
        reason = f"{NAMES[section]} has no field {key[:64]!r}"
        raise FilterError(reason)
    if section in POSITIONS and wanted is not None and not _fits(name, _plain(wanted)):
        reason = f"{name} cannot be a {type(wanted).__name__}"
        raise FilterError(reason)
    return with_default(section, name), name


def _numbered(section: int, key: int) -> Getter:
    """Return a getter of an annotation whose key is a number.

    It decodes the whole map: the search for keys in the bytes finds texts only.
    """
    entries = whole_map(section)

    def found(record: Record) -> Found:
        whole = entries(record)
        return whole.get(key, MISSING) if isinstance(whole, dict) else FAILED

    return found


def _fits(name: str, wanted: Value) -> bool:
    types = FIELD_TYPES[name]
    return (
        isinstance(wanted, types)
        and (isinstance(wanted, bool) is (bool in types))
        and KINDS.get(type(wanted)) is not Kind.CHAR
    )


def _needle(wanted: Value) -> Required:
    plain = _plain(wanted)
    if not isinstance(plain, str) or KINDS.get(type(plain)) is not Kind.TEXT or not plain:
        return Required()
    if type(plain) is str and plain.startswith("&"):
        return value_needle(
            text_needle(plain[1:]) if plain.startswith(_ESCAPE) else plain[len(_SUFFIX) :].encode()
        )
    return value_needle(text_needle(plain))


def _check_size(reference: dict[Value, Value], limits: Limits) -> None:
    # Not recursive: the depth is the peer's choice.
    pending: list[Value] = [reference]
    count = 0
    while pending:
        value = _plain(pending.pop())
        inner: list[Value] = []
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, list | Array):
            inner = list(value.items if isinstance(value, Array) else value)
        pending += inner
        count += len(inner)
    if count > limits.entries:
        reason = f"the filter has {count} entries; at most {limits.entries} are allowed"
        raise FilterError(reason, limits.entries + 1)
