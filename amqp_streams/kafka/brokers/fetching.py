"""[io] Reads of older records from Kafka: a pool of consumers, each in a thread of its own.

A consumer of librdkafka has one position in a partition, so readers far apart need several. `reads` decides
which read is next and which consumer makes it.
"""

import threading
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Final, Protocol

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.consuming import CONSUMING, WAIT_S, OldRecords, OvertakenError
from amqp_streams.kafka.brokers.takers import taker_of
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.reading.reads import CACHE_BYTES, READ_BYTES, Load, Reads
from amqp_streams.kafka.reading.spans import MISSING, Span
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.disk.work import Call, Results, Task, ThreadExecutor, Work
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest, Use

__all__ = ["Fetcher", "OvertakenError", "Place", "TailReads"]


class TailReads(Protocol):
    """Brings the new records of some partitions."""

    def await_records(self, place: Place, number: int, request: ReadRequest) -> bool:
        """Let a read wait, if the record with this number will be brought; returns whether it will be."""


class Fetcher:
    """Reads the records of topics. `loop_call`: see `Results`. `plain`: the topics of other programs."""

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        loop_call: Callable[..., object],
        readers: int,
        plain: Container[str] = frozenset(),
        cache_bytes: int = CACHE_BYTES,
        wait_s: float = WAIT_S,
    ) -> None:
        self._wait_s: Final = wait_s
        self._results: Final = Results(loop_call)
        self._stopping: Final = threading.Event()
        self._local: Final = threading.local()
        self._consumers: Final[list[OldRecords]] = []
        self._plain: Final = plain
        self._taker: Final = partial(taker_of, {**CONSUMING, **settings}, threading.Lock())
        self._threads: Final[dict[int, ThreadExecutor]] = {}
        self._reads: Final = Reads(self._begin, readers, cache_bytes)
        self.tail: TailReads | None = None
        """Brings new records without a read; None: each read asks Kafka."""

    def read(
        self, place: Place, at: int, end: int, bytes_max: int, request: ReadRequest | None
    ) -> Chunk | Later | None:
        """The records with numbers from `at` to before `end`: see `Partition.read`.

        Raises:
            OvertakenError: retention removed the record `at`.
            StorageError: Kafka did not answer in time, or has no such position.
        """
        reads = self._reads
        while (found := reads.find(place, at, end, bytes_max)) is MISSING:
            missing = reads.uncovered(place, at)
            if request is None:
                reads.add(place, self._load(place, missing, missing, READ_BYTES))
                continue
            before, request.pending = request.pending, None
            if self.tail is not None and self.tail.await_records(place, missing, request):
                if before is not None:
                    before.cancel()
                return LATER
            request.pending = before
            if reads.ask(request, place, missing) is LATER:
                return LATER
        if request is not None:
            reads.taken(request, place, found, end)
        return found

    def add(self, place: Place, span: Span) -> None:
        """Keep what was read elsewhere, for example from the end of a partition."""
        self._reads.add(place, span)

    def forget(self, place: Place, below: int | None = None) -> None:
        """Drop what was read of a partition, or only what lies below a number."""
        self._reads.forget(place, below)

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return self._reads.uses()

    def stop(self) -> None:
        """Fail the reads that wait for Kafka. Does not wait."""
        self._stopping.set()

    def close(self) -> None:
        """End the threads and the consumers."""
        self.stop()
        self._reads.stop()
        for thread in self._threads.values():
            thread.stop()
        for consumer in self._consumers:
            consumer.close()

    def _begin(self, load: Load) -> None:
        thread = self._threads.get(load.consumer)
        if thread is None:
            name = f"kafka-reads-{load.consumer}"
            thread = self._threads[load.consumer] = ThreadExecutor(name, RealFiles(), self._results)
        thread.submit(Task([Work([Call(partial(self._run, load))])], self._ended, notes=load))

    def _ended(self, task: Task) -> None:
        load: Load = task.notes
        if (fault := task.works[0].error) is not None:
            load.error = StorageError(str(fault))
        self._reads.ended(load)

    # -- in a thread

    def _run(self, load: Load) -> None:
        assert isinstance(load.place, Place)
        try:
            load.span = self._load(load.place, load.start, load.at, load.size)
        except StorageError as error:
            load.error = error

    def _load(self, place: Place, start: int, at: int, size: int) -> Span:
        """In each thread. Topics of other programs have consumers of their own, which also take keys."""
        plain = place.topic in self._plain
        consumers: dict[bool, OldRecords] = self._local.__dict__.setdefault("consumers", {})
        if plain not in consumers:
            consumers[plain] = OldRecords(self._taker(plain=plain), self._stopping)
            self._consumers.append(consumers[plain])
        return consumers[plain].read(place, start, at, size, self._wait_s)
