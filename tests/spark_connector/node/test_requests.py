"""The requests of reading to a live node."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from amqp_streams.client import EARLIEST
from amqp_streams.client.blocking import Client, connect
from examples.node import NodeProcess
from spark_connector.errors import NodeError, StreamNotFoundError
from spark_connector.node import connections, requests
from spark_connector.options.settings import ConnectionOptions
from spark_connector.planning.holdings import Held
from spark_connector.planning.ranges import OffsetRange
from tests.spark_connector import logs

Options = ConnectionOptions


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_


@pytest.fixture(scope="module")
def options(node: NodeProcess) -> Iterator[Options]:
    found = Options((node.url,), retries=1, retry_interval_ms=1)
    yield found
    connections.drop(found)


def numbers(options: Options, wanted: OffsetRange, condition: str | None = None) -> list[int]:
    return [number for run in requests.read(options, wanted, condition) for number in run.offsets]


def test_the_extents_of_several_logs_are_one_answer(client: Client, options: Options) -> None:
    log, other = logs.made(client, 3), logs.made(client, 1)
    logs.send(client, log, [b"x"] * 5, partition=1)
    found = requests.available(options, [other, log])
    assert list(found) == [other, log]
    held = found[log].partitions
    assert [(one.earliest, one.next) for one in held.values()] == [(0, 0), (0, 5), (0, 0)]
    assert held[1].bytes > 5
    assert found[other].partitions == {0: Held(0, 0, 0)}
    assert found[log].incarnation != found[other].incarnation


def test_a_log_that_is_not_there_fails_or_is_left_out(client: Client, options: Options) -> None:
    log = logs.made(client)
    with pytest.raises(
        StreamNotFoundError,
        match=r"the log does not exist .log 'nowhere', node amqp://.*amqp-streams log list",
    ):
        requests.available(options, [log, "nowhere"])
    assert list(requests.available(options, [log, "nowhere"], missing_fail=False)) == [log]


def test_a_time_is_sought_in_each_partition(client: Client, options: Options) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"x"] * 3, partition=0)
    with client.consumer(log, partition=0, start=EARLIEST) as consumer:
        moment = consumer.receive(1)[0].timestamp_ms
    assert moment is not None
    assert requests.offsets_at(options, log, [0, 1], moment) == {0: 0, 1: 0}
    assert requests.offsets_at(options, log, [0, 1], moment + 60_000) == {0: 3, 1: 0}
    with pytest.raises(StreamNotFoundError):
        requests.offsets_at(options, "nowhere", [0], 5)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_range_is_read_from_its_start_to_before_its_end(
    client: Client, options: Options, compression: str | None
) -> None:
    options = replace(options, compression=compression)
    log = logs.made(client)
    logs.send(client, log, [b"%d" % number for number in range(50)], partition=1)
    state = requests.available(options, [log])[log]
    wanted = OffsetRange(log, 1, 10, 40, state.incarnation)
    assert numbers(options, wanted) == list(range(10, 40))
    assert next(requests.read(options, wanted, None)).messages[0].as_py().endswith(b"\xa0\x0210")
    assert numbers(options, OffsetRange(log, 1, 45, 60, state.incarnation)) == list(range(45, 50))
    connections.drop(options)


def test_the_node_evaluates_a_filter(client: Client, options: Options) -> None:
    log = logs.made(client)
    for number in range(6):
        logs.send(client, log, [b""], partition=0, properties={"n": number})
    assert numbers(options, OffsetRange(log, 0, 0, 6, None), "n >= 2 AND n < 5") == [2, 3, 4]
    with pytest.raises(NodeError, match="the filter is not valid"):
        numbers(options, OffsetRange(log, 0, 0, 6, None), "n >>> 2")


def test_another_log_of_the_name_is_not_read(client: Client, options: Options) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"x"], partition=0)
    before = requests.available(options, [log])[log].incarnation
    logs.made_anew(client, log)
    logs.send(client, log, [b"y"], partition=0)
    with pytest.raises(StreamNotFoundError):
        numbers(options, OffsetRange(log, 0, 0, 1, before))


def test_several_endpoints_are_tried_in_turn(node: NodeProcess, client: Client) -> None:
    log = logs.made(client)
    options = Options(("amqp://127.0.0.1:1", node.url), retries=0)
    try:
        assert list(requests.available(options, [log])) == [log]
    finally:
        connections.drop(options)
