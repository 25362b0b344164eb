"""Reading for consumers: which one waits for which events.

Other cases are in test_node.py, through the node.
"""

from amqp_streams.errors import StorageError
from amqp_streams.node.reading import Reading
from amqp_streams.storage.ports import CommitDone
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.node.bench import Bench

QUEUE = MemoryStore().queue
DONE = CommitDone(QUEUE, 1, 1, 1, 0.0, {})


def test_a_reader_that_found_nothing_is_woken_once_by_any_of_its_partitions() -> None:
    bench, reading = Bench(), Reading()
    consumer = bench.consume()
    assert not list(reading.committed(DONE, bench.log.partitions))
    assert reading.next_run(consumer, 10, None) is None
    assert list(reading.committed(DONE, bench.log.partitions[1:])) == [consumer]
    assert not list(reading.committed(DONE, bench.log.partitions[1:]))


def test_neither_a_failed_commit_nor_anything_else_wakes_a_forgotten_reader() -> None:
    bench, reading = Bench(), Reading()
    consumer = bench.consume()
    reading.next_run(consumer, 10, None)
    failed = CommitDone(QUEUE, 1, 1, 1, 0.0, {bench.log.partitions[0]: StorageError("gone")})
    assert not list(reading.committed(failed, bench.log.partitions[:1]))
    reading.forget(consumer)
    assert not list(reading.committed(DONE, bench.log.partitions))
