"""Columns as Spark's types and Arrow's. Pure, but for Spark's and Arrow's classes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType, TimestampType

from spark_connector.options.table import Use, parse
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
    """The columns that the options choose, for a query without `.schema(…)`.

    Raises:
        OptionError, SchemaError: they choose none that there are.
    """
    values = parse({name: text for name, text in options.items() if name.lower() in _CHOOSING}, Use.BATCH_READ)
    return struct(choose(values.names("columns"), properties=values.flag("includeProperties")))


def struct(columns: Chosen) -> StructType:
    """As Spark's type."""
    return StructType([StructField(column.name, _TYPES[kind], column.nullable) for column, kind in columns.columns])


def fitting(schema: StructType, words: tuple[str, ...]) -> Chosen:
    """The columns of the schema that a query has, whoever chose it; `words`: the option `columns`.

    Raises:
        SchemaError: some are not the source's.
    """
    wanted = [(one.name, one.dataType.simpleString()) for one in schema.fields]
    return fit(wanted, events=CLOUDEVENTS in {word.lower() for word in words})


def arrow_schema(schema: StructType) -> "pa.Schema":
    """Exactly what Spark wants of every record batch: it compares the first and believes the others."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where rows are made

    return to_arrow_schema(schema, timezone="UTC")
