"""[io] Topics and partitions as Kafka's brokers describe them, and changes of topics.

What returns a future does not wait. Everything else waits for Kafka, so it is called in threads only. What
fails raises `StorageError` with Kafka's reason; it never says that something does not exist because Kafka did
not answer.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.brokers.figures import Replication
from amqp_streams.kafka.brokers.jobs import joined
from amqp_streams.kafka.settings import TopicSettings, topic_settings

ANSWER_S: Final = 5.0
"""How long a question to Kafka may take."""
# Their functions have no types.
EARLIEST: Final = cast("OffsetSpec", OffsetSpec.earliest())  # type: ignore[no-untyped-call]
LATEST: Final = cast("OffsetSpec", OffsetSpec.latest())  # type: ignore[no-untyped-call]
CHANGE_S: Final = 15.0
"""How long a change may take until every broker shows it."""
DELETED_S: Final = 10.0
"""How long the leaders of a deleted topic may take to know it. Until then they answer with its ends, which a
node would take for those of a new log with the same name.
"""
_AGAIN_S: Final = 0.05
_UNKNOWN: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_STEP_S: Final = 0.1
_BATCH: Final = 200
"""Topics of one request for descriptions."""

R = TypeVar("R")

log = logging.getLogger("amqp_streams.kafka")


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as Kafka describes it. `id`: changes if the topic is deleted and created again."""

    name: str
    id: str
    settings: TopicSettings
    replication: Replication = field(default_factory=Replication, compare=False)

    @property
    def places(self) -> list[Place]:
        """Its partitions in order."""
        return [Place(self.name, index) for index in range(self.settings.partitions)]


class Extent(NamedTuple):
    """The numbers of a partition that can be read: `start` included, `end` excluded.

    `epoch`: of the leader that said so; -1: not known.
    """

    start: int
    end: int
    epoch: int = -1


class Offsets(NamedTuple):
    """Offsets by partition. `unknown`: the broker does not know these partitions, or does not lead them.

    `reason`: why an offset is missing. `epochs`: of the leaders, as far as they said it.
    """

    found: Mapping[Place, int]
    unknown: frozenset[Place] = frozenset()
    reason: str = ""
    epochs: Mapping[Place, int] = MappingProxyType({})


class Extents(NamedTuple):
    """Where partitions begin and end. `unknown`, `reason`: as in `Offsets`."""

    found: Mapping[Place, Extent]
    unknown: frozenset[Place] = frozenset()
    reason: str = ""


