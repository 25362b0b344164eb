"""Reading for consumers: the next records, a record again, and the consumers that wait.

Spec: Event Streams 4.4, 5.

Law: as soon as a commit has ended, each consumer can read its records. None of them waits to be woken first.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from amqp_streams import names
from amqp_streams.errors import DiskFullError, PeerError, StorageError
from amqp_streams.storage.ports import LATER, CommitDone, Later, Partition, ReadRequest
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.reader import Passed, Picked, Room, Run
from amqp_streams.streams.consuming.runs import run_of


@dataclass(slots=True, eq=False)
class _Followed:
    """A log with consumers of several partitions, its followers: which partitions have grown, and when."""

    followers: int = 0
    waiting: dict[Consuming, None] = field(default_factory=dict)
    grown: dict[Partition, int] = field(default_factory=dict)
    """The `number` at which each partition has grown last, the latest one at the end."""
    number: int = 0
    """How often partitions have grown."""


class Reading:
    """The consumers that wait for partitions.

    Consumers of several partitions do not look at each of them: they look at those that have grown.
    """

    def __init__(self, *, others: bool = False) -> None:
        """`others`: other nodes write to the same partitions."""
        self.held = Held()
        self._others = others
        self._waiting: dict[Partition, dict[Consuming, None]] = {}
        self._followed: dict[str, _Followed] = {}
        self._woken: deque[dict[Consuming, None]] = deque()

    def next_run(
        self, consumer: Consuming, count_max: int, now_ms: int | None, bytes_max: int | None = None
    ) -> Run | Passed | Later | None:
        """See `Node.next_run`. A consumer that has read all is registered, and woken by the next commit."""
        if consumer.may_send is not None and not consumer.may_send():
            return LATER
        if consumer.reader.followed:
            self._look(consumer)
        try:
            run = consumer.reader.take(count_max, now_ms, bytes_max)
        except StorageError as error:
            raise storage_refusal(error) from error
        if run is None or run is LATER:
            self._wait(consumer, run)
        return run

    def next_batch(
        self, consumer: Consuming, count_max: int, now_ms: int | None, room: Room
    ) -> Picked | Passed | Later | None:
        """See `Node.next_batch`. A consumer that has read all is registered, and woken by the next commit."""
        if consumer.may_send is not None and not consumer.may_send():
            return LATER
        if consumer.reader.followed:
            self._look(consumer)
        try:
            picked = consumer.reader.pick(count_max, now_ms, room)
        except StorageError as error:
            raise storage_refusal(error) from error
        if picked is None or picked is LATER:
            self._wait(consumer, picked)
        return picked

    def _wait(self, consumer: Consuming, answer: Later | None) -> None:
        """Register a consumer. After `LATER`, other partitions than the one that is read may get records."""
        if answer is None and self._others:
            for partition in consumer.partitions:
                partition.follow()
        if len(consumer.partitions) > 1:
            name, reader = consumer.log.name, consumer.reader
            followed = self._followed.get(name)
            if followed is None:
                followed = self._followed[name] = _Followed()
            if not reader.followed:
                reader.followed, reader.looked = True, followed.number
                followed.followers += 1
            followed.waiting[consumer] = None
        elif answer is None:
            for partition in consumer.partitions:
                self._waiting.setdefault(partition, {})[consumer] = None

    def _look(self, consumer: Consuming) -> None:
        """Let a follower look for records of the partitions that have grown since it looked last."""
        followed, reader = self._followed[consumer.log.name], consumer.reader
        if reader.looked == followed.number:
            return
        for partition, number in reversed(followed.grown.items()):
            if number <= reader.looked:
                break
            reader.wake(partition)
        reader.looked = followed.number

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> Iterator[Consuming]:
        """See `grown`: a commit with records of these partitions has ended."""
        return self.grown(partition for partition in partitions if partition not in done.failures)

    def grown(self, partitions: Iterable[Partition]) -> Iterator[Consuming]:
        """These partitions have more records now. Returns `woken`.

        Takes a microsecond for each partition, however many consumers wait.
        """
        for partition in partitions:
            followed = self._followed.get(partition.log)
            if followed is not None:
                followed.number += 1
                followed.grown.pop(partition, None)
                followed.grown[partition] = followed.number
                if followed.waiting:
                    self._woken.append(followed.waiting)
                    followed.waiting = {}
            waiting = self._waiting.pop(partition, None)
            if waiting:
                self._woken.append(waiting)
        return self.woken()

    def woken(self) -> Iterator[Consuming]:
        """Remove and return the consumers that waited for records that are there now.

        There may be consumers that have ended meanwhile.
        """
        while self._woken:
            consumers = self._woken[0]
            while consumers:
                yield consumers.popitem()[0]
            # Another iterator may have removed it already.
            if self._woken and self._woken[0] is consumers:
                self._woken.popleft()

    def forget(self, consumer: Consuming) -> None:
        """Remove a consumer from the consumers that wait for events, and free its chunks."""
        consumer.reader.forget_chunks()
        if consumer.reader.followed:
            consumer.reader.followed = False
            followed = self._followed[consumer.log.name]
            followed.waiting.pop(consumer, None)
            followed.followers -= 1
            if not followed.followers:
                del self._followed[consumer.log.name]
        for partition in consumer.partitions:
            waiting = self._waiting.get(partition, {})
            waiting.pop(consumer, None)
            if not waiting:
                self._waiting.pop(partition, None)


def record(
    consumer: Consuming, partition_index: int, number: int, request: ReadRequest | None
) -> Run | Later | None:
    """See `Node.record`."""
    if consumer.may_send is not None and not consumer.may_send():
        return LATER
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
