"""Avro schemas: from JSON to types, with the fingerprint of the schema. Pure.

Laws: a schema has at most `SCHEMA_BYTES_MAX` bytes and `LEVELS_MAX` levels. A schema that is not valid raises
a SchemaError that names the place. Spec: Apache Avro 1.12, "Schema Declaration", "Parsing Canonical Form".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA_BYTES_MAX: Final = 64 << 10
LEVELS_MAX: Final = 32
"""Levels of types in types. A reference to a type by its name is one level."""
NAME_MAX: Final = 255
"""Characters of a name with its namespace: the canonical form repeats it at each place that refers to it."""
_SHOWN_MAX: Final = 60
_PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_CRC_EMPTY: Final = 0xC15D213AA4D7A795
_SCALE_MAX: Final = 100
_FIXED_BYTES_MAX: Final = 1 << 31


class SchemaError(ValueError):
    """A text is not a valid Avro schema. The message says where and why."""


@dataclass(slots=True)
class Type:
    """A type of a schema.

    `name`: of a record, enum or fixed. `items`: the type of an item of an array, or of a value of a map.
    """

    kind: str
    name: str = ""
    logical: str = ""
    scale: int = 0
    fields: list[tuple[str, "Type"]] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    branches: list["Type"] = field(default_factory=list)
    items: "Type | None" = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema. `fingerprint`: the CRC-64-AVRO of its Parsing Canonical Form."""

    type: Type
    fingerprint: int


def schema_of(text: str) -> Schema:
    """Return the schema in a JSON text.

    Raises:
        SchemaError: the text is too long, or is not a valid schema.
    """
    if len(text) > SCHEMA_BYTES_MAX or len(text.encode(errors="replace")) > SCHEMA_BYTES_MAX:
        message = f"A schema has at most {SCHEMA_BYTES_MAX >> 10} KiB."
        raise SchemaError(message)
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"This is not valid JSON: {error.msg}, at line {error.lineno}, column {error.colno}."
        raise SchemaError(message) from error
    except (RecursionError, ValueError) as error:
        message = "This JSON has too many levels, or a number that is too long."
        raise SchemaError(message) from error
    found, canonical = _Parser().parse(given, "", "the schema", 0)
    words = json.dumps(canonical, separators=(",", ":"), ensure_ascii=False)
    return Schema(found, fingerprint(words.encode(errors="replace")))


def fingerprint(canonical: bytes) -> int:
    """Return the CRC-64-AVRO of a Parsing Canonical Form."""
    found = _CRC_EMPTY
    for each in canonical:
        found = (found >> 8) ^ _CRC_TABLE[(found ^ each) & 0xFF]
    return found


def _crc_table() -> list[int]:
    table = []
    for each in range(256):
        found = each
        for _ in range(8):
            found = (found >> 1) ^ (_CRC_EMPTY if found & 1 else 0)
        table.append(found)
    return table


_CRC_TABLE: Final = _crc_table()


