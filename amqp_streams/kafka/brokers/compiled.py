"""[io] A consumer whose records a compiled loop takes. See docs/compiled-loops.md."""

import ctypes
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from amqp_streams.kafka.brokers.library import CONSUMER, INT64, Client, Loaded, PartitionStructure, load
from amqp_streams.kafka.brokers.taking import Other, Place, Portion
from amqp_streams.kafka.records.chunks import Consumed
from amqp_streams.wire.batched.packed import Packed

_WAIT_MS: Final = 10_000

loaded: Final = load()
"""None: `takers` and `producers` do the same in Python."""
KIND: Final = "python" if loaded is None else "compiled"


class Columns(NamedTuple):
    """Records of one partition that follow each other: arrays as bytes, and the values one after another."""

    topic: str
    partition: int
    offsets: bytes
    times_ms: bytes
    sizes: bytes
    """The sizes of the values, int32; -1: no value."""
    buffer: bytes


class CompiledTaker:
    """See `Taker`. For topics of our own: keys and headers are not taken."""

    def __init__(self, settings: Mapping[str, object], parts: Loaded) -> None:
        library = self._library = parts.library
        self._take: Final = parts.module.take
        self._client: Final = Client(CONSUMER, settings, library)
        self._queue: Final = library.rd_kafka_queue_get_consumer(self._client.handle)

    def assign(self, place: Place, at: int) -> None:
        """See `Taker.assign`."""
        some, _ = self._list(place, at)
        try:
            self._client.check(self._library.rd_kafka_assign(self._client.handle, some))
        finally:
            self._library.rd_kafka_topic_partition_list_destroy(some)

    def seek(self, place: Place, at: int) -> None:
        """See `Taker.seek`."""
        library = self._library
        some, partition = self._list(place, at)
        try:
            error = library.rd_kafka_seek_partitions(self._client.handle, some, _WAIT_MS)
            code = partition.error
            if error:
                code = library.rd_kafka_error_code(error)
                library.rd_kafka_error_destroy(error)
            self._client.check(code)
        finally:
            library.rd_kafka_topic_partition_list_destroy(some)

    def take(self, timeout_s: float, count: int, bytes_max: int) -> Portion:
        """See `Taker.take`."""
        assert self._client.handle is not None, "it is open"
        runs, others = self._take(self._queue, int(timeout_s * 1000), count, bytes_max)
        self._client.take_events()
        return Portion(
            [
                (Place(columns.topic, columns.partition), consumed_columns(columns))
                for columns in map(Columns._make, runs)
            ],
            [
                Other(Place(topic, partition), offset, KafkaError(code, text))
                for topic, partition, offset, code, text in others
            ],
        )

    def extent(self, place: Place, timeout_s: float) -> tuple[int, int]:
        """See `Taker.extent`."""
        start, end = INT64(), INT64()
        self._client.check(
            self._library.rd_kafka_query_watermark_offsets(
                self._client.handle,
                place.topic.encode(),
                place.partition,
                ctypes.byref(start),
                ctypes.byref(end),
                int(timeout_s * 1000),
            )
        )
        return start.value, end.value

    def close(self) -> None:
        """See `Taker.close`."""
        client = self._client
        if client.handle is None:
            return
        self._library.rd_kafka_consumer_close(client.handle)
        client.take_events()
        self._library.rd_kafka_queue_destroy(self._queue)
        client.close()

    def _list(self, place: Place, at: int) -> tuple[Any, PartitionStructure]:
        """A list of the library with one position, and that position."""
        some = self._library.rd_kafka_topic_partition_list_new(1)
        partition: PartitionStructure = self._library.rd_kafka_topic_partition_list_add(
            some, place.topic.encode(), place.partition
        ).contents
        partition.offset = at
        return some, partition


def consumed_columns(columns: Columns) -> Consumed:
    """The records that the compiled loop has taken."""
    sizes = array("i", columns.sizes)
    offsets, times_ms = array("Q", columns.offsets), array("q", columns.times_ms)
    size = sizes[0]
    if size > 0 and sizes.count(size) == len(sizes):
        ends: range | list[int] = range(0, size * len(sizes) + 1, size)
    else:
        ends = list(accumulate([max(0, size) for size in sizes], initial=0))
    values = Packed(columns.buffer, ends)
    if -1 not in sizes:
        return Consumed(offsets, times_ms, values)
    found = [None if size < 0 else value for size, value in zip(sizes, values, strict=True)]
    return Consumed(offsets, times_ms, found)
