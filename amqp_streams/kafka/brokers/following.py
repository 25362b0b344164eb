"""[io] Follows the ends of partitions: one consumer brings the new records of all partitions with readers.

A reader that has read all waits here: what it asks for next comes by itself, from any node. The thread
reads at most `_AHEAD` portions more than the event loop has taken, so a busy loop bounds the memory. If
records come that no reader reads, the partition is not followed any more; the next reader that waits starts
it again.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from amqp_streams.kafka.brokers.comparing import first_lost
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import Place, consumed, is_end, place_of, sorted_out
from amqp_streams.kafka.reading.spans import Span
from amqp_streams.kafka.records.chunks import chunk_of
from amqp_streams.storage.ports import ReadRequest

UNREAD_BYTES: Final = 8 << 20
"""What a partition may bring without a read of it before it is not followed any more."""
WAIT_MS: Final = 50
"""How long a broker waits for new records before it answers without records. A partition that the consumer
begins to follow waits for the answer about the partitions before it.
"""
_POLL_S: Final = 0.05
"""How long the thread waits for records before it looks for partitions to follow."""
_RECORDS: Final = 5000
_AHEAD: Final = 4
_AGAIN_S: Final = 1.0
_GONE: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

log = logging.getLogger("amqp_streams.kafka")


class Brought(NamedTuple):
    """What a portion has of one partition. `follow`: which start of following it belongs to.

    `missing`: Kafka does not have the position, because records were removed or lost. `first_lost`: the
    number of the first lost one; None: not known.
    """

    place: Place
    follow: int
    span: Span | None
    missing: bool = False
    first_lost: int | None = None


@dataclass(slots=True, eq=False)
class _Followed:
    """A followed partition, on the event loop's thread. `next`: the number that is brought next."""

    follow: int
    next: int
    unread: int = 0
    waiting: "list[_Waiting]" = field(default_factory=list)


class _Waiting:
    """A read that is answered by what is brought next."""

    __slots__ = ("_cancelled", "_request")

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._cancelled = False

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self._cancelled = True

    def answer(self) -> None:
        if not self._cancelled:
            self._request.pending = None
            self._request.ready()


