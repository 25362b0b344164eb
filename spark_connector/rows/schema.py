"""Converts columns to types of Spark and Arrow. Pure, except for the classes of Spark and Arrow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_connector.options.given import parse
from spark_connector.options.table import Use
from spark_connector.rows.columns import CLOUDEVENTS, Chosen, choose, fit

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
_CHOOSING: Final = frozenset({"columns", "includeproperties"})


def chosen(options: Mapping[str, str]) -> StructType:
    """Return the columns that the options choose, for a query without `.schema(…)`.

    Raises:
        OptionError, SchemaError: a column does not exist, or the options are not valid.
    """
    values = parse(
        {name: text for name, text in options.items() if name.lower() in _CHOOSING}, Use.BATCH_READ
    )
    return struct(choose(values.names("columns"), properties=values.flag("includeProperties")))


def struct(columns: Chosen) -> StructType:
    """Return the columns as a Spark schema."""
    return StructType(
        [StructField(column.name, _TYPES[kind], column.nullable) for column, kind in columns.columns]
    )


def fitting(schema: StructType, words: tuple[str, ...]) -> Chosen:
    """Return the columns of the schema of a query. `words`: the option `columns`.

    Raises:
        SchemaError: a column does not exist, or has another type.
    """
    wanted = [(one.name, one.dataType.simpleString()) for one in schema.fields]
    return fit(wanted, events=CLOUDEVENTS in {word.lower() for word in words})


def arrow_schema(schema: StructType) -> "pa.Schema":
    """Return the Arrow schema of every record batch.

    Spark checks only the first batch, so all batches must have exactly this schema.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only tasks need it

    return to_arrow_schema(schema, timezone="UTC")