class _Parser:
    """Parses one schema. `parse` returns a type with its Parsing Canonical Form."""

    def __init__(self) -> None:
        self._named: Final[dict[str, Type]] = {}

    def parse(self, given: object, namespace: str, place: str, level: int) -> tuple[Type, object]:
        if level > LEVELS_MAX:
            raise _wrong(place, f"the schema has more than {LEVELS_MAX} levels")
        match given:
            case str():
                return self._reference(given, namespace, place)
            case list():
                return self._union(given, namespace, place, level)
            case dict():
                return self._complex(given, namespace, place, level)
        raise _wrong(place, f"a type is a text, a list or an object, not {_shown(given)}")

    def _reference(self, name: str, namespace: str, place: str) -> tuple[Type, object]:
        if name in _PRIMITIVES:
            return Type(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            raise _wrong(place, f"the type {_shown(name)} is not defined before this place")
        return self._named[full], full

    def _union(self, given: list[Any], namespace: str, place: str, level: int) -> tuple[Type, object]:
        if not given:
            raise _wrong(place, "a union needs at least one type")
        found = [
            self.parse(each, namespace, f"{place}[{index}]", level + 1) for index, each in enumerate(given)
        ]
        kinds = [each.name or each.kind for each, _ in found]
        if "union" in kinds:
            raise _wrong(place, "a union must not have a union in it")
        if len(set(kinds)) < len(kinds):
            raise _wrong(place, "a union has a type twice")
        return Type("union", branches=[each for each, _ in found]), [canonical for _, canonical in found]

    def _complex(
        self, given: Mapping[str, Any], namespace: str, place: str, level: int
    ) -> tuple[Type, object]:
        kind = given.get("type")
        match kind:
            case "record" | "error":
                return self._record(given, namespace, place, level)
            case "enum" | "fixed":
                return self._named_leaf(given, namespace, place)
            case "array" | "map":
                part = "items" if kind == "array" else "values"
                items, canonical = self.parse(given.get(part), namespace, f"{place}.{part}", level + 1)
                return Type(kind, items=items), {"type": kind, part: canonical}
        found, canonical = self.parse(kind, namespace, f"{place}.type", level + 1)
        if found.kind in _PRIMITIVES and "logicalType" in given:
            found.logical, found.scale = _logical(given)
        return found, canonical

    def _record(
        self, given: Mapping[str, Any], namespace: str, place: str, level: int
    ) -> tuple[Type, object]:
        found, inner = self._define("record", given, namespace, place)
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise _wrong(place, 'a record needs a list "fields"')
        names: set[str] = set()
        canonical = []
        for index, each in enumerate(fields):
            here = f"{place}.fields[{index}]"
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _wrong(here, 'a field needs a "name" of letters, digits and _')
            if name in names:
                raise _wrong(here, f"the field {_shown(name)} is there twice")
            names.add(name)
            type_, form = self.parse(each.get("type"), inner, f"{here}.type", level + 1)
            found.fields.append((name, type_))
            canonical.append({"name": name, "type": form})
        return found, {"name": found.name, "type": given["type"], "fields": canonical}

    def _named_leaf(self, given: Mapping[str, Any], namespace: str, place: str) -> tuple[Type, object]:
        found, _ = self._define(given["type"], given, namespace, place)
        if found.kind == "enum":
            symbols = given.get("symbols")
            if not isinstance(symbols, list) or not all(
                isinstance(each, str) and _NAME.fullmatch(each) for each in symbols
            ):
                raise _wrong(place, 'an enum needs a list "symbols" of names')
            found.symbols = symbols
            return found, {"name": found.name, "type": "enum", "symbols": symbols}
        size = given.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _FIXED_BYTES_MAX:
            raise _wrong(place, 'a fixed type needs a "size" in bytes')
        found.size = size
        found.logical, found.scale = _logical(given)
        return found, {"name": found.name, "type": "fixed", "size": size}

    def _define(self, kind: str, given: Mapping[str, Any], namespace: str, place: str) -> tuple[Type, str]:
        """Return a new type with a name, and the namespace of the types in it."""
        name, own = given.get("name"), given.get("namespace", namespace)
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
            raise _wrong(place, f'this {kind} needs a "name" of letters, digits, _ and dots')
        if not isinstance(own, str) or (own and not _FULL_NAME.fullmatch(own)):
            raise _wrong(place, 'the "namespace" is not a name')
        full = name if "." in name or not own else f"{own}.{name}"
        if len(full) > NAME_MAX:
            raise _wrong(place, f"a name with its namespace has at most {NAME_MAX} characters")
        if full in _PRIMITIVES or full in self._named:
            raise _wrong(place, f"the name {_shown(full)} is defined twice")
        found = self._named[full] = Type(kind, full)
        return found, full.rpartition(".")[0]


def _logical(given: Mapping[str, Any]) -> tuple[str, int]:
    """Return the logical type and its scale. Logical types that are not valid are ignored, as Avro says."""
    logical, scale = given.get("logicalType"), given.get("scale", 0)
    if not isinstance(logical, str):
        return "", 0
    if logical == "decimal" and not (type(scale) is int and 0 <= scale <= _SCALE_MAX):
        return "", 0
    return logical, scale if logical == "decimal" else 0


def _wrong(place: str, why: str) -> SchemaError:
    cut = place if len(place) <= 4 * _SHOWN_MAX else f"{place[: 4 * _SHOWN_MAX]}…"
    return SchemaError(f"The schema is not valid: {why} (at {cut}).")


def _shown(value: object) -> str:
    words = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return words if len(words) <= _SHOWN_MAX else f"{words[:_SHOWN_MAX]}…"