class Administration:
    """One connection to the brokers for questions and changes. Thread-safe."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        connection: dict[str, Any] = {"log.connection.close": False, **settings}
        self._admin: Final = AdminClient(connection, logger=log)
        self.cluster: str | None = None
        """The id of the cluster. None: `names` has not found it."""
        self._closed: Final = threading.Event()

    def close(self) -> None:
        """Fail what waits for an answer, and every later question: a node that stops does not wait."""
        self._closed.set()

    def names(self) -> set[str]:
        """The names of all topics that this user may see.

        Raises:
            StorageError: Kafka does not answer.
        """
        self._require_open()
        try:
            found = self._admin.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            raise _refused("the topics cannot be listed", error) from error
        self.cluster = found.cluster_id or self.cluster
        return set(found.topics)

    def describe(self, names: Iterable[str]) -> dict[str, FoundTopic]:
        """The topics with these names that exist.

        Raises:
            StorageError: Kafka does not answer, or does not permit it.
        """
        wanted, found = sorted(names), dict[str, FoundTopic]()
        for first in range(0, len(wanted), _BATCH):
            found |= self._described(wanted[first : first + _BATCH])
        return found

    def ids(self) -> set[str]:
        """The ids of all topics that this user may see.

        Raises:
            StorageError: Kafka does not answer for each topic that it lists.
        """
        wanted, found = sorted(self.names()), set[str]()
        for first in range(0, len(wanted), _BATCH):
            found |= {str(each.topic_id) for each in self._topics(wanted[first : first + _BATCH]).values()}
        return found

    def create(self, name: str, partitions: int, replicas: int, configuration: dict[str, str]) -> FoundTopic:
        """Create a topic, and wait until its partitions have leaders.

        Raises:
            ValueError: the topic already exists.
            StorageError: Kafka refuses it, or does not answer.
        """
        topic = NewTopic(name, partitions, replicas, config=configuration)
        try:
            self._result(self._admin.create_topics([topic], request_timeout=CHANGE_S)[name])
        except KafkaException as error:
            if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                message = f"topic {name} exists"
                raise ValueError(message) from error
            raise _not_done("create", name, error) from error
        return self.await_topic(name)

    def await_topic(self, name: str) -> FoundTopic:
        """The topic, which exists, when the brokers show it and its partitions have leaders.

        Raises:
            StorageError: they do not in time.
        """
        return self._await_topic(name, lambda found: found is not None and self._led(found))

    def alter(self, found: FoundTopic, configuration: Mapping[str, str]) -> FoundTopic:
        """Change the configuration of a topic, and wait until it is visible.

        Raises:
            KeyError: the topic does not exist.
            StorageError: Kafka refuses it, or does not answer.
        """
        name = found.name
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configuration.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        try:
            answers = self._admin.incremental_alter_configs([resource], request_timeout=CHANGE_S)
            self._result(answers[resource])
        except KafkaException as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KeyError(name) from error
            raise _not_done("change", name, error) from error
        wanted = topic_settings(
            [found.settings.replicas] * found.settings.partitions,
            self._configurations([name])[name] | dict(configuration),
        )
        return self._await_topic(name, lambda now: now is not None and now.settings == wanted)

    def delete(self, found: FoundTopic) -> None:
        """Delete a topic, and wait until the leaders of its partitions know it, for at most `DELETED_S`.

        Raises StorageError: Kafka refuses it, or does not answer.
        """
        name = found.name
        try:
            self._result(self._admin.delete_topics([name], request_timeout=CHANGE_S)[name])
        except KafkaException as error:
            # Another node, or another program, was faster.
            if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _not_done("delete", name, error) from error
        # Other nodes ask the leaders. A topic with the same name may have been created meanwhile.
        until = monotonic() + DELETED_S
        while self._result(self.ask_extents(found.places)).found and monotonic() < until:
            sleep(_AGAIN_S)

    def extents(self, places: Iterable[Place]) -> dict[Place, Extent]:
        """The numbers that can be read of each partition; without those that cannot be asked now.

        Raises StorageError: no partition of any topic answered.
        """
        wanted = list(places)
        answers = self._result(self.ask_extents(wanted))
        if wanted and not answers.found:
            raise unanswered(answers)
        return dict(answers.found)

    def ask_extents(self, places: Iterable[Place]) -> "Future[Extents]":
        """The numbers that can be read of each partition."""
        wanted = list(places)
        asked = {spec: self._ask(dict.fromkeys(wanted, spec)) for spec in (EARLIEST, LATEST)}

        def answered() -> Extents:
            starts, ends = asked[EARLIEST].result(), asked[LATEST].result()
            both = starts.found.keys() & ends.found.keys()
            found = {
                place: Extent(starts.found[place], ends.found[place], ends.epochs.get(place, -1))
                for place in both
            }
            return Extents(found, starts.unknown | ends.unknown, starts.reason or ends.reason)

        return joined(asked.values(), answered)

    def written_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The numbers after the last records, as `ask_written_end`; without partitions that do not answer.

        Raises StorageError: this is closed.
        """
        asked = self._ask(dict.fromkeys(places, LATEST), isolation=IsolationLevel.READ_UNCOMMITTED)
        return dict(self._result(asked).found)

    def ask_first_after(self, place: Place, after_ms: int) -> "Future[int | None]":
        """The number of the first record with a later time; None if no record has one.

        The result raises StorageError: Kafka does not answer.
        """
        # Kafka's own question includes the time.
        asked = self._ask({place: OffsetSpec.for_timestamp(max(0, after_ms + 1))})

        def answered() -> int | None:
            offsets = asked.result()
            if place not in offsets.found:
                message = f"{place}: the time cannot be looked up: {offsets.reason}"
                raise StorageError(message)
            return None if offsets.found[place] < 0 else offsets.found[place]

        return joined([asked], answered)

    def ask_written_end(self, place: Place) -> "Future[int]":
        """The number after the last record of a partition, whether its transaction has ended or not.

        The result raises StorageError: Kafka does not answer.
        """
        asked = self._ask({place: LATEST}, isolation=IsolationLevel.READ_UNCOMMITTED)

        def answered() -> int:
            offsets = asked.result()
            if place not in offsets.found:
                message = f"{place}: its end cannot be looked up: {offsets.reason}"
                raise StorageError(message)
            return offsets.found[place]

        return joined([asked], answered)

    def _ask(
        self,
        wanted: Mapping[Place, OffsetSpec],
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> "Future[Offsets]":
        """The offsets that Kafka knows."""
        asked: Any = {TopicPartition(place.topic, place.partition): spec for place, spec in wanted.items()}
        try:
            answers = (
                self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=ANSWER_S)
                if asked
                else {}
            )
        except KafkaException as error:
            reason = reason_of(error)
            return joined([], lambda: Offsets({}, reason=reason))

        def answered() -> Offsets:
            found, unknown, reason = dict[Place, int](), set[Place](), ""
            epochs = dict[Place, int]()
            for partition, answer in answers.items():
                place = Place(partition.topic, partition.partition)
                try:
                    result = answer.result()
                    offset = result.offset
                    # What librdkafka gives for a partition that has not answered in time, without an error.
                    if offset == OFFSET_INVALID:
                        reason = f"no answer within {ANSWER_S:g} s"
                    else:
                        found[place] = offset
                        if result.leader_epoch is not None:
                            epochs[place] = result.leader_epoch
                except KafkaException as error:
                    reason = reason_of(error)
                    if _code(error) in _UNKNOWN:
                        unknown.add(place)
            return Offsets(found, frozenset(unknown), reason, epochs)

        return joined(answers.values(), answered)

    def _topics(self, names: Sequence[str]) -> dict[str, Any]:
        """The topics with these names that exist, without their settings."""
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_S)
        described = {}
        for name in names:
            try:
                described[name] = self._result(answers[name])
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(f"topic {name!r} cannot be described", error) from error
        return described

    def _described(self, names: Sequence[str]) -> dict[str, FoundTopic]:
        described = self._topics(names)
        configurations = self._configurations(described)
        found = {}
        for name, topic in described.items():
            # A topic that was deleted in between has no configuration.
            if name in configurations and topic.partitions:
                replicas = [len(partition.replicas) for partition in topic.partitions]
                settings = topic_settings(replicas, configurations[name])
                found[name] = FoundTopic(
                    name, str(topic.topic_id), settings, _replication(topic.partitions, settings.in_sync_min)
                )
        return found

    def _configurations(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        found = {}
        for resource, answer in self._admin.describe_configs(resources, request_timeout=ANSWER_S).items():
            try:
                entries = self._result(answer)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(
                        f"the settings of topic {resource.name!r} cannot be read", error
                    ) from error
                continue
            found[resource.name] = {
                key: entry.value for key, entry in entries.items() if entry.value is not None
            }
        return found

    def _require_open(self) -> None:
        if self._closed.is_set():
            message = "the node stops"
            raise StorageError(message)

    def _result(self, future: "Future[R]") -> R:
        """The result of a request, unless this is closed before it has one."""
        while True:
            self._require_open()
            with contextlib.suppress(TimeoutError):
                return future.result(_STEP_S)

    def _led(self, found: FoundTopic) -> bool:
        ends = self._result(self._ask(dict.fromkeys(found.places, LATEST)))
        return len(ends.found) == found.settings.partitions

    def _await_topic(self, name: str, condition: Callable[[FoundTopic | None], bool]) -> FoundTopic:
        """The topic, when the condition holds: brokers learn of a change one after the other."""
        until = monotonic() + CHANGE_S
        while True:
            found = self.describe([name]).get(name)
            if found is not None and condition(found):
                return found
            if monotonic() > until:
                message = f"topic {name!r} was changed, but the brokers do not show it after {CHANGE_S:g} s"
                raise StorageError(message)
            sleep(_AGAIN_S)


def _replication(partitions: Iterable[Any], in_sync_min: int) -> Replication:
    leaderless = sum(each.leader is None or each.leader.id < 0 for each in partitions)
    return Replication(
        leaderless,
        short=sum(len(each.isr) < in_sync_min for each in partitions),
        behind=sum(len(each.isr) < len(each.replicas) for each in partitions),
    )


def _code(error: KafkaException) -> int | None:
    reason = error.args[0] if error.args else None
    return reason.code() if isinstance(reason, KafkaError) else None


def unanswered(answers: Extents) -> StorageError:
    """What a question without any answer raises."""
    return StorageError(f"no partition answers: {answers.reason}")


def reason_of(error: KafkaException) -> str:
    reason = error.args[0] if error.args else None
    return reason.str() if isinstance(reason, KafkaError) else str(error)


def _refused(what: str, error: KafkaException) -> StorageError:
    return StorageError(f"{what}: {reason_of(error)}")


def _not_done(change: str, name: str, error: KafkaException) -> StorageError:
    if _code(error) in _IN_DOUBT:
        return StorageError(
            f"Kafka did not answer in time whether it will {change} topic {name!r}: look before you try again"
            f" ({reason_of(error)})"
        )
    return _refused(f"Kafka did not {change} topic {name!r}", error)


_IN_DOUBT: Final = {KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT}
"""After these, a change may have happened, or may happen later."""
