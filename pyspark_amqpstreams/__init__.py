"""What makes `format("amqpstreams")` work unregistered: Spark asks every installed package named `pyspark_…` for its `DefaultSource`.

An error here would hide the sources of all such packages, so this imports what Spark has imported already, and little else.
"""

from spark_connector.source import AmqpStreamsDataSource as DefaultSource

__all__ = ["DefaultSource"]
