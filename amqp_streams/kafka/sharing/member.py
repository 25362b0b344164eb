"""[io] This node as a member of the Kafka group of all nodes, over the partitions of the state topic.

A thread polls the consumer; what the group says is handed to the event loop in its order. The consumer reads
nothing: its partitions are paused.

Laws: a bucket that the group asks for is given back when the home has left it (`Request.give_back`), or after
`GIVE_BACK_S`, so that a node whose event loop is stuck does not hold it for others. No promise depends on
that: the fence and the lease decide who is a home.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from time import sleep
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

MEMBER: Final[Mapping[str, object]] = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    # The shortest that brokers allow by default.
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
    # Also how long the others wait for a member that does not join them again.
    "max.poll.interval.ms": 10_000,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 1 << 10,
    "queued.min.messages": 1,
    "log.connection.close": False,
}
"""Settings of the consumer. The caller adds servers and security."""
GIVE_BACK_S: Final = 3.0
"""How long a home may take to leave a bucket. It needs two `Times.drain_ms` at most."""
_POLL_S: Final = 0.1
_AGAIN_S: Final = 1.0

log = logging.getLogger("amqp_streams.kafka")


class Request:
    """The group asks for buckets."""

    def __init__(self, buckets: frozenset[int]) -> None:
        self.buckets: Final = buckets
        self._given_back: Final = threading.Event()

    def give_back(self) -> None:
        """The homes here have left the buckets."""
        self._given_back.set()

    def wait(self, within_s: float) -> bool:
        """Whether the buckets are given back in time."""
        return self._given_back.wait(within_s)


class Member:
    """A member from its start to `leave`. The callbacks are called on the event loop's thread.

    `on_assigned`: these are all buckets of this node now. `on_revoking`: the group asks for some.
    `on_lost`: the group has expelled this node; it joins again by itself. `on_left`: it has left.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        *,
        group: str,
        loop_call: Callable[..., object],
        on_assigned: Callable[[frozenset[int]], None],
        on_revoking: Callable[[Request], None],
        on_lost: Callable[[], None],
        on_left: Callable[[], None],
        give_back_s: float = GIVE_BACK_S,
    ) -> None:
        self._topic: Final = topic
        self._loop_call: Final = loop_call
        self._on_assigned: Final = on_assigned
        self._on_revoking: Final = on_revoking
        self._on_lost: Final = on_lost
        self._on_left: Final = on_left
        self._give_back_s: Final = give_back_s
        self._owned: frozenset[int] = frozenset()
        """In the thread."""
        self._joined = False
        self._said = ""
        self._kinds: Final[set[int]] = set()
        """The errors since the last assignment."""
        self._leaving: Final = threading.Event()
        self._settings: Final[dict[str, Any]] = {
            **MEMBER,
            **settings,
            "group.id": group,
            "error_cb": self._failed,
        }
        self._thread: Final = threading.Thread(target=self._run, name="kafka-member", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why the node is not a member, in words; empty if it is one, or nothing was said about it yet."""
        return "" if self._joined else self._said

    def leave(self) -> None:
        """Leave the group at once. The buckets go to other nodes, so no home here may be left."""
        self._leaving.set()

    def join(self, within_s: float) -> bool:
        """Whether the thread has ended in time, after `leave`."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    # -- in the thread

    def _run(self) -> None:
        try:
            consumer = Consumer(self._settings, logger=log)
            try:
                consumer.subscribe(
                    [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
                )
                while not self._leaving.is_set():
                    self._poll(consumer)
            finally:
                consumer.close()
        except Exception as error:
            log.exception("kafka_member_ended")
            self._joined, self._said = False, f"the thread of the member ended: {error}"
            self._loop_call(self._on_lost)
        self._loop_call(self._on_left)

    def _poll(self, consumer: Consumer) -> None:
        try:
            message = consumer.poll(_POLL_S)
        except KafkaException as error:
            self._failed(error.args[0])
            sleep(_AGAIN_S)
            return
        if message is not None and (failure := message.error()) is not None:
            self._failed(failure)

    def _failed(self, error: KafkaError) -> None:
        # Each kind once, and not at each repetition: the texts have times in them.
        if error.code() not in self._kinds:
            log.warning("kafka_member_failed topic=%s reason=%s", self._topic, error.str())
        self._kinds.add(error.code())
        self._said = error.str()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined, self._said = True, ""
        self._kinds.clear()
        self._owned |= _buckets(partitions)
        # With an offset, no committed one is asked for.
        some = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions]
        consumer.incremental_assign(some)
        consumer.pause(some)
        self._loop_call(self._on_assigned, self._owned)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        request = Request(_buckets(partitions))
        self._owned -= request.buckets
        # The homes have left before `leave`, or the process ends.
        if not self._leaving.is_set():
            self._loop_call(self._on_revoking, request)
            if not request.wait(self._give_back_s):
                log.warning("kafka_buckets_not_given_back buckets=%s", sorted(request.buckets))
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned, self._joined = frozenset(), False
        log.warning("kafka_member_expelled buckets=%s", sorted(_buckets(partitions)))
        consumer.incremental_unassign(partitions)
        self._loop_call(self._on_lost)


def _buckets(partitions: list[TopicPartition]) -> frozenset[int]:
    return frozenset(each.partition for each in partitions)
