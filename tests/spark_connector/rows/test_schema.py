"""Columns as Spark's and Arrow's types."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_connector.errors import ConnectorError
from spark_connector.rows.columns import choose
from spark_connector.rows.schema import arrow_schema, chosen, fitting, struct


def test_options_choose_the_schema_before_anything_else_is_looked_at() -> None:
    schema = chosen({"endpoint": "nonsense://", "Columns": "offset,enqueued_time,properties"})
    assert [(one.name, one.dataType.simpleString(), one.nullable) for one in schema.fields] == [
        ("offset", "bigint", False),
        ("enqueued_time", "timestamp", False),
        ("properties", "map<string,string>", True),
    ]
    assert "properties" not in chosen({"includeProperties": "false"}).names


def test_every_column_has_a_type_of_spark_and_of_arrow() -> None:
    for words in (["all"], ["cloudevents", "all"]):
        schema = struct(choose(words))
        arrow = arrow_schema(schema)
        assert arrow.names == schema.names
        assert [one.nullable for one in arrow] == [one.nullable for one in schema.fields]
    assert arrow_schema(struct(choose(["enqueued_time"]))).field(0).type == pa.timestamp("us", tz="UTC")


def test_a_schema_of_the_user_is_a_selection_of_the_columns() -> None:
    given = StructType([StructField("body", StringType()), StructField("offset", LongType())])
    assert fitting(given, ("default",)).names == ("body", "offset")
    with pytest.raises(ConnectorError, match="columns of CloudEvents"):
        fitting(given, ("CloudEvents",))