class Follower:
    """Follows partitions. All public methods are called on the event loop's thread.

    `loop_call`: calls a function on that thread, from any thread. `on_records`: gets each span that was
    brought. `on_missing`: Kafka does not have the position of this partition, which is not followed any more;
    the last argument is `Brought.first_lost`.
    `on_ended`: the thread ended with an error.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        *,
        loop_call: Callable[..., object],
        on_records: Callable[[Sequence[tuple[Place, Span]]], None],
        on_missing: Callable[[Place, int, int | None], None],
        on_ended: Callable[[str], None],
        plain: Container[str] = frozenset(),
    ) -> None:
        self._plain: Final = plain
        self._settings: Final = {**CONSUMING, "fetch.wait.max.ms": WAIT_MS, **settings}
        self._loop_call: Final = loop_call
        self._on_records: Final = on_records
        self._on_missing: Final = on_missing
        self._on_ended: Final = on_ended
        self._followed: Final[dict[Place, _Followed]] = {}
        self._follows = 0
        self._commands: Final[deque[tuple[Place, int, int] | tuple[Place, None, None]]] = deque()
        self._commanded: Final = threading.Event()
        self._stopping = False
        self._room: Final = threading.Semaphore(_AHEAD)
        self._thread: Final = threading.Thread(target=self._run, name="kafka-tails", daemon=True)
        self._thread.start()

    def follow(self, place: Place, at: int) -> None:
        """Bring the records from `at` on, unless the partition is followed already."""
        if place in self._followed:
            return
        self._follows += 1
        self._followed[place] = _Followed(self._follows, at)
        self._command((place, self._follows, at))

    def unfollow(self, place: Place) -> None:
        """Bring nothing more of this partition. Reads that wait are answered: they must ask elsewhere."""
        followed = self._followed.pop(place, None)
        if followed is None:
            return
        self._command((place, None, None))
        for waiting in followed.waiting:
            waiting.answer()

    def await_records(self, place: Place, number: int, request: ReadRequest) -> bool:
        """Let a read wait, if the record with this number will be brought; returns whether it will be."""
        followed = self._followed.get(place)
        if followed is None:
            return False
        followed.unread = 0
        if number < followed.next:
            return False
        waiting = _Waiting(request)
        request.pending = waiting
        followed.waiting.append(waiting)
        return True

    def touch(self, place: Place) -> None:
        """The partition is read."""
        followed = self._followed.get(place)
        if followed is not None:
            followed.unread = 0

    def close(self) -> None:
        """End the thread and the consumer."""
        self._stopping = True
        self._commanded.set()
        self._room.release()
        self._thread.join()

    def _command(self, command: tuple[Place, int, int] | tuple[Place, None, None]) -> None:
        self._commands.append(command)
        self._commanded.set()

    def _brought(self, portion: Sequence[Brought]) -> None:
        """Take a portion, and wake who waits for it."""
        self._room.release()
        answered: list[_Waiting] = []
        spans: list[tuple[Place, Span]] = []
        for each in portion:
            followed = self._followed.get(each.place)
            # Of an earlier time at which the partition was followed.
            if followed is None or followed.follow != each.follow:
                continue
            if each.missing:
                self.unfollow(each.place)
                self._on_missing(each.place, followed.next, each.first_lost)
                continue
            assert each.span is not None
            followed.next = each.span.end
            followed.unread += each.span.size
            answered += followed.waiting
            followed.waiting = []
            spans.append((each.place, each.span))
        if spans:
            self._on_records(spans)
        for waiting in answered:
            waiting.answer()
        for place, _ in spans:
            followed = self._followed.get(place)
            if followed is not None and followed.unread > UNREAD_BYTES:
                self.unfollow(place)

    # -- in the thread

    def _run(self) -> None:
        try:
            consumer = Consumer(dict(self._settings), logger=log)
            try:
                self._follow_all(consumer)
            finally:
                consumer.close()
        except Exception as error:
            log.exception("kafka_tails_ended")
            if not self._stopping:
                self._loop_call(self._on_ended, f"the thread that follows Kafka ended: {error}")

    def _follow_all(self, consumer: Consumer) -> None:
        positions: dict[Place, tuple[int, int]] = {}
        while not self._stopping:
            self._obey(consumer, positions)
            if not positions:
                self._commanded.wait(_POLL_S)
                continue
            try:
                # One record only: asked for many, librdkafka would wait for all of them.
                message = consumer.poll(_POLL_S)
                messages = [] if message is None else [message, *consumer.consume(_RECORDS, 0.0)]
            except KafkaException as error:
                log.warning("kafka_tails_failed reason=%s", error)
                sleep(_AGAIN_S)
                continue
            if portion := portions(messages, positions, self._plain):
                self._room.acquire()
                self._loop_call(self._brought, portion)

    def _obey(self, consumer: Consumer, positions: dict[Place, tuple[int, int]]) -> None:
        self._commanded.clear()
        while self._commands:
            place, follow, at = self._commands.popleft()
            if place in positions:
                del positions[place]
                consumer.incremental_unassign([TopicPartition(place.topic, place.partition)])
            if follow is not None and at is not None:
                positions[place] = follow, at
                consumer.incremental_assign([TopicPartition(place.topic, place.partition, at)])


def portions(
    messages: Sequence[Message], positions: dict[Place, tuple[int, int]], plain: Container[str]
) -> list[Brought]:
    """What consumed messages bring of each partition; moves `positions`: by partition, follow and number.

    `plain`: the topics of other programs.
    """
    records, others = sorted_out(messages)
    ends: dict[Place, int] = {}
    missing: dict[Place, int | None] = {}
    for message in others:
        place, error = place_of(message), message.error()
        if error is not None and is_end(error):
            ends[place] = max(message.offset() or 0, ends.get(place, 0))
        elif error is not None and error.code() in _GONE:
            missing[place] = first_lost(error)
    found = []
    for place in dict.fromkeys((*records, *ends)):
        if place not in positions:
            continue
        follow, at = positions[place]
        some = records.get(place, [])
        # Of an assignment before this one.
        if some and (some[0].offset() or 0) < at:
            some = [record for record in some if (record.offset() or 0) >= at]
        columns = consumed(some, plain=place.topic in plain)
        end = max(ends.get(place, 0), columns.offsets[-1] + 1 if some else 0)
        if end > at:
            found.append(Brought(place, follow, Span(at, end, chunk_of(columns) if some else None)))
            positions[place] = follow, end
    return found + [
        Brought(place, positions[place][0], None, missing=True, first_lost=first)
        for place, first in missing.items()
        if place in positions
    ]
