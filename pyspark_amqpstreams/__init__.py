"""The package by which Spark finds `format("amqpstreams")`.

Spark asks every installed package `pyspark_…` for a `DefaultSource`.

An error in this module would hide the sources of all such packages. So it imports little besides modules that
Spark has already imported.
"""

from spark_connector.source import AmqpStreamsDataSource as DefaultSource

__all__ = ["DefaultSource"]
