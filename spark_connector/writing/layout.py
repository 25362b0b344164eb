"""The columns that a DataFrame must have to be written, and their types.

Pure; checked once, when the write is planned.

The columns select one of two layouts: messages (`body` and other AMQP fields) or CloudEvents (`id`, `source`,
`type`, …).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final

from spark_connector.errors import SchemaError

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
SCALARS: Final = ("string", "binary", "boolean", *INTEGERS, "float", "double", "timestamp", "timestamp_ntz")
"""Types of application properties.

Numbers keep their type, because filters of the log compare them as numbers.
"""
ATTRIBUTES: Final = ("string", "binary", "boolean", *INTEGERS)
"""Types of CloudEvents attributes (CloudEvents 1.0, 2.3). A time is text."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a DataFrame.

    Its name, Spark's name of its type, and for a map ("*") or struct the types of its values.
    """

    name: str
    type: str
    inside: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rule for a column.

    One of `types` (Spark's names), or a map from strings or a struct with values of the types `inside`.
    """

    types: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    required: bool = False

    def __str__(self) -> str:
        if self.inside:
            return f"map<string, T> or struct of T, T being one of {', '.join(self.inside)}"
        return " or ".join(self.types)


class Style(Enum):
    """The layout of a DataFrame."""

    MESSAGES = "messages"
    CLOUDEVENTS = "CloudEvents"


COLUMNS: Final[Mapping[Style, Mapping[str, Wanted]]] = {
    Style.MESSAGES: {
        "body": Wanted(("binary", "string"), required=True),
        "key": Wanted(("string",)),
        "partition": Wanted(INTEGERS),
        "properties": Wanted(inside=SCALARS),
        "subject": Wanted(("string",)),
        "content_type": Wanted(("string",)),
        "message_id": Wanted(("string",)),
        "correlation_id": Wanted(("string",)),
        "creation_time": Wanted(("timestamp",)),
    },
    Style.CLOUDEVENTS: {
        "id": Wanted(("string",), required=True),
        "source": Wanted(("string",), required=True),
        "type": Wanted(("string",), required=True),
        "subject": Wanted(("string",)),
        "time": Wanted(("timestamp", "string")),
        "datacontenttype": Wanted(("string",)),
        "dataschema": Wanted(("string",)),
        "data": Wanted(("binary", "string")),
        "extensions": Wanted(inside=ATTRIBUTES),
        "partition": Wanted(INTEGERS),
    },
}
"""The columns of both layouts. docs/spark.md has the same table; a test compares them."""

_ELSEWHERE: Final = {
    "value": "body",
    "partitionkey": "key",
    "partitionid": "partition",
    "headers": "properties",
    "contenttype": "content_type",
    "messageid": "message_id",
    "correlationid": "correlation_id",
}
"""The columns of messages, by the names in other sinks."""
_GIVEN_BY_THE_LOG: Final = ("stream", "offset", "enqueued_time")


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a DataFrame, and the index of each column, by the name in COLUMNS."""

    style: Style
    indexes: Mapping[str, int]


def plan(columns: Sequence[Column]) -> Layout:
    """Match the columns of a DataFrame with a layout. The case of names does not matter.

    Raises:
        SchemaError: a column is missing, unknown, repeated, or has a type that cannot be written. The message
            names the column and what is expected.
    """
    names = [column.name.lower() for column in columns]
    style = _style(names)
    wanted = COLUMNS[style]
    _refuse_unknown(columns, style)
    for name in {name for name in names if names.count(name) > 1}:
        raise SchemaError(f"column {name} exists more than once", remedy="Rename or drop one of them")
    for name, rule in wanted.items():
        if rule.required and name not in names:
            raise SchemaError(
                f"column {name} ({rule}) is missing: {style.value} need it",
                remedy=f"Columns: {_listed(names)}",
            )
    for column, name in zip(columns, names, strict=True):
        _check_type(column, wanted[name])
    return Layout(style, {name: index for index, name in enumerate(names)})


def _style(names: Sequence[str]) -> Style:
    ours = {style: set(names) & _only_in(style) for style in Style}
    if all(ours.values()):
        both = " and ".join(f"{_listed(sorted(found))} (of {style.value})" for style, found in ours.items())
        raise SchemaError(
            f"the columns belong to two layouts: {both}", remedy="Write either messages or CloudEvents"
        )
    if not any(ours.values()):
        raise SchemaError(
            f"no column body and no columns of CloudEvents among {_listed(names)}",
            remedy='Rename it: withColumnRenamed("value", "body")'
            if "value" in names
            else "Select something as body (binary or string), or id, source and type",
        )
    return next(style for style, found in ours.items() if found)


def _only_in(style: Style) -> set[str]:
    others = {name for other in Style if other is not style for name in COLUMNS[other]}
    return set(COLUMNS[style]) - others


def _refuse_unknown(columns: Iterable[Column], style: Style) -> None:
    wanted = COLUMNS[style]
    for column in columns:
        name = column.name.lower()
        if name in wanted:
            continue
        if name in _GIVEN_BY_THE_LOG:
            raise SchemaError(
                f"column {column.name} is set by the log and cannot be written",
                remedy=f'Remove it: drop("{column.name}")',
            )
        if name == "topic":
            raise SchemaError(
                "column topic cannot be written",
                remedy="The option 'stream' names the one log of a write: drop(\"topic\")",
            )
        near = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in wanted else get_close_matches(name, wanted, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise SchemaError(
            f"column {column.name} does not exist for {style.value}",
            remedy=f"{hint}Columns: {_listed(wanted)}",
        )


def _check_type(column: Column, rule: Wanted) -> None:
    if rule.inside:
        good = column.inside is not None and len(column.inside) > 0
        wrong = {
            name: kind for name, kind in (column.inside or {}).items() if _plain(kind) not in rule.inside
        }
        if good and wrong:
            name, kind = next(iter(wrong.items()))
            where = "its values are" if name == "*" else f"its field {name} is"
            raise SchemaError(
                f"column {column.name} cannot be written: {where} {kind}", remedy=f"Expected: {rule}; cast it"
            )
    else:
        good = _plain(column.type) in rule.types
    if not good:
        raise SchemaError(f"column {column.name} is {column.type}", remedy=f"Expected: {rule}; cast it")


def _plain(kind: str) -> str:
    """Return a type without collation and length, which do not change the written bytes."""
    for text in ("string", "varchar", "char"):
        if kind == text or kind.startswith((text + " ", text + "(")):
            return "string"
    return kind


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no columns"
