"""Spark with a list of endpoints, of which one refuses connections and one never answers."""

import socket
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from spark_connector import register
from tests.spark_connector import logs


@pytest.fixture
def endpoints(node: NodeProcess) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        ports = silent.getsockname()[1], bound.getsockname()[1]
        yield ",".join([*(f"amqp://127.0.0.1:{port}" for port in ports), node.url])


def test_spark_writes_and_reads_although_two_endpoints_do_not_answer(
    spark: SparkSession, node: NodeProcess, endpoints: str
) -> None:
    register(spark)
    with connect(node.url) as client:
        log = logs.made(client)
    frame = spark.createDataFrame([(str(number),) for number in range(100)], "body string")
    given = {"endpoint": endpoints, "connectTimeout": "20s"}
    frame.write.format("amqpstreams").mode("append").options(**given).save(log)
    read = spark.read.format("amqpstreams").schema("body string").options(**given).load(log)
    assert sorted(int(row.body) for row in read.collect()) == list(range(100))
