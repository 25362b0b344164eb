"""Chunks in flight to a live node, without Spark: failures, retries, and repeated chunks that are
recognized.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import Producer, connect
from examples.node import NodeProcess
from spark_connector.errors import NodeError, RowError, StreamNotFoundError
from spark_connector.node import connections
from spark_connector.options.settings import ConnectionOptions, WriteOptions
from spark_connector.writing.chunks import Chunk, name_of
from spark_connector.writing.messages import BY_KEY, Target
from spark_connector.writing.sending import Sending, partition_count


@pytest.fixture
def options(node: NodeProcess) -> Iterator[WriteOptions]:
    """A log of this test's own with two partitions; of two endpoints the first is dead."""
    log = f"sending-{uuid4().hex}"
    with connect(node.url) as client:
        client.management.create_log(log, partitions=2)
    connection = ConnectionOptions(("amqp://127.0.0.1:1", node.url), retries=3, retry_interval_ms=10)
    yield WriteOptions(connection, log, None, deduplicate=True, transaction=None, sort_rows=False)
    connections.drop(connection)


def chunk(number: int, targets: dict[Target, list[str]]) -> Chunk:
    messages = {
        target: [Event(body, key="k" if target is BY_KEY else None).encode() for body in bodies]
        for target, bodies in targets.items()
    }
    every = [message for one in messages.values() for message in one]
    columns = {target: pa.array(one, pa.binary()) for target, one in messages.items()}
    return Chunk(number, columns, len(every), sum(map(len, every)))


def stored(url: str, log: str) -> dict[str, list[object]]:
    """Bodies by partition, in their order."""
    found: dict[str, list[object]] = {}
    with connect(url) as client, client.consumer(log, start=EARLIEST) as consumer:
        while batch := consumer.receive_retained():
            for event in batch:
                found.setdefault(event.partition or "", []).append(event.body)
    return found


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_chunks_are_stored_in_their_order_each_where_it_belongs(
    node: NodeProcess, options: WriteOptions, compression: str | None
) -> None:
    options = replace(options, connection=replace(options.connection, compression=compression))
    with Sending(options, "task") as sending:
        sending.send(chunk(0, {0: ["a", "b"], 1: ["x"]}))
        sending.send(chunk(1, {0: ["c"], BY_KEY: ["k1", "k2"]}))
    assert stored(node.url, options.stream) == {
        "0": ["a", "b", "c"],
        "1": ["x", "k1", "k2"],
    }  # crc32(b"k") is odd
    connections.drop(options.connection)


def test_a_node_that_does_not_take_batches_gets_single_events(
    node: NodeProcess, options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Producer, "batch_events", 0)
    monkeypatch.delattr(Producer, "post_encoded")
    for _ in range(2):
        with Sending(options, "task") as sending:
            sending.send(chunk(0, {0: ["a", "b"], 1: ["x"]}))
    assert stored(node.url, options.stream) == {"0": ["a", "b"], "1": ["x"]}


def test_a_row_that_is_too_large_for_a_batch_keeps_its_place(
    node: NodeProcess, options: WriteOptions
) -> None:
    rows = ["a", "x" * (300 << 10), "b", "y" * (400 << 10), "z" * (300 << 10), "c"]
    for _ in range(2):
        with Sending(options, "task") as sending:
            sending.send(chunk(0, {0: rows}))
    assert stored(node.url, options.stream) == {"0": rows}


def test_a_chunk_may_go_to_more_partitions_than_a_node_gives_sessions(
    node: NodeProcess, options: WriteOptions
) -> None:
    wide = replace(options, stream=f"wide-{uuid4().hex}", create_partitions=70)
    targets: dict[Target, list[str]] = {
        number: [f"a{number}", f"b{number}"] for number in range(partition_count(wide))
    }
    with Sending(wide, "task") as sending:
        sending.send(chunk(0, targets))
    assert stored(node.url, wide.stream) == {str(target): bodies for target, bodies in targets.items()}


