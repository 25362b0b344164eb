"""[io] Reads of older records from Kafka: a pool of consumers, each in a thread of its own.

A consumer of librdkafka has one position in a partition, so readers far apart need several. The reads take
turns by their owners (`storage/partitions/fetching.py`), and what a read brings serves every reader that asks
for it next. A consumer that is asked for what follows continues without a new request.
"""

import logging
import threading
from collections.abc import Callable, Container, Mapping
from functools import partial
from time import monotonic
from typing import Final, Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.taking import Place, consumed, is_end, place_of, size_of, sorted_out
from amqp_streams.kafka.records.chunks import chunk_of
from amqp_streams.kafka.spans import MISSING, Span, Spans
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.disk.work import Results, ThreadExecutor
from amqp_streams.storage.partitions.fetching import Fetch, Fetching
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest, Use

CONSUMING: Final[Mapping[str, object]] = {
    # No group is used, but librdkafka needs the name of one.
    "group.id": "amqp-streams",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # Never elsewhere: a position that does not exist is an error, not another position.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "fetch.message.max.bytes": 1 << 20,
    "queued.max.messages.kbytes": 2 << 10,
    # How soon a consumer whose queue was full asks for more. The default, a second, would be how long each
    # 2 MiB take.
    "fetch.queue.backoff.ms": 10,
    "log.connection.close": False,
}
"""Settings of each consumer. At most 3 MiB are read ahead by each."""
READ_BYTES: Final = 512 << 10
"""How much one read brings at least, if there is as much: what one reader asks for serves its neighbours."""
READ_RECORDS: Final = 5000
_AT_ONCE: Final = 1000
"""How many objects are made before other threads may have the interpreter's lock."""
_STEP_S: Final = 0.5
WAIT_S: Final = 10.0
"""How long a read waits for Kafka before it fails."""
CACHE_BYTES: Final = 64 << 20

log = logging.getLogger("amqp_streams.kafka")

__all__ = ["CONSUMING", "Fetcher", "OvertakenError", "Place", "TailReads"]


class OvertakenError(StorageError):
    """The records at a position were removed. `start`: the number of the earliest record."""

    def __init__(self, start: int) -> None:
        self.start: Final = start
        super().__init__(f"the records before {start} were removed")


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
        self._settings: Final = {**CONSUMING, **settings}
        self._wait_s: Final = wait_s
        self._plain: Final = plain
        self._results: Final = Results(loop_call)
        self._cache_bytes: Final = cache_bytes
        self._spans: Final = Spans(cache_bytes)
        self._stopping: Final = threading.Event()
        self._local: Final = threading.local()
        self._working: Final = threading.Lock()
        self._tails: Final[list[_Tail]] = []
        self._forgotten = 0
        """How many partitions were forgotten as a whole."""
        # The consumer that brought what is in front continues without a new request.
        self._fetching: Final = Fetching(self._thread, readers, after=_after)
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
        found = self._spans.find(place, at, end, bytes_max)
        if found is not MISSING:
            if request is not None:
                request.cancel()
            return found
        missing = self._spans.uncovered(place, at)
        if request is None:
            self._spans.add(place, self._load(place, missing))
            return self.read(place, at, end, bytes_max, None)
        pending = request.pending
        if pending is not None and not isinstance(pending, Fetch):
            request.cancel()
        if self.tail is not None and self.tail.await_records(place, missing, request):
            return LATER
        if isinstance(pending, Fetch) and pending.key == (place, missing):
            if not pending.ended:
                return LATER
            request.pending = None
            if pending.error is not None:
                raise _storage_error(pending.error)
        # Also if it was read a moment ago, and had to make room for others since.
        load, keep = (
            partial(self._load_in_thread, place, missing),
            partial(self._keep, place, self._forgotten),
        )
        # Readers that are near each other ask before the first of them is answered.
        known = partial(self._known, place, missing)
        self._fetching.begin(Fetch(request, (place, missing), READ_BYTES, load, keep, known))
        return LATER

    def add(self, place: Place, span: Span) -> None:
        """Keep what was read elsewhere, for example from the end of a partition."""
        self._spans.add(place, span)

    def forget(self, place: Place, below: int | None = None) -> None:
        """Drop what was read of a partition, or only what lies below a number."""
        self._spans.forget(place, below)
        if below is None:
            # What is being read belongs to a topic that does not exist any more.
            self._forgotten += 1

    def _keep(self, place: Place, forgotten: int, span: Span) -> None:
        if forgotten == self._forgotten:
            self._spans.add(place, span)

    def _known(self, place: Place, at: int) -> bool:
        return self._spans.uncovered(place, at) > at

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        reads = self._fetching.uses()
        cache = Use(self._spans.bytes, self._cache_bytes)
        return {"kafka_readers": reads["storage_reads"], "kafka_cache_bytes": cache}

    def stop(self) -> None:
        """Fail the reads that wait for Kafka. Does not wait."""
        self._stopping.set()

    def close(self) -> None:
        """End the threads and the consumers."""
        self.stop()
        self._fetching.stop()
        for tail in self._tails:
            tail.close()

    def _thread(self, number: int) -> ThreadExecutor:
        return ThreadExecutor(f"kafka-reads-{number}", RealFiles(), self._results)

    # -- in a thread

    def _load_in_thread(self, place: Place, at: int) -> Span:
        try:
            return self._load(place, at)
        except StorageError as error:
            # The executor keeps errors of the system only.
            raise _CarriedError(error) from error

    def _load(self, place: Place, at: int) -> Span:
        tail: _Tail | None = getattr(self._local, "tail", None)
        if tail is None:
            tail = self._local.tail = _Tail(self._settings, self._plain, self._stopping, self._working)
            self._tails.append(tail)
        return tail.read(place, at, self._wait_s)


