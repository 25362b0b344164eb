"""Reading for consumers: the next records, a record again, and the consumers that wait.

Spec: Event Streams 4.4, 5.
"""

from collections.abc import Collection, Iterable

from amqp_streams import names
from amqp_streams.errors import DiskFullError, PeerError, StorageError
from amqp_streams.storage.ports import LATER, CommitDone, Later, Partition, ReadRequest
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.reader import Passed, Picked, Room, Run
from amqp_streams.streams.consuming.runs import run_of


class Reading:
    """The consumers that wait for partitions.

    Consumers of several partitions are notified of each commit of their log.
    """

    def __init__(self, *, others: bool = False) -> None:
        """`others`: other nodes write to the same partitions."""
        self.held = Held()
        self._others = others
        self._waiting: dict[Partition, dict[Consuming, None]] = {}
        self._followers: dict[str, dict[Consuming, None]] = {}

    def next_run(
        self, consumer: Consuming, count_max: int, now_ms: int | None, bytes_max: int | None = None
    ) -> Run | Passed | Later | None:
        """See `Node.next_run`. A consumer that has read all is registered, and woken by the next commit."""
        try:
            run = consumer.reader.take(count_max, now_ms, bytes_max)
        except StorageError as error:
            raise storage_refusal(error) from error
        if run is None:
            self._wait(consumer)
        return run

    def next_batch(
        self, consumer: Consuming, count_max: int, now_ms: int | None, room: Room
    ) -> Picked | Passed | Later | None:
        """See `Node.next_batch`. A consumer that has read all is registered, and woken by the next commit."""
        try:
            picked = consumer.reader.pick(count_max, now_ms, room)
        except StorageError as error:
            raise storage_refusal(error) from error
        if picked is None:
            self._wait(consumer)
        return picked

    def _wait(self, consumer: Consuming) -> None:
        if self._others:
            for partition in consumer.partitions:
                partition.follow()
        if len(consumer.partitions) > 1:
            # Registered once and not for each wait: see `Reader.followed`.
            consumer.reader.followed = True
            self._followers.setdefault(consumer.log.name, {})[consumer] = None
            return
        for partition in consumer.partitions:
            self._waiting.setdefault(partition, {})[consumer] = None

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> Collection[Consuming]:
        """The consumers that waited for records of these partitions."""
        return self.grown(partition for partition in partitions if partition not in done.failures)

    def grown(self, partitions: Iterable[Partition]) -> Collection[Consuming]:
        """The consumers that waited for records of these partitions, which have more records now."""
        woken: dict[Consuming, None] = {}
        for partition in partitions:
            woken.update(
                [
                    (consumer, None)
                    for consumer in self._followers.get(partition.log, ())
                    if consumer.reader.wake(partition)
                ]
            )
            waiting = self._waiting.pop(partition, None)
            if waiting:
                for consumer in waiting:
                    consumer.reader.wake(partition)
                woken |= waiting
        return woken

    def forget(self, consumer: Consuming) -> None:
        """Remove a consumer from the consumers that wait for events, and free its chunks."""
        consumer.reader.forget_chunks()
        if consumer.reader.followed:
            consumer.reader.followed = False
            followers = self._followers.get(consumer.log.name, {})
            followers.pop(consumer, None)
            if not followers:
                self._followers.pop(consumer.log.name, None)
        for partition in consumer.partitions:
            waiting = self._waiting.get(partition, {})
            waiting.pop(consumer, None)
            if not waiting:
                self._waiting.pop(partition, None)


def record(
    consumer: Consuming, partition_index: int, number: int, request: ReadRequest | None
) -> Run | Later | None:
    """See `Node.record`."""
    partition = consumer.log.partitions[partition_index]
    try:
        chunk = partition.read(number, 1, request)
    except StorageError as error:
        raise storage_refusal(error) from error
    if chunk is LATER:
        return LATER
    # `read` continues at the next record if retention removed this one.
    if chunk is None or not chunk.base <= number < chunk.end:
        return None
    index = chunk.index(number)
    return run_of(partition, chunk, index, 1, 0) if chunk.number(index) == number else None


def storage_refusal(error: StorageError) -> PeerError:
    """The error that a peer gets for a failure of the storage."""
    if isinstance(error, DiskFullError):
        return PeerError(names.RESOURCE_LIMIT_EXCEEDED, str(error))
    return PeerError(names.INTERNAL_ERROR, str(error))


def skipped_text(run: Run) -> str:
    """The text of the log line when retention removed records before a reader reached them."""
    return (
        f"{run.skipped} events before offset {run.first} of partition {run.partition.index} were"
        " removed by retention"
    )
