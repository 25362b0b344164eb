"""The columns of the source, in two families, and the selection of columns for a query. Pure.

The families are stored messages (`messages`) and CloudEvents (`cloudevents`). Both have columns for position,
time and key. `subject` is the field of AMQP in one family and the attribute of CloudEvents in the other.
docs/spark.md has the same tables (tests/spark_connector/rows/test_columns.py compares them).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from spark_connector.errors import SchemaError

CLOUDEVENTS: Final = "cloudevents"
DEFAULT: Final = "default"
EVERYTHING: Final = "all"


@dataclass(frozen=True, slots=True)
class Column:
    """`type`: the name in Spark SQL. `.schema(…)` may also use a type in `also`.

    `default`: a default column.
    """

    name: str
    type: str
    meaning: str
    default: bool = False
    nullable: bool = True
    also: tuple[str, ...] = ()


_TEXTS: Final = "map<string,string>"
_PLACE: Final = (
    Column("stream", "string", "The log of the event.", default=True, nullable=False),
    Column("partition", "int", "The partition, from 0.", default=True, nullable=False),
    Column(
        "offset", "bigint", "The offset in the partition, from 0, without gaps.", default=True, nullable=False
    ),
    Column(
        "enqueued_time",
        "timestamp",
        "When the node stored the event (ms). It never decreases within a partition.",
        default=True,
        nullable=False,
    ),
    Column("key", "string", "The key that selected the partition. Null: no key.", default=True),
)
_RAW: Final = (
    Column("message", "binary", "The whole AMQP message as it is stored."),
    Column("error", "string", "Why columns of this row cannot be read (`mode` PERMISSIVE). Null: no error."),
)
MESSAGES: Final = (
    Column(
        "body", "binary", "The body. Null: no body, or an amqp-value of null.", default=True, also=("string",)
    ),
    *_PLACE,
    Column(
        "properties", _TEXTS, "Application properties, values as text. Null: no such section.", default=True
    ),
    Column("subject", "string", "`subject` of the message's properties."),
    Column("content_type", "string", "`content-type`, for example `application/json`."),
    Column("message_id", "string", "`message-id` as text."),
    Column("correlation_id", "string", "`correlation-id` as text."),
    Column("creation_time", "timestamp", "`creation-time`: when the producer created the message."),
    Column(
        "annotations",
        _TEXTS,
        "Message annotations, including the key, values as text. Null: no such section.",
    ),
    Column("body_type", "string", "The kind of the body: `data`, `value` or `sequence`. Null: no body."),
    *_RAW,
)
EVENTS: Final = (
    Column("id", "string", "`id`", default=True),
    Column("source", "string", "`source`", default=True),
    Column("type", "string", "`type`", default=True),
    Column("subject", "string", "`subject`. Null: not given.", default=True),
    Column("time", "timestamp", "`time`, to the microsecond. Null: not given.", default=True),
    Column("datacontenttype", "string", "`datacontenttype`. Null: not given.", default=True),
    Column("data", "binary", "The data, byte for byte. Null: none.", default=True, also=("string",)),
    Column(
        "extensions",
        _TEXTS,
        "All other attributes except `specversion` and `dataschema`, as text.",
        default=True,
    ),
    Column("specversion", "string", "`specversion`, 1.0."),
    Column("dataschema", "string", "`dataschema`. Null: not given."),
    *(Column(one.name, one.type, one.meaning, nullable=one.nullable) for one in _PLACE),
    *_RAW,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The selected columns of one family, in the order of the rows, with their types.

    `events`: the family is CloudEvents.
    """

    events: bool
    columns: tuple[tuple[Column, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column, _ in self.columns)


def choose(words: Sequence[str], *, properties: bool = True) -> Chosen:
    """Return the columns of the option `columns`. `properties`: `default` includes the column `properties`.

    Raises:
        SchemaError: a column does not exist in the family, or is repeated.
    """
    events = CLOUDEVENTS in {word.lower() for word in words}
    family = EVENTS if events else MESSAGES
    defaults = [one for one in family if one.default and (properties or one.name != "properties")]
    found: list[Column] = []
    for word in words:
        match word.lower():
            case "cloudevents" | "default":
                found += [one for one in defaults if one not in found]
            case "all":
                found += [one for one in family if one not in found]
            case name:
                column = column_of(name, events=events)
                if column in found:
                    raise SchemaError(f"column {name!r} is repeated", "option 'columns'", "Name it once")
                found.append(column)
    return Chosen(events, tuple((one, one.type) for one in found))


def fit(wanted: Sequence[tuple[str, str]], *, events: bool) -> Chosen:
    """Return the columns of `.schema(…)`, given as names and types, in the same order.

    Raises:
        SchemaError: a column does not exist, or cannot have this type.
    """
    found = []
    for name, kind in wanted:
        column = column_of(name, events=events)
        if kind not in (column.type, *column.also):
            types = " or ".join((column.type, *column.also))
            raise SchemaError(
                f"column {name!r} cannot have type {kind}",
                ".schema(…)",
                f"Its type is {types}; cast it after reading",
            )
        found.append((column, kind))
    return Chosen(events, tuple(found))


def column_of(name: str, *, events: bool) -> Column:
    """Return the column of a family.

    Raises:
        SchemaError: the column does not exist; the message names the most similar one.
    """
    family = {one.name: one for one in (EVENTS if events else MESSAGES)}
    column = family.get(name.lower())
    if column is not None:
        return column
    near = get_close_matches(name.lower(), family, n=1, cutoff=0.6)
    if near:
        remedy = f"Did you mean {near[0]!r}?"
    elif not events and name.lower() in {one.name for one in EVENTS}:
        remedy = f'It is a column of CloudEvents: add .option("columns", "{CLOUDEVENTS}")'
    else:
        remedy = f"Columns: {', '.join(family)}"
    raise SchemaError(f"unknown column {name!r}", "columns of CloudEvents" if events else "", remedy)