def test_a_chunk_that_is_there_in_part_is_completed(node: NodeProcess, options: WriteOptions) -> None:
    """A killed task leaves such a chunk."""
    whole = chunk(0, {0: ["a", "b", "c"]})
    name = name_of("task", whole, 0)
    with (
        connect(node.url) as client,
        client.producer(options.stream, partition=0, producer_id=name) as producer,
    ):
        producer.post_batch(whole.messages[0][:2].to_pylist(), sequence=0)
    for _ in range(2):
        with Sending(options, "task") as sending:
            sending.send(whole)
    assert stored(node.url, options.stream) == {"0": ["a", "b", "c"]}


def test_rows_that_are_others_are_stored_though_the_task_is_the_same(
    node: NodeProcess, options: WriteOptions
) -> None:
    """At least once: no row is lost."""
    for bodies in (["a", "b"], ["b", "a"]):
        with Sending(options, "task") as sending:
            sending.send(chunk(0, {0: bodies}))
    assert stored(node.url, options.stream) == {"0": ["a", "b", "b", "a"]}


def test_a_node_that_is_killed_on_the_way_has_every_row_once(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node(log="events:2")
    connection = ConnectionOptions((node.url,), retries=20, retry_interval_ms=10)
    options = WriteOptions(connection, "events", None, deduplicate=True, transaction=None, sort_rows=False)
    rows = [str(number) for number in range(3000)]
    with Sending(options, "task") as sending:
        for number in range(2):
            sending.send(chunk(number, {0: rows[1500 * number : 1500 * (number + 1)]}))
            node.kill()
            node.start()
    connections.drop(connection)
    assert stored(node.url, "events") == {"0": rows}


def test_an_error_drops_what_is_on_its_way(node: NodeProcess, options: WriteOptions) -> None:
    def fail() -> None:
        raise ValueError("the rows break off")

    # Sending is what fails.
    with pytest.raises(ValueError, match="the rows break off"), Sending(options, "task") as sending:  # noqa: PT012
        sending.send(chunk(0, {0: ["a"]}))
        fail()
    with Sending(options, "task") as sending:
        sending.send(chunk(0, {0: ["a"]}))
    assert stored(node.url, options.stream) == {"0": ["a"]}


def test_a_row_that_is_too_large_for_the_node_is_reported(options: WriteOptions) -> None:
    words = r"too large: the message has \d+ bytes; .*raise the node's message_bytes"
    with pytest.raises(RowError, match=words), Sending(options, "task") as sending:
        sending.send(chunk(0, {0: ["a", "x" * (17 << 20)]}))


def test_a_log_that_does_not_exist_is_not_retried(options: WriteOptions) -> None:
    missing = replace(options, stream="no-such-log")
    with pytest.raises(StreamNotFoundError, match=r"the log 'no-such-log' does not exist.*createPartitions"):
        partition_count(missing)
    with pytest.raises(StreamNotFoundError), Sending(missing, "task") as sending:
        sending.send(chunk(0, {0: ["a"]}))


def test_a_log_is_made_once_however_many_tasks_want_it(node: NodeProcess, options: WriteOptions) -> None:
    wanted = replace(options, stream=f"made-{uuid4().hex}", create_partitions=3)
    assert partition_count(wanted) == partition_count(wanted) == 3
    assert partition_count(options) == 2


def test_a_node_that_does_not_answer_is_given_up_after_the_retries() -> None:
    connection = ConnectionOptions(("amqp://127.0.0.1:1",), retries=2, retry_interval_ms=1)
    options = WriteOptions(connection, "events", None, deduplicate=True, transaction=None, sort_rows=False)
    with (
        pytest.raises(NodeError, match="writing failed 3 times in a row"),
        Sending(options, "task") as sending,
    ):
        sending.send(chunk(0, {0: ["a"]}))