def _after(fetch: Fetch) -> tuple[Place, int]:
    place, _ = cast("tuple[Place, int]", fetch.key)
    return place, cast("Span", fetch.result).end


class _CarriedError(OSError):
    def __init__(self, error: StorageError) -> None:
        self.carried: Final = error
        super().__init__(str(error))


def _storage_error(error: OSError) -> StorageError:
    return error.carried if isinstance(error, _CarriedError) else StorageError(str(error))


class _Tail:
    """One consumer, and the position that it has. `working`: held while a consumer makes Python objects."""

    def __init__(
        self,
        settings: Mapping[str, object],
        plain: Container[str],
        stopping: threading.Event,
        working: threading.Lock,
    ) -> None:
        self._plain: Final = plain
        self._stopping: Final = stopping
        self._working: Final = working
        self._consumer: Final = Consumer(dict(settings), logger=log)
        self._place: Place | None = None
        """The partition that is assigned."""
        self._next: tuple[Place, int] | None = None

    def close(self) -> None:
        self._consumer.close()

    def read(self, place: Place, at: int, wait_s: float) -> Span:
        """The records from `at` on, at least one, or none up to the end."""
        if self._next != (place, at):
            self._go(place, at)
        # Whatever happens from here on, the position is known again only at the end.
        self._next = None
        records: list[Message] = []
        end, until = at, monotonic() + wait_s
        while end == at:
            # One record only: asked for many, librdkafka would wait for all of them.
            message = self._consumer.poll(min(_STEP_S, wait_s))
            if message is not None:
                end = self._taken(place, end, [message], records)
            if end == at and (monotonic() > until or self._stopping.is_set()):
                # Not at once: after a change of leaders the end may be lower for a moment.
                text = f"{place} brought nothing from {at} on within {wait_s:g} s"
                raise StorageError(text)
        # One consumer at a time: the event loop competes with each of them for the interpreter's lock, after
        # each of its system calls.
        with self._working:
            return self._read_ahead(place, at, end, records)

    def _go(self, place: Place, at: int) -> None:
        """Continue at another position."""
        position = TopicPartition(place.topic, place.partition, at)
        if self._place == place:
            # `assign` holds the interpreter's lock while it waits for librdkafka. `seek` does not.
            try:
                self._consumer.seek(position)
                return
            except KafkaException as error:
                log.debug("kafka_seek_refused place=%s reason=%s", place, error)
        self._place = None
        self._consumer.assign([position])
        self._place = place

    def _read_ahead(self, place: Place, at: int, end: int, records: list[Message]) -> Span:
        """Add what librdkafka has read ahead: it costs no request."""
        size = size_of(records)
        while size < READ_BYTES and len(records) < READ_RECORDS:
            some = self._consumer.consume(_wanted(size, len(records)), 0.0)
            if not some:
                break
            before = len(records)
            end = self._taken(place, end, some, records)
            size += size_of(records[before:])
        self._next = (place, end)
        plain = place.topic in self._plain
        return Span(at, end, chunk_of(consumed(records, plain=plain)) if records else None)

    def _taken(self, place: Place, at: int, messages: list[Message], records: list[Message]) -> int:
        """Take the records of the partition, or its end; returns the number after them, at least `at`."""
        found, others = sorted_out(messages)
        # Without those of an assignment before this one.
        if some := found.get(place):
            last = some[-1].offset()
            assert last is not None, "a consumed record has an offset"
            records += some
            at = max(at, last + 1)
        for message in others:
            error = message.error()
            if error is None or place_of(message) != place:
                continue
            if not is_end(error):
                self._refuse(place, at, error)
            else:
                at = max(at, message.offset() or 0)
        return at

    def _refuse(self, place: Place, at: int, error: KafkaError) -> None:
        """Raise what an error means. Temporary ones are repeated by librdkafka, and mean nothing here."""
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            try:
                start, end = self._consumer.get_watermark_offsets(
                    TopicPartition(place.topic, place.partition), timeout=WAIT_S
                )
            except KafkaException as refused:
                raise StorageError(str(refused)) from refused
            if at < start:
                raise OvertakenError(start)
            message = f"{place} ends at {end}, before {at}: Kafka lost records"
            raise StorageError(message)
        if not error.retriable() and error.code() not in _TEMPORARY:
            message = f"{place}: {error.str()}"
            raise StorageError(message)


def _wanted(size: int, count: int) -> int:
    """How many records to take next, if those taken have this size: about as many as are missing."""
    missing = (READ_BYTES - size) * count // max(1, size) + 1
    return min(missing, READ_RECORDS - count, _AT_ONCE) if count else 1


_TEMPORARY: Final = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    # The broker is behind the others: the node knows that the topic exists.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
